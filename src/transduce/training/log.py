"""Log of a training: `metrics.jsonl` and its curves, TensorBoard, progress on stderr, bad
batches."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import math
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from rich.console import Console
from rich.progress import Progress, ProgressColumn, SpinnerColumn, Task, TaskID, TextColumn
from rich.progress_bar import ProgressBar
from rich.text import Text
from torch import Tensor

from transduce.errors import RunError, SettingError, needs_extra
from transduce.sequence import Padded
from transduce.support.files import from_json
from transduce.training.checkpoints import best_scores_of
from transduce.training.distributed import Ranks
from transduce.training.weight_files import ORIGIN, read_weights_header, step_origin
from transduce.training.weights import flush, write_text

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


_whole: ContextVar[BudgetLine | None] = ContextVar("whole", default=None)


class Display(Progress):
    """Lines of running phases; silent without a terminal, on other ranks, and within the line of a
    whole budget."""

    def __init__(self) -> None:
        console = Console(stderr=True)
        can_move = console.is_terminal and not console.is_dumb_terminal
        self._budget = _whole.get()
        self.moves = can_move and Ranks.present().is_main and self._budget is None
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
        """Update the progress of a phase.

        line: of the display.  done: work so far.  total: all work; None if unknown.  text: beside
        the bar.
        """
        self.update(line, completed=done, total=total, description=text)

    def end(self, line: TaskID) -> None:
        """End a phase: draw its line once more, at 100 %."""
        for task in self.tasks:
            if task.id == line:
                done = max(task.completed, 1.0)
                self.update(line, completed=done, total=done, refresh=True)

    def message(self, text: str) -> None:
        """Print a permanent line; within the line of a whole budget, move that on."""
        if self._budget is not None:
            self._budget.move()
        elif self.moves:
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


class BudgetLine:
    """One progress line over a budget of seconds that several trainings share.

    Without a terminal, a plain line for each tenth of the budget.
    """

    def __init__(self, seconds: float, began: float) -> None:
        """began: by `time.monotonic`."""
        self._seconds, self._began, self._shown = seconds, began, -1
        self._what = ""
        self._display: Display | None = None
        self._line = TaskID(0)

    def move(self) -> None:
        """Show the share of the budget that is spent."""
        spent = time.monotonic() - self._began
        text = f"{self._what}: {clock(spent)} of {clock(self._seconds)}"
        tenth = int(10 * spent / self._seconds)
        if self._display is not None and self._display.moves:
            self._display.show(self._line, min(spent, self._seconds), self._seconds, text)
        elif self._display is not None and tenth > self._shown:
            self._shown = tenth
            self._display.message(text)

    @contextlib.contextmanager
    def inner(self, what: str, least: int = logging.ERROR) -> Iterator[None]:
        """Silence the displays and messages of a training within the context.

        what: the step, in the line.  least: level of messages that are shown.
        """
        logger, self._what = logging.getLogger("transduce"), what
        self._display = Display()
        self._line = self._display.add(what)
        level, outer = logger.level, _whole.set(self)
        logger.setLevel(max(level, least))
        try:
            with self._display:
                self.move()
                yield
        finally:
            logger.setLevel(level)
            _whole.reset(outer)


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


class TrainingLog:
    """Log of records in the run directory and on stderr, by a bar or plain lines."""

    def __init__(self, run: Path, tensorboard: bool = False) -> None:
        self._path = run / "metrics.jsonl"
        self._events = _tensorboard_writer() if tensorboard else None
        self._writer: Any = None
        self._display = Display()
        self._line = self._display.add("training: first step")
        self._shown = time.monotonic()
        self._wait = 1 / FRAMES if self._display.moves else SECONDS_BETWEEN_LINES

    def __enter__(self) -> TrainingLog:
        self._display.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._display.stop()
        if self._writer is not None:
            self._writer.close()

    def rewind(self, step: int) -> None:
        """Drop the records after `step`, which are about to be repeated."""
        if self._events is not None:
            self._writer = self._events(self._path.parent, purge_step=step + 1)
        if not self._path.exists():
            return
        lines = []
        for line in self._path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                record = from_json(line)
                if record["step"] <= step and "averaged" not in record:
                    lines.append(line + "\n")
            except (ValueError, KeyError, TypeError):
                continue  # damaged, or being written when the run was killed
        write_text(self._path, "".join(lines))

    def flush(self) -> None:
        """Flush the log to disk, before a checkpoint that relies on it."""
        if self._path.exists():
            flush(self._path)

    def training(
        self, record: Mapping[str, Any], unit: str, share_done: float, seconds_left: float
    ) -> None:
        """A record of training, in units a second; its loss is None if all steps were skipped.

        unit: of `tokens_per_second`.  share_done: of the budget, from 0 to 1.  seconds_left:
        estimated.
        """
        self._write("train", record)
        self.show(record, unit, share_done, seconds_left)

    def is_behind(self) -> bool:
        """True if the displayed values are due for an update."""
        return time.monotonic() - self._shown > self._wait

    def show(
        self, record: Mapping[str, Any], unit: str, share_done: float, seconds_left: float
    ) -> None:
        """Display a record without writing it.

        unit: of `tokens_per_second`.  share_done: of the budget, from 0 to 1.  seconds_left:
        estimated.
        """
        self._shown = time.monotonic()
        loss = "none" if record["loss"] is None else f"{record['loss']:.3f}"
        left = f"{clock(seconds_left)} left"
        text = (
            f"step {record['step']:,}  loss {loss}  "
            f"rate {record['learning_rate']:.2e}  {record['tokens_per_second']:,.0f} {unit}/s"
        )
        if self._display.moves:  # the end is cut off in a narrow terminal
            self._display.show(self._line, share_done, 1.0, f"training: {left}  {text}")
        else:
            self.message(f"{text}  {left}")

    def phase(self, what: str, expected: float = 0.0) -> contextlib.AbstractContextManager[None]:
        """Progress line within the context. expected: seconds, if known."""
        return self._display.phase(what, expected)

    def ended(self) -> None:
        """Mark the end of training, before the run is complete."""
        self._display.end(self._line)

    def validation(self, record: Mapping[str, Any], best: bool) -> None:
        """A record of validation: step, loss and scores."""
        self._write("validation", record)
        scores = "  ".join(
            f"{name} {value:.3f}"
            for name, value in record.items()
            if isinstance(value, float) and name != "seconds"
        )
        self.message(f"validation at step {record['step']:,}: {scores}{'  (best)' if best else ''}")

    def message(self, text: str) -> None:
        """Print a line for the user."""
        self._display.message(text)

    def _write(self, kind: str, record: Mapping[str, Any]) -> None:
        try:
            with self._path.open("a", encoding="utf-8", newline="\n") as file:
                file.write(json.dumps({"kind": kind, **record}) + "\n")
        except OSError as error:
            raise RunError(
                f"{self._path} cannot be written: {error.strerror}; free some disk space and "
                "continue with --resume"
            ) from None
        if self._events is not None:
            self._writer = self._writer or self._events(self._path.parent)
            for name, value in record.items():
                if isinstance(value, float):
                    self._writer.add_scalar(f"{kind}/{name}", value, record["step"])


def _tensorboard_writer() -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise SettingError(needs_extra("training.tensorboard", "tensorboard")) from None
    return SummaryWriter


@dataclasses.dataclass
class SinceLog:
    """Sums since the last log line or validation, for identical logs of resumed runs."""

    nll: float = 0.0
    count: int = 0
    skipped: int = 0
    """Skipped steps."""
    seconds: float = 0.0
    """Seconds before resuming."""

    def __post_init__(self) -> None:
        self._started = time.monotonic()

    def stopped(self) -> dict[str, float]:
        """Values to restore when resuming, by name."""
        return {**dataclasses.asdict(self), "seconds": self.elapsed()}

    def elapsed(self) -> float:
        """Seconds since then, without the time between stop and resumption."""
        return self.seconds + time.monotonic() - self._started


class SilentLog(TrainingLog):
    """Log of ranks other than the main process: no output."""

    def rewind(self, step: int) -> None:
        """Do nothing, like all methods below."""

    def flush(self) -> None: ...  # noqa: D102

    def message(self, text: str) -> None: ...  # noqa: D102

    def phase(self, *_: object) -> contextlib.AbstractContextManager[None]:  # noqa: D102
        return contextlib.nullcontext()

    def _write(self, *_: object) -> None: ...


BESIDE_SCORES = ("kind", "step", "seconds", "averaged")


@dataclass(frozen=True)
class Curves:
    """The lines of a run's `metrics.jsonl`, in order."""

    train: Sequence[Mapping[str, Any]]
    validation: Sequence[Mapping[str, Any]]

    @property
    def step(self) -> int | None:
        """Last logged step."""
        return max((int(line["step"]) for line in (*self.train, *self.validation)), default=None)

    @property
    def seconds(self) -> float | None:
        """Wall-clock time up to the last step."""
        lines = (*self.train, *self.validation)
        return max((float(line.get("seconds", 0.0)) for line in lines), default=None)

    @property
    def averaged(self) -> Mapping[str, Any] | None:
        """Validation of the final average of checkpoints, if there is any."""
        return next((line for line in reversed(self.validation) if "averaged" in line), None)


