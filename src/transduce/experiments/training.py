"""Training of a sweep's runs, in turn or several processes at a time.

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
from collections.abc import Iterator
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType

import torch

from transduce.errors import (
    OUT_OF_MEMORY,
    MemoryLimitError,
    TrainingError,
    TransduceError,
    first_line,
    is_out_of_memory,
)
from transduce.experiments.definition import Definition
from transduce.experiments.grid import read_varied
from transduce.experiments.trials import Outcome, Trials
from transduce.runs.training import train
from transduce.support.work import available_cores
from transduce.training.curves import read_curves
from transduce.training.signals import InterruptedTraining, handled_by

logger = logging.getLogger("transduce")


def train_trials(trials: Trials, numbers: Iterator[int], select_by: str, jobs: int) -> None:
    """Train the runs of trials, `jobs` at a time, and record their outcomes."""
    ended = _sequentially(trials, numbers, select_by)
    if jobs > 1:
        ended = _in_parallel(trials, numbers, select_by, jobs)
    for number in ended:
        runs = {run.path: run.result for run in trials.runs()}
        outcome = runs[trials.path(number)]
        scores = "  ".join(f"{name} {score:.4g}" for name, score in outcome.scores.items())
        how = f"finished after step {outcome.step:,}: {scores}"
        how = f"failed: {outcome.error}" if outcome.error else how
        logger.info("%s %s", trials.path(number), how)


def _begin(trials: Trials, number: int) -> None:
    logger.info("%s %s", trials.path(number), " ".join(trials.overrides(number)))


def _sequentially(trials: Trials, numbers: Iterator[int], select_by: str) -> Iterator[int]:
    for number in numbers:
        _begin(trials, number)
        train_trial(trials, number, select_by)
        yield number


def _in_parallel(
    trials: Trials, numbers: Iterator[int], select_by: str, jobs: int
) -> Iterator[int]:
    """Train up to `jobs` runs at a time, each in its own process, and yield those that ended.

    The stderr output of a run goes to a file beside its directory, `NAME.log`.  At SIGINT or
    SIGTERM all write a checkpoint and stop; raises InterruptedTraining then.
    """
    context = multiprocessing.get_context("spawn")  # a fork would inherit torch's threads
    threads = max(1, available_cores() // jobs)
    running: dict[int, tuple[BaseProcess, int]] = {}
    with handled_by(_stop):  # wherever the code is
        try:
            while True:
                while len(running) < jobs and (number := next(numbers, None)) is not None:
                    _begin(trials, number)
                    arguments = (trials.directory, number, select_by, threads)
                    process: BaseProcess = context.Process(target=_child, args=arguments)
                    process.start()
                    running[process.sentinel] = process, number
                if not running:
                    return
                for sentinel in wait(list(running)):
                    assert isinstance(sentinel, int)
                    process, number = running.pop(sentinel)
                    process.join()
                    if code := process.exitcode or 0:
                        killer = f"was killed by {signal.Signals(-code).name}" if code < 0 else ""
                        how = killer or f"exited with code {code}"
                        outcome = Outcome(error=f"its process {how}", final=False)
                        trials.end(number, outcome, select_by)
                    yield number
        finally:
            for process, _ in running.values():
                process.terminate()
            for process, _ in running.values():
                process.join()


def _child(directory: Path, number: int, select_by: str, threads: int) -> None:
    if hasattr(os, "setsid"):  # so that Ctrl-C reaches the parent alone, which passes it on once
        os.setsid()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    trials = Trials(directory)
    with trials.path(number).with_suffix(".log").open("ab") as file:
        os.dup2(file.fileno(), 2)
    logging.basicConfig(format="%(message)s", level=logging.INFO)
    torch.set_num_threads(threads)
    try:
        train_trial(trials, number, select_by)
    except InterruptedTraining as stop:
        trials.end(number, Outcome(error=str(stop), final=False), select_by)


def _end_with_parent() -> None:
    """Stop with a checkpoint if the parent has died: a resumed sweep needs the run."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    if os.name == "posix":
        os.kill(os.getpid(), signal.SIGTERM)
    else:  # `kill` would end the process at once
        signal.raise_signal(signal.SIGTERM)


def _stop(number: int, frame: FrameType | None) -> None:
    raise InterruptedTraining(number, "stopped with checkpoints; continue with --resume")


def train_trial(trials: Trials, number: int, select_by: str) -> None:
    """Train the run of a trial, or resume it, and record the outcome.

    Raises InterruptedTraining only.
    """
    definition = Definition.read(trials.directory)
    fixed, _ = read_varied(definition.overrides)
    overrides = (*fixed, *trials.overrides(number))
    trials.end(number, _outcome(definition, overrides, trials.path(number)), select_by)


def _outcome(definition: Definition, overrides: tuple[str, ...], path: Path) -> Outcome:
    begun = (path / "recipe.toml").is_file()
    try:
        _, trained = train(definition.recipe, path, overrides, resume=begun)
    except InterruptedTraining:
        raise
    except (TransduceError, OSError) as error:
        # By the same numbers training would come to the same end; all else may be mended.
        final = isinstance(error, TrainingError) and not isinstance(error, MemoryLimitError)
        return Outcome(error=str(error), final=final)
    except Exception as error:
        if is_out_of_memory(error):
            return Outcome(error=OUT_OF_MEMORY, final=False)
        # A bug of ours: the others shall go on.
        traceback.print_exc()
        return Outcome(error=f"{type(error).__name__}: {first_line(error)}", final=False)
    finally:
        if "torch._dynamo" in sys.modules:  # code compiled for one model is useless to others
            torch.compiler.reset()
    return Outcome(
        step=trained.step,
        best_step=trained.step if trained.averaged else trained.best_step,  # as `compare` has it,
        seconds=read_curves(path).seconds or trained.seconds,  # and this too
        scores=trained.scores,
        higher_is_better=trained.higher_is_better,
    )
