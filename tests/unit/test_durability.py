"""Order of system calls: a content is on the disk before it gets its name, the name after."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from transduce.cli.output import open_output
from transduce.data.pairs import write_pairs
from transduce.support.files import whole_file
from transduce.training.checkpoints import Progress, checkpoint_path, save_checkpoint
from transduce.training.weights import write_tensors, write_text

posix = pytest.mark.skipif(
    os.name != "posix", reason="only POSIX flushes directories and renames onto open files"
)


class Calls:
    """Flushes and renames, in order: files by inode, since their names change."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.flushed: set[int] = set()
        self.unflushed: list[str] = []
        self.renamed: list[str] = []
        self.directories_after: set[int] = set()
        fsync, replace = os.fsync, os.replace

        def flush(descriptor: int) -> None:
            status = os.fstat(descriptor)
            if stat.S_ISDIR(status.st_mode):
                self.directories_after.add(status.st_ino)
            else:
                self.flushed.add(status.st_ino)
            fsync(descriptor)

        def rename(source: Path, target: str | os.PathLike[str]) -> Path:
            source = Path(source)
            files = [source] if source.is_file() else [f for f in source.rglob("*") if f.is_file()]
            self.unflushed += [
                file.name for file in files if file.stat().st_ino not in self.flushed
            ]
            self.renamed.append(Path(target).name)
            self.directories_after.clear()
            replace(source, target)
            return Path(target)

        patch.setattr(os, "fsync", flush)
        patch.setattr(Path, "replace", rename)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    return Calls(monkeypatch)


def names_in(directory: Path) -> list[str]:
    return [file.name for file in directory.iterdir()]


def of_whole_file(path: Path) -> None:
    with whole_file(path) as file:
        file.write(b"content")


WRITERS: dict[str, Callable[[Path], object]] = {
    "whole_file": of_whole_file,
    "write_text": lambda path: write_text(path, "content"),
    "write_tensors": lambda path: write_tensors(path, {"a": torch.ones(2)}),
    "write_pairs": lambda path: write_pairs([("a", "b")], path),
}


@pytest.mark.parametrize("writer", WRITERS)
def test_a_content_is_flushed_before_it_gets_its_name(
    writer: str, tmp_path: Path, calls: Calls
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"older")
    WRITERS[writer](path)
    assert calls.renamed == ["file"]
    assert calls.unflushed == []
    assert path.read_bytes() != b"older" and names_in(tmp_path) == ["file"]


@posix
def test_a_checkpoint_is_flushed_then_renamed_then_its_directory(
    tmp_path: Path, calls: Calls
) -> None:
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    save_checkpoint(tmp_path, Progress(step=3), model, optimizer, None)
    final = checkpoint_path(tmp_path, 3)
    assert calls.renamed[-1] == final.name and final.is_dir()
    assert calls.unflushed == []
    assert final.parent.stat().st_ino in calls.directories_after


@posix
def test_a_reader_of_the_old_output_never_sees_half_of_the_new(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    path.write_text("older\n")
    older = path.stat().st_ino
    with path.open() as reader:
        with open_output(str(path)) as output:
            output.write(["newer"] * 1000)
            assert path.read_text() == "older\n"
        assert reader.read() == "older\n"
    assert path.stat().st_ino != older
    assert path.read_text() == "newer\n" * 1000 and names_in(tmp_path) == ["out.txt"]
