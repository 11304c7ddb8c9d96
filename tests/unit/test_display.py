"""Display on a terminal, and lines elsewhere."""

import io
import re
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from transduce.training import log as display_module
from transduce.training.log import Display, ProgressCounter, TrainingLog


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    def frames(self) -> list[str]:
        """The lines drawn, in order, without colours."""
        plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.getvalue())
        return [line.strip() for line in re.split(r"[\r\n]+", plain) if line.strip()]


def a_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    result = Terminal()
    monkeypatch.setattr(sys, "stderr", result)
    return result


class TestTerminal:
    def test_a_count_beyond_the_estimate(self, monkeypatch: pytest.MonkeyPatch) -> None:
        terminal = a_terminal(monkeypatch)
        with ProgressCounter("encoding train pairs", 1201) as count:
            count.to(1000)
            count.to(1227)
        last = terminal.frames()[-1]
        assert "100% encoding train pairs: 1,227" in last and "1,201" not in last

    def test_items_end_at_all_of_them(self, monkeypatch: pytest.MonkeyPatch) -> None:
        terminal = a_terminal(monkeypatch)
        with ProgressCounter("reading", 2500) as count:
            assert list(count.each(range(2345), then="learning")) == list(range(2345))
        assert any("100% reading: 2,345 of about 2,500" in line for line in terminal.frames())
        assert "100% learning" in terminal.frames()[-1]

    def test_a_phase_has_its_line_and_ends_whole(self, monkeypatch: pytest.MonkeyPatch) -> None:
        terminal = a_terminal(monkeypatch)
        display = Display()
        line = display.add("training: first step")
        display.start()
        display.show(line, 0.999, 1.0, "training: step 7")
        with display.phase("validating", expected=60.0):
            pass
        display.end(line)
        display.stop()
        drawn = terminal.frames()
        assert any("100% validating" in line for line in drawn)
        assert "100% training: step 7" in drawn[-1]
        shown = [line for line in drawn if "training: step 7" in line]
        assert "99% training: step 7" in shown[0]  # 100 % is for the end alone

    def test_by_the_time_that_it_took_before(self, monkeypatch: pytest.MonkeyPatch) -> None:
        terminal = a_terminal(monkeypatch)
        display = Display()
        line = display.add("validating", expected=1e-9)
        display.start()
        display.stop()
        display.remove_task(line)
        assert "99% validating" in terminal.frames()[0]

    def test_the_time_left_is_seen_in_a_narrow_one(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        terminal = a_terminal(monkeypatch)
        monkeypatch.setenv("COLUMNS", "60")
        record = {"step": 12, "loss": 1.5, "learning_rate": 1e-3, "tokens_per_second": 99.0}
        with TrainingLog(tmp_path) as log:
            log.show(record, "tokens", 0.5, 754.0)
            log.ended()  # draws the line once more
        assert any("training: 12:34 left" in line for line in terminal.frames())


class TestElsewhere:
    def test_a_dumb_terminal_has_lines(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        terminal = a_terminal(monkeypatch)
        monkeypatch.setenv("TERM", "dumb")
        record = {"step": 12, "loss": 1.5, "learning_rate": 1e-3, "tokens_per_second": 99.0}
        with TrainingLog(tmp_path) as log:
            log.show(record, "tokens", 0.5, 754.0)
        assert terminal.frames() == ["step 12  loss 1.500  rate 1.00e-03  99 tokens/s  12:34 left"]

    def test_only_what_lasts_is_said(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        timers: list[Any] = []

        class Timer(threading.Timer):
            def start(self) -> None:
                timers.append(self)

        monkeypatch.setattr(display_module.threading, "Timer", Timer)
        display = Display()
        with display.phase("validating"):
            assert capsys.readouterr().err == ""
            (timer,) = timers
            assert timer.interval == 30
            timer.function(*timer.args)
            assert capsys.readouterr().err == "validating, for 30 s so far\n"
        assert timer.finished.is_set()

    def test_a_count_now_and_then(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        now = [0.0]
        monkeypatch.setattr(display_module.time, "monotonic", lambda: now[0])
        with ProgressCounter("encoding pairs", 4000) as count:
            for now[0], done in ((10.0, 1000), (31.0, 2000), (40.0, 3000)):
                count.to(done)
        assert capsys.readouterr().err == "encoding pairs: 2,000 of about 4,000\n"
