"""Transcription of recordings of any length: silence is left out, and pieces are recognised.

Pieces are decoded without the previous text, so that no error spreads.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from transduce.audio.read import Excerpt, Samples, audio_blocks, channels_of
from transduce.audio.silence import sound_pieces
from transduce.decoding import ctc
from transduce.decoding.backend import Decoded
from transduce.decoding.options import DecodingOptions
from transduce.decoding.session import Prepared
from transduce.metrics.symbols import edit_distance
from transduce.sequence import Padded
from transduce.support.work import chunks
from transduce.tasks.files import one_line
from transduce.tasks.speech.prompt import prompt_with
from transduce.tasks.speech.recogniser import Recogniser
from transduce.tasks.speech.segments import Segment, Word
from transduce.tasks.speech.timestamps import timed_tokens
from transduce.text import PAD, Tokenizer
from transduce.text.offsets import token_spans

LONGEST = 30.0
"""Seconds of a piece, or as many as the longest recording of the training data may have."""
SHORTEST = 1.0
TOGETHER = 16
"""Pieces in memory together."""
REPEATED = re.compile(r"(\S.{0,60}? |\S.{1,20}?)\1{4,}")
"""A phrase, or some letters, more than four times in a row."""
DISAGREEMENT = 0.5
"""Edits between the decoder's text and CTC's, as a share of the longer."""
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
    ) -> None:
        """options: for decoding.  language, task, prompt: of an imported Whisper, as in
        `Run.transcriber`.  The recipe's by default.

        Raises SettingError for a wrong prompt.
        """
        config = prompt_with(recogniser.recipe.prompt, language, task, prompt)
        self.recogniser = recogniser.prompted(config, timed=True)
        self.options = replace(options or recogniser.options, n_best=1)
        longest = recogniser.recipe.data.filters.max_seconds
        self.longest = max(SHORTEST, min(LONGEST, longest))
        self.rate = recogniser.recipe.audio.rate

    def transcribe_file(
        self, file: Path | bytes, location: str = "", channel: int | None = None
    ) -> Iterator[Segment]:
        """Segments of a recording, lazily; memory does not depend on its length.

        channel: number of a channel from 0, by default the mean of all.  place, errors: as in
        `audio_blocks`.
        """
        blocks = audio_blocks(file, self.rate, location, Excerpt(channel=channel))
        return self.transcribe(blocks)

    def transcribe_channels(self, file: Path | bytes, location: str = "") -> Iterator[Segment]:
        """Segments of each channel, transcribed in turn, by their times.

        place, errors: as in `audio_blocks`.
        """
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
        first, recogniser = 0, self.recogniser
        for some in chunks(pieces, 1 if live else TOGETHER):
            frames = [recogniser.extractor(piece.samples) for piece in some]
            recogniser = recogniser.listening_to(frames)  # one language for the whole recording
            decoded = recogniser.each(
                frames, self.options, first, self._heard, lambda i: cancelled()
            )
            for piece, segments in zip(some, decoded, strict=True):
                for segment in segments:
                    placed = segment.within(piece.start, piece.end)
                    if segment.text and placed.start < placed.end:  # else made up after the sound
                        yield placed
            first += len(some)

    def _heard(self, prepared: Prepared[Tensor], decoded: Sequence[Decoded]) -> list[Segment]:
        """Segments of a piece, with times from its beginning; none without speech."""
        if not decoded:
            return []
        ((hypotheses, scored, language),) = decoded
        tokenizer, best = self.recogniser.tokenizer, hypotheses[0]
        parts = timed_tokens(best.tokens, self.recogniser.prompt.times)
        tokens = [token for part in parts for token in part.tokens]
        text = one_line(tokenizer, tokens).strip()
        segment = Segment(0.0, math.inf, text, best.score, language=language)
        if scored is not None:
            return self._checked(segment, tokens, scored)
        if repeats(text):
            return [replace(segment, text=once(text), guard="repeated")]
        texts = [one_line(tokenizer, part.tokens).strip() for part in parts]
        return [
            replace(segment, start=part.start, end=part.end, text=text)
            for part, text in zip(parts, texts, strict=True)
        ]

    def _checked(self, segment: Segment, tokens: Sequence[int], scored: Tensor) -> list[Segment]:
        """The segment of the decoder's tokens, beside CTC's (t, v) log-probabilities."""
        text = segment.text
        (heard,) = ctc.greedy(Padded.unpadded(scored[None]))
        if not heard:  # CTC finds nothing: the decoder's text is made up
            return []
        tokenizer = self.recogniser.ctc_tokenizer
        spoken = one_line(tokenizer, heard)
        if self.recogniser.transcript_tokenizer is not None:
            tokens, segment = heard, replace(segment, transcript=spoken)
            if repeats(text):
                segment = replace(segment, text=once(text), guard="repeated")
        elif repeats(text) and not repeats(spoken):
            tokens, segment = heard, replace(segment, text=spoken, guard="repeated")
        elif _disagree(text, spoken, tokens, heard, scored):
            tokens, segment = heard, replace(segment, text=spoken, guard="disagreement")
        return [replace(segment, words=self._words(tokenizer, tokens, scored))]

    def _words(
        self, tokenizer: Tokenizer, tokens: Sequence[int], scored: Tensor
    ) -> tuple[Word, ...]:
        """Words of tokens with their times, by CTC's most probable path; none without room."""
        if ctc.positions_needed(tokens) > len(scored):
            return ()
        seconds = self.recogniser.seconds_per_position
        text = tokenizer.decode(list(tokens))
        places = ctc.align(scored, tokens)
        spans = token_spans(tokenizer, text, tokens)
        words = []
        for match in re.finditer(r"\S+", text):
            a, b = match.span()
            inside = [p for p, (c, d) in zip(places, spans, strict=True) if c < b and d > a]
            if inside:
                begin, end = inside[0].start * seconds, inside[-1].end * seconds
                score = sum(span.log_prob for span in inside) / len(inside)
                words.append(Word(match.group(), begin, end, score))
        return tuple(words)


def repeats(text: str) -> bool:
    """True if a phrase occurs more than four times in a row."""
    return REPEATED.search(f"{text} ") is not None


def once(text: str) -> str:
    """The text with such a phrase written once."""
    return REPEATED.sub(r"\1", f"{text} ").rstrip()


def _disagree(
    text: str, heard: str, tokens: Sequence[int], probabilities: Sequence[int], scored: Tensor
) -> bool:
    """True if the decoder's text is far from CTC's, and improbable by it.

    tokens, own: of both.  scored: (t, v) log-probabilities of CTC.
    """
    edits = edit_distance(text, heard)
    if edits <= DISAGREEMENT * max(len(text), len(heard)):
        return False
    differ = edit_distance(tokens, probabilities)
    return _log_prob(scored, probabilities) - _log_prob(scored, tokens) > UNLIKELY * differ


def _log_prob(scored: Tensor, tokens: Sequence[int]) -> float:
    """Log-probability of tokens by CTC, over all paths."""
    ids, lengths = torch.tensor([list(tokens)]), torch.tensor([len(tokens)])
    frames = torch.tensor([len(scored)])
    loss = F.ctc_loss(scored[:, None], ids, frames, lengths, blank=PAD, reduction="sum")
    return -float(loss)
