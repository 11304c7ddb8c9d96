"""Validation, and selection of the weights of a run by validation scores."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass, field
from pathlib import Path

import torch

from transduce.training.checkpoint_paths import checkpoints_of
from transduce.training.checkpointer import Checkpointer
from transduce.training.checkpoints import Progress, served_weights
from transduce.training.config import TrainingConfig
from transduce.training.distributed import Ranks
from transduce.training.log import TrainingLog
from transduce.training.sharding import Shards
from transduce.training.signals import Signals, StoppedValidation
from transduce.training.task import TrainingTask
from transduce.training.weights import load_weights, mean


@dataclass(frozen=True)
class Selection:
    """Scores weights, on the first rank for all, and selects those for the run to keep."""

    task: TrainingTask
    config: TrainingConfig
    log: TrainingLog
    checkpointer: Checkpointer
    signals: Signals
    shards: Shards | None
    ranks: Ranks = field(default_factory=Ranks.present)

    def scores(self, seconds: float) -> dict[str, float] | None:
        """Scores of the current weights, after `seconds` the last time; None after a signal."""
        self.task.model.eval()
        whole = self.shards.whole() if self.shards else contextlib.nullcontext()
        # Decoding comes in too many shapes to compile for.
        stance = "force_eager" if self.config.compile else "default"
        with self.log.phase("validating", seconds), whole, torch.compiler.set_stance(stance):
            return self.ranks.broadcast_from_main(self._own_scores)

    def _own_scores(self) -> dict[str, float] | None:
        try:
            with self.signals.cutting_short():
                return self.task.validate()
        except StoppedValidation:
            return None

    def is_best(self, scores: dict[str, float], progress: Progress) -> bool:
        """Return True if these are the best so far by `training.select_by`."""
        sign = 1 if self.task.higher_is_better(self.config.select_by) else -1
        best = progress.best
        return best is None or sign * scores[self.config.select_by] > sign * best

    def mean_of_before(self, progress: Progress) -> tuple[int, dict[str, float]] | None:
        """Number of averaged checkpoints behind the kept weights, and their scores; None unless
        they are from before training was resumed and no step since has surpassed them."""
        count = self.ranks.broadcast_from_main(lambda: self.checkpointer.mean)
        if not count:
            return None
        scores = self._scores_of_mean(count, progress)
        return None if scores is None else (count, scores[0])

    def average_last(self, progress: Progress) -> tuple[int, dict[str, float] | None]:
        """Keep the mean of the last checkpoints; returns their number, 0 if too few, and its
        scores."""
        run, count = self.checkpointer.run, self.config.average_last
        checkpoints = self.ranks.broadcast_from_main(
            lambda: [str(path) for path in checkpoints_of(run)]
        )
        last = [Path(path) for path in checkpoints[-count:]]
        if len(last) < count:
            self.log.message(
                f"training.average_last = {count}, but the number of checkpoints is {len(last)}"
            )
        if len(last) < min(count, 2):
            return 0, None
        what = (
            f"the mean of the last {len(last)} checkpoints" if count > 1 else "the last checkpoint"
        )
        with self.log.phase("averaging checkpoints"):
            averaged = mean(map(served_weights, last))
            load_weights(self.task.model, averaged, "the average of the last checkpoints")
        found_scores = self._scores_of_mean(len(last), progress)
        if found_scores is None:
            self.log.message(
                f"cannot measure {self.config.select_by} of {what}; keeping the weights of step "
                f"{progress.best_step:,}"
            )
            return 0, None
        scores, best = found_scores
        same = count == 1 and progress.best_step == progress.step
        better = "" if best or same else f", although step {progress.best_step:,} scored no worse"
        self.log.message(f"keeping {what}{better}")
        self.checkpointer.save_mean(averaged, len(last))
        return len(last), scores

    def _scores_of_mean(
        self, count: int, progress: Progress
    ) -> tuple[dict[str, float], bool] | None:
        """Scores of the model, a mean of `count` checkpoints, and True if they are the best; None
        if the selecting score could not be measured, or the loss is not a number."""
        scores = self.scores(progress.validation_seconds)
        assert scores is not None, "no signal is noted any more"
        if self.config.select_by not in scores or not math.isfinite(scores["loss"]):
            return None
        best = self.is_best(scores, progress)
        self.log.validation({"step": progress.step, "averaged": count, **scores}, best)
        return scores, best
