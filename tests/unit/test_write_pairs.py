"""Pairs from Python become a file that recipes read, complete or not at all."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import transduce
from transduce.data.pairs import JsonLines, read_pairs

PAIRS = [("a", "b"), ('"tab"\t', "line\nline"), ("Zürich 中", ""), ("\u2028", "<de> x")]


def test_pairs_come_back(tmp_path: Path) -> None:
    file = transduce.write_pairs(iter(PAIRS), tmp_path / "pairs.jsonl")
    assert list(read_pairs(JsonLines(path=file), tmp_path)) == PAIRS
    assert file.read_bytes().count(b"\n") == len(PAIRS)


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([], "there are no pairs"),
        ([("a", "b"), ("a", "b", "c")], "pair 2 is not two texts"),
        (["ab"], "pair 1 is not two texts"),
        ([("a", None)], "pair 1 is not two texts"),
        ([("a", "\ud800")], "pair 1 is not valid Unicode"),
    ],
)
def test_a_wrong_pair_leaves_the_file_as_it_was(tmp_path: Path, pairs: Any, message: str) -> None:
    file = tmp_path / "pairs.jsonl"
    file.write_text("before", encoding="utf-8")
    with pytest.raises(transduce.DataError, match=message):
        transduce.write_pairs(pairs, file)
    assert file.read_text(encoding="utf-8") == "before"
    assert list(tmp_path.iterdir()) == [file]


def test_an_error_of_the_iterable_is_its_own(tmp_path: Path) -> None:
    def broken() -> Iterator[tuple[str, str]]:
        yield "a", "b"
        raise FileNotFoundError("source of the pairs")

    with pytest.raises(FileNotFoundError, match="source of the pairs"):
        transduce.write_pairs(broken(), tmp_path / "pairs.jsonl")
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(transduce.DataError, match=r"none/pairs\.jsonl cannot be written"):
        transduce.write_pairs(PAIRS, tmp_path / "none" / "pairs.jsonl")
