"""Documents as they are read, kept, cut and laid side by side."""

from __future__ import annotations

import functools
import gzip
import itertools
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from transduce.data.batches import DataState
from transduce.data.documents import (
    DOCUMENT_FILES,
    DocumentsConfig,
    EncodedDocuments,
    NoDocumentsError,
    TextFiles,
    cached_documents,
    coding_of_texts,
    read_documents,
)
from transduce.data.packing import PackedBatch, PackedBatches, cut, pack
from transduce.data.ragged_rows import MANIFEST, Side
from transduce.data.sources import fingerprint
from transduce.errors import DataError, SettingError
from transduce.settings.sections import parse, section
from transduce.text import CharactersConfig, train_tokenizer
from transduce.text.tokenizer import BOS, EOS, PAD


@section
class Holder:
    data: DocumentsConfig


def config(**settings: Any) -> DocumentsConfig:
    return parse(Holder, {"data": settings}).data


def letters(texts: Any) -> list[list[int]]:
    return [[ord(c) for c in text] for text in texts]


SIDE = Side(letters, 300)


# --- reading -------------------------------------------------------------------------------------

TEXT = "one\r\n  two \n\n \t\n\nthree\u2028four\n\nfive"


@pytest.mark.parametrize(
    ("kind", "known"),
    [
        ("file", [TEXT]),
        ("line", ["one", "  two ", "three\u2028four", "five"]),
        ("blank-line", ["one\r\n  two ", "three\u2028four", "five"]),
    ],
)
@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
def test_where_documents_end(tmp_path: Path, kind: Any, known: list[str], name: str) -> None:
    data = TEXT.encode()
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    (tmp_path / "b.txt").write_text("six\n")
    files = config(kind="text", path=[name, "b.txt"], documents=kind)
    last = "six\n" if kind == "file" else "six"
    assert list(read_documents(files, tmp_path)) == [*known, last]


def test_tables(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"page": {"text": "a\\n b "}}\n{"page": {"text": null}}\n')
    rows = read_documents(config(kind="jsonl", path="a.jsonl", text="page.text"), tmp_path)
    assert list(rows) == ["a\n b ", ""]
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.table({"text": ["x", "y\n"]}), tmp_path / "a.parquet")
    assert list(read_documents(config(kind="parquet", path="a.parquet"), tmp_path)) == ["x", "y\n"]


