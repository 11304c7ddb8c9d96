"""Transcription of recordings of any length: silence is left out, and pieces are recognised.

Pieces are decoded without the previous text, so that no error spreads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING

from transduce.decoding.backend import Decoded
from transduce.decoding.hypotheses import Hypothesis
from transduce.decoding.options import DecodingOptions
from transduce.decoding.session import Prepared
from transduce.errors import DataError, SettingError, needing_torch
from transduce.metrics.error_rates import edit_distance
from transduce.speech.agreement import AgreedWords, OpenSpeech, parts_of
from transduce.speech.audio import Excerpt, Samples, audio_blocks, channels_of
from transduce.speech.guards import Attempt, Gains, guarded, once, outputs_of, repeats
from transduce.speech.languages import SpokenLanguages, noted
from transduce.speech.prompt import Encoded, Source, TimedTokens, prompt_with, timed_tokens
from transduce.speech.recogniser import Recogniser
from transduce.speech.segments import Segment, words_of
from transduce.speech.speakers import Diarizer, Speakers
from transduce.speech.windows import (
    FILLED,
    AudioPiece,
    Window,
    pieces_so_far,
    sound_pieces,
    windows_of,
)
from transduce.support.work import chunks
from transduce.tasks.predictors import decode_line
from transduce.text import PAD
from transduce.text.scripts import is_of_word

if TYPE_CHECKING:
    from torch import Tensor

    from transduce.speech.ctc import TokenSpan


LONGEST = 30.0
"""Seconds of a piece, or as many as the longest recording of the training data may have."""
TRANSCRIBER_SHORTEST = 1.0
LONGEST_OPEN, EVERY = 9.0, 1.5
"""Seconds of a piece while one speaks, so that costs are linear, and after which an open one is
recognised again."""
MOST_TOKENS = 6
"""Tokens of a second of an open piece; more are a loop, or come with the next text."""
TOGETHER, WINDOWS = 16, 4
"""Pieces, or windows of 30 s, in memory together."""
DISAGREEMENT = 0.5
"""Edits between the decoder's text and CTC's, as a share of the longer."""
SAME = 3
"""Segments of one text in a row, of which no further one is believed."""
UNLIKELY = 3.0
"""Advantage of CTC's text in nats for each edit, from which it replaces the decoder's."""


class Transcriber:
    """Text of long recordings, by a speech model."""

    def __init__(
        self,
        recogniser: Recogniser,
        options: DecodingOptions | None = None,
        language: str | None = None,
        task: str | None = None,
        prompt: str | None = None,
        words: bool = False,
        then: Callable[[Sequence[str]], Iterable[str]] | None = None,
        speakers: Speakers | None = None,
    ) -> None:
        """options: for decoding.  language, task, prompt: of an imported Whisper, as in
        `Run.transcriber`.  The recipe's by default.

        words: times of words by an imported Whisper too, at the cost of a pass of its decoder.
        then: translates texts, which become the transcripts of the segments.
        speakers: tell them apart; segments then come at the end of a recording.

        Raises SettingError for a wrong prompt.
        """
        config = prompt_with(recogniser.recipe.prompt, language, task, prompt)
        self.recogniser = recogniser.prompted(config, timed=True)
        self.drafting = replace(recogniser.prompted(config), is_open=True)
        self.completing = replace(self.recogniser, is_open=True)
        self.options = replace(options or recogniser.options, n_best=1)
        longest = recogniser.recipe.data.filters.max_seconds
        self.longest = max(TRANSCRIBER_SHORTEST, min(LONGEST, longest))
        self.longest_open = min(self.longest, LONGEST_OPEN)
        self.rate = recogniser.recipe.audio.rate
        self.words = words
        self.then = then
        self.speakers = speakers
        self.guarded = recogniser.recipe.prompt is not None
        self.together = WINDOWS if recogniser.extractor.window_samples else TOGETHER

    def transcribe_file(
        self, file: Path | bytes, location: str = "", channel: int | None = None
    ) -> Iterator[Segment]:
        """Segments of a recording, lazily; memory does not depend on its length.

        channel: number of a channel from 0, by default the mean of all.  location, errors: as in
        `audio_blocks`.
        """
        blocks = audio_blocks(file, self.rate, location, Excerpt(channel=channel))
        return self.transcribe(blocks)

    def transcribe_channels(self, file: Path | bytes, location: str = "") -> Iterator[Segment]:
        """Segments of each channel, transcribed in turn, by their times.

        location, errors: as in `audio_blocks`.  Raises SettingError where speakers are told apart.
        """
        if self.speakers is not None:
            raise SettingError("channels are transcribed in turn; speakers are not told apart then")
        segments = []
        for channel in range(channels_of(file, location)):
            for segment in self.transcribe_file(file, location, channel):
                segments.append(replace(segment, channel=channel + 1))
        yield from sorted(segments, key=lambda segment: (segment.start, segment.channel))

    def transcribe(
        self,
        blocks: Iterable[Samples],
        live: bool = False,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> Iterator[Segment]:
        """Segments of a recording that comes in blocks (n,) at the rate of the model, lazily.

        live: recognise each piece as soon as it has ended, and not several together.  cancelled:
        called between the steps of a search, which it ends with a CancelledError.
        """
        pieces = sound_pieces(blocks, self.rate, self.longest)
        if self.speakers is None:
            yield from self._of_pieces(pieces, live, cancelled)
        else:
            diarizer = Diarizer(self.speakers, self.rate)
            segments: list[Segment] = []
            failure = None
            try:
                for segment in self._of_pieces(diarizer.embed(pieces), live, cancelled):
                    segments.append(segment)
            except DataError as error:  # what was read before the damage stays
                failure = error
            yield from diarizer.named(segments)
            if failure is not None:
                raise failure

    def _of_pieces(
        self, pieces: Iterable[AudioPiece], live: bool, cancelled: Callable[[], bool]
    ) -> Iterator[Segment]:
        """Segments of pieces, as of `transcribe`."""
        first, recogniser = 0, self.recogniser
        languages = SpokenLanguages(recogniser)
        packed = 0.0 if live or not recogniser.prompt.times else FILLED
        for some in chunks(windows_of(pieces, packed, self.rate), 1 if live else self.together):
            segments = self._of_windows(recogniser, languages.cut(some), first, cancelled)
            yield from segments if self.then is None else translated([*segments], self.then)
            first += len(some)

    def transcribe_open(
        self, blocks: Iterable[Samples], cancelled: Callable[[], bool] = lambda: False
    ) -> Iterator[Segment]:
        """Segments of a recording while it is spoken; before the end of a piece partial
        ones with new certain words.  A piece that was no speech after all has these as its text.

        blocks, cancelled: as in `transcribe`.
        """
        languages, words = SpokenLanguages(self.recogniser), AgreedWords()
        for piece in sound_pieces(blocks, self.rate, self.longest_open, every=EVERY):
            yield from self._agreed(piece, languages, words, cancelled)

    def transcribe_so_far(
        self,
        samples: Samples,
        state: OpenSpeech,
        last: bool = False,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> tuple[list[Segment], OpenSpeech]:
        """Segments of sound while it is spoken that have become final, and the state for the next
        call, with the same sound and more.

        samples: (n,); what lies some seconds before `state.done` may be left out, and these be
        taken from `done`.  state: of the call before.  last: True for sound that has ended.
        cancelled: as in `transcribe`.
        """
        words = AgreedWords(state.certain, state.before)
        languages = SpokenLanguages(self.recogniser, state.language)
        pieces, done, goes_on = pieces_so_far(
            samples, self.rate, self.longest_open, state.done, state.goes_on, last
        )
        segments = [s for p in pieces for s in self._agreed(p, languages, words, cancelled)]
        final = [segment for segment in segments if not segment.partial]
        return final, words.state._replace(done=done, goes_on=goes_on, language=languages.last)

    def _agreed(
        self,
        piece: AudioPiece,
        languages: SpokenLanguages,
        words: AgreedWords,
        cancelled: Callable[[], bool],
    ) -> Iterator[Segment]:
        """Segments of a piece, or of an open one a partial segment for new certain words."""
        partial = Segment(piece.start, piece.end, "", partial=True)
        if not piece.goes_on:
            windows = languages.cut([Window([piece], self.rate)]) if len(piece.samples) else []
            segments = [*self._of_windows(self.completing, windows, 0, cancelled)]
            yield from words.completed(segments, partial, piece.is_cut)
        elif words.add(self._draft(piece, words.text, cancelled)):
            yield replace(partial, text=words.text)

    def _draft(self, piece: AudioPiece, certain: str, cancelled: Callable[[], bool]) -> str:
        """Text of a piece so far, by a greedy search; a Whisper goes on after the certain words."""
        recogniser, begun = self.drafting, list[int]()
        if self.guarded:
            recogniser, begun = recogniser.after(certain)
        options = replace(self.options, method="beam", beam_size=1, n_best=1, beam_groups=1)

        def answer(prepared: Prepared[Source], decoded: Sequence[Decoded]) -> str:
            if not decoded:
                return certain
            ((best,), *_) = decoded[0]
            text = decode_line(recogniser.tokenizer, [*begun, *best.tokens]).strip()
            return text if best.finished else "".join(parts_of(text)[:-1])

        (source,) = recogniser.sources([piece.samples])
        if isinstance(source, Encoded):
            most = round(MOST_TOKENS * (piece.end - piece.start)) - len(begun)
            source = replace(source, positions=max(1, most))
        (text,) = recogniser.each([source], options, 0, answer, lambda i: cancelled())
        return once(text)

    def _of_windows(
        self,
        recogniser: Recogniser,
        some: Sequence[Window],
        first: int,
        cancelled: Callable[[], bool],
    ) -> Iterator[Segment]:
        """Segments of windows of a known language, or of a model that detects none."""
        sources = noted(recogniser.sources([window.samples for window in some]), some)
        audible = [isinstance(source, Encoded) or len(source) > 0 for source in sources]
        some, sources = list(compress(some, audible)), list(compress(sources, audible))
        yield from self._heard(recogniser, some, sources, first, cancelled)

    def _heard(
        self,
        recogniser: Recogniser,
        windows: Sequence[Window],
        sources: Sequence[Source],
        first: int,
        cancelled: Callable[[], bool],
    ) -> Iterator[Segment]:
        """Segments of windows, by a recogniser that knows the language."""

        def attempt(
            numbers: Sequence[int], options: DecodingOptions, temperature: float = 0.0
        ) -> list[list[Attempt]]:
            def answer(prepared: Prepared[Source], decoded: Sequence[Decoded]) -> list[Attempt]:
                return outputs_of(decoded[0], self.text_of, temperature)

            chosen = [sources[i] for i in numbers]
            return [*recogniser.each(chosen, options, first, answer, lambda i: cancelled())]

        def judge(i: int, tried: Attempt) -> Gains:
            return recogniser.gains(tried.decoded, sources[i])

        if self.guarded:
            attempts = guarded(len(windows), self.options, attempt, judge)
        else:
            attempts = [best for (best,) in attempt(range(len(windows)), self.options)]
        for window, source, best in zip(windows, sources, attempts, strict=True):
            segments = self._segments(recogniser, source, best, window)
            has_text = any(segment.text for segment in segments)
            rests = window.unheard(segments if has_text else []) if recogniser.prompt.times else []
            for segment in segments if has_text or not rests else ():
                placed = window.placed(segment)
                if placed.start < placed.end:  # else made up after the sound
                    yield placed
            for rest in rests:
                again = noted(recogniser.sources([rest.samples]), [rest])
                yield from self._heard(recogniser, [rest], again, first, cancelled)

    def text_of(self, output: Hypothesis) -> str:
        """Text of an output, without its times."""
        times = self.recogniser.prompt.times
        tokens = [token for token in output.tokens if token not in times]
        return decode_line(self.recogniser.tokenizer, tokens).strip()

    def _segments(
        self, recogniser: Recogniser, source: Source, best: Attempt, window: Window
    ) -> list[Segment]:
        """Segments of a window, with times from its beginning; none without text."""
        (output,), scored, language, no_speech = best.decoded
        segment = Segment(
            0.0,
            window.ends[-1],
            best.text,
            output.score,
            language=language,
            log_prob=best.log_prob,
            temperature=best.temperature,
            no_speech=no_speech,
        )
        parts = timed_tokens(output.tokens, recogniser.prompt.times)
        tokens = [token for part in parts for token in part.tokens]
        if scored is not None:
            return self._checked(segment, tokens, scored)
        tokenizer = self.recogniser.tokenizer
        spans: Sequence[TokenSpan] = ()
        if self.words and isinstance(source, Encoded):
            heads = (
                () if recogniser.recipe.prompt is None else recogniser.recipe.prompt.alignment_heads
            )
            with needing_torch("a time of each word"):
                from transduce.speech.ctc import attended_spans

            before, places = recogniser.prompt.speaking(language).untimed, source.positions
            model, memory = recogniser.model, source.memory
            spans = attended_spans(model, memory, before, tokens, heads, places)
        segments, begin = list[Segment](), 0
        for part in parts:
            inside = spans[begin : begin + len(part.tokens)]
            begin += len(part.tokens)
            words = words_of(tokenizer, inside, recogniser.seconds_per_position)
            text = decode_line(tokenizer, part.tokens).strip()
            end = min(part.end, segment.end)
            segments.append(replace(segment, start=part.start, end=end, text=text, words=words))
        if self.guarded:
            return [*self._borne(segments, parts, best)]
        return [*folded_words(segments)]

    def _borne(
        self, segments: Sequence[Segment], parts: Sequence[TimedTokens], best: Attempt
    ) -> Iterator[Segment]:
        """Segments of a judged text; those that the sound does not bear are empty, and a loop ends
        where its gain does.

        parts: tokens of the segments.
        """
        made_up: dict[str, bool] = {}
        begin = 0
        n_said = best.gains.n_said if best.gains is not None and best.is_in_loop else math.inf
        for segment, part in zip(segments, parts, strict=True):
            text, end = segment.text, begin + len(part.tokens)
            if best.gains is not None and text not in made_up:  # as said first
                gains = best.gains._replace(tokens=part.tokens, gains=best.gains.gains[begin:end])
                made_up[text] = gains.are_low
            if not any(map(str.isalnum, text)):
                if text:
                    yield replace(segment, text="", words=(), guard="symbols", dropped=text)
            elif made_up.get(text):
                yield replace(segment, text="", words=(), guard="made-up", dropped=text)
            elif end > n_said:
                n = max(0, int(n_said) - begin)
                beginning = decode_line(self.recogniser.tokenizer, part.tokens[:n]).strip()
                rest = text[len(beginning) :]
                if is_of_word(rest[:1]) and is_of_word(beginning[-1:]):  # within a word
                    beginning = beginning.rpartition(" ")[0]
                words, rest = segment.words[: len(beginning.split())], text[len(beginning) :]
                yield replace(segment, text=beginning, words=words, guard="repeated", dropped=rest)
            else:
                yield segment
            begin = end

    def _checked(self, segment: Segment, tokens: Sequence[int], scored: Tensor) -> list[Segment]:
        """The segment of the decoder's tokens, beside CTC's (t, v) log-probabilities."""
        from transduce.sequence import Padded
        from transduce.speech import ctc
        from transduce.speech.ctc import spoken_spans

        text = segment.text
        (heard,) = ctc.greedy(Padded.unpadded(scored[None]))
        if not heard:  # CTC finds nothing: the decoder's text is made up
            return [replace(segment, text="", guard="made-up", dropped=text)] if text else []
        tokenizer = self.recogniser.ctc_tokenizer
        spoken = decode_line(tokenizer, heard)
        if self.recogniser.transcript_tokenizer is not None:
            tokens, segment = heard, replace(segment, transcript=spoken)
            if repeats(text):
                segment = replace(segment, text=once(text), guard="repeated")
        elif repeats(text) and not repeats(spoken):
            tokens, segment = heard, replace(segment, text=spoken, guard="repeated")
        elif _disagree(text, spoken, tokens, heard, scored):
            tokens, segment = heard, replace(segment, text=spoken, guard="disagreement")
        spans = spoken_spans(scored, tokens)
        words = words_of(tokenizer, spans, self.recogniser.seconds_per_position)
        return [replace(segment, words=words)]


def translated(
    segments: Sequence[Segment], translate: Callable[[Sequence[str]], Iterable[str]]
) -> Iterator[Segment]:
    """Segments with the translations of their texts, and these as transcripts."""
    texts = translate([segment.text for segment in segments])
    for segment, text in zip(segments, texts, strict=True):
        spoken = segment.text if segment.transcript is None else segment.transcript
        yield replace(segment, text=text, transcript=spoken)


def folded_words(segments: Sequence[Segment]) -> Iterator[Segment]:
    """Segments of which each says a phrase once that it repeats, and none the same as the last."""
    for number, segment in enumerate(segments):
        before = segments[max(0, number - SAME) : number]
        if len(before) == SAME and all(other.text == segment.text for other in before):
            continue
        if repeats(segment.text):
            segment = replace(segment, text=once(segment.text), words=(), guard="repeated")
        yield segment


def _disagree(
    text: str, heard: str, tokens: Sequence[int], ctc_tokens: Sequence[int], scored: Tensor
) -> bool:
    """True if the decoder's text is far from CTC's, and improbable by it.

    text, tokens: of the decoder.  heard, ctc_tokens: of CTC.  scored: its log-probabilities (t, v).
    """
    edits = edit_distance(text, heard)
    if edits <= DISAGREEMENT * max(len(text), len(heard)):
        return False
    differ = edit_distance(tokens, ctc_tokens)
    return _log_prob(scored, ctc_tokens) - _log_prob(scored, tokens) > UNLIKELY * differ


def _log_prob(scored: Tensor, tokens: Sequence[int]) -> float:
    """Log-probability of tokens by CTC, over all paths."""
    import torch
    import torch.nn.functional as F

    ids, lengths = torch.tensor([list(tokens)]), torch.tensor([len(tokens)])
    frames = torch.tensor([len(scored)])
    loss = F.ctc_loss(scored[:, None], ids, frames, lengths, blank=PAD, reduction="sum")
    return -float(loss)
