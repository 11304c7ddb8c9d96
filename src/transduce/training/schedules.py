"""Learning rates as functions of the step."""

from __future__ import annotations

import math

from transduce.training.config import Constant, Cosine, InverseSquareRoot, Noam, ScheduleConfig


def learning_rate(schedule: ScheduleConfig, step: int, progress: float, d_model: int) -> float:
    """The rate of step `step`, counted from 1.

    progress: share of the budget used, 0 to 1; only the cosine looks at it.
    """
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
