"""Log mel energies of a recording: Kaldi's, Whisper's, and for synthesis; their mel-cepstral
distortion.

Shapes: n samples, t frames, f bins, k frequencies.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from transduce.errors import SettingError
from transduce.settings.sections import section

Frames = NDArray[np.float32]
"""(t, f)."""
CHUNK_FRAMES = 50
"""Frames computed at a time, for the cache."""
SMALLEST_DEVIATION = 1e-3
"""Added to deviations: a bin of digital silence has none."""
WHISPER_RATE = 16_000


@section
class AudioConfig:
    """Features of recordings."""

    features: Literal["fbank", "whisper", "mel"] = "fbank"
    """Kaldi's filter bank, Whisper's, or a finer spectrum for synthesis."""
    rate: Annotated[int, Field(ge=4000, le=96_000)] = 16_000
    """Samples a second to which recordings are resampled; 8000 for telephone speech."""
    bins: Annotated[int, Field(ge=4, le=256)] = 80
    """Mel bins of a frame; 40 for telephone speech."""
    normalise: Literal["corpus", "utterance", "none"] = "corpus"
    """Subtract the mean and divide by the deviation of each bin, of the training data or of each
    recording."""

    def __post_init__(self) -> None:
        if self.features == "whisper" and self.rate != WHISPER_RATE:
            raise SettingError(
                f'audio.features = "whisper" needs audio.rate = {WHISPER_RATE}, not {self.rate}'
            )

    def extractor(self) -> Features:
        """Feature extractor with these settings."""
        match self.features:
            case "fbank":
                return Fbank(self.rate, self.bins)
            case "whisper":
                return WhisperMel(self.bins)
            case "mel":
                return Mel(self.rate, self.bins)


class Features(ABC):
    """Frames (t, f) from samples (n,) from -1 to 1: frame i is made of `width` samples from i *
    `hop` on, after a reflection of `edge` samples at both ends."""

    window_samples = 0
    """Length in samples that whole recordings are padded or cut to; 0 to keep theirs."""

    def __init__(self, rate: int, bins: int, width: int, hop: int, edge: int = 0) -> None:
        assert edge < width - hop, (edge, width, hop)
        self.rate = rate
        self.bins = bins
        self.width = width
        self.hop = hop
        self.edge = edge

    def __call__(self, samples: NDArray[np.float32]) -> Frames:
        """Frames (t, f) of a whole recording (n,), of its window where there is any."""
        stream = FrameStream(self)
        frames = stream.add(samples[: self.window_samples or None])
        return self.finish(np.concatenate([frames, stream.end()]))

    @property
    def seconds(self) -> float:
        """Time between frames."""
        return self.hop / self.rate

    @abstractmethod
    def of_windows(self, windows: NDArray[np.float32]) -> Frames:
        """Frames (t, f) of windows (t, width), before `finish`."""

    def finish(self, frames: Frames) -> Frames:
        """The frames of a whole recording, where they depend on each other."""
        return frames


class Fbank(Features):
    """Kaldi's filter bank: 25 ms every 10 ms, Povey window, pre-emphasis, no dither."""

    PRE_EMPHASIS = 0.97

    def __init__(self, rate: int = 16_000, bins: int = 80) -> None:
        super().__init__(rate, bins, width=int(rate * 0.025), hop=int(rate * 0.01))
        self._length = 1 << (self.width - 1).bit_length()
        mels = _htk_filters(bins, self._length, rate)
        mels[:, -1] = 0  # as in Kaldi, which passes over half of the rate
        self._bank = _FilterBank(mels)
        angles = 2 * math.pi * np.arange(self.width) / (self.width - 1)
        self._window = ((0.5 - 0.5 * np.cos(angles)) ** 0.85).astype(np.float32)

    def of_windows(self, windows: NDArray[np.float32]) -> Frames:
        """Frames (t, f) of windows (t, width)."""
        scaled = windows * np.float32(32768)  # Kaldi's samples are 16-bit integers
        scaled -= scaled.mean(1, keepdims=True)
        before = np.concatenate([scaled[:, :1], scaled[:, :-1]], 1)
        scaled -= np.float32(self.PRE_EMPHASIS) * before
        energies = self._bank(_power(scaled * self._window, self._length))
        return np.log(np.maximum(energies, np.finfo(np.float32).eps))


