"""Lines of input as they come, and Ctrl-C among them."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from transduce.cli.lines import LineReader


def test_ctrl_c_at_the_worst_moment_is_ctrl_c_and_loses_no_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As a wait that was told of a line is about to take its lock again."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    opened = threading.Thread(target=lambda: ends.append(pipe.open("wb", buffering=0)))
    ends: list[Any] = []
    opened.start()
    reader = LineReader(str(pipe))
    opened.join()
    changed: Any = reader._changed
    wait, lock_again, lines = changed.wait, changed._acquire_restore, iter([b"one\n", b"two\n"])

    def written_and_waited_for(timeout: float | None = None) -> bool:
        ends[0].write(next(lines))  # it is read on when `wait` lets go of the lock
        return bool(wait(timeout))

    def interrupted(state: object) -> None:
        monkeypatch.setattr(changed, "_acquire_restore", lock_again)
        raise KeyboardInterrupt

    monkeypatch.setattr(changed, "wait", written_and_waited_for)
    monkeypatch.setattr(changed, "_acquire_restore", interrupted)
    with pytest.raises(KeyboardInterrupt):
        reader._take()
    assert reader._take() == [b"one\n"]
    assert reader._take() == [b"two\n"]
    monkeypatch.setattr(changed, "wait", wait)
    ends[0].close()
    assert reader._take() == []
