"""The training loop: one for every task.

The loop knows a `Trainable`, not what it is made of: batches that can be taken up again at any
place, a loss as sums, and a validation.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
import time
from pathlib import Path
from typing import Any, NoReturn, Protocol

import torch

from transduce.data.batches import DataState
from transduce.data.prefetch import prefetch
from transduce.errors import SettingError, TrainingError, first_line
from transduce.training import sharding
from transduce.training.averaging import MovingAverage
from transduce.training.bad_batches import as_json, save_batches
from transduce.training.checkpoints import (
    Progress,
    checkpoints_of,
    served_weights,
    what_is_kept,
)
from transduce.training.config import TrainingConfig
from transduce.training.distributed import Ranks
from transduce.training.fine_tuning import (
    Adapter,
    FineTuneConfig,
    Fit,
    remove_low_rank_updates,
    start_from,
)
from transduce.training.fit_memory import Fitting, find_budget
from transduce.training.keeper import Keeper
from transduce.training.log import SilentLog, SinceLog, TrainingLog
from transduce.training.memory import keep_freed_memory
from transduce.training.optimizer import build_optimizer
from transduce.training.recompute import recompute_layers
from transduce.training.replaced import let_go
from transduce.training.schedules import learning_rate
from transduce.training.signals import InterruptedTraining, Signals, StoppedValidation
from transduce.training.step import NonFiniteError, OptimizerStep
from transduce.training.weights import checksum, load_weights, mean, read_tensors, weights_of


class Trainable(Fitting, Protocol):
    """What the loop needs to know of a task, beside what a step and the search of its size do."""

    d_model: int
    unit: str
    """What the loss is the mean of, for the log: "tokens", "images"."""

    def validate(self) -> dict[str, float]:
        """Scores on held-out data, "loss" among them."""

    def higher_is_better(self, score: str) -> bool:
        """Whether a larger value of this score is a better one."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a training run ended."""

    step: int
    seconds: float
    best_step: int
    scores: dict[str, float]
    """Validation scores of the weights that were kept."""
    higher_is_better: bool
    """Whether that holds for the score that `training.select_by` names."""
    averaged: int = 0
    """Checkpoints whose mean was kept, in place of the weights of `best_step`; 0 for none."""


def train(
    task: Trainable,
    config: TrainingConfig,
    run: Path,
    resume: bool,
    fine_tune: FineTuneConfig | None = None,
    fit: Fit | None = None,
    anew: tuple[str, ...] = (),
) -> Outcome:
    """Train until the budget or the patience is used up; the best weights end in `run`.

    run: directory for `weights.safetensors`, `metrics.jsonl` and `checkpoints/`.
    resume: go on from the newest whole checkpoint there, exactly as if never interrupted.
    fine_tune: another run to start from, and how; by default from the weights as they are.
    fit: makes tensors of that run fit where their shapes differ.
    anew: how names begin of tensors that mean something else there, and are not taken over.
    Raises FoundBudget where `fit_memory` was asked for, to be called again with what was found;
    TrainingError on a loss that is not finite, InterruptedTraining after SIGINT or SIGTERM,
    RunError where something cannot be written or the run to start from does not fit, SettingError
    for settings that do not fit it.
    """
    ranks = Ranks.present()
    if ranks.first:
        ranks.wait()  # the others may open now what it has prepared
    # A machine that came later does not know that the others have been started again.
    resume = bool(*ranks.largest(resume))
    with TrainingLog(run, config.tensorboard) if ranks.first else SilentLog() as log:
        resuming = resume and bool(checkpoints_of(run))
        adapter = None
        if fine_tune:
            adapter = start_from(task.model, fine_tune, run, resuming, fit, anew)
        if config.recompute:
            recompute_layers(task.model)
        ranks.check_device(task.model)
        ranks.check_same(lambda: checksum(weights_of(task.model)))
        shards = sharding.Shards(task) if sharding.is_wanted(config) else None
        decay = fine_tune.layer_decay if fine_tune else 1.0
        fitting = config.fit_memory and not resuming
        # Each rank tries batches of its own, and not as many as the others.
        optimizer = build_optimizer(task.model, config, decay, Ranks() if fitting else ranks)
        if fitting:
            raise find_budget(task, config, optimizer, ranks, log.say)
        ranks.own_random_numbers()
        return _Trainer(task, config, run, log, optimizer, adapter, shards).train(resume)