class WhisperMel(Features):
    """Whisper's features (Radford et al. 2022): 25 ms every 10 ms, at 16 kHz.

    Values more than 8 (80 dB) below the loudest are raised to that level.  A whole recording is
    padded with zeros to the 30 s that the model reads.
    """

    window_samples = 30 * WHISPER_RATE

    def __init__(self, bins: int = 80) -> None:
        super().__init__(WHISPER_RATE, bins, width=400, hop=160, edge=200)
        self._bank = _FilterBank(slaney_filters(bins, self.width, self.rate))
        self._window = _hann(self.width)

    def of_windows(self, windows: NDArray[np.float32]) -> Frames:
        """Frames (t, f) of windows (t, width), before `finish`."""
        energies = self._bank(_power(windows * self._window, self.width))
        return np.log10(np.maximum(energies, np.float32(1e-10)))

    def finish(self, frames: Frames) -> Frames:
        """All frames but the last, those far below the loudest raised, scaled to about -1 to 1."""
        frames = frames[:-1]
        if not len(frames):
            return frames
        raised: Frames = (np.maximum(frames, frames.max() - np.float32(8)) + 4) / 4
        return raised

    @staticmethod
    def sounding(frames: Frames) -> int:
        """Number of frames of a whole recording before the silence that fills its window."""
        (differ,) = (frames != frames[-1]).any(1).nonzero()
        return int(differ[-1]) + 1 if len(differ) else 0

    @staticmethod
    def joined(parts: Sequence[Frames], starts: Sequence[int]) -> Frames:
        """Frames (t, f) of a window with several recordings from the frames `starts` on, as of
        their samples with silence between."""
        whole = np.full_like(parts[0], -math.inf)
        for part, start in zip(parts, starts, strict=True):
            n = WhisperMel.sounding(part)
            whole[start : start + n] = part[:n]
        raised: Frames = np.maximum(whole, whole.max() - np.float32(8 / 4))
        return raised


class VoiceMel(WhisperMel):
    """Mel energies of an encoder of speakers, as Whisper's without the logarithm and the window of
    30 s."""

    window_samples = 0

    def __init__(self) -> None:
        super().__init__(40)

    def of_windows(self, windows: NDArray[np.float32]) -> Frames:
        """Frames (t, f) of windows (t, width)."""
        return self._bank(_power(windows * self._window, self.width))

    def finish(self, frames: Frames) -> Frames:
        """The frames as they are."""
        return frames


