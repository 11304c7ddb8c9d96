"""Budget of a training: steps and minutes, the time used, and the time the end needs."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator

from transduce.training.checkpoints import Progress
from transduce.training.config import TrainingConfig
from transduce.training.schedules import shorter_warm_up

TIMED_STEPS = 10
"""Steps that are timed for the pace, after the first of a sitting, which is slower."""
SHARE_TIMED = 0.05
"""Share of the minutes after which fewer timed steps suffice."""
SHARE_UNMEASURED = 0.25
"""Share of the minutes after which the first validation is held, so that its time is known."""
SHARE_OF_PREPARATION = 0.5
"""Share of the minutes that preparation may take without a comment."""


class Budget:
    """Steps and minutes that training may use, and how much of them is used.

    The minutes hold for the whole run: training ends early enough for the last validation, the
    last checkpoint and averaging, by the time that these took before.

    elapsed, pace: seconds used so far in all sittings, and of a step; the caller sets them, to
    numbers that all ranks share, so that all decide alike.
    own_pace: the latter as this rank has timed it.
    minutes_used: the minutes where training has ended by them, else 0.
    """

    def __init__(self, config: TrainingConfig, started: float) -> None:
        """started: when this sitting began, by `time.monotonic`."""
        self.config = config
        self.limit = None if config.minutes is None else 60 * config.minutes
        self.elapsed = self.pace = self.own_pace = self.minutes_used = 0.0
        self._before = self._validation = self._writing = 0.0
        self._started = self._began = self._began_step = started
        self._first_step = 0
        self._timed: list[float] = []

    def resume(self, progress: Progress) -> None:
        """Go on from an earlier sitting."""
        self._before, self.minutes_used = progress.seconds, progress.minutes_used
        self.measured(progress)

    def measured(self, progress: Progress) -> None:
        """Take over how long validation and writing took."""
        self._validation, self._writing = progress.validation_seconds, progress.writing_seconds

    def begin(self, step: int) -> None:
        """All is prepared; steps follow, after `step` of an earlier sitting."""
        self._began, self._first_step = time.monotonic(), step

    def begin_step(self) -> None:
        """A step begins now."""
        self._began_step = time.monotonic()

    def end_step(self) -> None:
        """A step has ended."""
        if len(self._timed) <= TIMED_STEPS:
            self._timed.append(time.monotonic() - self._began_step)
            self.own_pace = statistics.median(self._timed[1:] or self._timed)

    def seconds(self) -> float:
        """Wall-clock seconds used until now, in all sittings."""
        return self._before + time.monotonic() - self._started

    @property
    def closing(self) -> float:
        """Seconds between the last step and the end of the run, and one step in reserve."""
        closing = self.pace + self._validation + self._writing
        if self.config.average_last:
            closing += self._validation + self.config.average_last * self._writing
        return closing

    def share(self, step: int) -> float:
        """Share of the budget that is used after `step`, 0 to 1; at 1 no step follows."""
        share = step / self.config.steps
        if self.config.minutes is not None and self.limit is not None:
            share = max(share, self.elapsed / max(self.limit - self.closing, 1e-9))
            if self.minutes_used >= self.config.minutes:
                share = 1.0  # though the end may have taken less than was planned for it
        return min(share, 1.0)

    def end(self, step: int) -> None:
        """No step follows `step`."""
        if self.config.minutes is not None and step < self.config.steps and self.share(step) >= 1:
            self.minutes_used = self.config.minutes

    def seconds_left(self, step: int) -> float:
        """Seconds of training that are left after `step`, about."""
        made, now = step - self._first_step, time.monotonic()
        of_steps = (now - self._began) / max(made, 1) * (self.config.steps - step)
        if self.limit is None:
            return of_steps
        return min(of_steps, max(self.limit - self.closing - self.seconds(), 0.0))

    def is_validation_due(self, step: int) -> bool:
        """Whether to validate after this step, if it is not the last one.

        Early where a quarter of the minutes has passed without one, for its time is needed to plan
        the end; not where the minutes have no room for this one and the last.
        """
        regular = step % self.config.validate_every == 0
        if self.limit is None:
            return regular
        if not self._validation:
            return regular or self.elapsed >= SHARE_UNMEASURED * self.limit
        needed = self._validation + self._writing + self.closing
        return regular and self.elapsed + needed <= self.limit

    def is_foreseen(self) -> bool:
        """Whether it is known how many steps fit: at once without minutes, else when timed."""
        if self.limit is None or len(self._timed) > TIMED_STEPS:
            return True
        training = time.monotonic() - self._began
        return len(self._timed) > 1 and training >= SHARE_TIMED * self.limit

    def advice(self, step: int) -> Iterator[str]:
        """Lines on settings that do not suit the number of steps that fit, after `step` of them."""
        fitting, why = self.config.steps, f"training.steps = {self.config.steps:,}"
        if self.limit is not None:
            minutes = f"training.minutes = {self.config.minutes:g}"
            prepared = self._began - self._started
            if prepared > SHARE_OF_PREPARATION * self.limit:
                yield f"{minutes}: {prepared:.0f} s of it went by before the first step; raise it"
            left = (self.limit - self.closing - self.seconds()) / max(self.pace, 1e-9)
            in_time = step + max(int(left), 0)
            if in_time < fitting:
                fitting, why = in_time, f"{minutes}, in which about {in_time:,} steps fit"
        if step < self.config.schedule.warmup_steps:
            yield from shorter_warm_up(self.config.schedule, fitting, why)
