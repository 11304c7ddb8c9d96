"""Search for the largest batches that fit, before training begins.

A step keeps its size, `batch_tokens` times `accumulate`: it is cut into the fewest batches that
fit, or up to twice as many if all rows have one length and only more batches divide them evenly.
On a GPU the largest size is found by trial, since running out of its memory raises an exception.
On a CPU the system would kill this process, or another one: three small steps are measured, and
the memory of larger ones is extrapolated conservatively.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from transduce.errors import MemoryLimitError, SettingError, is_out_of_memory
from transduce.training.averaging import MovingAverage
from transduce.training.config import TrainingConfig
from transduce.training.distributed import Ranks
from transduce.training.memory import give_back_freed_memory
from transduce.training.task import TrainingTask

GIB = 2**30
SHARE_OF_GPU = 0.92
"""The rest is for fragmentation by batches of other shapes."""
SHARE_OF_FREE = 0.8
"""Share of the free memory of a machine; other processes use it too."""
STEEPER = 1.25
"""Safety factor on the measured growth of memory."""
FIRST_TOKENS = 1024
"""Minimum size of the first measured step, for a measurable difference in memory."""
PROBES = 3
CLOSE_ENOUGH = 16
"""The search ends at a resolution of 1/16 of the largest size that fits."""


class FoundBudget(Exception):  # noqa: N818  # it is none
    """Signal to restart training with the batches found, without traces of the search.

    batch_tokens, accumulate: settings that make each step as large as before.
    """

    def __init__(self, batch_tokens: int, accumulate: int) -> None:
        super().__init__(batch_tokens, accumulate)
        self.batch_tokens = batch_tokens
        self.accumulate = accumulate

    @property
    def step(self) -> int:
        """Number of positions in a step."""
        return self.batch_tokens * self.accumulate


def find_budget(
    task: TrainingTask,
    config: TrainingConfig,
    optimizer: torch.optim.Optimizer,
    ranks: Ranks,
    log: Callable[[str], None],
) -> FoundBudget:
    """Find and log the batches to cut a step into.

    The trial steps spoil the weights.  Raises MemoryLimitError if not even one row fits,
    SettingError if a required limit is missing.
    """
    averaged = MovingAverage(task.model, config.ema) if config.ema else None
    tries = _Tries(task, config, optimizer)
    row, whole = task.batches.largest(1).tokens, tries.whole
    on_gpu = tries.device.type == "cuda"
    limit = _limit_of_gpu(config, tries.device) if on_gpu else _limit_of_machine(config)
    if not tries.begin():
        found = 0
    elif on_gpu:
        found = largest_fitting(lambda tokens: _fits(tries, tokens, limit), min(row, whole), whole)
    else:
        give_back_freed_memory()  # or it hides the memory of a step
        found = largest_extrapolated(
            lambda tokens: _peak(tries, tokens), resident(), row, whole, limit
        )
    tries.end()
    del averaged
    found = -int(ranks.all_reduce_max(-found)[0])
    if not found:
        raise ranks.error_on_main(
            MemoryLimitError(
                f"fit_memory: a single row of {row:,} positions needs more than "
                f"{limit / GIB:.1f} GiB; lower the maximum length in the recipe, use a smaller "
                "model, or raise training.memory_limit"
            )
        )
    budget = cut_step(config.batch_tokens, config.accumulate, task.batches.row, found)
    tokens, accumulate = budget.batch_tokens, budget.accumulate
    log(
        f"fit_memory: batches of {tokens:,} tokens fit into {limit / GIB:.1f} GiB; "
        f"using training.batch_tokens = {tokens} and training.accumulate = {accumulate} for "
        f"{budget.step:,} tokens per step"
    )
    return budget


def cut_step(batch_tokens: int, accumulate: int, row: int, fitting: int) -> FoundBudget:
    """A step, cut into equal batches of no more than `fitting` positions.

    row: positions of each row, 1 if lengths differ.  Batches hold complete rows; from the fewest
    batches to twice as many, the number that comes nearest to the size of the step is taken.
    """
    rows = accumulate * max(batch_tokens // row, 1)
    fewest = -(-rows // max(fitting // row, 1))
    numbers = range(fewest, (min(2 * fewest, rows) if row > 1 else fewest) + 1)
    cuts = [FoundBudget(-(-rows // number) * row, number) for number in numbers]
    return min(cuts, key=lambda cut: cut.step)  # none is smaller than it


def largest_fitting(fits: Callable[[int], bool], smallest: int, largest: int) -> int:
    """Nearly the largest size that fits, found by trial; 0 if none does."""
    if fits(largest):
        return largest
    size, above = largest, largest
    while True:
        if size == smallest:
            return 0
        size = max(size // 2, smallest)
        if fits(size):
            break
        above = size
    while above - size > max(size // CLOSE_ENOUGH, 1):
        middle = (size + above) // 2
        if fits(middle):
            size = middle
        else:
            above = middle
    return size


def largest_extrapolated(
    peak: Callable[[int], float], rest: float, row: int, largest: int, limit: float
) -> int:
    """Largest size expected to stay below a limit, extrapolated from small ones; 0 if none does.

    peak: peak bytes of the process during a step of a given size; called for at most twice the
    largest size known to fit.  rest: bytes of the process before.  row: smallest possible size.
    """
    size = min(max(row, FIRST_TOKENS), largest)
    before = (0, rest)
    slope = 0.0
    for _ in range(PROBES):
        while (found := peak(size)) > limit:
            if before[0] or size <= row:
                return before[0]
            size = max(size // 2, row)
        slope = STEEPER * (found - before[1]) / (size - before[0])
        if slope <= 0:  # hidden by memory kept from earlier steps
            slope = STEEPER * max(found - rest, 0) / size
        before = (size, found)
        if size == largest or found + slope * size > limit:
            break
        size = min(2 * size, largest)
    fitting = largest if slope <= 0 else before[0] + int((limit - before[1]) / slope)
    return min(fitting, largest)


def resident() -> float:
    """Bytes of memory held by this process."""
    with contextlib.suppress(OSError, ValueError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return _most_resident()


class _Tries:
    """Trial steps at a learning rate of 0, with the memory needs of training."""

    def __init__(
        self, task: TrainingTask, config: TrainingConfig, optimizer: torch.optim.Optimizer
    ) -> None:
        self.task, self.config, self.optimizer = task, config, optimizer
        self.device = next(task.model.parameters()).device
        self.whole = config.batch_tokens * config.accumulate

    def begin(self) -> bool:
        """Return True if the optimizer state, made at the first step, fits in memory."""
        self._set_gradients(zero=True)
        return _has_room(self.optimizer.step)

    def step(self, tokens: int) -> bool:
        """Return True if steps with the largest batches of this many tokens fit in memory."""
        for batch in self.task.batches.largest(tokens).batches:
            # Of a step's batches the first finds no gradients, all others do.
            self._set_gradients(zero=tokens < self.whole)
            if not self._step_of(batch):
                return False
        return True

    def end(self) -> None:
        """Drop the gradients."""
        self._set_gradients(zero=False)

    def _step_of(self, batch: Any) -> bool:
        self.task.model.train()
        halved = self.config.precision == "bf16"

        def step() -> None:
            with torch.autocast(self.device.type, torch.bfloat16, enabled=halved):
                loss = self.task.loss(batch)
            (loss.total / max(loss.tokens, 1)).backward()  # type: ignore[no-untyped-call]
            self.optimizer.step()

        return _has_room(step)

    def _set_gradients(self, zero: bool) -> None:
        for parameter in self.task.model.parameters():
            if parameter.requires_grad:
                parameter.grad = torch.zeros_like(parameter) if zero else None


def _has_room(work: Callable[[], object]) -> bool:
    try:
        work()
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        return False
    return True


def _fits(tries: _Tries, tokens: int, limit: float) -> bool:
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(tries.device)
    return tries.step(tokens) and torch.cuda.max_memory_reserved(tries.device) <= limit


def _peak(tries: _Tries, tokens: int) -> float:
    give_back_freed_memory()
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # the peak is measured from here
    return _most_resident() if tries.step(tokens) else float("inf")


def _limit_of_gpu(config: TrainingConfig, device: torch.device) -> float:
    if config.memory_limit is not None:
        return config.memory_limit * GIB
    free, _ = torch.cuda.mem_get_info(device)
    return SHARE_OF_GPU * (free + torch.cuda.memory_reserved(device))


def _limit_of_machine(config: TrainingConfig) -> float:
    if config.memory_limit is not None:
        return config.memory_limit * GIB
    free = _free()
    if free is None:
        raise SettingError(
            "fit_memory cannot measure free memory on this system; set training.memory_limit (in "
            "GiB)"
        )
    processes = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return resident() + SHARE_OF_FREE * free / processes


def _free(root: Path = Path("/")) -> float | None:
    """Free bytes of this machine, limited by the container of this process."""
    found: list[float] = []
    with contextlib.suppress(OSError, ValueError):
        for line in (root / "proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                found.append(int(line.split()[1]) * 1024)
    for limit, used in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        with contextlib.suppress(OSError, ValueError):  # "max" where there is none
            group = root / "sys/fs/cgroup"
            found.append(int((group / limit).read_text()) - int((group / used).read_text()))
    return max(min(found), 0.0) if found else None


def _most_resident() -> float:
    """Peak bytes of this process, if reported by the system."""
    with contextlib.suppress(OSError, ValueError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    try:
        import resource
    except ImportError:  # Windows
        raise SettingError(
            "fit_memory cannot measure the memory of a process on this system; set "
            "training.batch_tokens and training.accumulate instead"
        ) from None
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024
