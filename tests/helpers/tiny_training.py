"""A task so small that its every step can be foreseen, and runs of it."""

import dataclasses
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from transduce.data.batches import DataState, in_halves
from transduce.training.config import Constant, TrainingConfig
from transduce.training.loss import LossSums
from transduce.training.trainer import Outcome, train
from transduce.training.weights import read_tensors

CONFIG = TrainingConfig(
    steps=10, validate_every=2, log_every=1, schedule=Constant(peak=0.05), device="cpu"
)


@dataclasses.dataclass
class Numbers:
    values: torch.Tensor
    target_tokens: int

    def halves(self) -> "tuple[Numbers, Numbers] | None":
        def part(rows: slice) -> Numbers:
            return Numbers(self.values[rows], len(self.values[rows]))

        return in_halves(len(self.values), part)


class Sums:
    """Learn to add three numbers; `losses` and `scores` may be replaced by given ones."""

    d_model = 16
    unit = "numbers"

    def __init__(
        self, validations: dict[str, list[float]] | None = None, bad_batch: int = -1
    ) -> None:
        torch.manual_seed(3)
        self.model = nn.Sequential(nn.Linear(3, 1), nn.Dropout(0.2))
        self.validations = validations
        self.validated = 0
        self.bad_batch = bad_batch
        self.data = self.valid = "the same"

    @property
    def batches(self) -> "Sums":
        return self

    def iterate(self, state: DataState) -> Iterator[tuple[Numbers, DataState]]:
        position = state.position
        while True:
            generator = torch.Generator().manual_seed(position)
            rows = 1 + position % 3
            values = torch.randn(rows, 3, generator=generator)
            if position == self.bad_batch:
                values[0] = math.nan
            position += 1
            yield Numbers(values, rows), DataState(0, position)

    def checksum(self) -> str:
        return self.data

    def loss(self, batch: Numbers) -> LossSums:
        total = (self.model(batch.values)[:, 0] - batch.values.sum(1)).square().sum()
        return LossSums(total, total.detach(), batch.target_tokens)

    def describe(self, batch: Numbers) -> str:
        return f"a batch of {len(batch.values)}"

    def validate(self) -> dict[str, float]:
        assert not self.model.training
        self.validated += 1
        if self.validations is None:
            return {"loss": float((self.model[0].weight - 1).detach().square().sum())}
        return {name: values[self.validated - 1] for name, values in self.validations.items()}

    def validation_checksum(self, score: str) -> str:
        return self.valid

    def higher_is_better(self, score: str) -> bool:
        return score == "bleu"


def run(path: Path, task: Sums | None = None, resume: bool = False, **changes: Any) -> Outcome:
    path.mkdir(exist_ok=True)
    return train(task or Sums(), dataclasses.replace(CONFIG, **changes), path, resume)


def weights(path: Path) -> dict[str, torch.Tensor]:
    return read_tensors(path / "weights.safetensors")


def equal(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)
