"""Transcription of recordings of any length: silence is left out, and pieces are recognised.

No piece reads the text of the one before it, so that no error spreads.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from transduce.audio.read import Excerpt, Samples, audio_blocks, channels_of
from transduce.audio.silence import sound_pieces
from transduce.data.workers import chunks
from transduce.decoding import ctc
from transduce.decoding.options import DecodingOptions
from transduce.metrics.symbols import edit_distance
from transduce.sequence import Padded
from transduce.tasks.speech.recogniser import Decoded, Recogniser, one_line
from transduce.tasks.speech.segments import Segment, Word
from transduce.text import PAD, Tokenizer
from transduce.text.offsets import token_spans

LONGEST = 30.0
"""Seconds of a piece, or as many as the longest recording of the training data may have."""
SHORTEST = 1.0
TOGETHER = 16
"""Pieces in memory together."""
REPEATED = re.compile(r"(\S.{0,60}? |\S.{1,20}?)\1{4,}")
"""A phrase, or some letters, more than four times running."""
DISAGREEMENT = 0.5
"""Edits between the decoder's text and CTC's, as a share of the longer."""
UNLIKELY = 3.0
"""Nats by which CTC prefers its own text for each edit, before it is taken."""


class Transcriber:
    """Text of long recordings, by a speech model."""

    def __init__(self, recogniser: Recogniser, options: DecodingOptions | None = None) -> None:
        """options: for decoding; by default the recipe's."""
        self.recogniser = recogniser
        self.options = replace(options or recogniser.options, n_best=1)
        longest = recogniser.recipe.data.filters.max_seconds
        self.longest = max(SHORTEST, min(LONGEST, longest))
        self.rate = recogniser.recipe.audio.rate

    def transcribe_file(
        self, file: Path | bytes, place: str = "", channel: int | None = None
    ) -> Iterator[Segment]:
        """Segments of a recording, lazily; memory does not depend on its length.

        channel: number of a channel from 0, by default the mean of all.  place, errors: as in
        `audio_blocks`.
        """
        blocks = audio_blocks(file, self.rate, place, Excerpt(channel=channel))
        return self.transcribe(blocks)

    def transcribe_channels(self, file: Path | bytes, place: str = "") -> Iterator[Segment]:
        """Segments of each channel, transcribed one by one, by their times.

        place, errors: as in `audio_blocks`.
        """
        found = []
        for channel in range(channels_of(file, place)):
            for segment in self.transcribe_file(file, place, channel):
                found.append(replace(segment, channel=channel + 1))
        yield from sorted(found, key=lambda segment: (segment.start, segment.channel))

    def transcribe(self, blocks: Iterable[Samples], live: bool = False) -> Iterator[Segment]:
        """Segments of a recording that comes in blocks (n,) at the rate of the model, lazily.

        live: recognise each piece as soon as it has ended, and not several together.
        """
        pieces = sound_pieces(blocks, self.rate, self.longest)
        first = 0
        for some in chunks(pieces, 1 if live else TOGETHER):
            frames = [self.recogniser.extractor(piece.samples) for piece in some]
            found = self.recogniser.each(frames, self.options, first, self._heard, None)
            for piece, one in zip(some, found, strict=True):
                if one is not None and one.text.strip():
                    yield one.at(piece.start, piece.end)
            first += len(some)

    def _heard(self, decoded: Decoded) -> Segment | None:
        """The segment of a piece, with times from its beginning; None if nothing was said."""
        best, tokens = decoded.hypotheses[0], decoded.hypotheses[0].tokens
        text = one_line(self.recogniser.tokenizer, tokens)
        found = Segment(0.0, 0.0, text, best.score)
        if decoded.ctc is None:
            return replace(found, text=once(text), guard="repeated") if repeats(text) else found
        (heard,) = ctc.greedy(Padded.unpadded(decoded.ctc[None]))
        if not heard:  # CTC finds nothing: the decoder's text is made up
            return None
        tokenizer = self.recogniser.ctc_tokenizer
        spoken = one_line(tokenizer, heard)
        if self.recogniser.transcript_tokenizer is not None:
            tokens, found = heard, replace(found, transcript=spoken)
            if repeats(text):
                found = replace(found, text=once(text), guard="repeated")
        elif repeats(text) and not repeats(spoken):
            tokens, found = heard, replace(found, text=spoken, guard="repeated")
        elif _disagree(text, spoken, tokens, heard, decoded.ctc):
            tokens, found = heard, replace(found, text=spoken, guard="disagreement")
        return replace(found, words=self._words(tokenizer, tokens, decoded.ctc))

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
            own = [p for p, (c, d) in zip(places, spans, strict=True) if c < b and d > a]
            if own:
                begin, end = own[0].start * seconds, own[-1].end * seconds
                score = sum(place.log_prob for place in own) / len(own)
                words.append(Word(match.group(), begin, end, score))
        return tuple(words)


def repeats(text: str) -> bool:
    """True if a phrase stands more than four times running."""
    return REPEATED.search(f"{text} ") is not None


def once(text: str) -> str:
    """The text with such a phrase written once."""
    return REPEATED.sub(r"\1", f"{text} ").rstrip()


def _disagree(
    text: str, heard: str, tokens: Sequence[int], own: Sequence[int], scored: Tensor
) -> bool:
    """True if the decoder's text is far from CTC's, and improbable by it.

    tokens, own: of both.  scored: (t, v) log-probabilities of CTC.
    """
    edits = edit_distance(text, heard)
    if edits <= DISAGREEMENT * max(len(text), len(heard)):
        return False
    differ = edit_distance(tokens, own)
    return _log_prob(scored, own) - _log_prob(scored, tokens) > UNLIKELY * differ


def _log_prob(scored: Tensor, tokens: Sequence[int]) -> float:
    """Log-probability of tokens by CTC, over all paths."""
    ids, lengths = torch.tensor([list(tokens)]), torch.tensor([len(tokens)])
    frames = torch.tensor([len(scored)])
    loss = F.ctc_loss(scored[:, None], ids, frames, lengths, blank=PAD, reduction="sum")
    return -float(loss)
