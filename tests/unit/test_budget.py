"""Minutes and steps: where training ends, and what is said of a schedule that does not fit."""

import dataclasses
import itertools
import math
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from helpers.tiny_run import records
from helpers.tiny_training import CONFIG, Numbers, Sums, run
from transduce.training.budget import Budget
from transduce.training.checkpoints import read_progress
from transduce.training.config import Constant, Cosine, InverseSquareRoot, Noam, long_warm_up
from transduce.training.distributed import Ranks
from transduce.training.loss import LossSums
from transduce.training.selection import Checkpointer
from transduce.training.signals import InterruptedTraining
from transduce.training.trainer import train
from transduce.training.weight_files import checkpoints_of


class Clock:
    """Time that passes only in steps, validations and the writing of checkpoints."""

    def __init__(self, patch: pytest.MonkeyPatch, step: float, validation: float, writing: float):
        self.now, self.step, self.validation = 1000.0, step, validation
        patch.setattr(time, "monotonic", lambda: self.now)
        save = Checkpointer.save

        def saving(checkpointer: Checkpointer, progress: Any) -> None:
            save(checkpointer, progress)
            self.now += writing

        patch.setattr(Checkpointer, "save", saving)


class Timed(Sums):
    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock = clock

    def loss(self, batch: Numbers) -> LossSums:
        self.clock.now += self.clock.step
        return super().loss(batch)

    def validate(self) -> dict[str, float]:
        self.clock.now += self.clock.validation
        return super().validate()


SETTINGS: dict[str, Any] = {"steps": 100_000, "log_every": 1, "minutes": 1.0}


