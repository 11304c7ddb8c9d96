"""Budget of a training: steps and minutes, the time used, and the time the end needs."""

import contextlib
import statistics
import time
from collections.abc import Iterator

from transduce.training.checkpoints import Progress
from transduce.training.config import TrainingConfig, long_warm_up

TIMED_STEPS = 20
"""Steps timed for the pace, excluding the slower first step of a process."""
SHARE_TIMED = 0.05
"""Share of the minutes after which fewer timed steps suffice."""
SHARE_UNMEASURED = 0.25
"""Share of the minutes after which the first validation runs, to measure its time."""
SHARE_OF_PREPARATION = 0.5
"""Share of the minutes that preparation may take without a warning."""


class Budget:
    """Steps and minutes available for training, and the amounts used.

    The minutes hold for the whole run: training ends early enough for the last validation, the last
    checkpoint and averaging, as long as the previous times.

    elapsed, pace: seconds used across resumptions, and per step, set to values shared by all ranks,
    for equal decisions.  own_pace: of this rank.  minutes_used: the minutes if they ended training,
    else 0.
    """

    def __init__(self, config: TrainingConfig, started: float) -> None:
        """started: start of this process, by `time.monotonic`."""
        self.config = config
        self.limit = None if config.minutes is None else 60 * config.minutes
        self.elapsed = self.pace = self.own_pace = self.minutes_used = 0.0
        self._before = self._validation = self._writing = 0.0
        self._started = self._began = started
        self._first_step = 0
        self._timed: list[float] = []

    def resume(self, progress: Progress) -> None:
        """Restore times when training is resumed."""
        self._before, self.minutes_used = progress.seconds, progress.minutes_used
        self.measured(progress)

    def measured(self, progress: Progress) -> None:
        """Take over measured times of validation and writing."""
        self._validation, self._writing = progress.validation_seconds, progress.writing_seconds

    def begin(self, step: int) -> None:
        """Mark the end of preparation, after `step` if resumed."""
        self._began, self._first_step = time.monotonic(), step

    @contextlib.contextmanager
    def timed_step(self) -> Iterator[None]:
        """Take the time of a step."""
        began = time.monotonic()
        yield
        if len(self._timed) <= TIMED_STEPS:
            self._timed.append(time.monotonic() - began)
            self.own_pace = statistics.median(self._timed[1:] or self._timed)

    def seconds(self) -> float:
        """Wall-clock seconds used so far, across resumptions."""
        return self._before + time.monotonic() - self._started

    @property
    def closing(self) -> float:
        """Seconds between the last step and the end of the run, and a step in reserve."""
        closing = self.pace + self._validation + self._writing
        if self.config.average_last:
            closing += self._validation + self.config.average_last * self._writing
        return closing

    def share(self, step: int) -> float:
        """Share of the budget used after `step`, 0 to 1; training ends at 1."""
        share = step / self.config.steps
        if self.config.minutes is not None and self.limit is not None:
            share = max(share, self.elapsed / max(self.limit - self.closing, 1e-9))
            if self.minutes_used >= self.config.minutes:
                share = 1.0  # though the end may have taken less than was planned for it
        return min(share, 1.0)

    def end(self, step: int) -> None:
        """Mark `step` as the last."""
        if self.config.minutes is not None and step < self.config.steps and self.share(step) >= 1:
            self.minutes_used = self.config.minutes

    def seconds_left(self, step: int) -> float:
        """Estimated seconds of training left after `step`."""
        made, now = step - self._first_step, time.monotonic()
        of_steps = (now - self._began) / max(made, 1) * (self.config.steps - step)
        if self.limit is None:
            return of_steps
        return min(of_steps, max(self.limit - self.closing - self.seconds(), 0.0))

    def is_validation_due(self, step: int) -> bool:
        """Decide on a validation after this step, unless it is the last: early if a quarter of the
        minutes has passed without any, as planning the end needs its duration; none without time
        for the last."""
        regular = step % self.config.validate_every == 0
        if self.limit is None:
            return regular
        if not self._validation:
            return regular or self.elapsed >= SHARE_UNMEASURED * self.limit
        needed = self._validation + self._writing + self.closing
        return regular and self.elapsed + needed <= self.limit

    def is_foreseen(self) -> bool:
        """True if the number of steps is known: at once without minutes, otherwise after timing."""
        if self.limit is None or len(self._timed) > TIMED_STEPS:
            return True
        training = time.monotonic() - self._began
        return len(self._timed) > 1 and training >= SHARE_TIMED * self.limit

    def advice(self, step: int) -> Iterator[str]:
        """Advice, after `step`, on settings that do not suit the number of available steps."""
        fitting, why = self.config.steps, f"training.steps = {self.config.steps:,}"
        if self.limit is not None:
            minutes = f"training.minutes = {self.config.minutes:g}"
            prepared = self._began - self._started
            if prepared > SHARE_OF_PREPARATION * self.limit:
                yield f"{minutes}: preparation took {prepared:.0f} s of it; raise it"
            left = (self.limit - self.closing - self.seconds()) / max(self.pace, 1e-9)
            in_time = step + max(int(left), 0)
            if in_time < fitting:
                yield f"{minutes}: enough for about {in_time:,} of {fitting:,} steps"
                fitting, why = in_time, f"{minutes}, enough for about {in_time:,} steps"
        if step < self.config.schedule.warmup_steps:
            yield from long_warm_up(self.config.schedule, fitting, why)
