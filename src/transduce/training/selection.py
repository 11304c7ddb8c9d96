"""Checkpoints and served weights of a training run, selected by validation scores."""

import contextlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn

from transduce.errors import RunError
from transduce.training.checkpoints import (
    Progress,
    check_sums,
    checkpoint_path,
    is_read_together,
    load_checkpoint,
    prune_checkpoints,
    random_states,
    read_progress,
    save_checkpoint,
    served_weights,
)
from transduce.training.config import TrainingConfig
from transduce.training.distributed import Ranks, Shards, gathered_on_main, is_sharded
from transduce.training.fine_tuning import Adapter
from transduce.training.log import TrainingLog
from transduce.training.signals import Signals, StoppedValidation
from transduce.training.task import TrainingTask
from transduce.training.weight_files import (
    ORIGIN,
    checkpoints_of,
    count_in_mean,
    mean_origin,
    step_origin,
)
from transduce.training.weights import (
    MovingAverage,
    averaged_weights,
    checksum,
    load_weights,
    mean,
    merged,
    read_with_metadata,
    weights_of,
    write_weights,
)


@dataclass
class Checkpointer:
    """Writes and reads checkpoints and weights; all ranks call it, the main process writes."""

    run: Path
    model: nn.Module
    optimizer: torch.optim.Optimizer
    ema: MovingAverage | None
    adapter: Adapter | None
    log: Callable[[str], None]
    """Writes a line."""
    ranks: Ranks = field(default_factory=Ranks.present)
    mean: int = 0
    """Checkpoints averaged into the run's weights, on the main process; 0 for none."""

    def save(self, progress: Progress) -> None:
        """Write a checkpoint.  Raises RunError if writing fails."""
        states = random_states()
        weights = weights_of(self.model)
        if not is_sharded(weights):
            self.ranks.check_same(lambda: checksum(weights))
        save_checkpoint(self.run, progress, self.model, self.optimizer, self.ema, states)

    def save_best(self, step: int) -> None:
        """Save the weights to serve after this step as the weights of the run."""
        self._keep(averaged_weights(self.model, self.ema), step_origin(step))
        self.mean = 0

    def save_mean(self, weights: Mapping[str, Tensor], count: int) -> None:
        """Save the mean of several checkpoints, sharded or not, as the weights of the run."""
        self._keep(weights, mean_origin(count))
        self.mean = count

    def _keep(self, weights: Mapping[str, Tensor], origin: str) -> None:
        whole = gathered_on_main(weights)
        if not self.ranks.is_main:
            return
        write_weights(self.run / "weights.safetensors", merged(whole), {ORIGIN: origin})
        if self.adapter is not None:
            self.adapter.write(self.run, whole)

    def prune(self, last: int, step: int) -> None:
        """Delete all but `keep` checkpoints up to the current `step`."""
        if self.ranks.is_main:
            prune_checkpoints(self.run, last, step)

    def resume(self) -> Progress | None:
        """Resume from the newest intact checkpoint, if any.  Raises RunError without an intact
        one."""
        checkpoints = checkpoints_of(self.run)
        if not checkpoints:
            return None
        progress = self._newest(checkpoints) if self.ranks.is_main else Progress()
        step = self.ranks.broadcast_from_main(lambda: progress.step)
        path = checkpoint_path(self.run, step)
        together = is_read_together(path, self.model)
        if together or not self.ranks.is_main:
            parts = self.model, self.optimizer, self.ema
            progress = load_checkpoint(path, *parts, checked=together)
        self._check_best(progress)
        progress.best_scores = self.ranks.broadcast_from_main(lambda: progress.best_scores)
        return progress

    def _newest(self, checkpoints: list[Path]) -> Progress:
        """Progress of the newest intact checkpoint, loaded unless all ranks must."""
        reasons = []
        for path in reversed(checkpoints):
            try:
                if is_read_together(path, self.model):
                    check_sums(path)
                    progress = read_progress(path)
                else:
                    progress = load_checkpoint(path, self.model, self.optimizer, self.ema)
            except RunError as error:
                reasons.append(str(error))
                continue
            for reason in reasons:
                self.log(f"{reason}; falling back to the previous checkpoint")
            return progress
        raise RunError(f"no checkpoint in {self.run} can be resumed: {reasons[0]}")

    def _check_best(self, progress: Progress) -> None:
        weights = self.run / "weights.safetensors"
        if progress.best is None:
            return
        if progress.best_step == progress.step:
            self.save_best(progress.step)
            return
        if not self.ranks.is_main:
            return
        target, origin = step_origin(progress.best_step), ""
        try:
            origin = read_with_metadata(weights)[1].get(ORIGIN, target)
            if origin != target:  # a mean, or of a step that no checkpoint speaks of any more
                raise RunError(f"{weights} is {origin}, but the best is {target}")
        except RunError as error:
            best = checkpoint_path(self.run, progress.best_step)
            try:
                served = served_weights(best)
            except RunError:
                self.mean = count_in_mean(origin)
                if self.mean:
                    self.log(f"{weights} is {origin}; keeping it until a step scores best")
                else:
                    self.log(f"{error}; the next validation will replace it")
                    progress.best_scores = {}
            else:
                self.log(f"{error}; restored from {best}")
                self._keep(served, target)


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
