"""Normalisation of features by the training data: `normalisation.json` of a run."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from transduce.audio.augment import white_noise
from transduce.audio.features import SMALLEST_DEVIATION, AudioConfig
from transduce.errors import RunError
from transduce.sequence import Padded
from transduce.tasks.run_files import read_json_of
from transduce.tasks.speech.recordings import SplitRecordings, normalised, utterance_statistics
from transduce.training.checkpoint_paths import checkpoints_of
from transduce.training.config import FineTuneConfig
from transduce.training.distributed import Ranks
from transduce.training.weights import write_text

FILE = "normalisation.json"
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
    """
    if audio.normalise != "corpus" or (run / FILE).exists() or checkpoints_of(run):
        return load_normalisation(audio, run)
    if fine_tune is not None:
        normalisation = load_normalisation(audio, Path(fine_tune.run))
    else:
        mean, deviation = map(torch.from_numpy, train.statistics())
        normalisation = Normalisation("corpus", mean, deviation, floor_of(audio))
    if Ranks.present().is_main:
        numbers = {name: getattr(normalisation, name).tolist() for name in STATISTICS}
        write_text(run / FILE, json.dumps(numbers) + "\n")
    return normalisation


def load_normalisation(audio: AudioConfig, run: Path) -> Normalisation:
    """Normalisation of a run directory.  Raises RunError if it is missing or damaged."""
    nothing = torch.zeros(audio.bins)
    if audio.normalise != "corpus":
        return Normalisation(audio.normalise, nothing, nothing)
    stored: Any = read_json_of(run, FILE, "run directory")
    numbers = [stored.get(name) if isinstance(stored, dict) else None for name in STATISTICS]
    for part in numbers:
        if not isinstance(part, list) or len(part) != audio.bins or not all(map(_is_number, part)):
            raise RunError(f"{run / FILE} is damaged: expected {audio.bins} means and deviations")
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
