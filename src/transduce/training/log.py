"""What training says while it runs: `metrics.jsonl`, TensorBoard, and a bar or plain lines."""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from transduce.errors import RunError, SettingError, needs_extra
from transduce.limits import from_json
from transduce.training.distributed import Ranks
from transduce.training.weights import flush, write_text

T = TypeVar("T")

SECONDS_BETWEEN_LINES = 30
"""Where there is no terminal."""


class TrainingLog:
    """Writes each record to the run directory and shows it on stderr.

    On a terminal a bar moves; elsewhere each record is one plain line.
    """

    def __init__(self, run: Path, tensorboard: bool = False) -> None:
        self._path = run / "metrics.jsonl"
        self._events = _tensorboard_writer() if tensorboard else None
        self._writer: Any = None
        self._console = Console(stderr=True)
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        if self._console.is_terminal:
            columns = (
                BarColumn(bar_width=24),
                TextColumn("{task.percentage:>3.0f}%  {task.description}"),
                TimeElapsedColumn(),
            )
            self._bar = Progress(*columns, console=self._console, transient=True)
            self._task = self._bar.add_task("first step", total=1.0)

    def __enter__(self) -> TrainingLog:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
        if self._writer is not None:
            self._writer.close()

    def rewind(self, step: int) -> None:
        """Drop the records after `step`, which are about to be made again."""
        if self._events is not None:
            self._writer = self._events(self._path.parent, purge_step=step + 1)
        if not self._path.exists():
            return
        kept = []
        for line in self._path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                record = from_json(line)
                if record["step"] <= step and "averaged" not in record:
                    kept.append(line + "\n")
            except (ValueError, KeyError, TypeError):
                continue  # damaged, or being written when the run was killed
        write_text(self._path, "".join(kept))

    def flush(self) -> None:
        """Put what was written on the disk, before a checkpoint that relies on it."""
        if self._path.exists():
            flush(self._path)

    def training(
        self, record: Mapping[str, Any], unit: str, share_done: float, seconds_left: float
    ) -> None:
        """A record of training: step, loss, learning rate, speed in units a second.

        The loss is None where all steps since the last record were skipped.
        """
        self._write("train", record)
        loss = "none" if record["loss"] is None else f"{record['loss']:.3f}"
        text = (
            f"step {record['step']:,}  loss {loss}  "
            f"rate {record['learning_rate']:.2e}  {record['tokens_per_second']:,.0f} {unit}/s  "
            f"{_clock(seconds_left)} left"
        )
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=share_done, description=text)
        else:
            self.say(text)

    def validation(self, record: Mapping[str, Any], best: bool) -> None:
        """A record of validation: step, loss and scores."""
        self._write("validation", record)
        scores = "  ".join(
            f"{name} {value:.3f}"
            for name, value in record.items()
            if isinstance(value, float) and name != "seconds"
        )
        self.say(f"validation at step {record['step']:,}: {scores}{'  (best)' if best else ''}")

    def say(self, text: str) -> None:
        """One line for the reader."""
        if self._bar is not None:
            self._bar.console.print(text, markup=False, highlight=False)
        else:
            sys.stderr.write(text + "\n")
            sys.stderr.flush()

    def _write(self, kind: str, record: Mapping[str, Any]) -> None:
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"kind": kind, **record}) + "\n")
        except OSError as error:
            raise RunError(
                f"{self._path} cannot be written: {error.strerror}; make room and go on with "
                "--resume"
            ) from None
        if self._events is not None:
            self._writer = self._writer or self._events(self._path.parent)
            for name, value in record.items():
                if isinstance(value, float):
                    self._writer.add_scalar(f"{kind}/{name}", value, record["step"])


def _tensorboard_writer() -> Any:
    """The class."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise SettingError(needs_extra("training.tensorboard", "tensorboard")) from None
    return SummaryWriter


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


@dataclasses.dataclass
class SinceLog:
    """Sums since the last line of the log, or the last validation: so a resumed run logs the same,
    but steps between the last line and a validation are in none."""

    nll: float = 0.0
    count: int = 0
    skipped: int = 0
    """Steps."""
    seconds: float = 0.0
    """Those of an earlier sitting."""

    def __post_init__(self) -> None:
        self._started = time.monotonic()

    def stopped(self) -> dict[str, float]:
        """What a later sitting has to go on with, by name."""
        return {**dataclasses.asdict(self), "seconds": self.elapsed()}

    def elapsed(self) -> float:
        """Seconds since then, those between two sittings not counted."""
        return self.seconds + time.monotonic() - self._started

    def add(self, nll: float, count: int) -> None:
        """One step more: negative log-likelihood, summed over so many target tokens."""
        self.nll += nll
        self.count += count


class SilentLog(TrainingLog):
    """That of the ranks which leave writing and speaking to the first."""

    def __init__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...

    def __enter__(self) -> SilentLog:
        return self

    def rewind(self, step: int) -> None:
        """Nothing, as all that follows."""

    def flush(self) -> None: ...  # noqa: D102

    def training(self, *_: object) -> None: ...  # noqa: D102

    def validation(self, *_: object) -> None: ...  # noqa: D102

    def say(self, text: str) -> None: ...  # noqa: D102


class Counter:
    """Shows how many items have passed, while something long is prepared.

    On a terminal a number or a bar moves; elsewhere there is a plain line now and then.
    """

    def __init__(self, what: str, total: int | None = None) -> None:
        """total: how many there will be, as near as is known."""
        self._what, self._of = what, f" of about {total:,}" if total else ""
        self._said = time.monotonic()
        console = Console(stderr=True)
        columns: tuple[ProgressColumn, ...] = (
            SpinnerColumn(),
            TextColumn("{task.description} {task.completed:,.0f}"),
        )
        if total is not None:
            more = TextColumn("of {task.total:,.0f}"), BarColumn(bar_width=24)
            columns = (*columns, *more, TimeRemainingColumn())
        self._progress = Progress(
            *columns,
            console=console,
            transient=True,
            disable=not (console.is_terminal and Ranks.present().first),
        )
        self._task = self._progress.add_task(what, total=total)

    def __enter__(self) -> Counter:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def to(self, count: int) -> None:
        """So many have passed by now."""
        self._progress.update(self._task, completed=count)
        now = time.monotonic()
        if self._progress.disable and now > self._said + SECONDS_BETWEEN_LINES:
            self._said = now
            if Ranks.present().first:
                sys.stderr.write(f"{self._what}: {count:,}{self._of}\n")
                sys.stderr.flush()

    def each(self, items: Iterable[T]) -> Iterator[T]:
        """The items, counted as they pass."""
        for i, item in enumerate(items):
            if i % 1000 == 0:
                self.to(i)
            yield item
