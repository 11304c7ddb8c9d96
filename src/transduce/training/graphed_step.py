"""Steps of equal shape, launched at once by a CUDA graph, without a wait but for the log."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from transduce.errors import is_out_of_memory
from transduce.nn.repeated_work import RepeatedWork
from transduce.sequence import moved
from transduce.training.config import TrainingConfig
from transduce.training.distributed import Ranks
from transduce.training.narrow_weights import NarrowWeights
from transduce.training.packing import packer_of
from transduce.training.sharding import Shards
from transduce.training.step import NonFiniteError, OptimizerStep, random_state
from transduce.training.task import Batch, TrainingTask


def make_step(
    task: TrainingTask,
    config: TrainingConfig,
    optimizer: torch.optim.Optimizer,
    ranks: Ranks,
    log: Callable[[str], None],
    shards: Shards | None = None,
) -> OptimizerStep:
    """Steps of a task; on a GPU, packed where the task and its model allow it.

    They are recorded and repeated with Adam in one process, unless the loss waits for the GPU, or
    steps may be skipped: the next would have to know.
    """
    packer = packer_of(task, config, log) if shards is None else None
    adam = isinstance(optimizer, torch.optim.AdamW)
    alone = config.non_finite == "stop" and ranks.world == 1
    repeated = packer is not None and not packer.waits and adam and alone
    kind = GraphedStep if repeated else OptimizerStep
    return kind(task, config, optimizer, ranks, log, shards, packer)


class GraphedStep(OptimizerStep):
    """Optimizer steps over packed batches.

    Batches are copied to the same tensors each time, and so are the learning rate and the count of
    target tokens.  A loss or gradient that is not finite, found on the device, keeps the optimizer
    from this step and all later ones; `read` raises its error.
    """

    def __init__(self, *options: Any) -> None:
        """As `OptimizerStep`, with a `packer`."""
        super().__init__(*options)
        device = self._device
        self._is_plain = False
        is_narrow = self.config.precision == "bf16"
        self._narrow = NarrowWeights(self.task.model) if is_narrow else None
        self._inputs: list[Any] = []
        self._work = RepeatedWork(self._compute, device, self._log)
        self._unread: dict[int, Sequence[Batch]] = {}
        self._number = torch.zeros((), dtype=torch.float64, device=device)
        self._count = torch.ones((), device=device)
        self._total_nll = torch.zeros((), dtype=torch.float64, device=device)
        self._failed = torch.zeros((), dtype=torch.float64, device=device)
        self._figures = torch.zeros(self.config.accumulate + 1, device=device)
        self._skip = torch.zeros((), device=device)
        for group in self.optimizer.param_groups:
            group["lr"] = torch.zeros((), device=device)
        self.optimizer.found_inf = self._skip  # type: ignore[attr-defined]

    @property
    def is_read(self) -> bool:
        """False until memory is short."""
        return self._is_plain

    def read(self) -> float:
        """As of any step; waits for the GPU."""
        figures: list[float]
        totals = torch.stack([self._total_nll, self._failed])
        nll, failed, *figures = torch.cat([totals, self._figures.double()]).tolist()
        self._total_nll.zero_()
        batches, self._unread = self._unread.get(int(failed), []), {}
        if failed:
            *losses, norm = figures
            for loss, batch in zip(losses, batches, strict=True):
                if not math.isfinite(loss):
                    raise NonFiniteError(int(failed), f"loss is {loss}", [batch])
            raise NonFiniteError(int(failed), f"gradient norm is {norm}", batches)
        return float(nll) + super().read()

    def __call__(self, number: int, batches: Sequence[Batch], rate: float, count: int) -> None:
        """Launch a step; where memory is short, it and all later ones are as of `OptimizerStep`."""
        if self._is_plain:
            super().__call__(number, batches, rate, count)
            return
        self.task.model.train()
        assert self.packer is not None
        self._place([self.packer.pack(batch) for batch in batches])
        self._unread[number] = batches
        self._number.fill_(number)
        self._count.fill_(count)
        for group in self.optimizer.param_groups:
            group["lr"].fill_(rate * group["scale"])
        restore = None if self._work.is_recorded else random_state(self._device)
        try:
            self._work.launch()
        except (MemoryError, RuntimeError) as error:
            if restore is None or not is_out_of_memory(error):
                raise
            self._give_up()
            restore()
            super().__call__(number, batches, rate, count)

    def _place(self, packed: Sequence[Any]) -> None:
        """Copy packed batches to the tensors of the step."""
        if not self._inputs or not all(map(_alike, self._inputs, packed)):
            self._inputs = [batch.to(self._device) for batch in packed]
            self._work.forget()
            return
        for inputs, batch in zip(self._inputs, packed, strict=True):
            for tensor, new in zip(_leaves(inputs), _leaves(batch), strict=True):
                if isinstance(tensor, Tensor) and isinstance(new, Tensor):
                    tensor.copy_(moved(new, tensor.device))

    def _compute(self) -> None:
        """The whole step on the tensors of the step; reads no value."""
        self.optimizer.zero_grad(set_to_none=True)
        losses, nll = [], torch.zeros_like(self._total_nll)
        with contextlib.nullcontext() if self._narrow is None else self._narrow.in_place():
            for inputs in self._inputs:
                with self._precision():
                    sums = self._loss_of(inputs)
                (sums.total / self._count).backward()  # type: ignore[no-untyped-call]
                if self._narrow is not None:
                    self._narrow.add_gradients()
                losses.append(sums.total.detach())
                nll += sums.nll.detach()
        parameters = [p for p in self.task.model.parameters() if p.grad is not None]
        norm = nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
        figures = torch.stack([*losses, norm]).float()
        before = self._failed > 0
        fails = ~before & ~figures.isfinite().all()
        self._figures.copy_(torch.where(fails, figures, self._figures))
        self._failed.copy_(torch.where(fails, self._number, self._failed))
        self._skip.copy_(self._failed > 0)
        if self.config.clip_norm:
            nn.utils.clip_grads_with_norm_(parameters, self.config.clip_norm, norm)
        on_gpu = self._device.type == "cuda"
        recording = on_gpu and torch.cuda.is_current_stream_capturing()
        for group in self.optimizer.param_groups:  # of which PyTorch warns otherwise
            group["capturable"] = recording
        self.optimizer.step()
        self._total_nll.add_(torch.where(self._failed > 0, 0.0, nll))

    def _give_up(self) -> None:
        """Free what the steps of a shape hold."""
        self._is_plain, self._inputs, self._narrow = True, [], None
        self._work.forget()
        self.optimizer.found_inf = None  # type: ignore[attr-defined]


def _leaves(packed: Any) -> Iterator[Tensor | int | str]:
    """Tensors and settings of nested tuples, in order."""
    if isinstance(packed, tuple):
        for part in packed:
            yield from _leaves(part)
    elif isinstance(packed, Tensor | int | str):
        yield packed


def _alike(first: Any, second: Any) -> bool:
    """True if two packed batches are of equal shape."""

    def shape(packed: Any) -> list[Any]:
        leaves = _leaves(packed._replace(target_tokens=0))
        return [leaf.shape if isinstance(leaf, Tensor) else leaf for leaf in leaves]

    return shape(first) == shape(second)
