"""Base of training tasks over sequences of tokens, frames or patches."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from transduce.data.batches import RowBatch
from transduce.data.one_shape import OneShape
from transduce.metrics.measure import METRICS, make_metric
from transduce.sequence import Padded
from transduce.tasks.common import describe_batch
from transduce.tasks.validation import checksum_of
from transduce.training.fine_tuning import AdaptWeights
from transduce.training.loss import LossSums
from transduce.training.task import TrainingTask

LOSSES = ("loss", "perplexity", "bits_per_byte")


class Trainable(Protocol):
    """Predictor with the network and the recipe of its training."""

    recipe: Any

    @property
    def model(self) -> nn.Module: ...  # noqa: D102


P = TypeVar("P", bound=Trainable)


class PreparedTask(TrainingTask, Protocol):
    """Training task that can start from a base run.

    adapt, reinit: of its weights, as in `BaseRun`.
    """

    adapt: AdaptWeights | None
    reinit: tuple[str, ...]


@dataclass(frozen=True)
class TargetBatch(RowBatch):
    """Base of batches with texts to write.  target: (b, t) BOS + ids + EOS."""

    target: Padded

    @property
    def target_tokens(self) -> int:
        """Tokens to predict: all but the first of each row."""
        return int(self.target.real.sum()) - len(self.rows)


class SequenceTraining(Generic[P]):
    """Parts of a `TrainingTask` that are alike in all tasks.

    unit: of the loss, for the log.  items: of a batch, in messages.  numbers: (n,) of the items in
    the whole data, where those to train on are a subset.  adapt, reinit: as in `PreparedTask`.
    """

    unit: ClassVar[str] = "tokens"
    items: ClassVar[str] = "training pairs"
    numbers: NDArray[np.int64] | None = None
    adapt: AdaptWeights | None = None
    reinit: tuple[str, ...] = ()
    batches: Any
    has_targets: ClassVar[bool] = False
    """True if the second side is a target, whose last token is not read."""
    _valid: Any

    def __init__(self, predictor: P) -> None:
        self.predictor = predictor
        self.model: Any = predictor.model
        self.d_model: int = predictor.recipe.model.d_model

    @property
    def device(self) -> torch.device:
        """Device of the model."""
        return next(self.predictor.model.parameters()).device

    @property
    def waits(self) -> bool:
        """True if a packed loss reads values of a GPU."""
        return False

    def padding_reason(self) -> str:
        """Reason for which batches stay padded; empty for none."""
        return ""

    @functools.cached_property
    def shape(self) -> OneShape:
        """Shape of packed batches."""
        shape: OneShape = self.batches.one_shape(self.has_targets)
        return shape

    def describe(self, batch: Any) -> str:
        """Describe a batch by the numbers of its rows."""
        rows = batch.rows if self.numbers is None else self.numbers[batch.rows]
        return describe_batch(self.items, rows)

    def higher_is_better(self, score: str) -> bool:
        """True unless the score is a loss or an error rate."""
        if score in METRICS:
            return make_metric(score).higher_is_better
        return score not in LOSSES

    def validation_checksum(self, score: str) -> str:
        """Checksum of the data and settings behind a score."""
        return checksum_of(self._valid.checksum(), *self.behind(score))

    def behind(self, score: str) -> Sequence[Any]:
        """Facts behind a score, beside the validation batches."""
        return ()

    @torch.inference_mode()
    def mean_loss(self, sums: Iterable[LossSums]) -> float:
        """Loss in nats per unit over batches, whose sums may be computed lazily."""
        nll, count = 0.0, 0
        for batch in sums:
            nll += batch.nll.item()
            count += batch.tokens
        return nll / count
