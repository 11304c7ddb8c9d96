from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transduce.data import encoded as module
from transduce.data.encoded import EncodedPairs, Pair, cached_pairs, encode_pairs
from transduce.data.pairs import FilterConfig
from transduce.data.ragged_rows import FORGOTTEN_SECONDS, MANIFEST, Side
from transduce.errors import DataError

PAIRS = [("ab", "c"), ("", "x"), ("b", "dde"), ("ab", "c"), ("a" * 300, "b")]


def letters(texts: Sequence[str]) -> list[list[int]]:
    """Ids 4, 5, ... for a, b, ..."""
    return [[ord(letter) - 93 for letter in text] for text in texts]


SIDE = Side(letters, 40)


def encode(directory: Path, pairs: Iterable[Pair] = PAIRS, mark: str = "1") -> EncodedPairs:
    return encode_pairs(pairs, SIDE, SIDE, FilterConfig(), directory, mark)


def test_what_is_encoded(tmp_path: Path) -> None:
    data = encode(tmp_path / "cache")
    assert len(data) == 2
    assert [data.source(i).tolist() for i in range(2)] == [[4, 5], [5]]
    assert [data.target(i).tolist() for i in range(2)] == [[6], [7, 7, 8]]
    assert data.source_lengths.tolist() == [2, 1]
    assert data.target_lengths.tolist() == [1, 3]
    assert data.source_lengths.dtype == data.target_lengths.dtype == np.int32
    report = data.report
    assert (report.read, report.kept, report.empty, report.duplicate, report.too_long) == (
        5, 2, 1, 1, 1,
    )  # fmt: skip


def test_opened_again(tmp_path: Path) -> None:
    first = encode(tmp_path / "cache")
    again = EncodedPairs.open(tmp_path / "cache", "1")
    assert again is not None
    assert again.report == first.report
    assert again.source(1).tolist() == [5]
    assert isinstance(again.source_tokens.base, np.memmap)


texts = st.text(alphabet="abcdefgh", min_size=1, max_size=12)


