"""Budget of a training: steps and minutes, the time used, and the time the end needs."""

import contextlib
import statistics
import time
from collections import deque
from collections.abc import Iterator

from transduce.training.checkpoints import Progress
from transduce.training.config import TrainingConfig, long_warm_up

TIMED_STEPS, MOST_TIMED = 20, 200
"""Last steps timed for the pace, excluding the slower first step of a process; more, up to the
second number, where lines of the log are further apart, as a GPU is waited for at these."""
SHARE_TIMED = 0.05
"""Share of the minutes after which fewer timed steps suffice."""
SHARE_UNMEASURED = 0.25
"""Share of the minutes after which the first validation runs, to measure its time."""
SHARE_OF_PREPARATION = 0.5
"""Share of the minutes that preparation may take without a warning."""


class Budget:
    """Steps and minutes available for training, and the amounts used.

    The minutes hold for the whole run: training ends early enough for the last validation, the last
    checkpoint and averaging, as long as the previous times, and longer as far as steps have become
    slower since.  Each step takes an equal part of the share that is left: of the steps that fit
    into the rest, estimated anew after every step.

    elapsed, pace, mean: seconds used across resumptions, and per step, as median and mean of the
    last ones, set to values shared by all ranks, for equal decisions.  own_pace, own_mean: of this
    rank.  minutes_used: the minutes if they ended training, else 0.
    """

    def __init__(self, config: TrainingConfig, started: float) -> None:
        """started: start of this process, by `time.monotonic`."""
        self.config = config
        self.limit = None if config.minutes is None else 60 * config.minutes
        self.elapsed = self.pace = self.own_pace = self.mean = self.own_mean = 0.0
        self.minutes_used = self._share = 0.0
        self._before = self._validation = self._writing = 0.0
        self._measured_pace = [0.0, 0.0]
        self._started = self._began = started
        self._first_step = self._steps_timed = 0
        window = min(max(TIMED_STEPS, config.log_every), MOST_TIMED)
        self._timed: deque[float] = deque(maxlen=window)

    def resume(self, progress: Progress) -> None:
        """Restore times when training is resumed; with other steps or minutes than before, the
        share that is used counts anew."""
        self._before, self.minutes_used = progress.seconds, progress.minutes_used
        self.measured(progress)
        self._measured_pace = progress.step_seconds
        self._share = progress.share
        if self.limit is not None and progress.limits != self._limits:
            of_time = progress.seconds / max(self.limit - self.closing, 1e-9)
            self._share = min(max(progress.step / self.config.steps, of_time), 1.0)

    def measured(self, progress: Progress) -> None:
        """Take over measured times of validation and writing, and the pace of steps now."""
        self._validation, self._writing = progress.validation_seconds, progress.writing_seconds
        self._measured_pace = [self.pace, self.mean]

    @property
    def _limits(self) -> list[float]:
        return [self.config.steps, self.config.minutes or 0.0]

    def record(self, progress: Progress) -> None:
        """Write times and estimates into the progress of a checkpoint."""
        progress.seconds, progress.minutes_used = self.seconds(), self.minutes_used
        if self.limit is not None:
            progress.limits, progress.step_seconds = self._limits, self._measured_pace
            progress.share = self.share(progress.step)
            progress.expected_steps = self.expected_steps(progress.step)

    def begin(self, step: int) -> None:
        """Mark the end of preparation, after `step` if resumed."""
        self._began, self._first_step = time.monotonic(), step

    @contextlib.contextmanager
    def timed_step(self) -> Iterator[None]:
        """Take the time of a step, with minutes alone; there is no mean after the first."""
        began = time.monotonic()
        yield
        if self.limit is None:
            return
        self._steps_timed += 1
        if self._steps_timed == 2:
            self._timed.clear()
        self._timed.append(time.monotonic() - began)
        self.own_pace = statistics.median(self._timed)
        self.own_mean = statistics.fmean(self._timed) if self._steps_timed > 1 else 0.0

    def seconds(self) -> float:
        """Wall-clock seconds used so far, across resumptions."""
        return self._before + time.monotonic() - self._started

    @property
    def _load(self) -> float:
        """Seconds of a step, as a multiple of those when validation was measured; at least 1.

        Median and mean both have to rise: a single wait raises the mean, and a GPU that is fed
        faster than it computes has any median."""
        if not all(self._measured_pace):
            return 1.0
        now = self.pace, self.mean
        return max(min(n / then for n, then in zip(now, self._measured_pace, strict=True)), 1.0)

    @property
    def closing(self) -> float:
        """Seconds between the last step and the end of the run, and a step in reserve."""
        closing = self._validation + self._writing
        if self.config.average_last:
            closing += self._validation + self.config.average_last * self._writing
        return self.pace + self._load * closing

    def _steps_left(self, step: int) -> float:
        """Steps that fit into the rest of the budget after `step`, with validations between."""
        steps = float(self.config.steps - step)
        if self.limit is None or not self.mean:
            return steps
        left, every = max(self.limit - self.closing - self.elapsed, 0.0), self.config.validate_every
        in_time = left / self.mean
        if in_time > every - step % every:
            validation = self._load * (self._validation + self._writing)
            in_time = left / (self.mean + validation / every)
        return min(steps, in_time)

    def expected_steps(self, step: int) -> int:
        """Steps of the whole training, as estimated after `step`."""
        return step + int(self._steps_left(step))

    def count(self, step: int) -> None:
        """Add the part of `step`, just made, to the share that is used."""
        self._share += (1 - self._share) / (1 + self._steps_left(step))

    def is_over(self, step: int) -> bool:
        """True if no step fits after `step`."""
        if self.config.minutes is None or self.limit is None or step >= self.config.steps:
            return step >= self.config.steps
        # The end may have taken less than was planned for it.
        return self.elapsed >= self.limit - self.closing or self.minutes_used >= self.config.minutes

    def share(self, step: int) -> float:
        """Share of the budget used after `step`, 0 to 1; training ends at 1."""
        if self.limit is None:
            return min(step / self.config.steps, 1.0)
        return 1.0 if self.is_over(step) else self._share

    def end(self, step: int) -> None:
        """Mark `step` as the last."""
        if self.config.minutes is not None and step < self.config.steps and self.is_over(step):
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
        needed = self._load * (self._validation + self._writing) + self.closing
        return regular and self.elapsed + needed <= self.limit

    def is_foreseen(self) -> bool:
        """True if the number of steps is known: at once without minutes, otherwise after timing."""
        if self.limit is None or self._steps_timed > TIMED_STEPS:
            return True
        training = time.monotonic() - self._began
        return self._steps_timed > 1 and training >= SHARE_TIMED * self.limit

    def advice(self, step: int) -> Iterator[str]:
        """Advice, after `step`, on settings that do not suit the number of available steps."""
        fitting, why = self.config.steps, f"training.steps = {self.config.steps:,}"
        if self.limit is not None:
            minutes = f"training.minutes = {self.config.minutes:g}"
            prepared = self._began - self._started
            if prepared > SHARE_OF_PREPARATION * self.limit:
                yield f"{minutes}: preparation took {prepared:.0f} s of it; raise it"
            in_time = self.expected_steps(step)
            if in_time < fitting:
                yield f"{minutes}: enough for about {in_time:,} of {fitting:,} steps"
                fitting, why = in_time, f"{minutes}, enough for about {in_time:,} steps"
        if step < self.config.schedule.warmup_steps:
            yield from long_warm_up(self.config.schedule, fitting, why)
