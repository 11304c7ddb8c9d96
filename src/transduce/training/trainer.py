"""The training loop: one for every task.

The loop knows a `Trainable`, not what it is made of: batches that can be taken up again at any
place, a loss as sums, and a validation.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

import torch
from torch import nn

from transduce.data.batches import DataState
from transduce.data.prefetch import prefetch
from transduce.errors import RunError, SettingError, TrainingError
from transduce.training.averaging import MovingAverage, averaged_weights
from transduce.training.checkpoints import (
    Progress,
    checkpoints_of,
    load_checkpoint,
    prune_checkpoints,
    save_checkpoint,
    served_weights,
)
from transduce.training.config import TrainingConfig
from transduce.training.fine_tuning import (
    Adapter,
    FineTuneConfig,
    Fit,
    remove_low_rank_updates,
    start_from,
)
from transduce.training.log import TrainingLog
from transduce.training.loss import LossSums
from transduce.training.optimizer import build_optimizer
from transduce.training.schedules import learning_rate
from transduce.training.weights import (
    load_weights,
    mean,
    merged,
    read_tensors,
    write_tensors,
)


class Trainable(Protocol):
    """What the loop needs to know of a task."""

    d_model: int

    @property
    def model(self) -> nn.Module:
        """What is trained."""

    def batches(self, state: DataState) -> Iterator[tuple[Any, DataState]]:
        """Training batches from `state` on, without end, each with the state after it."""

    def loss(self, batch: Any) -> LossSums:
        """Loss of one batch."""

    def describe(self, batch: Any) -> str:
        """A batch in a few words, for messages about it."""

    def validate(self) -> dict[str, float]:
        """Scores on held-out data, "loss" among them."""

    def higher_is_better(self, score: str) -> bool:
        """Whether a larger value of this score is a better one."""


class InterruptedTraining(Exception):  # noqa: N818  it is not an error
    """A signal asked the run to stop; a checkpoint was written."""

    def __init__(self, number: int, message: str) -> None:
        super().__init__(message)
        self.number = number


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


def train(
    task: Trainable,
    config: TrainingConfig,
    run: Path,
    resume: bool,
    fine_tune: FineTuneConfig | None = None,
    fit: Fit | None = None,
) -> Outcome:
    """Train until the budget or the patience is used up; the best weights end in `run`.

    run: directory for `weights.safetensors`, `metrics.jsonl` and `checkpoints/`.
    resume: go on from the newest checkpoint there, exactly as if never interrupted.
    fine_tune: another run to start from, and how; by default from the weights as they are.
    fit: makes tensors of that run fit where their shapes differ.
    Raises TrainingError on a loss that is not finite, InterruptedTraining after SIGINT or SIGTERM,
    RunError or SettingError where the run to start from does not fit.
    """
    with TrainingLog(run, config.tensorboard) as log:
        resuming = resume and bool(checkpoints_of(run))
        adapter = None
        if fine_tune:
            adapter = start_from(task.model, fine_tune, run, resuming, fit)
            optimizer = build_optimizer(task.model, config, fine_tune.layer_decay)
        else:
            optimizer = build_optimizer(task.model, config)
        return _Trainer(task, config, run, log, optimizer, adapter).train(resume)


class _Trainer:
    def __init__(
        self,
        task: Trainable,
        config: TrainingConfig,
        run: Path,
        log: TrainingLog,
        optimizer: torch.optim.Optimizer,
        adapter: Adapter | None,
    ) -> None:
        self.task = task
        self.config = config
        self.run = run
        self.log = log
        self.optimizer = optimizer
        self.adapter = adapter
        self.ema = MovingAverage(task.model, config.ema) if config.ema else None
        self.progress = Progress()
        self.signal = 0

    def train(self, resume: bool) -> Outcome:
        if resume:
            self._resume()
        if self.config.compile:
            for name in ("encoder", "decoder"):
                if hasattr(self.task.model, name):
                    getattr(self.task.model, name).compile(dynamic=True)
        self._before, self._started = self.progress.seconds, time.monotonic()
        self._since_log = _SinceLog(time.monotonic())
        batches = prefetch(self.task.batches(self.progress.data))
        with _signals_noted(self), contextlib.closing(batches):
            # However short the time, there is a first step, and so something to keep.
            finished = self.progress.step > 0 and self._finished()
            if finished and self.progress.interrupted:  # resumed with a smaller budget
                self._validate()
            while not finished:
                self._step(list(itertools.islice(batches, self.config.accumulate)))
                # Asked once: had the clock passed the end between two looks, the last weights
                # would never be validated.
                finished = self._finished()
                if finished or self.progress.step % self.config.validate_every == 0:
                    self._validate()
                    finished = finished or self._finished()
                if self.signal and not finished:
                    self._stop_for_signal()
        return self._finish()

    def _step(self, micro_batches: list[tuple[Any, DataState]]) -> None:
        """One optimizer step over one or more batches."""
        model, progress = self.task.model, self.progress
        step = progress.step + 1
        rate = learning_rate(self.config.schedule, step, self._share_done(), self.task.d_model)
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group["scale"]
        model.train()
        self.optimizer.zero_grad(set_to_none=True)
        nll = 0.0
        sums = []
        count = sum(batch.target_tokens for batch, _ in micro_batches)
        for batch, _ in micro_batches:
            with self._precision():
                loss = self.task.loss(batch)
            # Together, as each look at a number of a GPU waits for all that it has to do.
            total, batch_nll = torch.stack([loss.total.detach(), loss.nll.detach()]).tolist()
            if not math.isfinite(total):
                self._fail(f"loss is {total}", step, f" in {self.task.describe(batch)}")
            (loss.total / count).backward()
            sums.append(loss.tokens)
            nll += batch_nll
        assert sum(sums) == count
        if self.config.clip_norm:
            norm = nn.utils.clip_grad_norm_(model.parameters(), self.config.clip_norm)
            if not torch.isfinite(norm):
                described = " and ".join(self.task.describe(batch) for batch, _ in micro_batches)
                self._fail(f"norm of the gradient is {norm.item()}", step, f" in {described}")
        self.optimizer.step()
        if self.ema is not None:
            self.ema.update(model, step)
        progress.step = step
        progress.data = micro_batches[-1][1]
        progress.target_tokens += count
        self._since_log.add(nll, count)
        if step % self.config.log_every == 0:
            self._log(rate)

    def _fail(self, what: str, step: int, where: str) -> None:
        kept = checkpoints_of(self.run)
        left = (
            f"the checkpoint of step {int(kept[-1].name[5:]):,} is kept"
            if kept
            else "no checkpoint yet"
        )
        raise TrainingError(
            f"the {what} at step {step:,}{where}; {left}; lower the learning rate, warm up "
            "longer, or set training.clip_norm = 1.0"
        )

    def _precision(self) -> contextlib.AbstractContextManager[Any]:
        if self.config.precision == "float32":
            return contextlib.nullcontext()
        device = next(self.task.model.parameters()).device.type
        return torch.autocast(device, torch.bfloat16)

    def _seconds(self) -> float:
        return self._before + time.monotonic() - self._started

    def _share_done(self) -> float:
        share = self.progress.step / self.config.steps
        if self.config.minutes is not None:
            share = max(share, self._seconds() / (60 * self.config.minutes))
        return min(share, 1.0)

    def _finished(self) -> bool:
        patience = self.config.patience
        return self._share_done() >= 1 or bool(patience and self.progress.since_best >= patience)

    def _log(self, rate: float) -> None:
        now, since = time.monotonic(), self._since_log
        record = {
            "step": self.progress.step,
            "epoch": self.progress.data.epoch,
            "loss": since.nll / since.count,
            "learning_rate": rate,
            "tokens_per_second": since.count / (now - since.started),
            "seconds": self._seconds(),
        }
        self._since_log = _SinceLog(now)
        share = self._share_done()
        left = self._seconds() * (1 - share) / share if share else 0.0
        self.log.training(record, share, left)

    def _validate(self) -> None:
        """Score the weights, keep them if they are the best, write a checkpoint."""
        progress = self.progress
        scores = self._scores()
        if not math.isfinite(scores["loss"]):
            self._fail(f"validation loss is {scores['loss']}", progress.step, "")
        chosen = self.config.select_by
        if chosen not in scores:
            known = ", ".join(repr(name) for name in scores)
            raise SettingError(f"training.select_by is {chosen!r}; this task measures {known}")
        sign = 1 if self.task.higher_is_better(chosen) else -1
        best = progress.best is None or sign * scores[chosen] > sign * progress.best
        progress.since_best = 0 if best else progress.since_best + 1
        progress.interrupted = False
        if best:
            progress.best, progress.best_step = scores[chosen], progress.step
            progress.best_scores = scores
            self._keep(averaged_weights(self.task.model, self.ema))
        record = {"step": progress.step, "seconds": self._seconds(), **scores}
        self.log.validation(record, best)
        self._save()
        prune_checkpoints(self.run, max(self.config.keep_last, self.config.average_last))
        self._since_log = _SinceLog(time.monotonic())

    def _scores(self) -> dict[str, float]:
        self.task.model.eval()
        averaged = self.ema.in_place_of(self.task.model) if self.ema else contextlib.nullcontext()
        # Decoding comes in too many shapes to compile for.
        stance = "force_eager" if self.config.compile else "default"
        with averaged, torch.compiler.set_stance(stance):
            return self.task.validate()

    def _keep(self, weights: dict[str, torch.Tensor]) -> None:
        write_tensors(self.run / "weights.safetensors", merged(weights))
        if self.adapter is not None:
            self.adapter.write(self.run, weights)

    def _save(self) -> None:
        self.progress.seconds = self._seconds()
        save_checkpoint(self.run, self.progress, self.task.model, self.optimizer, self.ema)

    def _resume(self) -> None:
        found = checkpoints_of(self.run)
        if not found:
            self.log.say("nothing to resume from yet; starting at the beginning")
            self.log.rewind(0)
            return
        self.progress = self._load_newest(found)
        # Resumed with another `select_by`, old and new scores must not be compared.
        self.progress.best = self.progress.best_scores.get(self.config.select_by)
        self.log.rewind(self.progress.step)
        self.log.say(f"resuming after step {self.progress.step:,}")

    def _load_newest(self, found: list[Path]) -> Progress:
        """The newest checkpoint that is not damaged; what is wrong with newer ones is said."""
        reasons = []
        for path in reversed(found):
            try:
                progress = load_checkpoint(path, self.task.model, self.optimizer, self.ema)
            except RunError as error:
                reasons.append(str(error))
                continue
            for reason in reasons:
                self.log.say(f"{reason}; falling back to the checkpoint before it")
            return progress
        raise RunError(f"{self.run} has no checkpoint that can be resumed from: {reasons[0]}")

    def _stop_for_signal(self) -> None:
        if self.progress.step % self.config.validate_every:  # else there is a checkpoint already
            self.progress.interrupted = True
            self._save()
        raise InterruptedTraining(
            self.signal,
            f"stopped after step {self.progress.step:,}; go on with --resume",
        )

    def _finish(self) -> Outcome:
        """Average the last checkpoints if asked to, and say how it ended."""
        progress, scores = self.progress, self.progress.best_scores
        last = checkpoints_of(self.run)[-self.config.average_last :]
        if self.config.average_last and len(last) > 1:
            averaged = mean(read_tensors(served_weights(path)) for path in last)
            load_weights(self.task.model, averaged, "the average of the last checkpoints")
            self.task.model.eval()
            scores = self.task.validate()
            self._keep(averaged)
            self.log.validation({"step": progress.step, "averaged": len(last), **scores}, True)
        remove_low_rank_updates(self.task.model)
        best = read_tensors(self.run / "weights.safetensors")
        load_weights(self.task.model, best, str(self.run))
        self.task.model.eval()
        higher_is_better = self.task.higher_is_better(self.config.select_by)
        return Outcome(progress.step, self._seconds(), progress.best_step, scores, higher_is_better)


@dataclasses.dataclass
class _SinceLog:
    """Sums since the last line of the log."""

    started: float
    nll: float = 0.0
    count: int = 0

    def add(self, nll: float, count: int) -> None:
        self.nll += nll
        self.count += count


@contextlib.contextmanager
def _signals_noted(trainer: _Trainer) -> Iterator[None]:
    """SIGINT and SIGTERM let the step end, so that a whole checkpoint can be written."""

    def note(number: int, frame: FrameType | None) -> None:
        if trainer.signal:  # asked twice: at once
            raise KeyboardInterrupt
        trainer.signal = number

    try:
        before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not the main thread: signals are the caller's affair
        yield
        return
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
