"""Checkpoints of a training run, and its served weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn

from transduce.errors import RunError
from transduce.training.averaging import MovingAverage, averaged_weights
from transduce.training.checkpoint_paths import checkpoints_of
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
from transduce.training.distributed import Ranks
from transduce.training.fine_tuning import Adapter
from transduce.training.sharding import gathered_on_main, is_sharded
from transduce.training.weights import (
    checksum,
    merged,
    read_with_metadata,
    weights_of,
    write_weights,
)
from transduce.training.weights_header import ORIGIN, count_in_mean, mean_origin, step_origin


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
