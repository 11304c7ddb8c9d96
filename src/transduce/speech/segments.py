"""Segments of a transcription: words with their times, text, subtitles, tables and records."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from transduce.text import Tokenizer
from transduce.text.offsets import token_spans
from transduce.text.scripts import COLUMNS, cut_at, is_unspaced, width, wrapped

if TYPE_CHECKING:
    from transduce.speech.ctc import TokenSpan


Guard = Literal["", "repeated", "disagreement", "made-up", "symbols"]
GUARDS: Mapping[Guard, str] = {
    "repeated": "it repeats itself",
    "disagreement": "CTC hears something else",
    "made-up": "the sound does not bear it",
    "symbols": "it has neither letter nor digit",
}
"""Fault of a text, by its guard."""
Format = Literal["txt", "srt", "vtt", "tsv", "json", "jsonl"]
FORMATS: tuple[Format, ...] = get_args(Format)
SEGMENT_LONGEST = 7.0
"""Maximum seconds of a subtitle."""
SEGMENT_PLACES = 3
"""Digits of seconds and scores in records."""


class SubtitleLayout(NamedTuple):
    """Maximum columns of a line, and lines, of a subtitle."""

    columns: int = COLUMNS
    lines: int = 2


USUAL_LAYOUT = SubtitleLayout()


class Word(NamedTuple):
    """A word, from `start` to `end` seconds of the recording.

    score: mean log-probability of its tokens under CTC, or under an imported Whisper.
    """

    text: str
    start: float
    end: float
    score: float


@dataclass(frozen=True)
class Segment:
    """Text of a part of a recording, from `start` to `end` seconds."""

    start: float
    end: float
    text: str
    score: float = 0.0
    """Log-probability of the text of its piece, as of a recording of its own."""
    words: tuple[Word, ...] = ()
    """The spoken words with their times; of an imported Whisper where they are asked for."""
    transcript: str | None = None
    """Spoken words, of a model that translates them."""
    guard: Guard = ""
    """Fault of the decoder's text."""
    dropped: str = ""
    """Text of the decoder that a guard has left out; `text` may be empty then."""
    log_prob: float = 0.0
    """Mean log-probability of a token of its piece."""
    temperature: float = 0.0
    """Temperature at which its piece was drawn, after a suspicious search; 0 for the search."""
    no_speech: float | None = None
    """Probability that its piece has no speech, by an imported Whisper."""
    channel: int | None = None
    """Number of the channel from 1, where channels are transcribed in turn."""
    language: str = ""
    """Code of the spoken language, of a model that is given it or detects it."""
    speaker: str = ""
    """Name of the speaker, A for the first, where speakers are told apart."""
    partial: bool = False
    """True for the certain words of a piece that goes on."""

    def fields(self, words: bool = True) -> dict[str, Any]:
        """Fields of a JSON record.  words: include every word with its times."""
        record: dict[str, Any] = {
            "start": round(self.start, SEGMENT_PLACES),
            "end": round(self.end, SEGMENT_PLACES),
            "text": self.text,
            "score": round(self.score, SEGMENT_PLACES),
        }
        if self.transcript is not None:
            record["transcript"] = self.transcript
        if self.partial:
            record["partial"] = True
        if self.guard:
            record["guard"] = self.guard
        if self.dropped:
            record["dropped"] = self.dropped
        if self.temperature:
            record["temperature"] = self.temperature
        if self.no_speech is not None:
            record["no_speech"] = round(self.no_speech, SEGMENT_PLACES)
        if self.channel is not None:
            record["channel"] = self.channel
        if self.speaker:
            record["speaker"] = self.speaker
        if self.language:
            record["language"] = self.language
        if words and self.words:
            record["words"] = [
                {
                    "word": word.text,
                    "start": round(word.start, SEGMENT_PLACES),
                    "end": round(word.end, SEGMENT_PLACES),
                    "score": round(word.score, SEGMENT_PLACES),
                }
                for word in self.words
            ]
        return record


def by_words(segments: Iterable[Segment]) -> Iterator[Segment]:
    """Each word as a segment of its own; segments whose words have no times stay whole."""
    for segment in segments:
        for word in segment.words:
            yield dataclasses.replace(
                segment, start=word.start, end=word.end, text=word.text, score=word.score, words=()
            )
        if not segment.words:
            yield segment


def as_subtitles(segment: Segment, layout: SubtitleLayout = USUAL_LAYOUT) -> Iterator[Segment]:
    """A segment in parts of at most 7 s that fit the layout, cut at the times of its words.

    Without words of the same text, times are by the share of characters.
    """
    seconds = segment.end - segment.start
    shown, bare = _shown(segment), dataclasses.replace(segment, channel=None, speaker="")
    n_parts = math.ceil(
        max(width(shown) / (layout.lines * layout.columns), seconds / SEGMENT_LONGEST)
    )
    parts = [shown]
    if n_parts > 1 or len(wrapped(shown, layout.columns)) > layout.lines:
        parts = list(filter(None, cut_at(_shown(bare), [*range(max(2, n_parts) + 1)])))
    if len(parts) < 2:
        yield segment
        return
    for part in _timed(bare, parts):
        whole = dataclasses.replace(part, channel=segment.channel, speaker=segment.speaker)
        yield from as_subtitles(whole, layout)