def read_curves(run: Path) -> Curves:
    """Read the log of a run; empty if it was not trained here."""
    path = run / "metrics.jsonl"
    kinds: dict[str, list[dict[str, Any]]] = {"train": [], "validation": []}
    text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    for line in text.splitlines():
        try:
            record = from_json(line)
            float(record["step"]), float(record["loss"])
            kinds[record["kind"]].append(record)
        except (ValueError, KeyError, TypeError):
            continue  # damaged, or being written when the run was killed
    return Curves(kinds["train"], kinds["validation"])


def kept_validation(run: Path, curves: Curves) -> Mapping[str, Any]:
    """Validation record of the weights kept by the run, by step or lowest loss; empty if none."""
    if curves.averaged is not None:
        return curves.averaged
    try:
        origin = read_weights_header(run / "weights.safetensors").texts.get(ORIGIN)
    except RunError:  # a run without weights can still be compared by its log
        origin = None
    for line in curves.validation:
        if origin == step_origin(line["step"]):
            return line
    return min(curves.validation, key=lambda line: float(line["loss"]), default={})


def kept_scores(run: Path) -> dict[str, float]:
    """Validation scores of the weights kept by the run; empty if unknown."""
    averaged = read_curves(run).averaged
    return best_scores_of(run) if averaged is None else scores_in(averaged)


