"""Scale of the parts of `gpu.py`, the clock of a GPU, and the matrix peak."""

from __future__ import annotations

import contextlib
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import torch
from workload import SIZES, Size, median

from transduce.nn.repeated_work import RepeatedWork
from transduce.tasks.training import find_device

Findings = dict[str, Any]


class Scale(NamedTuple):
    """Amount of work.

    device: where it is done.  tokens: target positions of a training batch, by size.  steps: of a
    round.  met: those before the first timed one.  rounds: later passes of each library.
    sentences: most that are decoded together.  longest: positions of the longest row.  peak: rows
    of the matrices that the peak is found with.  pairs: lines of the data of a recipe.  budget:
    settings of its training.  runs: directory of runs that a later call continues.
    """

    device: torch.device
    tokens: dict[str, int]
    steps: int
    met: int
    rounds: int
    sentences: int
    longest: int
    peak: int
    pairs: int
    budget: dict[str, int]
    runs: Path

    def size(self, name: str) -> Size:
        """The model of this name; the smallest for all names on a CPU."""
        return SIZES[name if self.device.type == "cuda" else "tiny"]

    @staticmethod
    def of(dry_run: bool, runs: Path) -> Scale:
        """Of a GPU, or next to nothing on a CPU."""
        if dry_run:
            few = dict.fromkeys(("tiny", "small", "base", "big"), 128)
            budget = {"steps": 2, "log_every": 1, "minutes": 20}
            return Scale(find_device("cpu"), few, 2, 1, 1, 2, 32, 256, 40, budget, runs)
        many = {"tiny": 32768, "small": 32768, "base": 25000, "big": 12500}
        return Scale(find_device("cuda"), many, 30, 5, 2, 512, 2048, 8192, 29_000, {}, runs)


def synchronized(device: torch.device) -> None:
    """Wait for all work of the device."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def seconds(device: torch.device, action: Callable[[], object]) -> float:
    """Seconds of an action on the clock, until the device has done its work."""
    synchronized(device)
    began = time.perf_counter()
    action()
    synchronized(device)
    return time.perf_counter() - began


def peak_flops(scale: Scale, dtype: torch.dtype = torch.bfloat16) -> float:
    """Best product of two square matrices, operations a second."""
    n = scale.peak
    a = torch.randn(n, n, device=scale.device, dtype=dtype)
    out = torch.empty_like(a)
    times = [seconds(scale.device, lambda: torch.mm(a, a, out=out)) for _ in range(12)]
    return 2.0 * n**3 / min(times[2:])


def peak_mib(device: torch.device, action: Callable[[], object]) -> int | None:
    """Most memory, in MiB, that an action had allocated at a time; None on a CPU."""
    if device.type != "cuda":
        action()
        return None
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    action()
    synchronized(device)
    return int(torch.cuda.max_memory_allocated(device)) >> 20


def speed(count: int, times: list[float]) -> int:
    """A second, at the median of the times."""
    return round(count / median(times))


@contextlib.contextmanager
def counted_waits(device: torch.device) -> Iterator[list[str]]:
    """Places at which the CPU waits for the GPU within; none are known on a CPU."""
    places: list[str] = []
    if device.type != "cuda":
        yield places
        return
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield places
        places += [
            f"{one.filename}:{one.lineno}" for one in caught if "synchronizing" in str(one.message)
        ]
    finally:
        torch.cuda.set_sync_debug_mode("default")


def against(figure: float, floor: float, goal: float) -> Findings:
    """A figure beside its floor and its goal."""
    reached = "goal" if figure >= goal else "floor" if figure >= floor else "neither"
    return {"figure": figure, "floor": floor, "goal": goal, "reached": reached}


@contextlib.contextmanager
def counted_work() -> Iterator[Callable[[], Findings]]:
    """Recordings of CUDA graphs and compilations by PyTorch within, as a call that counts them."""
    times: list[float] = []
    record = RepeatedWork._record

    def timed(work: RepeatedWork) -> None:
        began = time.perf_counter()
        try:
            record(work)
        finally:
            times.append(time.perf_counter() - began)

    def counts() -> Findings:
        dynamo = sys.modules.get("torch._dynamo.utils")  # not imported where nothing is compiled
        compiled = 0 if dynamo is None else dynamo.counters["stats"]["unique_graphs"]
        return {
            "captures": len(times),
            "seconds_of_captures": round(sum(times), 3),
            "compilations": compiled,
        }

    with mock.patch.object(RepeatedWork, "_record", timed):
        yield counts
