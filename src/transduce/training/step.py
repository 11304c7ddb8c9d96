"""A step of the optimizer over some batches, with its faults handled."""

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
from transduce.training.loss import LossSums
from transduce.training.sharding import Shards, gathered
from transduce.training.task import Batch, PackedTask, TrainingTask


class NonFiniteError(Exception):
    """A loss or a gradient, `what`, of step `number` is not finite; the step has changed nothing.
    batches: possible causes; both are empty if it occurred on another rank."""

    def __init__(self, number: int, what: str, batches: Sequence[Any]) -> None:
        super().__init__(what)
        self.number = number
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
        packer: PackedTask | None = None,
    ) -> None:
        """log: writes a line.  shards: the task, if its model is sharded.  packer: the task, if
        its batches are to be packed."""
        self.task = task
        self.packer = packer
        self._loss: Callable[[Any], LossSums] = packer.packed_loss if packer else task.loss
        if packer is not None and config.compile and not packer.waits:
            self._loss = torch.compile(self._loss, fullgraph=True, dynamic=False)
        self._nll = 0.0
        self.shards = shards
        self.config = config
        self.optimizer = optimizer
        self.ranks = ranks
        self._log = log
        self._splits = 0
        """Times that each batch is halved."""
        self._device = next(task.model.parameters()).device
        about_precision = relative_slowdown if config.precision == "bf16" else slow_bf16_hint
        if hint := about_precision(self._device):
            log(hint)

    @property
    def is_read(self) -> bool:
        """True if `read` waits for nothing, as the step is known to be complete."""
        return True

    def read(self) -> float:
        """Negative log-likelihood, summed over target tokens, of all steps since the last call.
        Raises NonFiniteError if any of them changed nothing."""
        nll, self._nll = self._nll, 0.0
        return nll

    def __call__(self, number: int, batches: Sequence[Batch], rate: float, count: int) -> None:
        """Make a step of the batches of this rank, with `count` target tokens over all ranks.

        A batch too large for the memory is split; the step stays the same, since sums of losses add
        up.  Raises NonFiniteError, and MemoryLimitError if a single row is too large.
        """
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group["scale"]
        self.task.model.train()
        parts, sums = self._gradient(number, batches, count)
        if self.shards is None:
            self.ranks.sum_gradients(self.task.model.parameters())
        parameters = [p for p in self.task.model.parameters() if p.grad is not None]
        norm = gathered(nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None]))
        # Read at once, and only here: each look at a number of a GPU waits for all its work.
        *read, norm_read = torch.stack([*sums.flatten(), norm.to(sums)]).tolist()
        nll = self._agreed(number, read, parts)
        if not math.isfinite(norm_read):
            raise NonFiniteError(number, f"gradient norm is {norm_read}", batches)
        if self.config.clip_norm:
            nn.utils.clip_grads_with_norm_(parameters, self.config.clip_norm, norm)
        self.optimizer.step()
        self._nll += nll

    def _agreed(self, number: int, read: Sequence[float], parts: Sequence[Batch]) -> float:
        """Likelihood of all ranks, from loss and likelihood of each part of this rank.  Raises
        NonFiniteError on every rank if a loss of any is not finite."""
        losses = zip(read[::2], parts, strict=True)
        failed = next((loss for loss in losses if not math.isfinite(loss[0])), None)
        failures, nll = self.ranks.all_reduce_sum(failed is not None, sum(read[1::2]))
        if failures:
            if failed is None:
                raise NonFiniteError(number, "", [])
            raise NonFiniteError(number, f"loss is {failed[0]}", [failed[1]])
        return nll

    def _gradient(
        self, number: int, batches: Sequence[Batch], count: int
    ) -> tuple[list[Batch], Tensor]:
        """Add the gradient of this rank's batches, split where memory is short; returns the parts,
        and (parts, 2) their losses and negative log-likelihoods.  A failed attempt leaves no trace,
        so a resumed run, which has to find the split again, is the same."""
        restore = random_state(self._device)
        while True:
            self.optimizer.zero_grad(set_to_none=True)
            parts = [part for batch in batches for part in _divided(batch, self._splits)]
            sums: list[Tensor] = []
            for part in parts:
                part_sums = self._part_of_gradient(number, part, count)
                if part_sums is None:
                    break
                sums.append(part_sums)
            if len(sums) == len(parts):
                return parts, torch.stack(sums)
            self._split_more(number, parts[len(sums)])
            restore()

    def _part_of_gradient(self, number: int, batch: Batch, count: int) -> Tensor | None:
        """Add a batch's gradient; returns (2,) its loss and negative log-likelihood, None if out of
        memory."""
        try:
            with self._precision():
                if self.packer is not None and not self._splits:  # halves of one shape are no less
                    loss = self._loss_of(self.packer.pack(batch).to(self._device))
                else:
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

    def _loss_of(self, packed: Any) -> LossSums:
        """Loss of a packed batch on the device; without its count, which differs."""
        return self._loss(packed._replace(target_tokens=0))

    def _split_more(self, number: int, part: Batch) -> None:
        """Split all batches once more.  Raises MemoryLimitError if `part` is a single row."""
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        described = self.task.describe(part)
        if part.halves() is None:
            raise MemoryLimitError(
                f"out of memory at step {number:,} in {described}, a single row; lower the "
                "maximum length in the recipe, or use a smaller model"
            )
        if not self._splits:
            self._log(
                f"out of memory at step {number:,} in {described}; splitting batches from now on, "
                "with the same result: lower training.batch_tokens and raise training.accumulate"
            )
        self._splits += 1

    def _precision(self) -> contextlib.AbstractContextManager[Any]:
        if self.config.precision == "float32":
            return contextlib.nullcontext()
        return torch.autocast(self._device.type, torch.bfloat16)


def _divided(batch: Batch, times: int) -> list[Batch]:
    """The batch halved, each half again, and so on; a single row stays whole."""
    halves = batch.halves() if times else None
    if halves is None:
        return [batch]
    return [part for half in halves for part in _divided(half, times - 1)]


def random_state(device: torch.device) -> Callable[[], None]:
    """A call that sets the random generators of the CPU and the device back to this moment."""
    cpu = torch.get_rng_state()
    gpu = torch.cuda.get_rng_state(device) if device.type == "cuda" else None

    def restore() -> None:
        torch.set_rng_state(cpu)
        if gpu is not None:
            torch.cuda.set_rng_state(gpu, device)

    return restore
