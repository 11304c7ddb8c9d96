"""The protocol of tasks in training: everything that a task gives the trainer."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from torch import nn

from transduce.data.batches import Batches
from transduce.training.loss import LossSums


class Batch(Protocol):
    """A batch of a task."""

    @property
    def target_tokens(self) -> int:
        """Number of predictions: the divisor of its loss."""

    def halves(self) -> tuple[Batch, Batch] | None:
        """The first and the other half of its rows; None for a single row."""


class TrainingTask(Protocol):
    """Model, data, loss and validation of a task."""

    @property
    def model(self) -> nn.Module:
        """The model to train."""

    @property
    def d_model(self) -> int:
        """Width of the model, for schedules of the learning rate."""

    @property
    def unit(self) -> str:
        """Unit of the loss, for the log: "tokens", "images"."""

    @property
    def batches(self) -> Batches:
        """Training batches, which can be taken up again at any place."""

    def loss(self, batch: Any) -> LossSums:
        """Loss of a batch, as sums."""

    def describe(self, batch: Any) -> str:
        """A batch in a few words, for messages about it."""

    def validate(self) -> dict[str, float]:
        """Scores on held-out data, "loss" among them."""

    def validation_checksum(self, score: str) -> str:
        """Checksum of the data and settings that this score is measured by."""

    def higher_is_better(self, score: str) -> bool:
        """True if a larger value of this score is better."""


@runtime_checkable
class PackedTask(Protocol):
    """A `TrainingTask` whose batches can be packed into rows of equal shape."""

    def pack(self, batch: Any) -> Any:
        """A batch on the CPU, packed: a tuple whose tensors have the same shapes each time, with
        `to(device)`."""

    def packed_loss(self, packed: Any) -> LossSums:
        """Loss of a packed batch on the device, as sums; `tokens` may be any number."""

    @property
    def waits(self) -> bool:
        """True if the loss reads values of a GPU, so that no step can be recorded."""

    def padding_reason(self) -> str:
        """Reason of the task for which its batches have to stay padded; empty for none."""


@runtime_checkable
class PacedTask(Protocol):
    """A `TrainingTask` whose loss changes during training."""

    def begin_step(self, share: float) -> None:
        """Set the loss of the next step.  share: of the budget used so far, 0 to 1."""
