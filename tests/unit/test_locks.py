"""Locks: one holder, a wait that ends, nothing left behind, free after a kill."""

import errno
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from transduce.support.files import LockHeldError, awaited_lock, locked_file, whole_file

HOLD = (
    "import sys; from pathlib import Path; from transduce.support.files import locked_file\n"
    "with locked_file(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
)


def test_one_holder_and_the_file_stays(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    path.write_text("kept")
    with locked_file(path), pytest.raises(LockHeldError), locked_file(path):
        pass
    with locked_file(path):
        pass
    assert path.exists()


@pytest.mark.system
def test_a_killed_holder_holds_nothing(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    command = [sys.executable, "-c", HOLD, path]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
        with pytest.raises(LockHeldError), awaited_lock(path, blocking=False):
            pass
        holder.kill()
        holder.wait()
        with awaited_lock(path, blocking=False) as waited:
            assert not waited


def test_waiting_is_told_once_and_the_file_goes(tmp_path: Path) -> None:
    path, waiting, done = tmp_path / "lock", threading.Event(), []

    def second() -> None:
        with awaited_lock(path, waiting.set) as waited:
            done.append((waited, path.exists()))

    with awaited_lock(path) as waited:
        thread = threading.Thread(target=second)
        thread.start()
        assert waiting.wait(60) and not waited and not done
    thread.join(60)
    assert done == [(True, True)]
    assert list(tmp_path.iterdir()) == []


def test_of_many_only_one_at_a_time(tmp_path: Path) -> None:
    """The file is removed and made anew between holders, and never held by two."""
    path, inside, most = tmp_path / "lock", [], []

    def work() -> None:
        for _ in range(5):
            with awaited_lock(path):
                inside.append(1)
                most.append(len(inside))
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert most == [1] * 20


def test_a_directory_that_cannot_be_written_is_an_oserror(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError), locked_file(tmp_path / "file" / "lock"):
        pass


def test_an_error_of_writing_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    with pytest.raises(OSError) as error, whole_file(path):
        raise OSError(errno.EFBIG, "File too large")
    assert error.value.filename == str(path) and not any(tmp_path.iterdir())
