"""Base of training tasks over sequences of tokens, frames or patches."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import torch

from transduce.metrics.measure import METRICS, make_metric
from transduce.tasks.common import describe_batch
from transduce.training.loss import LossSums

LOSSES = ("loss", "perplexity", "bits_per_byte")


class SequenceTraining:
    """Parts of a `TrainingTask` that are alike in all tasks.

    unit: of the loss, for the log.  items: of a batch, in messages.
    """

    unit: ClassVar[str] = "tokens"
    items: ClassVar[str] = "training pairs"

    def describe(self, batch: Any) -> str:
        """Describe a batch by the numbers of its rows."""
        return describe_batch(self.items, batch.rows)

    def higher_is_better(self, score: str) -> bool:
        """True unless the score is a loss or an error rate."""
        if score in METRICS:
            return make_metric(score).higher_is_better
        return score not in LOSSES

    @torch.inference_mode()
    def mean_loss(self, sums: Iterable[LossSums]) -> float:
        """Loss in nats per unit over batches, whose sums may be computed lazily."""
        nll, count = 0.0, 0
        for batch in sums:
            nll += batch.nll.item()
            count += batch.tokens
        return nll / count
