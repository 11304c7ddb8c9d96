"""Features in training: normalised by the training data, augmented by noise and SpecAugment's
masks.

Shapes: b rows, t frames, f bins.
"""

import json
import math
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from transduce.errors import RunError
from transduce.sequence import Padded
from transduce.speech.features import SMALLEST_DEVIATION, AudioConfig, Features
from transduce.speech.model_config import SpecAugmentConfig
from transduce.speech.recipe import SplitRecordings, normalised, utterance_statistics
from transduce.training.config import FineTuneConfig
from transduce.training.distributed import Ranks
from transduce.training.weight_files import checkpoints_of, read_json_of
from transduce.training.weights import write_text

NOISE_SECONDS = 4


def white_noise(features: Features) -> Tensor:
    """Log energies (t, f) of some seconds of white noise at full scale, always the same."""
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(NOISE_SECONDS * features.rate, generator=generator)
    return torch.from_numpy(features(noise.numpy()))


def add_noise(
    frames: Padded, config: SpecAugmentConfig, noise: Tensor, generator: torch.Generator
) -> Padded:
    """Log energies (b, t, f) of recordings, some with noise added in power.

    frames: (b, t, f) log energies.  config: `noise_share` and `noise_levels` in decibels.  noise:
    (n, f), as from `white_noise`, read cyclically from a random frame.  Random numbers come from
    `generator` alone; none are drawn for a share of 0.
    """
    if not config.noise_share:
        return frames
    values, (low, high) = frames.values, config.noise_levels
    drawn = torch.rand(len(values), 3, generator=generator, device=generator.device)
    drawn = drawn.to(values.device)
    decibels = low + (high - low) * drawn[:, 1]
    gains = (decibels * math.log(10) / 10).masked_fill(drawn[:, 0] >= config.noise_share, -math.inf)
    starts = (drawn[:, 2] * len(noise)).long()
    times = torch.arange(values.shape[1], device=values.device)
    places = (starts[:, None] + times) % len(noise)
    return frames.with_values(values.logaddexp(noise[places] + gains[:, None, None]))


def spec_augment(frames: Padded, config: SpecAugmentConfig, generator: torch.Generator) -> Padded:
    """Frames (b, t, f) with masked bins and times set to 0, the mean of normalised features.

    frames: (b, t, f), normalised.  config: numbers and shares of masks.  generator: of random
    numbers.
    """
    values = frames.values
    b, t, f = values.shape
    lengths = frames.lengths
    bins = torch.full((b,), f, device=values.device)
    masked = _masks(bins, f, config.bin_masks, config.bin_share, generator)[:, None, :]
    masked = (
        masked | _masks(lengths, t, config.time_masks, config.time_share, generator)[:, :, None]
    )
    return frames.with_values(values.masked_fill(masked, 0.0))


def _masks(
    lengths: Tensor, size: int, count: int, share: float, generator: torch.Generator
) -> Tensor:
    """(b, size) True in `count` spans of each row, within its length (b,)."""
    drawn = torch.rand(len(lengths), count, 2, generator=generator, device=generator.device)
    drawn = drawn.to(lengths.device)
    widths = (drawn[:, :, 0] * ((lengths * share).floor() + 1)[:, None]).long()  # (b, count)
    starts = (drawn[:, :, 1] * (lengths[:, None] - widths + 1)).long()
    places = torch.arange(size, device=lengths.device)
    inside = (starts[:, :, None] <= places) & (places < (starts + widths)[:, :, None])
    return inside.any(1)


NORMALISATION_FILE = "normalisation.json"
STATISTICS = ("mean", "deviation")
FLOOR = -90.0
"""Decibels below full scale of white noise that all frames contain, so that digital silence, far
from anything recorded, resembles a quiet room."""


class Normalisation(NamedTuple):
    """Frames as the model reads them.

    kind: as `AudioConfig.normalise`.  mean, deviation: (f,) of the training data, for "corpus".
    floor: (f,) log energies added in power, for "corpus"; None to add none.
    """

    kind: str
    mean: Tensor
    deviation: Tensor
    floor: Tensor | None = None

    def __call__(self, frames: Padded) -> Padded:
        """Frames (b, t, f), normalised, and 0 at padding."""
        match self.kind:
            case "corpus":
                if self.floor is not None:
                    frames = frames.with_values(frames.values.logaddexp(self.floor))
                return normalised(frames, self.mean, self.deviation)
            case "utterance":
                return normalised(frames, *utterance_statistics(frames))
            case _:
                return frames.with_values(frames.values.masked_fill(~frames.real[:, :, None], 0.0))

    def inverse(self, frames: Tensor) -> Tensor:
        """Features (t, f) of normalised frames, for "corpus" and "none"."""
        if self.kind != "corpus":
            return frames
        return frames * (self.deviation + SMALLEST_DEVIATION) + self.mean


def normalisation_for(
    audio: AudioConfig, fine_tune: FineTuneConfig | None, run: Path, train: SplitRecordings
) -> Normalisation:
    """Normalisation of a run before training, saved in its directory.

    Taken from the directory, else from the base run, else measured over the training recordings.
    Raises RunError if a required file is missing.

    audio: the section of the recipe.  fine_tune: names the base run; None without.  train:
    recordings to measure.
    """
    if audio.normalise != "corpus" or (run / NORMALISATION_FILE).exists() or checkpoints_of(run):
        return load_normalisation(audio, run)
    if fine_tune is not None:
        normalisation = load_normalisation(audio, Path(fine_tune.run))
    else:
        mean, deviation = map(torch.from_numpy, train.statistics())
        normalisation = Normalisation("corpus", mean, deviation, floor_of(audio))
    if Ranks.present().is_main:
        numbers = {name: getattr(normalisation, name).tolist() for name in STATISTICS}
        write_text(run / NORMALISATION_FILE, json.dumps(numbers) + "\n")
    return normalisation


def load_normalisation(audio: AudioConfig, run: Path) -> Normalisation:
    """Normalisation of a run directory.  Raises RunError if it is missing or damaged."""
    nothing = torch.zeros(audio.bins)
    if audio.normalise != "corpus":
        return Normalisation(audio.normalise, nothing, nothing)
    stored: Any = read_json_of(run, NORMALISATION_FILE, "run directory")
    numbers = [stored.get(name) if isinstance(stored, dict) else None for name in STATISTICS]
    for part in numbers:
        if not isinstance(part, list) or len(part) != audio.bins or not all(map(_is_number, part)):
            raise RunError(
                f"{run / NORMALISATION_FILE} is damaged: expected {audio.bins} means and deviations"
            )
    mean, deviation = map(torch.tensor, numbers)
    return Normalisation("corpus", mean, deviation, floor_of(audio))


def floor_of(audio: AudioConfig) -> Tensor | None:
    """(f,) log energies of white noise at `FLOOR`; None for features that are not log energies."""
    if audio.features != "fbank":
        return None
    power = white_noise(audio.extractor()).exp().mean(0)
    return (power * 10 ** (FLOOR / 10)).log()


def _is_number(value: Any) -> bool:
    return isinstance(value, float) and math.isfinite(value)
