"""The training loop, the same for every task, which it uses only through `TrainingTask`."""

import contextlib
import dataclasses
import itertools
import math
import os
import time
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NoReturn

import torch

from transduce.data.batches import DataState
from transduce.data.workers import prefetch
from transduce.errors import SettingError, TrainingError, first_line
from transduce.support.memory import glibc, release_memory
from transduce.support.tables import html_table
from transduce.training import distributed
from transduce.training.budget import Budget
from transduce.training.checkpoints import Progress, taken_up, what_is_kept
from transduce.training.config import TrainingConfig, learning_rate
from transduce.training.distributed import Ranks
from transduce.training.film import FilmRecorder
from transduce.training.fine_tuning import BaseRun, remove_low_rank_updates, start_from
from transduce.training.log import (
    SilentLog,
    SinceLog,
    TrainingLog,
    as_json,
    read_curves,
    save_batches,
)
from transduce.training.optimizer import build_optimizer
from transduce.training.selection import Checkpointer, Selection
from transduce.training.signals import InterruptedTraining, Signals, watch
from transduce.training.step import (
    NonFiniteError,
    OptimizerStep,
    compile_stacks,
    make_step,
    recompute_layers,
)
from transduce.training.task import PacedTask, TrainingTask
from transduce.training.weight_files import checkpoints_of, discard
from transduce.training.weights import (
    MovingAverage,
    checksum,
    load_weights,
    read_tensors,
    weights_of,
)

# Parameter numbers of <malloc.h>, and the environment variables of the same.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_VARIABLES = {"MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES"}
_LARGEST_BLOCK = 1 << 30
_NEVER = -1


def keep_freed_memory() -> None:
    """Have the C library keep freed blocks of up to a GiB, as PyTorch does on a GPU: the next step
    would wait for their pages, for 4 to 9 % of its time (docs/measurements/performance.md).
    Settings of the environment take precedence; without glibc nothing happens."""
    if not _VARIABLES & os.environ.keys() and (library := glibc()):
        library.mallopt(_MMAP_THRESHOLD, _LARGEST_BLOCK)
        library.mallopt(_TRIM_THRESHOLD, _NEVER)


@contextlib.contextmanager
def denormals_as_zeros() -> Iterator[None]:
    """Have the CPU take numbers below 1.2e-38 for zero.  Means of gradients decay to them where
    there are none, as of a unit of ReLU that is dead or a token that is rare, and some processors
    take a hundred times as long for each (docs/measurements/performance.md)."""
    were_zeros = not (torch.full((1,), 1e-30) * 1e-10).item()
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(were_zeros)


def give_back_freed_memory() -> None:
    """Return unused memory to the system, from a GPU too; from a CPU only with glibc."""
    release_memory()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


