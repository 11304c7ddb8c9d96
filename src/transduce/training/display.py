"""Progress on stderr: a progress bar for each phase on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

from rich.console import Console
from rich.progress import Progress, ProgressColumn, SpinnerColumn, Task, TaskID, TextColumn
from rich.progress_bar import ProgressBar
from rich.text import Text

from transduce.training.distributed import Ranks

T = TypeVar("T")

SECONDS_BETWEEN_LINES = 30
"""Seconds between two plain lines of a phase, without a terminal."""
FRAMES = 4
"""Frames per second."""


class _Bar(ProgressColumn):
    """Progress bar; a moving pulse if the share is unknown."""

    def render(self, task: Task) -> ProgressBar:
        percent = _percent(task)
        return ProgressBar(
            100, percent or 0, width=24, pulse=percent is None, animation_time=task.get_time()
        )


class _Percentage(ProgressColumn):
    def render(self, task: Task) -> Text:
        percent = _percent(task)
        return Text("    " if percent is None else f"{percent:3.0f}%")


class _Elapsed(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(clock(task.finished_time or task.elapsed or 0.0))


def _percent(task: Task) -> float | None:
    """Percentage of progress, or of the previous duration of the phase; 100 only at the end."""
    if task.total is None:
        expected = task.fields.get("expected")
        return min(100 * (task.elapsed or 0.0) / expected, 99.0) if expected else None
    return task.percentage if task.finished else min(task.percentage, 99.0)


class Display(Progress):
    """Lines of running phases; silent without a terminal, and on other ranks."""

    def __init__(self) -> None:
        console = Console(stderr=True)
        can_move = console.is_terminal and not console.is_dumb_terminal
        self.moves = can_move and Ranks.present().is_main
        super().__init__(
            SpinnerColumn(),
            _Bar(),
            _Percentage(),
            TextColumn("{task.description}", markup=False),
            _Elapsed(),
            console=console,
            transient=True,
            refresh_per_second=FRAMES,
            disable=not self.moves,
        )

    def add(self, what: str, expected: float = 0.0) -> TaskID:
        """Add a line for a phase. expected: its expected duration in seconds, if known."""
        return self.add_task(what, total=None, expected=expected)

    def show(self, line: TaskID, done: float, total: float | None, text: str) -> None:
        """Update the progress of a phase."""
        self.update(line, completed=done, total=total, description=text)

    def end(self, line: TaskID) -> None:
        """End a phase: draw its line once more, at 100 %."""
        for task in self.tasks:
            if task.id == line:
                done = max(task.completed, 1.0)
                self.update(line, completed=done, total=done, refresh=True)

    def message(self, text: str) -> None:
        """Print a permanent line."""
        if self.moves:
            self.console.print(text, markup=False, highlight=False)
        else:
            sys.stderr.write(text + "\n")
            sys.stderr.flush()

    @contextlib.contextmanager
    def phase(self, what: str, expected: float = 0.0) -> Iterator[None]:
        """Show a line within the context; without a terminal, plain lines if it takes long."""
        line = self.add(what, expected)
        late = threading.Timer(
            SECONDS_BETWEEN_LINES, self.message, [f"{what}, for {SECONDS_BETWEEN_LINES} s so far"]
        )
        late.daemon = True
        if not self.moves:
            late.start()
        try:
            yield
            self.end(line)
        finally:
            late.cancel()
            self.remove_task(line)


class ProgressCounter:
    """Progress by number of items, for long preparations: a bar, or occasional plain lines."""

    def __init__(self, what: str, total: int | None = None) -> None:
        """total: approximate number of items."""
        self._what, self._about = what, total
        self._said = time.monotonic()
        self._display = Display()
        self._line = self._display.add(what)

    def __enter__(self) -> ProgressCounter:
        self._display.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._display.end(self._line)
        self._display.stop()

    def to(self, count: int) -> None:
        """Set the number of items passed."""
        # As it was only an estimate, more may pass.
        about = self._about if self._about is None or self._about > count else None
        text = f"{self._what}: {count:,}" + (f" of about {about:,}" if about else "")
        self._display.show(self._line, count, about, text)
        now = time.monotonic()
        if not self._display.moves and now > self._said + SECONDS_BETWEEN_LINES:
            self._said = now
            if Ranks.present().is_main:
                self._display.message(text)

    def each(self, items: Iterable[T], then: str = "") -> Iterator[T]:
        """Yield items, counting them. then: description of the phase after the last item."""
        count = 0
        for count, item in enumerate(items, 1):
            yield item
            if count % 1000 == 0:
                self.to(count)
        self.to(count)
        self._display.end(self._line)
        if then:
            self._line = self._display.add(then)


def clock(seconds: float) -> str:
    """Format seconds as 0:00, or 0:00:00."""
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
