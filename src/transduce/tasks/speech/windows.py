"""Windows of a model that reads a fixed time at once: neighbouring pieces of sound, side by side.

Cut and merge (Bain et al. 2023, WhisperX): a pause costs no window of its own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import numpy as np

from transduce.audio.read import Samples
from transduce.audio.silence import Piece
from transduce.tasks.speech.segments import Segment, Word

GAP = 0.5
"""Maximum seconds of silence between two pieces."""
FILLED = 28.0
"""Maximum seconds of several pieces: Whisper leaves a sentence that ends with its window to the
next one."""
UNHEARD = 1.0
"""Seconds of sound after the last segment from which it is heard again."""
TOLERANCE = 0.2
"""Seconds by which a written time may be off at the border of a piece."""


class Window:
    """Pieces of a recording in a row.

    Times are in seconds: those of the window begin with it, those of the recording with that.
    """

    def __init__(self, pieces: Sequence[Piece], rate: int) -> None:
        self.pieces = pieces
        self.rate = rate
        self.starts, self.ends = [0.0], [_seconds(pieces[0])]
        for before, piece in pairwise(pieces):
            self.starts.append(self.ends[-1] + _gap(before, piece))
            self.ends.append(self.starts[-1] + _seconds(piece))

    @property
    def samples(self) -> Samples:
        """Samples (n,) of all pieces, with silence between."""
        if len(self.pieces) == 1:
            return self.pieces[0].samples
        samples = np.zeros(round(self.ends[-1] * self.rate), np.float32)
        for start, piece in zip(self.starts, self.pieces, strict=True):
            first = round(start * self.rate)
            samples[first : first + len(piece.samples)] = piece.samples[: len(samples) - first]
        return samples

    def placed(self, segment: Segment) -> Segment:
        """The segment in times of the recording, within the pieces that it begins and ends in.

        It ends before it begins if it is in none.
        """
        if segment.words:
            words = tuple(map(self._word, segment.words))
            start, end = words[0].start, words[-1].end
            return dataclasses.replace(segment, start=start, end=end, words=words)
        numbers = range(len(self.pieces))
        later = [i for i in numbers if segment.start < self.ends[i] - TOLERANCE]
        earlier = [i for i in numbers if self.starts[i] < segment.end]
        first, last = (later or numbers[-1:])[0], (earlier or numbers)[-1 if earlier else 0]
        start = self._placed(max(segment.start, self.starts[first]), first)
        return dataclasses.replace(segment, start=start, end=self._placed(segment.end, last))

    def unheard(self, segments: Sequence[Segment]) -> list[Window]:
        """Windows of the sound after the last segment, in times of this one, as of Whisper's next
        window; of each half of several pieces if there is no segment."""
        n = len(self.pieces)
        if not segments:
            halves = (self.pieces[: n // 2], self.pieces[n // 2 :]) if n > 1 else ()
            return [Window(half, self.rate) for half in halves]
        last, rest = segments[-1].end, list[Piece]()
        for begin, end, piece in zip(self.starts, self.ends, self.pieces, strict=True):
            n_past = max(0, round((last - begin) * self.rate))
            if end - max(begin, last) >= UNHEARD:
                start = piece.start + n_past / self.rate
                rest.append(Piece(start, piece.end, piece.samples[n_past:]))
        return [Window(rest, self.rate)] if rest and last > 0 else []

    def _word(self, word: Word) -> Word:
        """A word within the piece that its middle is in, or nearest to."""
        middle = (word.start + word.end) / 2
        bounds = enumerate(zip(self.starts, self.ends, strict=True))
        distances = {i: max(start - middle, middle - end) for i, (start, end) in bounds}
        nearest = min(distances, key=distances.__getitem__)
        start = max(self.pieces[nearest].start, self._placed(word.start, nearest))
        return word._replace(start=start, end=max(start, self._placed(word.end, nearest)))

    def _placed(self, time: float, i: int) -> float:
        """A time of the window in the recording, at most the end of piece i."""
        return min(self.pieces[i].start + time - self.starts[i], self.pieces[i].end)


def windows_of(pieces: Iterable[Piece], longest: float, rate: int) -> Iterator[Window]:
    """Windows of at most `longest` seconds, lazily; 0 for a window of each piece."""
    together: list[Piece] = []
    seconds = 0.0
    for piece in pieces:
        more = _gap(together[-1], piece) + _seconds(piece) if together else 0.0
        if together and seconds + more > longest:
            yield Window(together, rate)
            together = []
        seconds = seconds + more if together else _seconds(piece)
        together.append(piece)
        if seconds >= longest:  # nothing more fits: there is no need to wait for it
            yield Window(together, rate)
            together = []
    if together:
        yield Window(together, rate)


def _gap(before: Piece, piece: Piece) -> float:
    """Seconds of silence between two neighbours."""
    return min(GAP, max(0.0, piece.start - before.end))


def _seconds(piece: Piece) -> float:
    return piece.end - piece.start
