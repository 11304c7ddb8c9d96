"""Files of any store: what a place stands for, and files that are whole or absent."""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from transduce.data import stores
from transduce.data.stores import (
    absolute_url,
    files_in,
    names_below,
    opened_store,
    remove_leftovers,
    whole_stored_file,
)
from transduce.errors import DataError

fsspec: Any = pytest.importorskip("fsspec", reason="needs the extra `scale`")


@pytest.fixture(params=["disk", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An empty directory of a store."""
    if request.param == "disk":
        yield str(tmp_path)
        return
    directory = f"memory://{uuid.uuid4().hex}"
    yield directory
    store, path = fsspec.core.url_to_fs(directory)
    if store.exists(path):
        store.rm(path, recursive=True)


def write(url: str, content: bytes = b"x\n") -> None:
    with whole_stored_file(url) as file:
        file.write(content)


def read(url: str) -> bytes:
    with opened_store(url) as file:
        return file.read()


class TestPlaces:
    def test_directory_means_all_that_is_below_and_not_hidden(self, place: str) -> None:
        for name in ("b.txt", "a/c.txt", "_SUCCESS", ".crc", "a/_log/d"):
            write(f"{place}/{name}")
        assert [file.name for file in files_in(place)] == ["a/c.txt", "b.txt"]
        assert names_below(place) == {"a/c.txt", "b.txt", "_SUCCESS", "a/_log/d"}

    def test_pattern_names_what_it_finds_below_its_fixed_part(self, place: str) -> None:
        for name in ("a/1.txt", "a/2.gz", "b/1.txt"):
            write(f"{place}/{name}")
        assert [file.name for file in files_in(f"{place}/*/1.txt")] == ["a/1.txt", "b/1.txt"]
        assert [file.name for file in files_in(f"{place}/a/*")] == ["1.txt", "2.gz"]

    def test_one_file_even_if_its_name_looks_like_a_pattern(self, place: str) -> None:
        write(f"{place}/_a[1].txt", b"12345")
        (file,) = files_in(f"{place}/_a[1].txt")
        assert (file.name, file.size) == ("_a[1].txt", 5)
        assert read(file.url) == b"12345"

    def test_files_found_can_be_read_from_any_directory(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "in").mkdir()
        write(str(tmp_path / "in" / "a b#%20é.txt"), b"text")
        monkeypatch.chdir(tmp_path)
        (file,) = files_in("in")
        monkeypatch.chdir("/")
        assert read(file.url) == b"text"
        assert absolute_url(str(tmp_path / "in") + "/") == str(tmp_path / "in")

    def test_stamp_tells_a_file_written_anew(self, tmp_path: Path) -> None:
        path = tmp_path / "a"
        path.write_text("1")
        (before,) = files_in(str(tmp_path))
        assert files_in(str(tmp_path)) == [before]
        os.utime(path, ns=(0, 1))
        assert files_in(str(tmp_path)) != [before]

    @pytest.mark.parametrize(
        ("wrong", "message"),
        [
            ("nowhere", "nowhere: no such file"),
            ("nowhere/*.txt", "no files found"),
            ("xyz://a", "Protocol not known"),
            ("simplecache::memory://a", "nested URLs"),
        ],
    )
    def test_mistakes_are_one_line(self, wrong: str, message: str) -> None:
        with pytest.raises(DataError, match=message) as caught:
            files_in(wrong)
        assert wrong in str(caught.value) and "\n" not in str(caught.value)


class TestWholeFile:
    def test_appears_when_it_is_complete(self, place: str) -> None:
        write(f"{place}/other")
        with whole_stored_file(f"{place}/deep/a.txt") as file:
            file.write(b"one")
            file.flush()
            assert names_below(place) == {"other"}
        assert read(f"{place}/deep/a.txt") == b"one"
        assert names_below(place) == {"other", "deep/a.txt"}

    def test_what_fails_leaves_what_was_there(self, place: str) -> None:
        write(f"{place}/a.txt", b"old")
        with pytest.raises(ZeroDivisionError), whole_stored_file(f"{place}/a.txt") as file:
            file.write(b"new")
            raise ZeroDivisionError
        assert read(f"{place}/a.txt") == b"old"

    def test_two_writers_of_one_file_do_not_meet(self, place: str) -> None:
        url = f"{place}/a.txt"
        with whole_stored_file(url) as one, whole_stored_file(url) as two:
            one.write(b"same " * 1000)
            two.write(b"same ")
            one.flush()
            two.write(b"same " * 999)
        assert read(url) == b"same " * 1000
        assert names_below(place) == {"a.txt"}

    def test_full_disk_is_one_line(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def full(_: int) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(DataError, match=r"a\.txt cannot be written: No space left"):
            write(str(tmp_path / "a.txt"))
        assert list(tmp_path.iterdir()) == []

    def test_where_an_upload_shows_halves_it_is_put_aside_and_renamed(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        moved: list[tuple[str, str]] = []
        store = fsspec.filesystem("memory")
        monkeypatch.setattr(stores, "OBJECT_STORES", frozenset[str]())
        move = type(store).mv
        monkeypatch.setattr(
            type(store), "mv", lambda self, a, b: (moved.append((a, b)), move(self, a, b))
        )
        directory = f"memory://{uuid.uuid4().hex}"
        write(f"{directory}/a.txt", b"whole")
        ((aside, final),) = moved
        assert aside != final and final.endswith("/a.txt")
        assert read(f"{directory}/a.txt") == b"whole"
        assert [file.name for file in files_in(directory)] == ["a.txt"]

    def test_what_killed_writers_left_is_swept_and_nothing_else(self, tmp_path: Path) -> None:
        with pytest.raises(ZeroDivisionError), whole_stored_file(str(tmp_path / "a" / "b.txt")):
            left = next((tmp_path / "a").iterdir())
            copy = left.with_name(left.name.replace("b.txt", "c.txt"))
            copy.write_bytes(b"half")  # as a killed process leaves it
            raise ZeroDivisionError
        (tmp_path / "mine.part").touch()
        remove_leftovers(tmp_path)
        assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["mine.part"]
