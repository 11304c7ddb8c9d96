"""Training data in several files: lists, patterns, directories, and files of a store."""

import errno
import gzip
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from transduce.data.labelled import LabelledConfig, read_labelled
from transduce.data.pairs import (
    PairsConfig,
    TabSeparated,
    about_how_many,
    numbered_pairs,
    read_pairs,
)
from transduce.data.sources import files_at, fingerprint
from transduce.data.text_files import packed, read_lines
from transduce.errors import DataError

PAIRS = [(f"ein Hund {i}", f"a dog {i}") for i in range(12)]


def pairs_config(**settings: object) -> PairsConfig:
    config: PairsConfig = TypeAdapter(PairsConfig).validate_python(settings)
    return config


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    """Three shards of each kind, one of them packed, and files that are none."""
    for number in range(3):
        part = PAIRS[4 * number : 4 * number + 4]
        sides = [("".join(f"{pair[side]}\n" for pair in part)).encode() for side in (0, 1)]
        for side, data in zip(("de", "en"), sides, strict=True):
            (tmp_path / side).mkdir(exist_ok=True)
            name = f"part-{number}.{side}"
            if number == 1:
                name, data = f"{name}.gz", gzip.compress(data)
            (tmp_path / side / name).write_bytes(data)
        (tmp_path / "tsv").mkdir(exist_ok=True)
        rows = "".join(f"{source}\t{target}\n" for source, target in part)
        (tmp_path / "tsv" / f"{number}.tsv").write_text(rows)
    for name in ("_SUCCESS", ".hidden"):
        (tmp_path / "tsv" / name).write_text("no data\n")
    return tmp_path


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("de/part-*", "en/part-*"),
        ("de", "en"),
        (
            ["de/part-0.de", "de/part-1.de.gz", "de/part-2.de"],
            ["en/part-0.en", "en/part-1.en.gz", "en/part-2.en"],
        ),
        ("**/*.de*", "**/*.en*"),
    ],
)
def test_parallel_files_in_shards(shards: Path, source: object, target: object) -> None:
    config = pairs_config(kind="parallel", source=source, target=target)
    assert list(read_pairs(config, shards)) == PAIRS
    assert [pair for _, pair in numbered_pairs(config, shards)] == PAIRS
    assert [number for number, _ in numbered_pairs(config, shards)] == list(range(1, 13))


@pytest.mark.parametrize("path", ["tsv", "tsv/*.tsv", ["tsv/0.tsv", "tsv/1.tsv", "tsv/2.tsv"]])
def test_tables_in_shards(shards: Path, path: object) -> None:
    config = pairs_config(kind="tsv", path=path)
    assert list(read_pairs(config, shards)) == PAIRS
    assert len(PAIRS) / 2 < (about_how_many(config, shards) or 0) < 2 * len(PAIRS)


def test_parquet_in_shards(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    for number in range(3):
        rows = [dict(zip(("source", "target"), pair, strict=True)) for pair in PAIRS[number::3]]
        parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / f"{number}.parquet")
    config = pairs_config(kind="parquet", path="*.parquet")
    assert list(read_pairs(config, tmp_path)) == PAIRS[::3] + PAIRS[1::3] + PAIRS[2::3]


def test_files_packed_by_zstd(tmp_path: Path) -> None:
    zstandard = pytest.importorskip("zstandard")
    frames = [zstandard.compress(f"{a}\t{b}\n".encode()) for a, b in PAIRS]
    (tmp_path / "a.tsv.zst").write_bytes(b"".join(frames))
    assert list(read_pairs(pairs_config(kind="tsv", path="a.tsv.zst"), tmp_path)) == PAIRS
    (tmp_path / "cut.tsv.zst").write_bytes(b"".join(frames)[:-5])
    with pytest.raises(DataError, match=r"cut\.tsv\.zst is a damaged zstd file"):
        list(read_pairs(pairs_config(kind="tsv", path="cut.tsv.zst"), tmp_path))
    with (tmp_path / "made.zst").open("wb") as file:
        out = packed(file, "made.zst")
        out.write(b"eins\tone\n")
        out.close()
    assert list(read_lines(tmp_path / "made.zst")) == ["eins\tone"]


def test_labelled_texts_in_shards(tmp_path: Path) -> None:
    for number in range(2):
        (tmp_path / f"{number}.csv").write_text(f"text,label\ngood {number},yes\n")
    config = TypeAdapter(LabelledConfig).validate_python({"kind": "csv", "path": "*.csv"})
    assert [item.texts for item in read_labelled(config, tmp_path)] == [("good 0",), ("good 1",)]


