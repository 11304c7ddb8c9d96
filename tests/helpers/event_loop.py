"""The command line with an event loop whose callbacks are timed.

    python tests/helpers/event_loop.py serve RUN

A callback that takes more than `LIMIT` CPU-seconds of its thread is named on stderr, with the place
where it was then.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
import traceback
from pathlib import Path

LIMIT = 0.25
POLL = 0.02
BLOCKED = "the event loop was blocked"


class Watch:
    """Times the callbacks of the event loop of the main thread."""

    def __init__(self) -> None:
        self._thread = threading.main_thread().ident or 0
        self._clock = time.pthread_getcpuclockid(self._thread)
        self._began = 0.0
        self._place = ""
        self._run = asyncio.events.Handle._run

    def start(self) -> None:
        """Time all callbacks from now on."""
        watch = self

        def timed(handle: asyncio.Handle) -> None:
            watch._begin()
            try:
                watch._run(handle)
            finally:
                watch._end(handle)

        asyncio.events.Handle._run = timed  # type: ignore[method-assign]
        threading.Thread(target=self._look, daemon=True).start()

    def _begin(self) -> None:
        self._place, self._began = "", time.thread_time()

    def _end(self, handle: asyncio.Handle) -> None:
        seconds, self._began = time.thread_time() - self._began, 0.0
        if seconds > LIMIT:
            sys.stderr.write(f"{BLOCKED} for {seconds:.2f} CPU-seconds {self._place or handle}\n")
            sys.stderr.flush()

    def _look(self) -> None:
        while True:
            time.sleep(POLL)
            began = self._began
            if began and not self._place and time.clock_gettime(self._clock) - began > LIMIT / 2:
                frame = sys._current_frames().get(self._thread)
                rows = traceback.extract_stack(frame)[-6:]
                self._place = "at " + " < ".join(
                    f"{Path(row.filename).name}:{row.lineno} {row.name}" for row in reversed(rows)
                )


if __name__ == "__main__":
    from transduce.__main__ import main

    Watch().start()
    sys.exit(main())
