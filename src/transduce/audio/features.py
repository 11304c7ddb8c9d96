"""Log mel energies of a recording, as matrices of torch: Kaldi's, Whisper's, and for synthesis.

Shapes: n samples, t frames, f bins.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from transduce.errors import SettingError
from transduce.settings.sections import section

CHUNK_FRAMES = 50
"""Frames computed at a time.  Sums in a product of matrices depend on its shape, so frames are
equal to the last bit, in blocks or at once, only where the shape is always the same."""
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

    def __call__(self, samples: Tensor | NDArray[np.float32]) -> Tensor:
        """Frames (t, f) float32 of a whole recording (n,), of its window where there is any."""
        stream, whole = FrameStream(self), torch.as_tensor(samples)
        frames = stream.add(whole[: self.window_samples or None])
        return self.finish(torch.cat([frames, stream.end()]))

    @property
    def seconds(self) -> float:
        """Time between frames."""
        return self.hop / self.rate

    @abstractmethod
    def of_windows(self, windows: Tensor) -> Tensor:
        """Frames (t, f) of windows (t, width), before `finish`."""

    def finish(self, frames: Tensor) -> Tensor:
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
        self._filters = torch.from_numpy(mels.T).float().contiguous()
        angles = 2 * math.pi * torch.arange(self.width, dtype=torch.double) / (self.width - 1)
        self._window = ((0.5 - 0.5 * angles.cos()) ** 0.85).float()

    def of_windows(self, windows: Tensor) -> Tensor:
        """Frames (t, f) of windows (t, width)."""
        x = windows * 32768  # Kaldi's samples are 16-bit integers
        x = x - x.mean(1, keepdim=True)
        before = torch.cat([x[:, :1], x[:, :-1]], 1)
        spectrum = torch.fft.rfft((x - self.PRE_EMPHASIS * before) * self._window, self._length)
        power = spectrum.real.square() + spectrum.imag.square()
        energies: Tensor = power @ self._filters
        return energies.clamp(min=torch.finfo(torch.float).eps).log()


class WhisperMel(Features):
    """Whisper's features (Radford et al. 2022): 25 ms every 10 ms, at 16 kHz.

    Values more than 8 (80 dB) below the loudest are raised to that level.  A whole recording is
    padded with zeros to the 30 s that the model reads.
    """

    window_samples = 30 * WHISPER_RATE

    def __init__(self, bins: int = 80) -> None:
        super().__init__(WHISPER_RATE, bins, width=400, hop=160, edge=200)
        filters = slaney_filters(bins, self.width, self.rate)
        self._filters = torch.from_numpy(filters.T).float().contiguous()
        self._window = torch.hann_window(self.width, dtype=torch.double).float()

    def of_windows(self, windows: Tensor) -> Tensor:
        """Frames (t, f) of windows (t, width), before `finish`."""
        spectrum = torch.fft.rfft(windows * self._window)
        power = spectrum.real.square() + spectrum.imag.square()
        energies: Tensor = power @ self._filters
        return energies.clamp(min=1e-10).log10()

    def finish(self, frames: Tensor) -> Tensor:
        """All frames but the last, those far below the loudest raised, scaled to about -1 to 1."""
        frames = frames[:-1]
        if not len(frames):
            return frames
        return (torch.maximum(frames, frames.max() - 8.0) + 4.0) / 4.0

    @staticmethod
    def sounding(frames: Tensor) -> int:
        """Number of frames of a whole recording before the silence that fills its window."""
        differ = (frames != frames[-1]).any(1).nonzero()
        return int(differ[-1]) + 1 if len(differ) else 0

    @staticmethod
    def joined(parts: Sequence[Tensor], starts: Sequence[int]) -> Tensor:
        """Frames (t, f) of a window with several recordings from the frames `starts` on, as of
        their samples with silence between."""
        whole = torch.full_like(parts[0], -math.inf)
        for part, start in zip(parts, starts, strict=True):
            n = WhisperMel.sounding(part)
            whole[start : start + n] = part[:n]
        return torch.maximum(whole, whole.max() - 8.0 / 4.0)


class Mel(Features):
    """Log mel magnitudes for synthesis: 50 ms every 12.5 ms, in a transform of 64 ms at 16 kHz."""

    SMALLEST = 1e-5

    def __init__(self, rate: int = 16_000, bins: int = 80) -> None:
        self.window_length = rate // 20
        length = 1 << (self.window_length - 1).bit_length()
        super().__init__(rate, bins, width=length, hop=rate // 80, edge=length // 2)
        self.filters = torch.from_numpy(slaney_filters(bins, length, rate)).float()
        window = torch.hann_window(self.window_length, dtype=torch.double).float()
        before = (length - self.window_length) // 2
        after = length - self.window_length - before
        self.window = torch.nn.functional.pad(window, (before, after))

    def of_windows(self, windows: Tensor) -> Tensor:
        """Frames (t, f) of windows (t, width)."""
        magnitudes: Tensor = torch.fft.rfft(windows * self.window).abs() @ self.filters.T
        return magnitudes.clamp(min=self.SMALLEST).log()


class FrameStream:
    """Frames of a recording in blocks, before `Features.finish`: equal, to the last bit, to all at
    once."""

    def __init__(self, features: Features) -> None:
        self._features = features
        self._samples = torch.zeros(0)
        self._begun = False
        self._count = 0

    def add(self, samples: Tensor) -> Tensor:
        """Frames (t, f), possibly none, that these further samples (n,) complete."""
        self._count += len(samples)
        self._samples = torch.cat([self._samples, samples])
        edge = self._features.edge
        if not self._begun:
            if len(self._samples) <= edge:
                return self._none()
            self._samples = torch.cat([self._samples[1 : edge + 1].flip(0), self._samples])
            self._begun = True
        chunk = self._features.width + (CHUNK_FRAMES - 1) * self._features.hop
        step = CHUNK_FRAMES * self._features.hop
        # The edge is kept back, as its reflection follows if these are the last samples.
        count = (len(self._samples) - chunk) // step + 1 if len(self._samples) >= chunk else 0
        frames = [self._chunk(self._samples[i * step : i * step + chunk]) for i in range(count)]
        self._samples = self._samples[count * step :].clone()
        return torch.cat(frames) if frames else self._none()

    def end(self) -> Tensor:
        """The last frames (t, f); a recording shorter than the edge or a fixed window is padded
        with zeros."""
        edge, width, hop = self._features.edge, self._features.width, self._features.hop
        frames = [self._none()]
        if 0 < self._count < (window := self._features.window_samples):
            frames.append(self.add(torch.zeros(window - self._count)))
        if edge:
            if not self._begun and len(self._samples):
                frames.append(self.add(torch.zeros(edge + 1 - len(self._samples))))
            if self._begun:
                frames.append(self.add(self._samples[-edge - 1 : -1].flip(0)))
        count = (len(self._samples) - width) // hop + 1 if len(self._samples) >= width else 0
        if count:
            chunk = torch.zeros(width + (CHUNK_FRAMES - 1) * hop)
            used = width + (count - 1) * hop
            chunk[:used] = self._samples[:used]
            frames.append(self._chunk(chunk)[:count])
        self._samples = torch.zeros(0)
        return torch.cat(frames)

    def _chunk(self, samples: Tensor) -> Tensor:
        features = self._features
        return features.of_windows(samples.unfold(0, features.width, features.hop))

    def _none(self) -> Tensor:
        return torch.zeros(0, self._features.bins)


def slaney_filters(bins: int, length: int, rate: int) -> NDArray[np.float64]:
    """Triangular filters (f, length / 2 + 1) of unit area, on Slaney's scale of pitch, which is
    linear up to 1 kHz and logarithmic above, as in librosa and Whisper."""
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
