"""A stranger's machine: a clone, an empty HOME, one shell, and the blocks of a page."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import urllib.request
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^```(sh|python|toml)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MARK = "--- status of the command: "
TORCH_INDEX = "https://download.pytorch.org/whl/cpu"
PASSED_ON = re.compile(r"(PIP|SSL|REQUESTS)_\w+|https?_proxy|no_proxy|TMPDIR|LANG", re.IGNORECASE)
"""Variables that say how the network is reached."""


@dataclass(frozen=True)
class Command:
    """A line of a block: the command, and the comment behind it."""

    line: str
    comment: str


def blocks(page: Path) -> list[tuple[str, str]]:
    """Language and text of each block of a page."""
    return FENCE.findall(page.read_text(encoding="utf-8"))


def commands(block: str) -> list[Command]:
    """Commands of a block of shell."""
    parts = (re.split(r"\s+# ", line, maxsplit=1) for line in block.splitlines())
    return [Command(part[0], part[1] if len(part) > 1 else "") for part in parts]


def clone(directory: Path) -> Path:
    """Tree that git tracks, as it stands here."""
    directory.mkdir()
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    subprocess.run(
        ["tar", "--create", "--null", "--files-from=-", "--file", directory / "files.tar"],
        cwd=ROOT,
        input=tracked.stdout,
        check=True,
    )
    subprocess.run(["tar", "--extract", "--file", "files.tar"], cwd=directory, check=True)
    (directory / "files.tar").unlink()
    return directory


class Shell:
    """One bash in a clone, with an empty HOME and none of this environment's packages."""

    def __init__(self, directory: Path, home: Path) -> None:
        home.mkdir()
        self.directory = directory
        env = {name: value for name, value in os.environ.items() if PASSED_ON.fullmatch(name)}
        path = f"{sys.base_prefix}/bin:/usr/local/bin:/usr/bin:/bin"
        self._log = (home.parent / f"{home.name}.log").open("w+b")
        self._bash = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            cwd=directory,
            env={**env, "HOME": str(home), "PATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            start_new_session=True,
        )

    def run(self, line: str) -> str:
        """Lines that a command writes to stdout; fails with those that it wrote to stderr."""
        assert self._bash.stdin is not None and self._bash.stdout is not None
        begun = self._log.seek(0, os.SEEK_END)
        self._bash.stdin.write(f"{{ {line}\n}} < /dev/null; echo {MARK}$?\n")
        self._bash.stdin.flush()
        written: list[str] = []
        for text in self._bash.stdout:
            before, mark, status = text.partition(MARK)
            written.append(before)
            if mark:
                self._log.seek(begun)
                said = self._log.read().decode(errors="replace")[-2000:]
                assert int(status) == 0, f"{line}: status {status}{''.join(written)}{said}"
                return "".join(written)
        raise AssertionError(f"{line}: it ended the shell")

    def close(self) -> None:
        """End it, and what it has left running."""
        os.killpg(self._bash.pid, signal.SIGKILL)
        self._bash.communicate()
        self._log.close()


def index_is_reached() -> bool:
    """True if PyTorch's own index answers."""
    try:
        with urllib.request.urlopen(f"{TORCH_INDEX}/torch/", timeout=10):
            return True
    except OSError:
        return False