def scores_in(line: Mapping[str, Any]) -> dict[str, float]:
    """Scores in a validation record."""
    return {name: value for name, value in line.items() if name not in BESIDE_SCORES}


DIRECTORY = "non_finite"
MAX_FILES = 100
"""Limit on saved files, to protect the disk."""
MAX_NUMBERS = 100_000
"""Limit on the numbers of a tensor; larger tensors, such as images, are summarised in words."""


def save_batches(run: Path, step: int, what: str, batches: Sequence[tuple[str, Any]]) -> str:
    """Write the batches of a step, each with its description, as JSON; returns the path in the run,
    empty once the limit of files is reached.  Raises RunError if writing fails."""
    path = run / DIRECTORY / f"step-{step:08d}.json"
    if path.parent.is_dir() and len(list(path.parent.glob("*.json"))) >= MAX_FILES:
        return ""
    path.parent.mkdir(exist_ok=True)
    content = {
        "step": step,
        "what": what,
        "batches": [
            {"description": description, "content": as_json(batch)}
            for description, batch in batches
        ],
    }
    write_text(path, json.dumps(content, ensure_ascii=False) + "\n")
    return f"{DIRECTORY}/{path.name}"


def as_json(value: Any) -> Any:
    """Convert the contents of a batch to JSON; non-finite numbers become words."""
    if isinstance(value, Padded):
        rows = zip(value.values, value.real, strict=True)
        return [as_json(values[real]) for values, real in rows]
    if isinstance(value, np.ndarray):
        return as_json(torch.from_numpy(np.ascontiguousarray(value)))
    if isinstance(value, Tensor):
        return _tensor_as_json(value.detach().cpu())
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: as_json(part) for name, part in value._asdict().items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return {field.name: as_json(getattr(value, field.name)) for field in fields}
    if isinstance(value, dict):
        return {str(name): as_json(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, int | float | str | None) else str(value)


def _tensor_as_json(tensor: Tensor) -> Any:
    if tensor.numel() <= MAX_NUMBERS:
        return as_json(tensor.tolist())
    wide = tensor.double()
    return {
        "shape": list(tensor.shape),
        "finite": bool(wide.isfinite().all()),
        "smallest": as_json(wide.min().item()),
        "largest": as_json(wide.max().item()),
    }
