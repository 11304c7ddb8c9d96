from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.data.text_files import read_lines
from transduce.errors import DataError, SettingError


def written(directory: Path, content: bytes, name: str = "text.txt") -> Path:
    path = directory / name
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return path


@pytest.mark.parametrize("name", ["text.txt", "text.txt.gz"])
@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"a\nb\n", ["a", "b"]),
        (b"a\nb", ["a", "b"]),
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"a\rb\n", ["a\rb"]),
        (b"a\r\r\n", ["a\r"]),
        (b"\xef\xbb\xbfa\nb\n", ["a", "b"]),
        (b"\n\na\n\n", ["", "", "a", ""]),
        ("x\x85y\u2028z\x0b\x0c\n".encode(), ["x\x85y\u2028z\x0b\x0c"]),
        ("a\n\ufeffb\n".encode(), ["a", "\ufeffb"]),
    ],
)
def test_lines_end_at_newlines_only(
    tmp_path: Path, content: bytes, expected: list[str], name: str
) -> None:
    assert list(read_lines(written(tmp_path, content, name))) == expected


@given(st.lists(st.text(st.characters(exclude_characters="\n\r\ufeff", codec="utf-8")), min_size=1))
def test_any_text_comes_back(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> None:
    content = "".join(text + "\n" for text in texts).encode()
    assert list(read_lines(written(tmp_path_factory.mktemp("lines"), content))) == texts


def test_invalid_utf8_names_line_and_byte(tmp_path: Path) -> None:
    path = written(tmp_path, b"good\nna\xefve\n")
    reader = read_lines(path)
    assert next(reader) == "good"
    with pytest.raises(
        DataError, match=r"text\.txt: line 2 is not valid UTF-8 at byte 3 of the line"
    ):
        next(reader)


def test_empty_file(tmp_path: Path) -> None:
    for name in ("a.txt", "a.txt.gz"):
        with pytest.raises(DataError, match="is empty"):
            list(read_lines(written(tmp_path, b"", name)))


def test_missing_file_and_directory(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere\.txt: no such file"):
        list(read_lines(tmp_path / "nowhere.txt"))
    with pytest.raises(DataError, match="is a directory"):
        list(read_lines(tmp_path))


def test_damaged_gzip(tmp_path: Path) -> None:
    whole = gzip.compress(bytes(range(65, 91)) * 100 + b"\n")
    flipped = bytearray(whole)
    flipped[-6] ^= 255
    for content in (b"plain text", whole[:-9], bytes(flipped), whole[:10] + b"\xff" * 40):
        path = tmp_path / "text.gz"
        path.write_bytes(content)
        with pytest.raises(
            DataError, match=r"(is a damaged gzip file|is not in gzip format)"
        ) as caught:
            list(read_lines(path))
        assert "\n" not in str(caught.value)


def test_a_file_without_line_ends_does_not_fill_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRANSDUCE_LIMIT_LINE", "1")
    path = written(tmp_path, b"x" * (2**20 - 1) + b"\n" + b"x" * (2**20 + 1))
    remedy = r"set TRANSDUCE_LIMIT_LINE above 1 \(MiB\)"
    with pytest.raises(DataError, match=f"line 2 is longer than 1 MiB; .*{remedy}"):
        list(read_lines(path))
    monkeypatch.setenv("TRANSDUCE_LIMIT_LINE", "2")
    assert len(list(read_lines(path))) == 2


@pytest.mark.parametrize("text", ["", "-1", "64MiB", "1e3", "\u0663", "9" * 13])
def test_a_limit_that_is_no_number_of_mib_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("TRANSDUCE_LIMIT_LINE", text)
    with pytest.raises(SettingError, match=r"^TRANSDUCE_LIMIT_LINE=.* the default is 64$"):
        list(read_lines(written(tmp_path, b"a\n")))


def test_reading_is_streamed(tmp_path: Path) -> None:
    # The damage lies megabytes further on: only a reader that looked ahead would meet it.
    path = written(tmp_path, b"first\n" + b"x\n" * 2**20 + b"\xff\n")
    assert next(read_lines(path)) == "first"