RISE = 1.5
"""Factor by which the learning rate must rise at a resumption, to be named."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """Outcome of a training run."""

    step: int
    seconds: float
    best_step: int
    scores: dict[str, float]
    """Validation scores of the kept weights."""
    higher_is_better: bool
    """True if the score of `training.select_by` is better when higher."""
    averaged: int = 0
    """Number of checkpoints averaged into the kept weights instead of `best_step`; 0 for none."""

    def __repr__(self) -> str:
        selected = (
            f"mean of the last {self.averaged}" if self.averaged else f"best {self.best_step:,}"
        )
        scores = ", ".join(f"{name} {value:.4g}" for name, value in self.scores.items())
        return f"<Outcome of {self.step:,} steps in {self.seconds:.0f} s, {selected}: {scores}>"

    def _repr_html_(self) -> str:
        """The validation scores as a table, for a notebook."""
        facts = {"steps": self.step, "seconds": round(self.seconds), "best step": self.best_step}
        return html_table(["outcome", ""], [*facts.items(), *self.scores.items()])


class DataPrepared(Exception):  # noqa: N818  it is not an error
    """Training ended before its first step, within `only_preparing`."""


_preparing: ContextVar[bool] = ContextVar("preparing", default=False)


@contextlib.contextmanager
def only_preparing() -> Iterator[None]:
    """Within the context `train` raises DataPrepared, once vocabularies and data are on disk."""
    token = _preparing.set(True)
    try:
        yield
    finally:
        _preparing.reset(token)


def train(
    task: TrainingTask,
    config: TrainingConfig,
    run: Path,
    resume: bool,
    base: BaseRun | None = None,
    *,
    started: float | None = None,
) -> Outcome:
    """Train until the budget or the patience is used up; the best weights end in the directory
    `run`.

    task: model, batches and loss.  config: of training.  resume: continue from the newest complete
    checkpoint there, exactly as if never interrupted. base: run to start from.  started:
    `time.monotonic` when the budget's minutes began; by default now.

    Raises TrainingError on a loss that is not finite, InterruptedTraining after SIGINT or SIGTERM,
    RunError if something cannot be written or the run to start from does not fit, SettingError for
    settings that do not fit it.
    """
    if _preparing.get():
        raise DataPrepared
    ranks = Ranks.present()
    budget = Budget(config, time.monotonic() if started is None else started)
    if ranks.is_main:
        ranks.barrier()  # the others may now open the prepared files
    # A machine that came later does not know that the others have been started again.
    resume = bool(*ranks.all_reduce_max(resume))
    log = TrainingLog(run, config.tensorboard) if ranks.is_main else SilentLog(run)
    with watch.over(run, ranks.rank, ranks.world, 60 * config.rank_timeout), log:
        resuming = resume and bool(checkpoints_of(run))
        adapter = None
        if base is not None:
            adapter = start_from(task.model, base, run, resuming)
        if config.recompute:
            recompute_layers(task.model)
        ranks.check_device(task.model)
        ranks.check_same(lambda: checksum(weights_of(task.model)))
        shards = distributed.Shards(task) if distributed.is_enabled(config) else None
        decay = base.config.layer_decay if base else 1.0
        optimizer = build_optimizer(task.model, config, decay)
        ranks.seed_rank()
        step = make_step(task, config, optimizer, ranks, log.message, shards)
        ema = MovingAverage(task.model, config.ema) if config.ema else None
        checkpointer = Checkpointer(run, task.model, optimizer, ema, adapter, log.message)
        return _Trainer(task, config, budget, log, step, checkpointer).train(resume)


@dataclasses.dataclass
class _Trainer:
    task: TrainingTask
    config: TrainingConfig
    budget: Budget
    log: TrainingLog
    step: OptimizerStep
    checkpointer: Checkpointer

    def __post_init__(self) -> None:
        task, config = self.task, self.config
        self.run, self.ema = self.checkpointer.run, self.checkpointer.ema
        self.ranks, self.shards, self.signals = self.step.ranks, self.step.shards, Signals()
        self.film = FilmRecorder(task, config, self.run, self.shards)
        self.selection = Selection(
            task, config, self.log, self.checkpointer, self.signals, self.shards
        )
        self.progress = Progress(
            select_by=config.select_by,
            ranks=self.ranks.world,
            batches=self.ranks.world * config.accumulate,
            data_checksum=task.batches.checksum() if self.ranks.is_main else "",
            validation_checksum=self.ranks.broadcast_from_main(
                lambda: task.validation_checksum(config.select_by)
            ),
        )

    def train(self, resume: bool) -> Outcome:
        if resume:
            self._resume()
        packer = self.step.packer
        if self.config.compile and (packer is None or packer.waits):
            compile_stacks(self.task.model, dynamic=packer is None)
        self.budget.begin(self.progress.step)
        self._since_log = SinceLog(**self.progress.unlogged)  # type: ignore[arg-type]
        keep_freed_memory()
        batches = prefetch(self.task.batches.iterate(self.ranks.data_state(self.progress.data)))
        with self.signals.noted(), contextlib.closing(batches), denormals_as_zeros():
            self._agree()
            if resume:
                self._report_rate()
            self.film.begin(self.progress.step, self._share_done())
            # However short the time, there is a first step, and so something to keep.
            finished = self.progress.step > 0 and self._finished()
            if self.progress.interrupted and (
                finished or self.budget.is_validation_due(self.progress.step)
            ):
                self._validate()
                finished = finished or self._finished()
            elif finished:
                self.log.message(f"nothing left to train after step {self.progress.step:,}")
            advised = finished
            while not finished:
                with self.budget.timed_step():
                    self._step(list(itertools.islice(batches, self.config.accumulate)))
                # Asked once: had the clock passed the end between two looks, the last weights
                # would never be validated.
                self._agree()
                self.budget.count(self.progress.step)
                finished = self._finished()
                self.film.look(self.progress.step, self._share_done())
                if finished:
                    self.budget.end(self.progress.step)
                if not advised and self.budget.is_foreseen():
                    advised = True
                    for line in self.budget.advice(self.progress.step):
                        self.log.message(line)
                if self._signal:
                    self._stop_for_signal()
                if finished or self.budget.is_validation_due(self.progress.step):
                    self._validate()
                    finished = finished or self._finished()
            if self._signal:  # while the last checkpoint was written
                self._fail_by_signal()
        return self._finish()

    def _agree(self) -> None:
        """Time, pace, and True after a signal: the same for all ranks."""
        budget = self.budget
        signal, budget.elapsed, budget.pace, budget.mean = self.ranks.all_reduce_max(
            self.signals.number, budget.seconds(), budget.own_pace, budget.own_mean
        )
        self._signal = int(signal)

    def _rate(self, step: int) -> float:
        return learning_rate(self.config.schedule, step, self._share_done(), self.task.d_model)

    def _step(self, micro_batches: list[tuple[Any, DataState]]) -> None:
        progress = self.progress
        step = progress.step + 1
        share = self._share_done()
        rate = self._rate(step)
        if isinstance(self.task, PacedTask):
            self.task.begin_step(share)
        batches = [batch for batch, _ in micro_batches]
        target_tokens = sum(batch.target_tokens for batch in batches)
        count, progress.data = self.ranks.gather_step(target_tokens, micro_batches[-1][1])
        failure = None
        try:
            self.step(step, batches, rate, count)
        except NonFiniteError as error:
            failure = error
        except RuntimeError as error:
            if self.config.compile:
                raise self._not_compiled(error) from None
            raise
        if step == 1 and self.ranks.is_main:
            discard(self.run)  # neither a setting nor the machine forbids this training
        if failure is not None:
            self._skip_or_stop(failure)
        else:
            progress.skipped = 0
            if self.ema is not None:
                self.ema.update(self.task.model, step)
            self._since_log.count += count
        progress.step = step
        progress.target_tokens += count
        if self.step.is_read:
            self._read()
        if step % self.config.log_every == 0:
            self._read()
            self.log.training(self._record(rate), *self._outlook())
            self._since_log = SinceLog()
        elif self.log.is_behind():
            self._read()
            self.log.show(self._record(rate), *self._outlook())

    def _read(self) -> None:
        """Learn the outcome of all steps so far, for which a GPU has to be waited for."""
        try:
            self._since_log.nll += self.step.read()
        except NonFiniteError as error:
            self._skip_or_stop(error)

    def _not_compiled(self, error: RuntimeError) -> BaseException:
        """Error of a step, as a line if caused by PyTorch's compiler or its environment."""
        from torch._dynamo.exc import TorchDynamoException

        if not isinstance(error, TorchDynamoException):
            return error
        message = f"training.compile: {first_line(error)}; remove it"
        return self.ranks.error_on_main(SettingError(message), SettingError.exit_code)

    def _skip_or_stop(self, error: NonFiniteError) -> None:
        step = error.number
        batches = [(self.task.describe(batch), as_json(batch)) for batch in error.batches]
        reports = self.ranks.gather_values((error.what, batches))
        what = next(what for what, _ in reports if what)
        described = [batch for _, batches in reports for batch in batches]
        where = " in " + " and ".join(text for text, _ in described)
        if self.ranks.is_main and (directory := save_batches(self.run, step, what, described)):
            where += f", saved in {directory}"
        self.progress.skipped += 1
        limit = self.config.skip_at_most
        if self.config.non_finite == "stop":
            self._fail(what, step, where)
        if self.progress.skipped > limit:
            self._fail(what, step, f"{where}, after {limit} skipped steps in a row")
        self._since_log.skipped += 1
        self.log.message(f"the {what} at step {step:,}{where}; the step is skipped")

    def _fail(self, what: str, step: int, where: str) -> NoReturn:
        raise self.ranks.error_on_main(
            TrainingError(
                f"the {what} at step {step:,}{where}; {what_is_kept(self.run)}; lower the "
                "learning rate, warm up longer, or set training.clip_norm = 1.0"
            )
        )

    def _share_done(self) -> float:
        return self.budget.share(self.progress.step)

    def _finished(self) -> bool:
        patience = self.config.patience
        return self._share_done() >= 1 or bool(patience and self.progress.since_best >= patience)

    def _record(self, rate: float) -> dict[str, Any]:
        since = self._since_log
        record = {
            "step": self.progress.step,
            "epoch": self.progress.data.epoch,
            "loss": since.nll / since.count if since.count else None,
            "learning_rate": rate,
            "tokens_per_second": since.count / since.elapsed(),
            "seconds": self.budget.seconds(),
        }
        if self.config.minutes is not None:
            record["expected_steps"] = self.budget.expected_steps(self.progress.step)
        if since.skipped:
            record["skipped"] = since.skipped
        return record

    def _outlook(self) -> tuple[str, float, float]:
        return self.task.unit, self._share_done(), self.budget.seconds_left(self.progress.step)

    def _validate(self) -> None:
        self._read()
        progress, began = self.progress, time.monotonic()
        averaged = self.ema.in_place_of(self.task.model) if self.ema else contextlib.nullcontext()
        with averaged:
            scores = self.selection.scores(progress.validation_seconds)
        if scores is None:
            self._agree()
            self._stop_for_signal()
        (progress.validation_seconds,) = self.ranks.all_reduce_max(time.monotonic() - began)
        if not math.isfinite(scores["loss"]):
            self._fail(f"validation loss is {scores['loss']}", progress.step, "")
        chosen = self.config.select_by
        if chosen not in scores:
            progress.interrupted = True  # keeps the training for a resumed run
            self._save()
            known = ", ".join(repr(name) for name in scores)
            error = f"training.select_by = {chosen!r}, but validation measured only {known}; "
            error += "choose one of these and continue with --resume"
            raise self.ranks.error_on_main(SettingError(error), SettingError.exit_code)
        best = self.selection.is_best(scores, progress)
        progress.since_best = 0 if best else progress.since_best + 1
        progress.interrupted, progress.unlogged = False, {}
        if best:
            progress.best, progress.best_step = scores[chosen], progress.step
            progress.best_scores = scores
        record = {"step": progress.step, "seconds": self.budget.seconds(), **scores}
        self.log.validation(record, best)
        self._keep(best)
        self._since_log = SinceLog()
        self._agree()

    def _keep(self, best: bool) -> None:
        began = time.monotonic()
        with self.log.phase("writing the checkpoint", self.progress.writing_seconds):
            self._save()
            if best:  # after the checkpoint, from which `_resume` makes up for a kill in between
                self.checkpointer.save_best(self.progress.step)
            self._prune()
        (writing,) = self.ranks.all_reduce_max(time.monotonic() - began)
        self.progress.writing_seconds = max(self.progress.writing_seconds, writing)
        self.budget.measured(self.progress)

    def _prune(self) -> None:
        limit = max(self.config.keep_last, self.config.average_last)
        self.checkpointer.prune(limit, self.progress.step)

    def _save(self) -> None:
        self.budget.record(self.progress)
        self.log.flush()
        self.checkpointer.save(self.progress)

    def _resume(self) -> None:
        before = self.checkpointer.resume()
        self.log.rewind(before.step if before else 0)
        if before is None:
            self.log.message("no checkpoint to resume yet; starting from the beginning")
            return
        self.log.message(f"resuming after step {before.step:,}")
        self.progress, changes = taken_up(before, self.progress)
        for change in changes:
            self.log.message(change)
        self.budget.resume(before)

    def _report_rate(self) -> None:
        """Name a learning rate that rises because training was resumed for longer."""
        step, logged = self.progress.step, read_curves(self.run).train
        if self._share_done() >= 1 or not logged:
            return
        was, before = float(logged[-1].get("learning_rate", math.inf)), int(logged[-1]["step"])
        now = self._rate(step + 1)
        if now > RISE * was * max((step + 1) / max(before, 1), 1):
            kind = self.config.schedule.kind
            self.log.message(
                f"the learning rate rises from {was:.3g} to {now:.3g}: the {kind} schedule goes by "
                "the share of the training that is done, which is less now"
            )

    def _stop_for_signal(self) -> NoReturn:
        self._read()
        self.progress.interrupted, self.progress.unlogged = True, self._since_log.stopped()
        self._save()
        self._fail_by_signal()

    def _fail_by_signal(self) -> NoReturn:
        stopped = f"stopped after step {self.progress.step:,}; continue with --resume"
        error = InterruptedTraining(self._signal, stopped)
        raise self.ranks.error_on_main(error, 128 + self._signal)

    def _finish(self) -> Outcome:
        self.log.ended()
        self.film.end(self.progress.step, self._share_done())
        self._prune()  # where a kill came between the last checkpoint and this
        progress, scores = self.progress, self.progress.best_scores
        if self._share_done() < 1:
            self.log.message(
                f"stopped by training.patience: no improvement in {progress.since_best} "
                f"validations since step {progress.best_step:,}"
            )
        higher_is_better = self.task.higher_is_better(self.config.select_by)
        averaged = 0
        if self.config.average_last:
            averaged, averaged_scores = self.selection.average_last(progress)
            scores = averaged_scores or scores
        if self.ranks.is_main and self.shards is None:
            remove_low_rank_updates(self.task.model)
            best = read_tensors(self.run / "weights.safetensors")
            load_weights(self.task.model, best, str(self.run))
            self.task.model.eval()
        if not averaged and self.shards is None:
            averaged, scores = self.selection.mean_of_before(progress) or (0, scores)
        seconds = self.budget.seconds()
        return Outcome(
            progress.step, seconds, progress.best_step, scores, higher_is_better, averaged
        )
