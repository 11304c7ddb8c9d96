"""Training of synthesis by durations, which a search finds anew in every batch."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from transduce.decoding import monotonic
from transduce.models.monotonic_synthesis import (
    EncodedText,
    MonotonicSynthesis,
    scores_of,
)
from transduce.sequence import Padded
from transduce.tasks.recipe import Split
from transduce.tasks.speech.recordings import SplitRecordings
from transduce.tasks.speech.synthesis import SynthesisBatch, SynthesisTraining, encoded
from transduce.tasks.speech.synthesiser import Synthesiser
from transduce.training.loss import LossSums

logger = logging.getLogger("transduce")

DIAGONAL, DIAGONAL_SHARE = 200.0, 0.15
"""Weight of even pace in the first search, and share of the training in which it falls to 0."""
MEAN_WEIGHT, DURATION_WEIGHT = 0.5, 0.5
"""Weights in the loss, beside the distance of the frames."""


class DurationTraining(SynthesisTraining):
    """Texts, recordings, model and loss of synthesis by durations."""

    def __init__(self, synthesiser: Synthesiser, data: dict[Split, SplitRecordings]) -> None:
        super().__init__(synthesiser, {split: fitting(synthesiser, data[split]) for split in data})
        self._diagonal = 0.0 if synthesiser.recipe.fine_tune else DIAGONAL

    def begin_step(self, share: float) -> None:
        """Set the weight of even pace."""
        if not self.predictor.recipe.fine_tune:
            self._diagonal = DIAGONAL * max(0.0, 1 - share / DIAGONAL_SHARE)

    def loss(self, batch: SynthesisBatch) -> LossSums:
        """Distance of the frames, squared distance of their means by token, and the durations as of
        Poisson's distribution, whose means add up to the length; `nll` is the first."""
        text, frames = batch.text.to(self.device), batch.frames.to(self.device)
        model: MonotonicSynthesis = self.model
        outputs = model.encode(text)
        durations = self._durations(outputs, frames)
        spoken = model.decode(outputs.hidden, durations)
        distance = (spoken.values.float() - frames.values).abs().mean(2)[frames.real].sum()
        k = model.frames_per_step
        means = torch.cat(list(repeated(outputs.means, durations))).float()
        groups = in_groups(frames, k)[frames.real[:, ::k]]
        from_mean = k * (means - groups).square().mean(1).sum()
        predicted, measured = outputs.log_durations.float()[text.real], durations[text.real].float()
        off = F.poisson_nll_loss(predicted, measured, full=True, reduction="none")
        total = distance + MEAN_WEIGHT * from_mean + DURATION_WEIGHT * off.sum()
        return LossSums(total, distance.detach(), batch.target_tokens)

    def distance(self, batch: SynthesisBatch) -> float:
        """Distance of the frames with the durations of the recordings, as a sum over frames."""
        text, frames = batch.text.to(self.device), batch.frames.to(self.device)
        outputs = self.model.encode(text)
        spoken = self.model.decode(outputs.hidden, self._durations(outputs, frames))
        return float((spoken.values.float() - frames.values).abs().mean(2)[frames.real].sum())

    def _durations(self, outputs: EncodedText, frames: Padded) -> Tensor:
        """(b, s) steps of each token, by the best monotonic alignment."""
        k = self.model.frames_per_step
        groups = in_groups(frames, k)
        n_steps = frames.lengths // k
        scores = scores_of(outputs, groups, n_steps, self._diagonal).cpu().numpy()
        lengths = outputs.hidden.lengths.tolist()
        aligned = monotonic.durations(scores, lengths, n_steps.tolist())
        return torch.from_numpy(aligned).to(frames.values.device)


def in_groups(frames: Padded, k: int) -> Tensor:
    """Frames (b, t·k, bins) of each step, side by side (b, t, k·bins)."""
    b, n, bins = frames.values.shape
    return frames.values.reshape(b, n // k, k * bins)


def repeated(values: Tensor, durations: Tensor) -> Iterator[Tensor]:
    """Rows (t, c) of values (b, s, c), each as often as it lasts."""
    for row, counts in zip(values, durations, strict=True):
        yield row.repeat_interleave(counts, 0)


def fitting(synthesiser: Synthesiser, data: SplitRecordings) -> SplitRecordings:
    """Recordings with a step for each token of their texts; a warning counts the others."""
    n_steps = -(-data.lengths // synthesiser.model.frames_per_step)
    fits = np.array([len(ids) for ids in encoded(synthesiser, data)]) <= n_steps
    if not fits.all():
        message = "%d of %d recordings have more tokens than steps, and are left out; fewer frames "
        message += "in model.frames_per_step give more steps"
        logger.warning(message, np.count_nonzero(~fits), len(data))
    return data.select(fits)
