"""Commands of the tests themselves, forked from one process."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest

from helpers.command_line import transduce


def test_a_command_ends_with_its_interrupted_test(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.toml"
    os.mkfifo(recipe)
    main_thread = threading.get_ident()
    opened: list[int] = []

    def interrupt() -> None:
        opened.append(os.open(recipe, os.O_WRONLY))  # waits until the command opens it to read
        signal.pthread_kill(main_thread, signal.SIGINT)

    interrupting = threading.Thread(target=interrupt)
    interrupting.start()
    with pytest.raises(KeyboardInterrupt):
        transduce("train", recipe, "--run", tmp_path / "run")
    interrupting.join()
    with pytest.raises(BrokenPipeError):
        os.write(opened[0], b"\n")
    os.close(opened[0])