class TestMinutes:
    @pytest.mark.system
    @pytest.mark.parametrize(
        ("validate_every", "average_last", "preparation"),
        [(100_000, 0, 0.0), (100_000, 0, 20.0), (100, 0, 5.0), (83, 0, 0.0), (60, 2, 10.0)],
    )
    def test_hold_for_the_whole_run(
        self,
        validate_every: int,
        average_last: int,
        preparation: float,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        clock = Clock(monkeypatch, step=0.1, validation=6.0, writing=1.0)
        started = clock.now - preparation
        settings = {**SETTINGS, "validate_every": validate_every, "average_last": average_last}
        config = dataclasses.replace(CONFIG, **settings)
        outcome = train(Timed(clock), config, tmp_path, False, started=started)
        assert 57.0 < clock.now - started <= 60.0
        assert records(tmp_path, "validation")[-1]["step"] == outcome.step

    def test_the_first_validation_is_early(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        clock = Clock(monkeypatch, step=0.5, validation=4.0, writing=0.0)
        outcome = run(tmp_path, Timed(clock), validate_every=10_000, **SETTINGS)
        steps = [record["step"] for record in records(tmp_path, "validation")]
        assert steps == [30, outcome.step]

    def test_no_validation_shortly_before_the_last(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        clock = Clock(monkeypatch, step=1.0, validation=10.0, writing=0.0)
        outcome = run(tmp_path, Timed(clock), validate_every=15, **SETTINGS)
        # After step 30 it is 40 s: one validation and a step more fit, two do not.
        steps = [record["step"] for record in records(tmp_path, "validation")]
        assert steps == [15, outcome.step] and outcome.step == 39

    def test_a_finished_run_is_left_as_it_is(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        clock = Clock(monkeypatch, step=1.0, validation=10.0, writing=2.0)
        task = Timed(clock)
        plain = task.validate

        def validate() -> dict[str, float]:
            scores = plain()
            clock.validation = 0.1  # the last one takes less than was planned for it
            return scores

        task.validate = validate  # type: ignore[method-assign]
        first = run(tmp_path, task, validate_every=30, **SETTINGS)
        again = run(tmp_path, Timed(clock), resume=True, validate_every=30, **SETTINGS)
        assert again.step == first.step
        longer = {**SETTINGS, "minutes": 2.0}
        assert run(tmp_path, Timed(clock), resume=True, **longer).step > first.step

    def test_a_cosine_reaches_its_end(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        clock = Clock(monkeypatch, step=0.1, validation=6.0, writing=1.0)
        schedule = Cosine(peak=0.01, warmup_steps=10)
        run(tmp_path, Timed(clock), schedule=schedule, validate_every=100, **SETTINGS)
        rates = [record["learning_rate"] for record in records(tmp_path, "train")]
        assert max(rates) > 0.0099 and rates[-1] < 0.0001

    def test_one_step_at_least(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        clock = Clock(monkeypatch, step=0.1, validation=1.0, writing=1.0)
        config = dataclasses.replace(CONFIG, **SETTINGS)
        started = clock.now - 70
        assert train(Timed(clock), config, tmp_path, False, started=started).step == 1

    def test_all_ranks_go_by_the_slowest(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        clock = Clock(monkeypatch, step=1.0, validation=1e-6, writing=0.0)
        alone = run(tmp_path / "alone", Timed(clock), validate_every=100, **SETTINGS)
        plain = Ranks.all_reduce_max
        doubled = lambda self, *n: [2 * x for x in plain(self, *n)]  # noqa: E731
        monkeypatch.setattr(Ranks, "all_reduce_max", doubled)
        slower = run(tmp_path / "slower", Timed(clock), validate_every=100, **SETTINGS)
        assert alone.step == 59 and slower.step == 29


class TestLoad:
    """Schedules by time on a machine whose load changes: 60 s, a cosine from 0.01 to 0."""

    @staticmethod
    def rates(path: Path, task: Timed, **settings: Any) -> list[float]:
        schedule = Cosine(peak=0.01, warmup_steps=1)
        run(path, task, schedule=schedule, **{**SETTINGS, "validate_every": 100, **settings})
        return [record["learning_rate"] for record in records(path, "train")]

    @pytest.mark.parametrize("factor", [2.0, 4.0, 0.5])
    def test_ends_at_the_deadline_with_a_rate_near_0(
        self, factor: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        clock = Clock(monkeypatch, step=0.1, validation=2.0, writing=0.5)
        task, began = Timed(clock), clock.now
        loss = task.loss

        def slower_from_half(batch: Numbers) -> LossSums:
            if clock.step == 0.1 and clock.now - began > 30:
                clock.step, clock.validation = 0.1 * factor, 2.0 * factor
            return loss(batch)

        monkeypatch.setattr(task, "loss", slower_from_half)
        rates = self.rates(tmp_path, task)
        assert 55.0 < clock.now - began <= 60.5
        assert rates[-1] < 0.0001
        falls = [before - after for before, after in itertools.pairwise(rates)]
        assert all(fall >= 0 for fall in falls)
        # Continuous: a validation of 40 steps' time does not lower the rate by more than twice a
        # step's part, at the steepest, of the steps before the change or after it.
        assert max(falls[: len(falls) // 2]) < 2 * 0.01 * 3.15 / 2 / 300
        estimates = [record["expected_steps"] for record in records(tmp_path, "train")]
        assert abs(estimates[-1] - len(rates)) <= 1
        assert (estimates[len(rates) // 3] > len(rates)) == (factor > 1)

    def test_steps_that_wait_now_and_then(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        clock = Clock(monkeypatch, step=0.01, validation=1e-6, writing=0.0)
        task, began = Timed(clock), clock.now
        loss = task.loss

        def waits(batch: Numbers) -> LossSums:
            clock.now += 1.0 if next(numbers) % 20 == 19 else 0.0
            return loss(batch)

        numbers = itertools.count()
        monkeypatch.setattr(task, "loss", waits)
        rates = self.rates(tmp_path, task, validate_every=10_000)
        assert clock.now - began <= 61.0 and rates[-1] < 0.0001  # a wait at the very end
        assert 0.004 < rates[len(rates) // 2] < 0.006  # a cosine over the time

    def test_other_times_of_steps_with_the_same_mean_are_no_load(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        clock = Clock(monkeypatch, step=0.05, validation=6.0, writing=0.0)
        task, began = Timed(clock), clock.now
        loss, numbers = task.loss, itertools.count()

        def waits(batch: Numbers) -> LossSums:
            number = next(numbers)
            if number < 300:
                clock.step = 0.81 if number % 20 == 19 else 0.01
            else:
                clock.step = 0.05
            return loss(batch)

        monkeypatch.setattr(task, "loss", waits)
        self.rates(tmp_path, task)
        assert 55.0 < clock.now - began <= 60.0

    def test_a_slow_first_step_takes_no_share(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        clock = Clock(monkeypatch, step=20.0, validation=1.0, writing=0.0)
        task = Timed(clock)
        loss = task.loss

        def compiled(batch: Numbers) -> LossSums:
            sums = loss(batch)
            clock.step = 0.1
            return sums

        monkeypatch.setattr(task, "loss", compiled)
        rates = self.rates(tmp_path, task)
        assert rates[1] > 0.00999 and rates[-1] < 0.0001

    def test_a_resumed_training_goes_by_the_recorded_share(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        clock = Clock(monkeypatch, step=0.1, validation=2.0, writing=0.5)
        task = Timed(clock)
        loss, count = task.loss, itertools.count()

        def interrupted(batch: Numbers) -> LossSums:
            if next(count) == 150:
                signal.raise_signal(signal.SIGINT)
            return loss(batch)

        monkeypatch.setattr(task, "loss", interrupted)
        with pytest.raises(InterruptedTraining):
            self.rates(tmp_path, task)
        clock.now += 500  # between the two, which costs nothing
        progress = read_progress(checkpoints_of(tmp_path)[-1])
        assert progress.limits == [100_000, 1.0] and progress.expected_steps > progress.step
        before = records(tmp_path, "train")[-1]["learning_rate"]
        rates = self.rates(tmp_path, Timed(clock), resume=True)
        after = rates[progress.step]
        level = 0.01 * (1 + math.cos(math.pi * progress.share)) / 2
        assert after == pytest.approx(level, rel=1e-9)
        assert 0 <= before - after < 0.0001 and rates[-1] < 0.0001

    def test_steps_alone_record_no_estimate(self, tmp_path: Path) -> None:
        run(tmp_path, schedule=Cosine(peak=0.01, warmup_steps=1))
        progress = read_progress(checkpoints_of(tmp_path)[-1])
        assert (progress.share, progress.expected_steps, progress.limits) == (0.0, 0, [])
        lines = records(tmp_path, "train")
        assert not any("expected_steps" in line for line in lines)
        rates = [0.01 * (1 + math.cos(math.pi * n / 10)) / 2 for n in range(10)]
        assert [line["learning_rate"] for line in lines] == rates


class TestAdvice:
    @pytest.mark.parametrize(
        ("schedule", "fitting", "message"),
        [
            (Cosine(warmup_steps=400), 87, ["reaches 22 % of the peak", "allow more steps"]),
            (Constant(warmup_steps=60), 100, ["takes 60 % of the steps"]),
            (InverseSquareRoot(), 1234, ["reaches 31 % of the peak"]),
            (Noam(factor=2.0), 400, ["reaches 10 % of the peak"]),
            (Cosine(warmup_steps=2), 1, ["reaches 50 % of the peak"]),
        ],
    )
    def test_a_warm_up_that_is_too_long(
        self, schedule: Any, fitting: int, message: list[str]
    ) -> None:
        (line,) = long_warm_up(schedule, fitting, "training.minutes = 5")
        assert all(part in line for part in message) and line.startswith("training.minutes = 5: ")

    def test_a_warm_up_that_fits(self) -> None:
        assert not list(long_warm_up(Noam(), 8000, ""))
        assert not list(long_warm_up(Constant(), 1, ""))

    def test_said_once_when_the_steps_are_timed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        clock = Clock(monkeypatch, step=0.5, validation=1e-6, writing=0.0)
        schedule = Cosine(peak=0.01, warmup_steps=400)
        run(tmp_path, Timed(clock), schedule=schedule, validate_every=1000, **SETTINGS)
        lines = capsys.readouterr().err.splitlines()
        message = [i for i, line in enumerate(lines) if "warm-up" in line]
        assert len(message) == 1
        assert "training.minutes = 1, enough for about 119 steps" in lines[message[0]]
        assert lines[message[0]].endswith("; allow more steps")
        assert lines[message[0] - 1] == (
            "training.minutes = 1: enough for about 119 of 100,000 steps"
        )
        assert lines[message[0] - 2].startswith("step 6 ")  # a twentieth of the minutes

    def test_steps_alone_need_no_timing(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        run(tmp_path, schedule=Cosine(warmup_steps=8))
        assert "training.steps = 10: a warm-up of 8 steps takes 80 %" in capsys.readouterr().err
        run(tmp_path, schedule=Cosine(warmup_steps=8), steps=12, resume=True)
        assert "warm-up" not in capsys.readouterr().err  # it is over

    def test_preparation_that_leaves_little(self, monkeypatch: pytest.MonkeyPatch) -> None:
        now = [100.0]
        monkeypatch.setattr(time, "monotonic", lambda: now[0])
        budget = Budget(dataclasses.replace(CONFIG, minutes=1.0), now[0])
        now[0] += 40
        budget.begin(0)
        (line,) = budget.advice(0)
        assert line == "training.minutes = 1: preparation took 40 s of it; raise it"
