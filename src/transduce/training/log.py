"""The log of a training: `metrics.jsonl`, TensorBoard, and lines on stderr."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transduce.errors import RunError, SettingError, needs_extra
from transduce.support.limits import from_json
from transduce.training.display import FRAMES, SECONDS_BETWEEN_LINES, Display, clock
from transduce.training.weights import flush, write_text


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
        """A record of training, in units a second; its loss is None if all steps were skipped."""
        self._write("train", record)
        self.show(record, unit, share_done, seconds_left)

    def is_behind(self) -> bool:
        """True if the displayed values are due for an update."""
        return time.monotonic() - self._shown > self._wait

    def show(
        self, record: Mapping[str, Any], unit: str, share_done: float, seconds_left: float
    ) -> None:
        """Display a record without writing it."""
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