class Mel(Features):
    """Log mel magnitudes for synthesis: 50 ms every 12.5 ms, in a transform of 64 ms at 16 kHz."""

    SMALLEST = 1e-5

    def __init__(self, rate: int = 16_000, bins: int = 80) -> None:
        self.window_length = rate // 20
        length = 1 << (self.window_length - 1).bit_length()
        super().__init__(rate, bins, width=length, hop=rate // 80, edge=length // 2)
        filters = slaney_filters(bins, length, rate)
        self.filters = filters.astype(np.float32)
        self._bank = _FilterBank(filters)
        before = (length - self.window_length) // 2
        after = length - self.window_length - before
        self.window = np.pad(_hann(self.window_length), (before, after))

    def of_windows(self, windows: NDArray[np.float32]) -> Frames:
        """Frames (t, f) of windows (t, width)."""
        magnitudes = self._bank(np.sqrt(_power(windows * self.window, self.width)))
        return np.log(np.maximum(magnitudes, np.float32(self.SMALLEST)))


class FrameStream:
    """Frames of a recording in blocks, before `Features.finish`: equal, to the last bit, to all at
    once."""

    def __init__(self, features: Features) -> None:
        self._features = features
        self._samples = np.zeros(0, np.float32)
        self._begun = False
        self._count = 0

    def add(self, samples: NDArray[np.float32]) -> Frames:
        """Frames (t, f), possibly none, that these further samples (n,) complete."""
        self._count += len(samples)
        self._samples = np.concatenate([self._samples, samples])
        edge, width, hop = self._features.edge, self._features.width, self._features.hop
        if not self._begun and len(self._samples) > edge:
            self._samples = np.concatenate([self._samples[edge:0:-1], self._samples])
            self._begun = True
        count = max(0, (len(self._samples) - width) // hop + 1) if self._begun else 0
        frames = np.empty((count, self._features.bins), np.float32)
        if count:
            windows = np.lib.stride_tricks.sliding_window_view(self._samples, width)[::hop]
            for i in range(0, count, CHUNK_FRAMES):
                some = windows[i : i + CHUNK_FRAMES]
                frames[i : i + CHUNK_FRAMES] = self._features.of_windows(some)
            # The edge is in the last window, as it is shorter, and is reflected at the end.
            self._samples = self._samples[count * hop :].copy()
        return frames

    def end(self) -> Frames:
        """The last frames (t, f); a recording shorter than the edge or a fixed window is padded
        with zeros."""
        edge, frames = self._features.edge, [np.empty((0, self._features.bins), np.float32)]
        padding = max(0, self._features.window_samples - self._count) if self._count else 0
        if edge and not self._begun and len(self._samples):
            padding = max(padding, edge + 1 - len(self._samples))
        if padding:
            frames.append(self.add(np.zeros(padding, np.float32)))
        if edge and self._begun:
            frames.append(self.add(self._samples[-2 : -edge - 2 : -1]))
        self._samples = np.zeros(0, np.float32)
        return np.concatenate(frames)


class _FilterBank:
    """Sums of triangular filters (f, k).

    Row by row alike, whatever their number, and in a single thread, unlike a product of matrices.
    """

    def __init__(self, filters: NDArray[np.float64]) -> None:
        self._bins = len(filters)
        self._disjoint = []  # every other filter: the next but one begins where a filter ends
        for first in range(2):
            filled = np.arange(first, len(filters), 2)
            filled = filled[filters[filled].any(1)]  # narrow ones may have no frequency
            weights = filters[filled].sum(0).astype(np.float32)
            self._disjoint.append((filled, weights, (filters[filled] > 0).argmax(1)))

    def __call__(self, spectrum: NDArray[np.float32]) -> Frames:
        """Spectrum (t, k) -> energies (t, f)."""
        energies = np.zeros((len(spectrum), self._bins), np.float32)
        for filled, weights, starts in self._disjoint:
            if len(filled):
                energies[:, filled] = np.add.reduceat(spectrum * weights, starts, axis=1)
        return energies


def _power(windows: NDArray[np.float32], length: int) -> NDArray[np.float32]:
    """Power (t, k) of windows (t, n), padded with zeros to `length`."""
    spectrum = np.fft.rfft(windows, length)
    power: NDArray[np.float32] = np.square(spectrum.real) + np.square(spectrum.imag)
    return power.astype(np.float32, copy=False)  # of float64 before NumPy 2


def _hann(width: int) -> NDArray[np.float32]:
    window: NDArray[np.float64] = 0.5 - 0.5 * np.cos(2 * math.pi * np.arange(width) / width)
    return window.astype(np.float32)


def slaney_filters(bins: int, length: int, rate: int) -> NDArray[np.float64]:
    """Triangular filters (f, length / 2 + 1) of unit area, on Slaney's scale of pitch, which is
    linear up to 1 kHz and logarithmic above, as in librosa and Whisper.

    bins: f.  rate: in Hz.
    """
    step = math.log(6.4) / 27
    top = _slaney_mel(np.array([rate / 2]))[0]
    mels = np.linspace(0, top, bins + 2)
    edges = np.where(mels < 15, mels * 200 / 3, 1000 * np.exp((mels - 15) * step))
    filters = _triangles(edges, np.arange(length // 2 + 1) * rate / length)
    return filters * (2 / (edges[2:] - edges[:-2]))[:, None]


def _slaney_mel(frequencies: NDArray[np.float64]) -> NDArray[np.float64]:
    step = math.log(6.4) / 27
    high = 15 + np.log(np.maximum(frequencies, 1000) / 1000) / step
    return np.where(frequencies < 1000, frequencies * 3 / 200, high)


def _htk_filters(bins: int, length: int, rate: int, low: float = 20.0) -> NDArray[np.float64]:
    """Triangular filters (f, length / 2 + 1) from `low` to half of the rate, as in Kaldi."""

    def mel(frequencies: NDArray[np.float64]) -> NDArray[np.float64]:
        return 1127 * np.log1p(frequencies / 700)

    low_mel, high_mel = mel(np.array([low, rate / 2]))
    edges = np.linspace(low_mel, high_mel, bins + 2)
    return _triangles(edges, mel(np.arange(length // 2 + 1) * rate / length))


def _triangles(edges: NDArray[np.float64], places: NDArray[np.float64]) -> NDArray[np.float64]:
    """Filters (f, p) that rise from one edge to the next and fall to the next."""
    up = (places - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    down = (edges[2:, None] - places) / (edges[2:] - edges[1:-1])[:, None]
    return np.maximum(0, np.minimum(up, down))


COEFFICIENTS = 13
"""Cepstral coefficients compared, from the first on; the zeroth is loudness."""

Cepstra = NDArray[np.floating[Any]]


def mel_cepstral_distortion(spoken: Cepstra, recorded: Cepstra) -> float:
    """Mean distance in dB of log mel magnitudes (t, f) from others (t', f), natural logarithms.

    The frames are paired along the cheapest path by dynamic time warping, so that pace does not
    count.  Each pair counts 10 / ln 10 · √(2 Σ (c - c')²), the root mean square distance of two
    smoothed spectra, with the cepstra c_m = 2 / f Σ_j log|S_j| cos(π m (j + ½) / f), m from 1 to
    13.  Each side has frames.
    """
    a, b = _cepstra(spoken), _cepstra(recorded)
    squares = np.zeros((len(a), len(b)))
    for i in range(COEFFICIENTS):  # a matrix of each at a time would take as often its memory
        squares += np.subtract.outer(a[:, i], b[:, i]) ** 2
    distances = 10 / math.log(10) * np.sqrt(2 * squares)
    return _warped_mean(distances)


def _cepstra(frames: Cepstra) -> NDArray[np.float64]:
    """(t, f) -> (t, 13)."""
    bins = frames.shape[1]
    orders = np.arange(1, COEFFICIENTS + 1)
    basis = np.cos(np.pi / bins * (np.arange(bins) + 0.5)[:, None] * orders)
    cepstra: NDArray[np.float64] = frames.astype(np.float64) @ basis * (2 / bins)
    return cepstra


def _warped_mean(distances: NDArray[np.float64]) -> float:
    """Mean of distances (t, t') along the path of the smallest sum, by diagonals.

    A path goes from corner to corner by steps of 1 along either side or both.
    """
    n, m = distances.shape
    far = np.inf
    # Cost of the best path to each cell and its length, by row, on the last two diagonals.
    before, last = (np.full(n + 1, far) for _ in range(2))
    length_before, length_last = (np.zeros(n + 1) for _ in range(2))
    for diagonal in range(n + m - 1):
        rows = np.arange(max(0, diagonal - m + 1), min(n, diagonal + 1))
        # At index i + 1: paths into row i; index 0 is outside.
        choices = np.stack([before[rows], last[rows], last[rows + 1]])
        lengths = np.stack([length_before[rows], length_last[rows], length_last[rows + 1]])
        best = choices.argmin(0)
        each = np.arange(len(rows))
        cost, length = choices[best, each], lengths[best, each]
        if diagonal == 0:
            cost, length = np.zeros(1), np.zeros(1)
        now, length_now = np.full(n + 1, far), np.zeros(n + 1)
        now[rows + 1] = cost + distances[rows, diagonal - rows]
        length_now[rows + 1] = length + 1
        before, last = last, now
        length_before, length_last = length_last, length_now
    return float(last[n] / length_last[n])
