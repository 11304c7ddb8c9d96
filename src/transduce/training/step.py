"""One step of the optimizer over one or more batches, with its faults handled."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from transduce.errors import MemoryLimitError, is_out_of_memory
from transduce.nn.kernels.bf16 import relative_slowdown, slow_bf16_hint
from transduce.training.config import TrainingConfig
from transduce.training.distributed import Ranks
from transduce.training.sharding import Shards, gathered
from transduce.training.task import Batch, TrainingTask


class NonFiniteError(Exception):
    """A loss or a gradient is not finite; the step has changed nothing.

    what: the loss or the gradient, for messages.  batches: batches of this rank as its possible
    cause; both are empty if it occurred on another rank.
    """

    def __init__(self, what: str, batches: Sequence[Any]) -> None:
        super().__init__(what)
        self.what = what
        self.batches = batches


class OptimizerStep:
    """Optimizer steps along the gradient of the mean loss over all target tokens of a step."""

    def __init__(
        self,
        task: TrainingTask,
        config: TrainingConfig,
        optimizer: torch.optim.Optimizer,
        ranks: Ranks,
        log: Callable[[str], None],
        shards: Shards | None = None,
    ) -> None:
        """log: writes one line.  shards: the task, if its model is sharded."""
        self.task = task
        self.shards = shards
        self.config = config
        self.optimizer = optimizer
        self.ranks = ranks
        self._log = log
        self._has_split = False
        self._device = next(task.model.parameters()).device
        about_precision = relative_slowdown if config.precision == "bf16" else slow_bf16_hint
        if hint := about_precision(self._device):
            log(hint)

    def __call__(self, number: int, batches: Sequence[Batch], rate: float, count: int) -> float:
        """Make a step; returns the summed negative log-likelihood of its target tokens.

        batches: batches of this rank.  count: target tokens of all ranks.

        A batch too large for the memory is split; the step stays the same, since sums of losses
        add up.  Raises NonFiniteError, and MemoryLimitError if a single row is too large.
        """
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group["scale"]
        self.task.model.train()
        parts = list(batches)
        sums = self._gradient(number, parts, count)
        if self.shards is None:
            self.ranks.sum_gradients(self.task.model.parameters())
        parameters = [p for p in self.task.model.parameters() if p.grad is not None]
        norm = gathered(nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None]))
        # Read at once, and only here: each look at a number of a GPU waits for all its work.
        *read, norm_read = torch.stack([*sums.flatten(), norm.to(sums)]).tolist()
        nll = self._agreed(read, parts)
        if not math.isfinite(norm_read):
            raise NonFiniteError(f"gradient norm is {norm_read}", batches)
        if self.config.clip_norm:
            nn.utils.clip_grads_with_norm_(parameters, self.config.clip_norm, norm)
        self.optimizer.step()
        return nll

    def _agreed(self, read: Sequence[float], parts: Sequence[Batch]) -> float:
        """Negative log-likelihood of all ranks, which have gone through the step together.

        read: loss and negative log-likelihood of each part of this rank's batches, in turn.
        Raises NonFiniteError on every rank if a loss of any is not finite.
        """
        losses = zip(read[::2], parts, strict=True)
        failed = next((found for found in losses if not math.isfinite(found[0])), None)
        failures, nll = self.ranks.all_reduce_sum(failed is not None, sum(read[1::2]))
        if failures:
            if failed is None:
                raise NonFiniteError("", [])
            raise NonFiniteError(f"loss is {failed[0]}", [failed[1]])
        return nll

    def _gradient(self, number: int, parts: list[Batch], count: int) -> Tensor:
        """Add the gradient of this rank's batches, split in place where memory is short.

        Returns (parts, 2) loss and negative log-likelihood of each.
        """
        self.optimizer.zero_grad(set_to_none=True)
        sums: list[Tensor] = []
        while len(sums) < len(parts):
            found = self._part_of_gradient(number, parts[len(sums)], count)
            if found is None:
                done = len(sums)
                parts[done : done + 1] = self._split(number, parts[done])
                # Begun anew, for a backward pass that failed has added some of its gradient.
                self.optimizer.zero_grad(set_to_none=True)
                sums = []
            else:
                sums.append(found)
        return torch.stack(sums)

    def _part_of_gradient(self, number: int, batch: Batch, count: int) -> Tensor | None:
        """Add the gradient of a batch; returns (2,) its loss and negative log-likelihood.

        None if out of memory.
        """
        try:
            with self._precision():
                loss = (self.shards or self.task).loss(batch)
            assert loss.tokens == batch.target_tokens
            (loss.total / count).backward()  # type: ignore[no-untyped-call]
            return torch.stack([loss.total.detach(), loss.nll.detach()])
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            if self.shards is not None:
                raise MemoryLimitError(
                    f"out of memory at step {number:,} in {self.task.describe(batch)}; batches of "
                    "a sharded model cannot be split: lower training.batch_tokens"
                ) from None
            return None

    def _split(self, number: int, batch: Batch) -> tuple[Batch, Batch]:
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        described, halves = self.task.describe(batch), batch.halves()
        if halves is None:
            raise MemoryLimitError(
                f"out of memory at step {number:,} in {described}, a single row; lower the "
                "maximum length in the recipe, or use a smaller model"
            )
        if not self._has_split:
            self._log(
                f"out of memory at step {number:,} in {described}; splitting it in half, which is "
                "slower with the same result: lower training.batch_tokens"
            )
        self._has_split = True
        return halves

    def _precision(self) -> contextlib.AbstractContextManager[Any]:
        if self.config.precision == "float32":
            return contextlib.nullcontext()
        return torch.autocast(self._device.type, torch.bfloat16)
