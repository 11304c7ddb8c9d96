"""Pieces of a long recording with sound in them, and windows of a model that reads a fixed time
at once.

Cut and merge (Bain et al. 2023, WhisperX): a pause costs no window of its own.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from transduce.speech.audio import Samples
from transduce.speech.segments import Segment, Word

Levels = NDArray[np.float64]

BANDS = (200, 400, 800, 1600, 3200, 8000)
"""Edges in Hz of bands, each with levels and noise of its own: speech stands out in some of them
where noise covers the others, and hum is below all."""
HOP_SECONDS = 0.01
WIDTH_HOPS = 3
SMOOTHED = 5
"""Levels are mean powers of five windows of 30 ms, every 10 ms, in decibels."""
SPAN = WIDTH_HOPS + SMOOTHED - 1
GROUP = 50
"""Levels that are decided on together, with all of them in the estimate of the noise."""
HISTORY = 3000
"""Levels of which the noise is estimated: 30 s."""
NOISE_PERCENTILE = 10
LOUD_PERCENTILE = 95
BEGINNING = 200
RANGE = 12.0
"""The first 2 s are decided on together.  As they may hold a word and no silence, the noise there
is this far below loud levels in the mean of the bands, in decibels, or further; if it was noise
after all, it is steady, and left out as such."""
LOWEST, DEPTH = -80.0, 50.0
"""The noise of a band is at least this, in decibels below full scale; in a quiet recording at least
so far below the loud levels of its loudest band, and no lower than missing samples."""
DIGITAL = -110.0
"""Levels below this are missing samples, and excluded from the estimate of the noise."""
LOUD, FAINT = 5.0, 2.5
"""Decibels over the noise, in the mean of the bands, at which sound begins, and below which it
ends."""
MARGIN = 5
"""Levels kept before and after sound.  Few, as models of trimmed recordings take silence for
letters; with 2, the ends of sentences were cut, and with 10 more was made up in faint noise."""
PAUSE = 50
"""Faint levels that end a piece: half a second."""
NEW_SOUND = 50
"""Levels of sound after which an open piece is given again."""
SHORTEST = SPAN + 4
"""Minimum number of loud levels in a piece; a click makes as many as a level has hops."""
STEADY = 5.0
"""Decibels between the faint and the loud levels of a piece, in the mean of the bands, below which
it is not speech."""


BLOCK_SECONDS = 4
"""Longer blocks are measured in parts: levels need more memory than samples."""


class AudioPiece(NamedTuple):
    """Part of a recording with sound: samples (n,) from `start` seconds to `end`; of one that goes
    on, so far; none of one that went on and was no speech after all.  is_cut: True where its sound
    goes on in the next one."""

    start: float
    end: float
    samples: Samples
    goes_on: bool = False
    is_cut: bool = False


def sound_pieces(
    blocks: Iterable[Samples],
    rate: int,
    longest: float = 30.0,
    every: float = 0.0,
) -> Iterator[AudioPiece]:
    """Stream the pieces of a recording that comes in blocks (n,); they do not depend on these.

    Sound begins and ends by its level over the noise, with hysteresis; the noise is a low
    percentile of the levels of the last 30 s.  longest: maximum seconds of a piece; longer sound is
    cut at the quietest place of its second half.  every: seconds after which a piece that goes on
    is given, so far, and later as a whole, without samples if it was no speech; 0 for never.
    Memory holds a single piece.
    """
    cutter = _Cutter(rate, longest)
    shown = 0
    for block in blocks:
        for at in range(0, len(block), BLOCK_SECONDS * rate):
            yield from cutter.add(block[at : at + BLOCK_SECONDS * rate])
            if every and cutter.decided - shown >= every / HOP_SECONDS:
                shown = cutter.decided
                yield from cutter.so_far()
    yield from cutter.end()


def pieces_so_far(
    samples: Samples, rate: int, longest: float, done: float, goes_on: bool, last: bool
) -> tuple[list[AudioPiece], float, bool]:
    """Pieces of sound (n,) that goes on, the last of which may be open; the seconds that a next
    call need not decide on again; and True for an open piece there.

    longest: as of `sound_pieces`.  done: seconds by which the noise is estimated alone.  goes_on:
    True for an open piece from there.  last: True for sound that has ended.
    """
    cutter = _Cutter(rate, longest, done, goes_on)
    pieces = list[AudioPiece]()
    for at in range(0, len(samples), BLOCK_SECONDS * rate):
        pieces += cutter.add(samples[at : at + BLOCK_SECONDS * rate])
    pieces += cutter.end() if last else cutter.so_far()
    return pieces, *cutter.settled


class _Cutter:
    """Samples and levels that are not decided on yet, or belong to the present piece; places in
    hops.

    rate: in Hz.  longest: as of `sound_pieces`.  done, goes_on: as of `pieces_so_far`.
    """

    def __init__(self, rate: int, longest: float, done: float = 0.0, goes_on: bool = False) -> None:
        self.rate = rate
        self.longest = round(longest / HOP_SECONDS)  # in levels
        assert self.longest > 4 * MARGIN, longest
        self.bands = _BandPowers(rate)
        self.hop = self.bands.hop
        self._samples = np.zeros(0, np.float32)
        self._first = 0  # place of the first of these samples
        self._powers = self.bands.of(self._samples)  # of windows that no level is complete for
        self._windows = 0  # whose powers are known
        self._levels = np.zeros((0, self._powers.shape[1]))  # the last ones, up to the present
        self._decided = 0
        self._noise = np.full(self._powers.shape[1], LOWEST)
        self._end = round(done * rate / self.hop)  # of the last piece
        self._begin = self._end if goes_on else None  # of the present piece
        self._is_given = goes_on  # the present piece, so far
        self._given_end = 0  # of the sound of the open piece that was given last
        self._sounded = self._end  # end of the present piece, if nothing follows
        self._faint = 0  # levels running that are above the noise, but not loud

    def add(self, block: Samples) -> Iterator[AudioPiece]:
        self._samples = np.concatenate([self._samples, block])
        self._measure()
        while self._measured - self._decided >= (count := GROUP if self._decided else BEGINNING):
            yield from self._decide(count)
        self._forget()

    @property
    def decided(self) -> int:
        """Levels that are decided on."""
        return self._decided

    @property
    def settled(self) -> tuple[float, bool]:
        """Seconds before the open piece, or before any later one; and True for an open piece."""
        later = max(self._end, self._decided - self._faint - MARGIN)
        begin = later if self._begin is None else self._begin
        return begin * self.hop / self.rate, self._begin is not None

    def so_far(self) -> Iterator[AudioPiece]:
        """The piece that has not ended, if there is one with new sound."""
        if self._begin is None or self._sounded - max(self._begin, self._given_end) < NEW_SOUND:
            return
        self._is_given, self._given_end = True, self._sounded
        low = self._begin * self.hop
        samples = self._samples[low - self._first * self.hop :].copy()
        start = low / self.rate
        yield AudioPiece(start, start + len(samples) / self.rate, samples, True)

    def end(self) -> Iterator[AudioPiece]:
        """Remaining pieces; a recording of less than half a second is one piece, unless it is
        silent."""
        if self._measured < GROUP and not self._end and self._begin is None:
            if len(self._levels) and self._over_noise(self._levels).max() > LOUD:
                yield AudioPiece(0.0, len(self._samples) / self.rate, self._samples)
            return
        yield from self._decide(self._measured - self._decided)
        if self._begin is not None:
            yield from self._piece(self._begin, self._sounded)

    @property
    def _measured(self) -> int:
        return max(0, self._windows - SMOOTHED + 1)

    def _measure(self) -> None:
        powers = self.bands.of(self._samples[(self._windows - self._first) * self.hop :])
        self._windows += len(powers)
        powers = np.concatenate([self._powers, powers])
        if len(powers) >= SMOOTHED:
            smooth = np.lib.stride_tricks.sliding_window_view(powers, SMOOTHED, axis=0).mean(2)
            self._levels = np.concatenate([self._levels, 10 * np.log10(smooth + 1e-12)])
        self._powers = powers[-(SMOOTHED - 1) :]

    def _decide(self, count: int) -> Iterator[AudioPiece]:
        """Pass over the next levels; the noise is estimated with them."""
        if not count:
            return
        known = self._levels[: len(self._levels) - (self._measured - self._decided - count)]
        self._noise = _noise_of(known[-HISTORY:])
        for level in self._over_noise(known[-count:]).tolist():
            yield from self._pass(level)
            self._decided += 1

    def _pass(self, level: float) -> Iterator[AudioPiece]:
        """Begin, continue or end a piece with the next level, in decibels over the noise."""
        decided = self._decided
        if decided + SPAN // 2 < self._end:
            return
        after = decided + SPAN // 2 + 1 + MARGIN
        if self._begin is None:
            self._faint = min(GROUP, self._faint + 1) if level > FAINT else 0
            if level > LOUD:
                self._begin = max(self._end, decided - self._faint + 1 + SPAN // 2 - MARGIN)
                self._sounded, self._faint = after, 0
            return
        if level > FAINT:
            self._sounded = after
        if decided + SPAN // 2 - self._sounded >= PAUSE:
            yield from self._piece(self._begin, self._sounded)
        elif decided + SPAN - self._begin >= self.longest:
            half = self._begin + self.longest // 2
            quietest = int(np.argmin(self._levels_of(half, decided).mean(1)))
            cut, was_given = half + quietest + SPAN // 2, self._is_given
            for piece in self._piece(self._begin, cut):
                yield piece._replace(is_cut=True)
            self._begin, self._is_given = cut, was_given

    def _piece(self, begin: int, end: int) -> Iterator[AudioPiece]:
        """One piece, which ends the present one; a click, or a steady one, without samples if it
        was given so far, else none."""
        low, high = begin * self.hop, end * self.hop
        samples = self._samples[low - self._first * self.hop : high - self._first * self.hop]
        was_given, self._is_given = self._is_given, False
        self._begin, self._end = None, end
        (sound,) = np.nonzero(samples)  # no margin of digital silence, which is not recorded sound
        levels = self._levels_of(begin, end)
        is_click = np.count_nonzero(self._over_noise(levels) > LOUD) < SHORTEST
        if is_click or np.ptp(np.percentile(levels, (10, 90), axis=0), axis=0).mean() < STEADY:
            if was_given:
                yield AudioPiece(low / self.rate, high / self.rate, samples[:0])
            return
        samples = samples[sound[0] : sound[-1] + 1].copy()
        start = (low + int(sound[0])) / self.rate
        yield AudioPiece(start, start + len(samples) / self.rate, samples)

    def _levels_of(self, begin: int, end: int) -> Levels:
        first = self._measured - len(self._levels)
        return self._levels[max(0, begin - first) : max(0, end - first)]

    def _over_noise(self, levels: Levels) -> Levels:
        """(n,) decibels of levels (n, bands) over the noise."""
        above: Levels = np.maximum(0, levels - self._noise).mean(1)
        return above

    def _forget(self) -> None:
        begin = self._decided - self._faint if self._begin is None else self._begin
        first = max(self._first, min(begin, self._decided) - MARGIN)
        self._samples = self._samples[(first - self._first) * self.hop :].copy()
        self._first = first
        self._levels = self._levels[-max(HISTORY, self._measured - first) :].copy()


def _noise_of(levels: Levels) -> Levels:
    levels = levels[(levels > DIGITAL).any(1)]
    if not len(levels):
        return np.full(levels.shape[1], LOWEST)
    quiet, loud = np.percentile(levels, (NOISE_PERCENTILE, LOUD_PERCENTILE), axis=0)
    if len(levels) <= BEGINNING:
        quiet -= max(0.0, RANGE - float((loud - quiet).mean()))
    lowest = min(LOWEST, max(DIGITAL, float(loud.max()) - DEPTH))
    noise: Levels = np.maximum(lowest, quiet)
    return noise


class _BandPowers:
    """Mean power in each band, of windows of some hops."""

    def __init__(self, rate: int) -> None:
        self.hop = round(rate * HOP_SECONDS)
        self.width = WIDTH_HOPS * self.hop
        self._window = np.hanning(self.width + 1)[:-1]
        frequencies = np.arange(self.width // 2 + 1) * rate / self.width
        edges = [edge for edge in BANDS if edge < rate / 2] + [rate / 2]
        inside = [(a <= frequencies) & (frequencies < b) for a, b in itertools.pairwise(edges)]
        scale = 2 / (np.square(self._window).sum() * self.width)
        self._bands = np.stack(inside, 1) * scale

    def of(self, samples: Samples) -> Levels:
        if len(samples) < self.width:
            return np.zeros((0, self._bands.shape[1]))
        windows = np.lib.stride_tricks.sliding_window_view(samples, self.width)[:: self.hop]
        # Row by row alike, whatever their number: products of matrices differ in the last bit.
        powers = np.square(np.abs(np.fft.rfft(windows * self._window)))
        return np.stack([(powers * band).sum(1) for band in self._bands.T], 1)


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

    def __init__(self, pieces: Sequence[AudioPiece], rate: int, language: str = "") -> None:
        """pieces: of the recording, in order.  rate: in Hz.  language: code, if detected."""
        self.pieces = pieces
        self.rate = rate
        self.language = language
        self.starts, self.ends = [0.0], [_window_seconds(pieces[0])]
        for before, piece in pairwise(pieces):
            self.starts.append(self.ends[-1] + _gap(before, piece))
            self.ends.append(self.starts[-1] + _window_seconds(piece))

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
            return [Window(half, self.rate, self.language) for half in halves]
        last, rest = segments[-1].end, list[AudioPiece]()
        for begin, end, piece in zip(self.starts, self.ends, self.pieces, strict=True):
            n_past = max(0, round((last - begin) * self.rate))
            if end - max(begin, last) >= UNHEARD:
                start = piece.start + n_past / self.rate
                rest.append(AudioPiece(start, piece.end, piece.samples[n_past:]))
        return [Window(rest, self.rate, self.language)] if rest and last > 0 else []

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


def windows_of(pieces: Iterable[AudioPiece], longest: float, rate: int) -> Iterator[Window]:
    """Windows of at most `longest` seconds, lazily; 0 for a window of each piece.

    pieces: of the recording, in order.  rate: in Hz.
    """
    together: list[AudioPiece] = []
    seconds = 0.0
    for piece in pieces:
        more = _gap(together[-1], piece) + _window_seconds(piece) if together else 0.0
        if together and seconds + more > longest:
            yield Window(together, rate)
            together = []
        seconds = seconds + more if together else _window_seconds(piece)
        together.append(piece)
        if seconds >= longest:  # nothing more fits: there is no need to wait for it
            yield Window(together, rate)
            together = []
    if together:
        yield Window(together, rate)


def _gap(before: AudioPiece, piece: AudioPiece) -> float:
    """Seconds of silence between two neighbours."""
    return min(GAP, max(0.0, piece.start - before.end))


def _window_seconds(piece: AudioPiece) -> float:
    return piece.end - piece.start
