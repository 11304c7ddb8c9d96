"""Signals, and the watch over other ranks: an orderly end after the present step."""

import contextlib
import json
import logging
import os
import shutil
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

ENDING = (signal.SIGINT, signal.SIGTERM)
AT_ONCE_SECONDS = 1.0
"""Delay before a second Ctrl-C counts: terminals and wrappers may both forward the first."""


class InterruptedTraining(Exception):  # noqa: N818  it is not an error
    """Training stopped by a signal; a checkpoint was written."""

    def __init__(self, number: int, message: str) -> None:
        super().__init__(message)
        self.number = number


class StoppedValidation(Exception):  # noqa: N818  it is not an error
    """Validation cut short by a signal."""


@contextlib.contextmanager
def handled_by(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Let a function handle SIGINT and SIGTERM within the context."""
    try:
        before = {number: signal.signal(number, handler) for number in ENDING}
    except ValueError:  # not the main thread: signals are the caller's affair
        before = {}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


class Signals:
    """Handler of SIGINT and SIGTERM, of which the last is `number`, to end with a checkpoint."""

    def __init__(self) -> None:
        self.number = 0
        self._came = 0.0
        self._may_raise = False

    def noted(self) -> AbstractContextManager[None]:
        """Record signals within the context instead of ending the process."""
        return handled_by(self._note)

    @contextlib.contextmanager
    def cutting_short(self) -> Iterator[None]:
        """Let a signal end the context with StoppedValidation, for work without side effects."""
        self._may_raise = True
        try:
            yield
        finally:
            self._may_raise = False

    def _note(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if not self.number:
            self.number, self._came = number, now
        # Only a person asks twice; `timeout` and some schedulers send SIGTERM twice at once.
        elif number == signal.SIGINT and now - self._came >= AT_ONCE_SECONDS:
            raise KeyboardInterrupt
        if self._may_raise:
            self._may_raise = False
            raise StoppedValidation


logger = logging.getLogger("transduce")

SILENCE = 60.0
"""Seconds of waiting before the first message; each further one waits twice as long."""
INTERVAL = 5.0
"""Seconds between two looks at the others."""


@dataclass
class _News:
    """State of another rank: its calls, its beats, and the time of their last change."""

    host: str = ""
    calls: int = 0
    beats: int = 0
    heard: float = 0.0


class RankWatch:
    """Count of this rank's collective calls, and a thread that looks at those of the others."""

    def __init__(self) -> None:
        self._calls = 0
        self._since: float | None = None  # beginning of the call under way

    @contextlib.contextmanager
    def call(self) -> Iterator[None]:
        """A collective call: this rank waits within the context."""
        self._calls, self._since = self._calls + 1, time.monotonic()
        try:
            yield
        finally:
            self._since = None

    @contextlib.contextmanager
    def over(self, run: Path, rank: int, world: int, seconds: float) -> Iterator[None]:
        """Look at the other ranks within the context; end this process if it waits longer."""
        if world == 1:
            yield
            return
        directory, end = run / ".ranks", threading.Event()
        arguments = (directory, rank, world, seconds, end)
        threading.Thread(target=self._watch, args=arguments, name="rank-watch", daemon=True).start()
        try:
            yield
        finally:
            end.set()
            if rank == 0:
                shutil.rmtree(directory, ignore_errors=True)

    def _watch(
        self, directory: Path, rank: int, world: int, seconds: float, end: threading.Event
    ) -> None:
        watched = range(1, world) if rank == 0 else range(1) if rank == 1 else range(0)
        others = {other: _News(heard=time.monotonic()) for other in watched}
        beats, logged = 0, 0.0
        while not end.wait(min(INTERVAL, seconds / 10)):
            beats += 1
            with contextlib.suppress(OSError, ValueError):  # removed at the end, or half written
                directory.mkdir(exist_ok=True)
                news = {"host": socket.gethostname(), "calls": self._calls, "beats": beats}
                (directory / f"{rank}.json").write_text(json.dumps(news))
            for other in others:
                self._hear(others, other, directory / f"{other}.json")
            since = self._since
            waited = time.monotonic() - since if since is not None else 0.0
            awaited = self._awaited(others, rank, waited)
            if not awaited:
                logged = 0.0
            elif logged and waited > seconds:
                logger.error(
                    "waited %.3g minutes for %s (training.rank_timeout): training stops; continue "
                    "with --resume",
                    waited / 60,
                    awaited,
                )
                os._exit(1)  # the main thread waits in PyTorch for an answer
            elif waited > max(2 * logged, min(SILENCE, seconds / 2)):
                logger.error("waiting for %s for %.0f s", awaited, waited)
                logged = waited

    def _hear(self, others: dict[int, _News], other: int, path: Path) -> None:
        with contextlib.suppress(OSError, ValueError):
            news = json.loads(path.read_bytes())
            if news["beats"] != others[other].beats:
                others[other] = _News(**news, heard=time.monotonic())

    def _awaited(self, others: dict[int, _News], rank: int, waited: float) -> str:
        """Ranks that have not come to the call under way; of rank 0, only if it is silent."""
        return ", ".join(
            f"process {other}" + (f" on {news.host}" if news.host else "")
            for other, news in others.items()
            if news.calls < self._calls
            and (rank == 0 or time.monotonic() - news.heard > 0.9 * waited)
        )


watch = RankWatch()
"""The watch of this process."""
