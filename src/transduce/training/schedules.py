"""Learning rates as functions of the step."""

from __future__ import annotations

import math
from collections.abc import Iterator

from transduce.training.config import Constant, Cosine, InverseSquareRoot, Noam, ScheduleConfig


def learning_rate(schedule: ScheduleConfig, step: int, progress: float, d_model: int) -> float:
    """Learning rate of `step`, from 1.  progress: share of the budget used, for the cosine."""
    match schedule:
        case Noam(factor=factor, warmup_steps=warmup):
            return factor * float(d_model**-0.5 * min(step**-0.5, step * warmup**-1.5))
        case InverseSquareRoot(peak=peak, warmup_steps=warmup):
            return peak * min(step / warmup, math.sqrt(warmup / step))
        case Cosine(peak=peak, floor=floor, warmup_steps=warmup):
            level = floor + (peak - floor) * (1 + math.cos(math.pi * min(progress, 1.0))) / 2
            return min(step / warmup, 1.0) * level
        case Constant(peak=peak, warmup_steps=warmup):
            return min(step / warmup, 1.0) * peak


def long_warm_up(schedule: ScheduleConfig, fitting: int, why: str) -> Iterator[str]:
    """Message about a warm-up longer than half of the `fitting` steps, which `why` limits.

    The remedy is more steps: a shorter warm-up needs a lower peak, how much lower depends on the
    model, and post-norm stacks diverge by one that is too short.
    """
    warmup = schedule.warmup_steps
    if 2 * warmup <= fitting or warmup == 1:
        return
    effect = f"takes {100 * warmup / fitting:.0f} % of the steps"
    if fitting < warmup:
        effect = f"reaches {100 * fitting / warmup:.0f} % of the peak learning rate"
    yield f"{why}: a warm-up of {warmup:,} steps {effect}; allow more steps"