def test_mistakes(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere\.txt: no such file"):
        list(read_documents(config(kind="text", path="nowhere.txt"), tmp_path))
    with pytest.raises(DataError, match=r"nowhere\.txt: no such file"):
        fingerprint(config(kind="text", path="nowhere.txt"), tmp_path)
    with pytest.raises(SettingError, match=r"data\.documents"):
        config(kind="text", path="a.txt", documents="page")
    (tmp_path / "a.jsonl").write_text('{"txt": "a"}\n')
    with pytest.raises(DataError, match="no column 'text'; did you mean 'txt'"):
        list(read_documents(config(kind="jsonl", path="a.jsonl"), tmp_path))


def test_the_fingerprint_follows_files_and_settings(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a")
    (tmp_path / "b.txt").write_text("b")
    one = fingerprint(config(kind="text", path="a.txt"), tmp_path)
    assert fingerprint(TextFiles(path=Path("a.txt")), tmp_path) == one
    assert fingerprint(config(kind="text", path="a.txt", documents="line"), tmp_path) != one
    two = fingerprint(config(kind="text", path=["a.txt", "b.txt"]), tmp_path)
    (tmp_path / "b.txt").write_text("bb")
    assert fingerprint(config(kind="text", path=["a.txt", "b.txt"]), tmp_path) != two


# --- encoding ------------------------------------------------------------------------------------


def test_encoded_once_with_marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transduce.data.documents.CHUNK_CHARACTERS", 3)
    reads = []

    def texts() -> Iterator[str]:
        reads.append(1)
        yield from ("ab", "", "ä", "abcdef")

    def get(mark: str) -> EncodedDocuments:
        return cached_documents(texts, coding_of_texts(SIDE), tmp_path / "cache", mark)

    rows = coding_of_texts(SIDE).encode(list(texts()))
    for data in (get("1"), get("1"), EncodedDocuments.of_rows(*rows)):
        assert len(data) == 3
        assert data.n_bytes == 10  # ä has two
        rows = [data.tokens[a:b].tolist() for a, b in itertools.pairwise(data.offsets)]
        assert rows == [[BOS, *row, EOS] for row in letters(["ab", "ä", "abcdef"])]
    assert len(reads) == 2
    get("2")
    assert len(reads) == 3
    manifest = json.loads((tmp_path / "cache" / "manifest.json").read_text())
    assert manifest["documents"] == 3 and manifest["dtype"] == "<u2"


def some_documents() -> Iterator[str]:
    for i in range(400):
        yield "" if i % 7 == 0 else "abcdef ä"[: 1 + i % 8] * (1 + i % 5)


def content(directory: Path) -> dict[str, bytes]:
    assert {path.name for path in directory.iterdir()} == {*DOCUMENT_FILES, MANIFEST}
    return {path.name: path.read_bytes() for path in directory.iterdir()}


@pytest.mark.system
def test_several_processes_and_one_that_was_stopped_write_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("transduce.data.documents.CHUNK_CHARACTERS", 60)
    monkeypatch.setattr("transduce.data.documents.DOCUMENT_CHUNKS_KEPT", 2)
    tokenizer = train_tokenizer(CharactersConfig(), ["abcdef ä"])
    coding = coding_of_texts(Side(tokenizer.encode_batch, tokenizer.size))
    cached_documents(some_documents, coding, tmp_path / "one", "1")
    message: list[int] = []
    cached_documents(some_documents, coding, tmp_path / "two", "1", message.append, processes=2)
    assert content(tmp_path / "two") == content(tmp_path / "one")
    assert message == sorted(message) and message[-1] == 400

    def stopped(after: int) -> Iterator[str]:
        yield from itertools.islice(some_documents(), after)
        raise KeyboardInterrupt

    for after in (30, 120, 125, 333):
        with pytest.raises(KeyboardInterrupt):
            cached_documents(functools.partial(stopped, after), coding, tmp_path / "cut", "1")
        assert not (tmp_path / "cut").exists()
    message.clear()
    cached_documents(some_documents, coding, tmp_path / "cut", "1", message.append)
    assert message[0] > 250, "it goes on where it was"
    assert content(tmp_path / "cut") == content(tmp_path / "one")


def test_no_text_is_an_error_that_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(NoDocumentsError):
        cached_documents(lambda: ["", ""], coding_of_texts(SIDE), tmp_path / "cache", "1")
    assert list(tmp_path.iterdir()) == []


# --- packing -------------------------------------------------------------------------------------


def documents(lengths: list[int]) -> EncodedDocuments:
    """Documents whose every id tells document and place."""
    rows = [[BOS, *(100 * (d + 1) + i for i in range(n)), EOS] for d, n in enumerate(lengths)]
    offsets = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
    return EncodedDocuments(np.concatenate(rows), offsets, 1)


def predictions(batch: PackedBatch) -> list[tuple[int, int, int]]:
    """(document, read, predicted) of each prediction that counts; checks what must always hold."""
    given, expected, counted = batch.inputs, batch.labels, batch.counted
    assert given.values.shape == given.real.shape == expected.shape == counted.shape
    assert bool((counted <= given.real).all())
    assert batch.target_tokens == int(counted.sum())
    assert bool((given.values[~given.real] == PAD).all())
    assert (given.padding == "none") == bool(given.real.all())
    result = []
    for r, c in counted.nonzero().tolist():
        a, b = int(given.values[r, c]), int(expected[r, c])
        result.append((max(a, b) // 100 if b != EOS or a != BOS else 0, a, b))
    for r in range(len(given.real)):
        number = given.packed[r].tolist() if given.packed is not None else None
        for c in range(1, int(given.real[r].sum())):
            goes_on = int(given.values[r, c]) == int(expected[r, c - 1])
            same = number is None or number[c] == number[c - 1]
            assert goes_on == same, "packed tells the sequences of a row apart"
    return result


def every_prediction(lengths: list[int]) -> Counter[tuple[int, int, int]]:
    known: Counter[tuple[int, int, int]] = Counter()
    for d, n in enumerate(lengths, 1):
        ids = [BOS, *(100 * d + i for i in range(n)), EOS]
        known.update((d, a, b) for a, b in itertools.pairwise(ids))
    return known


@settings(max_examples=60)
@given(
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=12),
    block=st.integers(2, 17),
    rows=st.integers(1, 4),
    seed=st.integers(0, 99),
)
def test_each_epoch_has_every_prediction_once(
    lengths: list[int], block: int, rows: int, seed: int
) -> None:
    data = documents(lengths)
    batches = PackedBatches(data, block, rows * block + block // 2, seed)
    stream = batches.iterate()
    for epoch in range(2):
        result: Counter[tuple[int, int, int]] = Counter()
        for _ in range(batches.batches_in(epoch)):
            batch, _ = next(stream)
            assert batch.inputs.real.shape[0] <= rows and batch.inputs.real.shape[1] <= block
            result.update(predictions(batch))
        assert result == every_prediction(lengths)
    for stride in {0, 1, block // 2, block}:
        slid = (predictions(batch) for batch in batches.in_order(stride))
        assert Counter(p for part in slid for p in part) == every_prediction(lengths)


def test_a_sliding_window_leaves_no_prediction_without_context() -> None:
    batches = PackedBatches(documents([30]), 8, 8, 0)
    for batch in batches.in_order(2):
        for r, c in batch.counted.nonzero().tolist():
            first = int(batch.inputs.values[r, 0])
            assert c >= 6 or first == BOS


@settings(max_examples=60)
@given(st.lists(st.integers(1, 20), min_size=1, max_size=60))
def test_rows_are_full_but_not_too_full(lengths: list[int]) -> None:
    falling: NDArray[np.int64] = -np.sort(-np.array(lengths))
    rows = pack(falling, 20)
    filled = np.bincount(rows, weights=falling)
    assert filled.min() >= 1 and filled.max() <= 20
    assert len(filled) == rows.max() + 1
    # no two rows could be one
    assert len(filled) == 1 or np.sort(filled)[:2].sum() > 20


def test_little_is_padding() -> None:
    lengths = np.random.default_rng(0).integers(1, 250, 2000)
    falling = -np.sort(-lengths)
    rows = pack(falling, 256)
    assert lengths.sum() / ((rows.max() + 1) * 256) > 0.97


def test_short_documents_stay_whole_and_long_ones_are_cut_anew() -> None:
    data = documents([5, 50, 7, 9])
    batches = PackedBatches(data, 10, 40, 3)
    firsts = []
    for epoch in range(6):
        observed = []
        for i in range(batches.batches_in(epoch)):
            batch = batches._batch(batches._plan(epoch), i)
            starts = batch.inputs.values[:, 0].tolist()
            observed += [start for start in starts if 200 <= start < 300]
        firsts.append(sorted(observed)[0])
    assert len(set(firsts)) > 2
    pieces = cut(data.offsets, 10, 10, np.array([3, 4, 0, 9]))
    assert pieces.length[pieces.document == 0].tolist() == [6]
    assert pieces.length[pieces.document == 3].tolist() == [10]
    assert pieces.length[pieces.document == 1].tolist() == [6, 10, 10, 10, 10, 5]


def test_a_row_of_one_piece_needs_no_packing() -> None:
    (batch,) = PackedBatches(documents([7, 7]), 8, 16, 0).in_order()
    assert batch.inputs.packed is None and batch.inputs.padding == "none"
    (batch,) = PackedBatches(documents([7, 3]), 8, 16, 0).in_order()
    assert batch.inputs.packed is None and batch.inputs.padding == "right"
    (batch,) = PackedBatches(documents([3, 3]), 8, 16, 0).in_order()
    assert batch.inputs.packed is not None


def same(a: PackedBatch, b: PackedBatch) -> bool:
    pairs = [(a.inputs.values, b.inputs.values), (a.labels, b.labels), (a.counted, b.counted)]
    return all(x.equal(y) for x, y in pairs) and bool((a.documents == b.documents).all())


def test_taken_up_again_anywhere() -> None:
    data = documents([5, 50, 7, 9, 33, 2])

    def fresh(seed: int = 4) -> PackedBatches:
        return PackedBatches(data, 10, 20, seed)

    stream = fresh().iterate()
    run = [next(stream) for _ in range(20)]
    assert {state.epoch for _, state in run} == {0, 1, 2, 3} or run[-1][1].epoch >= 1
    for i in (0, 3, 11):
        resumed = fresh().iterate(run[i][1])
        for (batch, state), (known, after) in zip(resumed, run[i + 1 :], strict=False):
            assert same(batch, known) and state == after
    assert not all(same(a, b) for (a, _), (b, _) in zip(run, fresh(5).iterate(), strict=False))
    with pytest.raises(DataError, match="cannot resume at batch 99 of epoch 0"):
        next(fresh().iterate(DataState(0, 99)))
