"""Training of a sweep's runs, one after the other or several processes at a time.

A failed run is a result like any other, with its reason; the rest continues.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from transduce.data.workers import available_cores
from transduce.errors import (
    OUT_OF_MEMORY,
    MemoryLimitError,
    TrainingError,
    TransduceError,
    first_line,
    is_out_of_memory,
)
from transduce.experiments.grid import Overrides
from transduce.train_run import train
from transduce.training.curves import read_curves
from transduce.training.signals import InterruptedTraining


@dataclass(frozen=True)
class Job:
    """One run to train: `settings` with `fixed` and `overrides` applied, into `path`."""

    path: Path
    settings: Mapping[str, Any]
    overrides: Overrides
    """Settings that distinguish this run from others."""
    fixed: Overrides = ()


@dataclass(frozen=True)
class JobResult:
    """Outcome of a run of a sweep."""

    error: str = ""
    """Reason of a failure; empty on success."""
    final: bool = True
    """True if another try would end the same way."""
    step: int = 0
    best_step: int = 0
    seconds: float = 0.0
    """Wall-clock training time, over all sessions."""
    scores: Mapping[str, float] = field(default_factory=dict)
    """Validation scores of the kept weights."""
    higher_is_better: bool = False
    """True if a higher `training.select_by` score is better."""


JobRunner = Generator[tuple[Job, JobResult], None, None]


def run_job(job: Job) -> JobResult:
    """Train one run, or resume it.  Raises InterruptedTraining only."""
    begun = (job.path / "recipe.toml").is_file()
    try:
        given = (*job.fixed, *job.overrides)
        _, outcome = train(job.settings, job.path, given, resume=begun)
    except InterruptedTraining:
        raise
    except (TransduceError, OSError) as error:
        # By the same numbers training would come to the same end; all else may be mended.
        final = isinstance(error, TrainingError) and not isinstance(error, MemoryLimitError)
        return JobResult(error=str(error), final=final)
    except Exception as error:
        if is_out_of_memory(error):
            return JobResult(error=OUT_OF_MEMORY, final=False)
        # A bug of ours: the others shall go on.
        traceback.print_exc()
        return JobResult(error=f"{type(error).__name__}: {first_line(error)}", final=False)
    finally:
        if "torch._dynamo" in sys.modules:  # code compiled for one model is useless to others
            torch.compiler.reset()
    return JobResult(
        step=outcome.step,
        best_step=outcome.step if outcome.averaged else outcome.best_step,  # as `compare` has it,
        seconds=read_curves(job.path).seconds or outcome.seconds,  # and this too
        scores=outcome.scores,
        higher_is_better=outcome.higher_is_better,
    )


def sequentially(ask: Callable[[], Job | None]) -> JobRunner:
    """Train the requested runs one after the other in this process."""
    while (job := ask()) is not None:
        yield job, run_job(job)


def in_parallel(ask: Callable[[], Job | None], count: int) -> JobRunner:
    """Train the requested runs, up to `count` at a time, each in its own process.

    The stderr output of a run goes to a file beside its directory, `NAME.log`.  At SIGINT or
    SIGTERM all write a checkpoint and stop; raises InterruptedTraining then.
    """
    context = multiprocessing.get_context("spawn")  # a fork would inherit torch's threads
    threads = max(1, available_cores() // count)
    running: dict[Connection, tuple[BaseProcess, Job]] = {}
    with _signals_raised():
        try:
            while True:
                while len(running) < count and (job := ask()) is not None:
                    receiver, sender = context.Pipe(duplex=False)
                    process: BaseProcess = context.Process(
                        target=_child, args=(job, threads, sender)
                    )
                    running[receiver] = process, job
                    process.start()
                    sender.close()
                if not running:
                    return
                ready = wait(list(running))
                for receiver in [one for one in running if one in ready]:
                    process, job = running.pop(receiver)
                    yield job, _received(receiver, process)
        finally:
            begun = [process for process, _ in running.values() if process.pid is not None]
            for process in begun:
                process.terminate()
            for process in begun:
                process.join()


def _child(job: Job, threads: int, sender: Connection) -> None:
    if hasattr(os, "setsid"):  # so that Ctrl-C reaches the parent alone, which passes it on once
        os.setsid()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    log = job.path.with_name(f"{job.path.name}.log")
    with log.open("ab") as file:
        os.dup2(file.fileno(), 2)
    logging.basicConfig(format="%(message)s", level=logging.INFO)
    torch.set_num_threads(threads)
    try:
        result = run_job(job)
    except InterruptedTraining as stop:
        result = JobResult(error=str(stop), final=False)
    with suppress(BrokenPipeError):  # the parent may have been killed
        sender.send(result)


def _end_with_parent() -> None:
    """Stop with a checkpoint if the parent has died: a resumed sweep needs the run."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    if os.name == "posix":
        os.kill(os.getpid(), signal.SIGTERM)
    else:  # `kill` would end the process at once
        signal.raise_signal(signal.SIGTERM)


def _received(receiver: Connection, process: BaseProcess) -> JobResult:
    """Result from a process, or a failure if it ended without one."""
    try:
        result: JobResult = receiver.recv()
    except EOFError:
        process.join()
        code = process.exitcode or 0
        killer = signal.Signals(-code).name if code < 0 else ""
        how = f"was killed by {killer}" if killer else f"exited with code {code}"
        result = JobResult(error=f"its process {how}", final=False)
    process.join()
    receiver.close()
    return result


@contextmanager
def _signals_raised() -> Iterator[None]:
    """Raise SIGINT and SIGTERM as InterruptedTraining anywhere in the code."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise InterruptedTraining(number, "stopped with checkpoints; continue with --resume")

    try:
        before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not the main thread: signals are the caller's affair
        before = {}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