def test_files_of_a_store(shards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = pytest.importorskip("fsspec").filesystem("memory")
    monkeypatch.setenv("XDG_CACHE_HOME", str(shards / "cache"))
    memory.put(str(shards / "tsv") + "/", "memory://bucket/tsv/", recursive=True)
    config = pairs_config(kind="tsv", path="memory://bucket/tsv/*.tsv")
    assert list(read_pairs(config, shards)) == PAIRS
    before = fingerprint(config, shards)
    assert fingerprint(config, shards) == before
    memory.pipe_file("/bucket/tsv/2.tsv", b"neu\tnew\n")
    assert list(read_pairs(config, shards)) == [*PAIRS[:8], ("neu", "new")]
    assert fingerprint(config, shards) != before
    with pytest.raises(DataError, match=r"memory://bucket/no: no such file"):
        list(read_pairs(pairs_config(kind="tsv", path="memory://bucket/no"), shards))


def test_files_that_are_missing_or_unequal(shards: Path) -> None:
    with pytest.raises(DataError, match=r"no-\*: no files found"):
        list(read_pairs(pairs_config(kind="tsv", path="no-*"), shards))
    (shards / "en" / "part-2.en").unlink()
    with pytest.raises(DataError, match="de has 3 files but en has 2"):
        list(read_pairs(pairs_config(kind="parallel", source="de", target="en"), shards))
    odd = shards / "tsv" / "[1].tsv"
    odd.write_text("eins\tone\n")
    assert list(read_pairs(pairs_config(kind="tsv", path="tsv/[1].tsv"), shards)) == [
        ("eins", "one")
    ]


def test_a_pipe_is_refused_before_it_is_read(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    config = pairs_config(kind="tsv", path="pipe")
    raised: list[BaseException] = []

    def stamped() -> None:
        try:
            fingerprint(config, tmp_path)
        except DataError as error:
            raised.append(error)

    thread = threading.Thread(target=stamped, daemon=True)
    thread.start()
    thread.join(30)
    assert "is a pipe, and training reads its data several times" in str(raised[0])


def test_links_lead_to_each_file_once(tmp_path: Path) -> None:
    """Links to directories are followed, also round in a circle, and one to nothing is named."""
    (tmp_path / "data" / "inner").mkdir(parents=True)
    (tmp_path / "far").mkdir()
    files = [tmp_path / name for name in ("data/a.tsv", "data/inner/b.tsv", "far/c.tsv")]
    for file in files:
        file.write_text("x\ty\n")
    (tmp_path / "data" / "inner" / "round").symlink_to(tmp_path / "data")
    (tmp_path / "data" / "linked").symlink_to(tmp_path / "far")
    (tmp_path / "data" / "latest.tsv").symlink_to("a.tsv")
    found = files_at("data", tmp_path)
    assert [file.resolve() for file in found] == files
    assert [f.resolve() for f in files_at("data/**/*.tsv", tmp_path)] == files
    (tmp_path / "data" / "gone.tsv").symlink_to("nowhere.tsv")
    for address in ("data", "data/*.tsv"):
        with pytest.raises(DataError, match=r"gone\.tsv: no such file"):
            list(read_pairs(TabSeparated(path=address), tmp_path))


@pytest.mark.parametrize("root", ["raw [1]", "_raw"])
def test_signs_of_the_root_are_no_pattern(tmp_path: Path, root: str) -> None:
    (tmp_path / root / "_more").mkdir(parents=True)
    for name in ("a.tsv", "_b.tsv", "_more/c.tsv"):
        (tmp_path / root / name).write_text("x\ty\n")
    assert files_at("*.tsv", tmp_path / root) == [tmp_path / root / "a.tsv"]
    assert files_at("_more/*.tsv", tmp_path / root) == [tmp_path / root / "_more" / "c.tsv"]
    assert files_at("_raw/*.tsv" if root == "_raw" else "raw*/*.tsv", tmp_path)


def test_a_directory_that_cannot_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data" / "inner").mkdir(parents=True)
    (tmp_path / "data" / "a.tsv").write_text("x\ty\n")
    scan = os.scandir

    def refused(path: str) -> Any:
        if str(path).endswith("inner"):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return scan(path)

    monkeypatch.setattr(os, "scandir", refused)
    with pytest.raises(DataError, match="data cannot be read: Permission denied"):
        files_at("data", tmp_path)
    with pytest.raises(DataError, match="cannot be read: File name too long"):
        files_at("a" * 5000, tmp_path)


def test_files_on_disk_need_no_copies(tmp_path: Path) -> None:
    pytest.importorskip("fsspec", reason="needs the extra `scale`")
    file = tmp_path / "names [1]" / "a b.tsv"
    file.parent.mkdir()
    file.write_text("x\ty\n")
    assert files_at(f"file://{file.parent}", Path()) == [file]