@settings(max_examples=30)
@given(st.lists(st.tuples(texts, texts), min_size=1, unique=True), st.integers(1, 7))
def test_pairs_keep_their_order_across_chunks(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[Pair], chunk: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CHUNK_PAIRS", chunk)
        data = encode(tmp_path_factory.mktemp("encoded") / "cache", pairs)
    assert [data.source(i).tolist() for i in range(len(data))] == letters([p[0] for p in pairs])
    assert [data.target(i).tolist() for i in range(len(data))] == letters([p[1] for p in pairs])


@pytest.mark.parametrize(("size", "dtype"), [(2**16, "uint16"), (2**16 + 1, "int32")])
def test_token_type_follows_the_vocabulary(tmp_path: Path, size: int, dtype: str) -> None:
    side = Side(lambda texts: [[size - 1] for _ in texts], size)
    data = encode_pairs([("a", "b")], side, SIDE, FilterConfig(), tmp_path / "cache", "1")
    assert data.source_tokens.dtype == np.dtype(dtype)
    assert data.source(0).tolist() == [size - 1]
    assert data.target_tokens.dtype == np.uint16


def test_an_id_beyond_the_vocabulary_is_our_bug(tmp_path: Path) -> None:
    side = Side(letters, 5)
    with pytest.raises(AssertionError):
        encode_pairs([("abc", "a")], side, SIDE, FilterConfig(), tmp_path / "cache", "1")
    assert list(tmp_path.iterdir()) == []


def test_texts_without_tokens_count_as_empty(tmp_path: Path) -> None:
    side = Side(lambda texts: [[] if text == "x" else [4] for text in texts], 40)
    pairs = [("x", "a"), ("a", "a")]
    data = encode_pairs(pairs, side, SIDE, FilterConfig(), tmp_path / "cache", "1")
    assert (data.report.empty, data.report.kept) == (1, 1)


def test_nothing_kept(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no pairs left .* 2 pairs read, 0 kept, 2 empty"):
        encode(tmp_path / "cache", [("", "a"), ("a", " ")])
    assert list(tmp_path.iterdir()) == []


def test_progress_counts_pairs_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK_PAIRS", 2)
    counts: list[int] = []
    encode_pairs(PAIRS, SIDE, SIDE, FilterConfig(), tmp_path / "c", "1", counts.append)
    assert counts == [2, 4, 5]


def test_absent_or_other_is_none(tmp_path: Path) -> None:
    assert EncodedPairs.open(tmp_path / "cache", "1") is None
    encode(tmp_path / "cache")
    assert EncodedPairs.open(tmp_path / "cache", "2") is None


@pytest.mark.parametrize("name", [*module.FILES, MANIFEST])
def test_incomplete_is_none_and_rebuilt(tmp_path: Path, name: str) -> None:
    directory = tmp_path / "cache"
    encode(directory)
    content = (directory / name).read_bytes()
    (directory / name).write_bytes(content[:-3])
    assert EncodedPairs.open(directory, "1") is None
    (directory / name).unlink()
    assert EncodedPairs.open(directory, "1") is None
    assert len(encode(directory)) == 2


@pytest.mark.parametrize("manifest", [b"[]", b"{}", b"\xff", b'{"version": 1}'])
def test_a_damaged_manifest_is_none(tmp_path: Path, manifest: bytes) -> None:
    encode(tmp_path / "cache")
    (tmp_path / "cache" / MANIFEST).write_bytes(manifest)
    assert EncodedPairs.open(tmp_path / "cache", "1") is None


def failing() -> Iterator[Pair]:
    yield "a", "b"
    raise KeyboardInterrupt


def test_interrupted_leaves_what_was_there(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        encode(tmp_path / "cache", failing())
    assert list(tmp_path.iterdir()) == []
    encode(tmp_path / "cache")
    with pytest.raises(KeyboardInterrupt):
        encode(tmp_path / "cache", failing(), "2")
    assert EncodedPairs.open(tmp_path / "cache", "1") is not None


# A killed process cannot clean up: this one leaves the hard way in the midst of writing.
DYING = """
import os, pathlib, sys
from transduce.data import encoded
from transduce.data.pairs import FilterConfig

def pairs():
    yield "a", "b"
    yield "b", "c"
    os._exit(7)

encoded.CHUNK_PAIRS = 1
side = encoded.Side(lambda texts: [[4] for _ in texts], 40)
encoded.encode_pairs(pairs(), side, side, FilterConfig(), pathlib.Path(sys.argv[1]), "1")
"""


@pytest.mark.system
def test_killed_half_way_is_absent_and_taken_up(tmp_path: Path) -> None:
    program = [sys.executable, "-c", DYING, str(tmp_path / "cache")]
    assert subprocess.run(program, check=False).returncode == 7
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {".cache.lock", ".cache.unfinished"}  # the lock is free, as its holder is dead
    assert EncodedPairs.open(tmp_path / "cache", "1") is None
    assert len(encode(tmp_path / "cache")) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["cache"]


@pytest.mark.system
def test_what_nobody_takes_up_is_cleared_in_time(tmp_path: Path) -> None:
    program = [sys.executable, "-c", DYING, str(tmp_path / "other")]
    assert subprocess.run(program, check=False).returncode == 7
    encode(tmp_path / "cache")
    left = tmp_path / ".other.unfinished"
    long_ago = time.time() - FORGOTTEN_SECONDS - 1
    for path in [*left.iterdir(), left]:
        os.utime(path, (long_ago, long_ago))
    encode(tmp_path / "cache", mark="2")
    assert [path.name for path in tmp_path.iterdir()] == ["cache"]


def test_replaced_while_open(tmp_path: Path) -> None:
    old = encode(tmp_path / "cache")
    new = encode(tmp_path / "cache", [("cc", "dd")], "2")
    assert new.source(0).tolist() == [6, 6]
    assert old.source(0).tolist() == [4, 5]
    assert [path.name for path in tmp_path.iterdir()] == ["cache"]


def test_other_peoples_files_are_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(DataError, match=r"contains other files, such as 'thesis\.tex'"):
        encode(tmp_path)
    with pytest.raises(DataError, match=r"thesis\.tex cannot be written: Not a directory"):
        encode(tmp_path / "thesis.tex")
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


def test_cached_pairs_encode_only_when_something_changed(tmp_path: Path) -> None:
    reads = []

    def pairs() -> Iterable[Pair]:
        reads.append(1)
        return PAIRS

    def get(mark: str = "1", filters: FilterConfig | None = None, size: int = 40) -> EncodedPairs:
        sieve = filters or FilterConfig()
        return cached_pairs(pairs, Side(letters, size), SIDE, sieve, tmp_path / "cache", mark)

    assert len(get()) == len(get()) == 2
    assert len(reads) == 1
    assert len(get(filters=FilterConfig(drop_duplicates=False))) == 3
    assert len(get(filters=FilterConfig(max_length=300))) == 3
    get(filters=FilterConfig(max_length=300), mark="2")
    get(filters=FilterConfig(max_length=300), mark="2", size=41)
    get(filters=FilterConfig(max_length=300), mark="2", size=41)
    assert len(reads) == 5


def test_manifest_is_readable(tmp_path: Path) -> None:
    encode(tmp_path / "cache")
    manifest = json.loads((tmp_path / "cache" / MANIFEST).read_text())
    assert manifest["pairs"] == 2
    assert manifest["report"]["too_long"] == 1
    assert manifest["dtype"] == {"source": "<u2", "target": "<u2"}


def test_memory_does_not_grow_with_the_corpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHUNK_PAIRS", 100)
    tokens = [7] * 200
    side = Side(lambda texts: [tokens for _ in texts], 40)

    def peak(n: int) -> int:
        pairs = ((str(i), "x") for i in range(n))
        tracemalloc.start()
        try:
            encode_pairs(pairs, side, side, FilterConfig(), tmp_path / f"{n}", "1")
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(100)  # what only a first call takes
    grown = peak(5000) - peak(500)
    assert grown < 4500 * 200 * 2 / 10, f"{grown} bytes"  # a tenth of the tokens