def _timed(segment: Segment, parts: Sequence[str]) -> Iterator[Segment]:
    ends = [*itertools.accumulate(_n_characters(part) for part in parts)]
    words = [*itertools.accumulate(_n_characters(word.text) for word in segment.words)]
    has_times = set(ends) <= set(words) and words[-1:] == ends[-1:]
    start, first, scale = segment.start, 0, (segment.end - segment.start) / ends[-1]
    for part, end in zip(parts, ends, strict=True):
        last = words.index(end) + 1 if has_times else 0
        stop = segment.words[last - 1].end if has_times else segment.start + end * scale
        if end == ends[-1]:
            stop = segment.end
        yield dataclasses.replace(
            segment, start=start, end=stop, text=part, words=segment.words[first:last]
        )
        start = segment.words[last].start if has_times and end < ends[-1] else stop
        first = last


def _n_characters(text: str) -> int:
    return len("".join(text.split()))


def _subtitles(
    segments: Iterable[Segment], layout: SubtitleLayout
) -> Iterator[tuple[Segment, str]]:
    for segment in segments:
        for part in as_subtitles(segment, layout):
            yield part, "\n".join(wrapped(_shown(part), layout.columns))


def written(
    segments: Iterable[Segment],
    form: Format,
    audio: str,
    words: bool = False,
    layout: SubtitleLayout = USUAL_LAYOUT,
) -> Iterator[str]:
    """Stream segments as the text of a file, a part for each as it comes.

    form: format of the text.  layout: lines and lengths of subtitles.  audio: name of the
    recording, for records.  words: every word with its time: a line or subtitle of its own, in
    records a list.
    """
    if form not in ("json", "jsonl"):
        segments = (segment for segment in segments if segment.text)
        segments = by_words(segments) if words else segments
    if form in SUBTITLES:
        return SUBTITLES[form](_subtitles(segments, layout))
    return WRITERS[form](segments, audio, words)


def _plain(segments: Iterable[Segment], audio: str, words: bool) -> Iterator[str]:
    begun = ""  # of the line, by certain words
    for segment in segments:
        more = _shown(segment).removeprefix(begun)
        yield more if segment.partial else f"{more}\n"
        begun = begun + more if segment.partial else ""


def _srt(subtitles: Iterable[tuple[Segment, str]]) -> Iterator[str]:
    for number, (segment, lines) in enumerate(subtitles, 1):
        yield f"{number}\n{clock(segment.start, ',')} --> {clock(segment.end, ',')}\n{lines}\n\n"


def _vtt(subtitles: Iterable[tuple[Segment, str]]) -> Iterator[str]:
    yield "WEBVTT\n\n"
    for segment, lines in subtitles:
        text = lines.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        if segment.speaker:
            text = f"<v {segment.speaker}>{text.removeprefix(f'{segment.speaker}: ')}"
        yield f"{clock(segment.start, '.')} --> {clock(segment.end, '.')}\n{text}\n\n"


def _tsv(segments: Iterable[Segment], audio: str, words: bool) -> Iterator[str]:
    yield "start\tend\ttext\n"
    for segment in segments:
        text = _shown(segment).replace("\t", " ")
        yield f"{round(segment.start * 1000)}\t{round(segment.end * 1000)}\t{text}\n"


def _json(segments: Iterable[Segment], audio: str, words: bool) -> Iterator[str]:
    fields = [segment.fields(words) for segment in segments]
    text = " ".join(segment["text"] for segment in fields if segment["text"])
    yield json.dumps({"audio": audio, "text": text, "segments": fields}, ensure_ascii=False) + "\n"


def _jsonl(segments: Iterable[Segment], audio: str, words: bool) -> Iterator[str]:
    for segment in segments:
        yield json.dumps({"audio": audio, **segment.fields(words)}, ensure_ascii=False) + "\n"


SUBTITLES: Mapping[Format, Callable[[Iterable[tuple[Segment, str]]], Iterator[str]]] = {
    "srt": _srt,
    "vtt": _vtt,
}
WRITERS: Mapping[Format, Callable[[Iterable[Segment], str, bool], Iterator[str]]] = {
    "txt": _plain,
    "tsv": _tsv,
    "json": _json,
    "jsonl": _jsonl,
}


def _shown(segment: Segment) -> str:
    """Text of a segment on a single line, after its speaker or channel, if any."""
    text = " ".join(segment.text.split())
    return f"{name}: {text}" if (name := segment.speaker or segment.channel) else text


def clock(seconds: float, point: str) -> str:
    """Time of a subtitle, as 00:01:02,345."""
    thousandths = round(seconds * 1000)
    minutes, rest = divmod(thousandths, 60_000)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02}:{minutes:02}:{rest // 1000:02}{point}{rest % 1000:03}"


def words_of(tokenizer: Tokenizer, spans: Sequence[TokenSpan], seconds: float) -> tuple[Word, ...]:
    """Words of tokens with their times.  seconds: from one position to the next.

    tokenizer: of the tokens.  spans: tokens with their positions.
    """
    if not spans:
        return ()
    tokens = [span.token for span in spans]
    text = tokenizer.decode(tokens)
    characters = token_spans(tokenizer, text, tokens)
    words = []
    for start, end in word_places(text):
        inside = [
            span for span, (a, b) in zip(spans, characters, strict=True) if a < end and b > start
        ]
        if inside:
            score = sum(span.log_prob for span in inside) / len(inside)
            begin, after = inside[0].start * seconds, inside[-1].end * seconds
            words.append(Word(text[start:end], begin, after, score))
    return tuple(words)


def word_places(text: str) -> Iterator[tuple[int, int]]:
    """Start and end of each word: all between blanks; in scripts without them a letter, with the
    marks after it."""
    start = 0
    for i in range(1, len(text) + 1):
        before, after = text[i - 1], text[i : i + 1]
        is_end = not after or after.isspace() or before.isspace()
        if is_end or (after.isalnum() and (is_unspaced(before) or is_unspaced(after))):
            if not before.isspace():
                yield start, i
            start = i