class _Trainer:
    def __init__(
        self,
        task: Trainable,
        config: TrainingConfig,
        run: Path,
        log: TrainingLog,
        optimizer: torch.optim.Optimizer,
        adapter: Adapter | None,
        shards: sharding.Shards | None,
    ) -> None:
        self.task = task
        self.config = config
        self.run = run
        self.log = log
        self.ema = MovingAverage(task.model, config.ema) if config.ema else None
        self.ranks = Ranks.present()
        self.shards = shards
        self.step = OptimizerStep(task, config, optimizer, self.ranks, log.say, shards)
        self.keeper = Keeper(run, task.model, optimizer, self.ema, adapter, log.say)
        self.progress = Progress()
        self.signals = Signals()
        self._data_checksum = task.batches.checksum() if self.ranks.first else ""

    def train(self, resume: bool) -> Outcome:
        if resume:
            self._resume()
        if self.config.compile:
            for name in ("encoder", "decoder"):
                if hasattr(self.task.model, name):
                    getattr(self.task.model, name).compile(dynamic=True)
        self._before, self._started = self.progress.seconds, time.monotonic()
        self._since_log = SinceLog(**self.progress.unlogged)  # type: ignore[arg-type]
        keep_freed_memory()
        batches = prefetch(self.task.batches.iterate(self.ranks.turns(self.progress.data)))
        with self.signals.noted(), contextlib.closing(batches):
            self._agree()
            # However short the time, there is a first step, and so something to keep.
            finished = self.progress.step > 0 and self._finished()
            if self.progress.interrupted and (finished or self._validation_is_due()):
                self._validate()
                finished = finished or self._finished()
            elif finished:
                self.log.say(f"step {self.progress.step:,} was the last one already")
            while not finished:
                self._step(list(itertools.islice(batches, self.config.accumulate)))
                # Asked once: had the clock passed the end between two looks, the last weights
                # would never be validated.
                self._agree()
                finished = self._finished()
                if self._signal:
                    self._stop_for_signal()
                if finished or self._validation_is_due():
                    self._validate()
                    finished = finished or self._finished()
            if self._signal:  # while the last checkpoint was written
                self._fail_by_signal()
        return self._finish()

    def _agree(self) -> None:
        """What time it is and whether a signal came, the same for all ranks."""
        signal, self._elapsed = self.ranks.largest(self.signals.number, self._seconds())
        self._signal = int(signal)

    def _step(self, micro_batches: list[tuple[Any, DataState]]) -> None:
        """One optimizer step over one or more batches."""
        progress = self.progress
        step = progress.step + 1
        rate = learning_rate(self.config.schedule, step, self._share_done(), self.task.d_model)
        batches = [batch for batch, _ in micro_batches]
        own = sum(batch.target_tokens for batch in batches)
        count, progress.data = self.ranks.whole_step(own, micro_batches[-1][1])
        failure = None
        try:
            nll = self.step(step, batches, rate, count)
        except NonFiniteError as error:
            failure = error
        except RuntimeError as error:
            if self.config.compile:
                raise self._not_compiled(error) from None
            raise
        if step == 1 and self.ranks.first:
            let_go(self.run)  # neither a setting nor the machine forbids this training
        if failure is not None:
            self._skip_or_stop(step, failure)
        else:
            progress.skipped = 0
            if self.ema is not None:
                self.ema.update(self.task.model, step)
            self._since_log.add(nll, count)
        progress.step = step
        progress.target_tokens += count
        if step % self.config.log_every == 0:
            self._log(rate)

    def _not_compiled(self, error: RuntimeError) -> BaseException:
        """The error of a step, in one line where PyTorch's compiler is at fault, or the machine."""
        from torch._dynamo.exc import TorchDynamoException

        if not isinstance(error, TorchDynamoException):
            return error
        told = f"training.compile: {first_line(error)}; leave it out"
        return self.ranks.told_by_first(SettingError(told), SettingError.exit_code)

    def _skip_or_stop(self, step: int, error: NonFiniteError) -> None:
        own = [(self.task.describe(batch), as_json(batch)) for batch in error.batches]
        found = self.ranks.gather_values((error.what, own))
        what = next(what for what, _ in found if what)
        described = [one for _, own in found for one in own]
        where = " in " + " and ".join(text for text, _ in described)
        if self.ranks.first and (kept := save_batches(self.run, step, what, described)):
            where += f", which is in {kept}"
        self.progress.skipped += 1
        limit = self.config.skip_at_most
        if self.config.non_finite == "stop":
            self._fail(what, step, where)
        if self.progress.skipped > limit:
            self._fail(what, step, f"{where}, after {limit} skipped steps in a row")
        self._since_log.skipped += 1
        self.log.say(f"the {what} at step {step:,}{where}; the step is skipped")

    def _fail(self, what: str, step: int, where: str) -> NoReturn:
        raise self.ranks.told_by_first(
            TrainingError(
                f"the {what} at step {step:,}{where}; {what_is_kept(self.run)}; lower the "
                "learning rate, warm up longer, or set training.clip_norm = 1.0"
            )
        )

    def _validation_is_due(self) -> bool:
        return self.progress.step % self.config.validate_every == 0

    def _seconds(self) -> float:
        return self._before + time.monotonic() - self._started

    def _share_done(self) -> float:
        share = self.progress.step / self.config.steps
        if self.config.minutes is not None:
            share = max(share, self._elapsed / (60 * self.config.minutes))
        return min(share, 1.0)

    def _finished(self) -> bool:
        patience = self.config.patience
        return self._share_done() >= 1 or bool(patience and self.progress.since_best >= patience)

    def _log(self, rate: float) -> None:
        since = self._since_log
        record = {
            "step": self.progress.step,
            "epoch": self.progress.data.epoch,
            "loss": since.nll / since.count if since.count else None,
            "learning_rate": rate,
            "tokens_per_second": since.count / since.elapsed(),
            "seconds": self._seconds(),
        }
        if since.skipped:
            record["skipped"] = since.skipped
        self._since_log = SinceLog()
        share = self._share_done()
        left = self._seconds() * (1 - share) / share if share else 0.0
        self.log.training(record, self.task.unit, share, left)

    def _validate(self) -> None:
        """Score the weights, write a checkpoint, keep the weights if they are the best."""
        progress = self.progress
        averaged = self.ema.in_place_of(self.task.model) if self.ema else contextlib.nullcontext()
        with averaged:
            scores = self._scores()
        if scores is None:
            self._agree()
            self._stop_for_signal()
        if not math.isfinite(scores["loss"]):
            self._fail(f"validation loss is {scores['loss']}", progress.step, "")
        chosen = self.config.select_by
        if chosen not in scores:
            progress.interrupted = True  # nothing of what was learnt is lost
            self._save()
            known = ", ".join(repr(name) for name in scores)
            error = f"training.select_by is {chosen!r}; this validation measured {known} alone; "
            error += "give another and go on with --resume"
            raise self.ranks.told_by_first(SettingError(error), SettingError.exit_code)
        best = self._is_best(scores)
        progress.since_best = 0 if best else progress.since_best + 1
        progress.interrupted, progress.unlogged = False, {}
        if best:
            progress.best, progress.best_step = scores[chosen], progress.step
            progress.best_scores = scores
        record = {"step": progress.step, "seconds": self._seconds(), **scores}
        self.log.validation(record, best)
        self._save()
        if best:  # after the checkpoint, from which `_resume` makes up for a kill in between
            self.keeper.keep_best(progress.step)
        self._prune()
        self._since_log = SinceLog()
        self._agree()

    def _is_best(self, scores: dict[str, float]) -> bool:
        """Whether these are better than any before, by the score that `select_by` names."""
        sign = 1 if self.task.higher_is_better(self.config.select_by) else -1
        best = self.progress.best
        return best is None or sign * scores[self.config.select_by] > sign * best

    def _prune(self) -> None:
        kept = max(self.config.keep_last, self.config.average_last)
        self.keeper.prune(kept, self.progress.step)

    def _scores(self) -> dict[str, float] | None:
        """Of the weights as they are, by the first rank for all; None where a signal came."""
        self.task.model.eval()
        whole = self.shards.whole() if self.shards else contextlib.nullcontext()
        # Decoding comes in too many shapes to compile for.
        stance = "force_eager" if self.config.compile else "default"
        with whole, torch.compiler.set_stance(stance):
            return self.ranks.from_first(self._own_scores)

    def _own_scores(self) -> dict[str, float] | None:
        try:
            with self.signals.cutting_short():
                return self.task.validate()
        except StoppedValidation:
            return None

    @property
    def _batches(self) -> int:
        """In a step, of all ranks."""
        return self.ranks.world * self.config.accumulate

    def _save(self) -> None:
        self.progress.seconds, self.progress.ranks = self._seconds(), self.ranks.world
        self.progress.data_checksum = self._data_checksum
        self.progress.select_by = self.config.select_by
        self.progress.batches = self._batches
        self.log.flush()
        self.keeper.save(self.progress)

    def _resume(self) -> None:
        progress = self.keeper.resume()
        if progress is None:
            self.log.say("nothing to resume from yet; starting at the beginning")
            self.log.rewind(0)
            return
        self.progress = progress
        # Resumed with another `select_by`, old and new scores must not be compared, nor may the
        # patience of the old one end this.
        self.progress.best = progress.best_scores.get(self.config.select_by)
        unknown = progress.best_scores and progress.best is None
        if unknown or progress.select_by not in ("", self.config.select_by):
            progress.since_best = 0
        self.log.rewind(self.progress.step)
        self.log.say(f"resuming after step {self.progress.step:,}")
        if self.ranks.first and progress.data_checksum not in ("", self._data_checksum):
            self.log.say(
                "the training data are not those of before; with these it goes on, at the same "
                "place of an epoch"
            )
        then, now = progress.ranks, self.ranks.world
        if then != now:
            self.log.say(
                f"number of processes: {then} before, {now} now; random numbers begin afresh"
            )
        if progress.batches not in (0, self._batches):
            self.log.say(
                f"batches in a step: {progress.batches} before, {self._batches} now; that is "
                "training.accumulate times the number of processes"
            )

    def _stop_for_signal(self) -> NoReturn:
        self.progress.interrupted, self.progress.unlogged = True, self._since_log.stopped()
        self._save()
        self._fail_by_signal()

    def _fail_by_signal(self) -> NoReturn:
        stopped = f"stopped after step {self.progress.step:,}; go on with --resume"
        error = InterruptedTraining(self._signal, stopped)
        raise self.ranks.told_by_first(error, 128 + self._signal)

    def _finish(self) -> Outcome:
        """Average the last checkpoints if asked to, and say how it ended."""
        self._prune()  # where a kill came between the last checkpoint and this
        progress, scores = self.progress, self.progress.best_scores
        if self._share_done() < 1:
            self.log.say(
                f"ended by training.patience: {progress.since_best} validations were no better "
                f"than that of step {progress.best_step:,}"
            )
        higher_is_better = self.task.higher_is_better(self.config.select_by)
        averaged = 0
        if self.config.average_last:
            averaged, found = self._average_last()
            scores = found or scores
        if self.ranks.first and self.shards is None:
            remove_low_rank_updates(self.task.model)
            best = read_tensors(self.run / "weights.safetensors")
            load_weights(self.task.model, best, str(self.run))
            self.task.model.eval()
        if not averaged and self.shards is None and (mean := self._mean_of_before()):
            averaged, scores = mean
        seconds = self._seconds()
        return Outcome(
            progress.step, seconds, progress.best_step, scores, higher_is_better, averaged
        )

    def _mean_of_before(self) -> tuple[int, dict[str, float]] | None:
        """Of how many checkpoints the kept weights are a mean, and its scores, where they are one
        that training has found before it was resumed, and no step has been better since."""
        count = self.ranks.from_first(lambda: self.keeper.mean)
        if not count:
            return None
        found = self._scores_of_mean(count)
        return None if found is None else (count, found[0])

    def _scores_of_mean(self, count: int) -> tuple[dict[str, float], bool] | None:
        """Those of the model, a mean of so many checkpoints, and whether they are the best.

        None where the score that decides could not be measured, or the loss is no number.
        """
        scores = self._scores()
        assert scores is not None, "no signal is noted any more"
        if self.config.select_by not in scores or not math.isfinite(scores["loss"]):
            return None
        best = self._is_best(scores)
        self.log.validation({"step": self.progress.step, "averaged": count, **scores}, best)
        return scores, best

    def _average_last(self) -> tuple[int, dict[str, float] | None]:
        """Keep the mean of the last checkpoints: of how many it is, and its scores.

        0 and None where there is but one and more were wanted.
        """
        found = self.ranks.from_first(lambda: [str(path) for path in checkpoints_of(self.run)])
        wanted = self.config.average_last
        last = [Path(path) for path in found[-wanted:]]
        if len(last) < wanted:
            self.log.say(f"training.average_last = {wanted}, but checkpoints there are {len(last)}")
        if len(last) < min(wanted, 2):
            return 0, None
        what = (
            f"the mean of the last {len(last)} checkpoints" if wanted > 1 else "the last checkpoint"
        )
        averaged = mean(map(served_weights, last))
        load_weights(self.task.model, averaged, "the average of the last checkpoints")
        found_scores = self._scores_of_mean(len(last))
        if found_scores is None:
            self.log.say(
                f"{what} has no {self.config.select_by} that could be measured; the weights of "
                f"step {self.progress.best_step:,} are kept"
            )
            return 0, None
        scores, best = found_scores
        same = wanted == 1 and self.progress.best_step == self.progress.step
        better = "" if best or same else f", though step {self.progress.best_step:,} was no worse"
        self.log.say(f"{what} is kept{better}")
        self.keeper.keep_mean(averaged, len(last))
        return len(last), scores
