from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import Any

import pytest

from transduce.data.pairs import (
    HubDataset,
    JsonLines,
    PairsConfig,
    ParallelFiles,
    TabSeparated,
    about_how_many,
    read_pairs,
)
from transduce.data.sources import fingerprint
from transduce.errors import DataError, SettingError
from transduce.settings.sections import parse, to_dict

PARALLEL = ParallelFiles(source=Path("a.de"), target=Path("a.en"))


def parsed(settings: dict[str, Any]) -> Any:
    return parse(PairsConfig, settings)  # type: ignore[arg-type]


def parallel(root: Path, source: bytes, target: bytes) -> ParallelFiles:
    (root / "a.de").write_bytes(source)
    (root / "a.en").write_bytes(target)
    return PARALLEL


def test_sections_are_told_apart_by_kind() -> None:
    settings: list[dict[str, Any]] = [
        {"kind": "parallel", "source": "a.de", "target": "a.en"},
        {"kind": "tsv", "path": "a.tsv", "source": 3, "target": "english"},
        {"kind": "jsonl", "path": "a.jsonl", "source": "translation.de", "target": "t"},
        {"kind": "parquet", "path": "a.parquet", "source": "s", "target": "t"},
        {"kind": "hub", "path": "hf://o/n", "split": "x", "source": "s", "target": "t"},
    ]
    for setting in settings:
        assert to_dict(parsed(setting)).items() >= setting.items()
    assert parsed({"kind": "tsv", "path": "a"}) == TabSeparated(path=Path("a"), source=0, target=1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kind": "tsv", "path": "a", "sorce": 0}, "did you mean 'source'"),
        ({"kind": "tvs", "path": "a"}, "kind is 'tvs'"),
        ({"kind": "parallel", "source": "a"}, "target is missing"),
        ({"kind": "tsv", "path": "a", "source": -1}, "greater than or equal to 0"),
    ],
)
def test_wrong_settings(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        parsed(settings)


def test_parallel_files(tmp_path: Path) -> None:
    config = parallel(tmp_path, b"eins\r\nzwei\r\n\r\n", b"one\ntwo\nthree")
    expected = [("eins", "one"), ("zwei", "two"), ("", "three")]
    assert list(read_pairs(config, tmp_path)) == expected


def test_paths_may_hold_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORPORA", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NAME", "a")
    (tmp_path / "a.de").write_text("eins\n", encoding="utf-8")
    (tmp_path / "a.en").write_text("one\n", encoding="utf-8")
    there = parsed({"kind": "parallel", "source": "$CORPORA/$NAME.de", "target": "~/a.en"})
    assert there == ParallelFiles(source=tmp_path / "a.de", target=tmp_path / "a.en")
    assert list(read_pairs(there, Path("elsewhere"))) == [("eins", "one")]
    below = parsed({"kind": "parallel", "source": "${NAME}.de", "target": "a.en"})
    assert list(read_pairs(below, tmp_path)) == [("eins", "one")]
    assert parsed({"kind": "hub", "path": "$CORPORA/set"}).path == f"{tmp_path}/set"
    with pytest.raises(SettingError, match=r"source.*variable NOWHERE is not set"):
        parsed({"kind": "parallel", "source": "$NOWHERE/a.de", "target": "a.en"})


def test_compressed_parallel_files_and_absolute_paths(tmp_path: Path) -> None:
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"eins\n"))
    (tmp_path / "b").write_bytes(b"one\n")
    config = ParallelFiles(source=tmp_path / "a.gz", target=Path("b"))
    assert list(read_pairs(config, tmp_path)) == [("eins", "one")]
    absolute = ParallelFiles(source=tmp_path / "a.gz", target=tmp_path / "b")
    assert list(read_pairs(absolute, tmp_path / "elsewhere")) == [("eins", "one")]


@pytest.mark.parametrize(
    ("n_sources", "n_targets"), [(3, 5), (5, 3), (3, 4), (4, 3), (1, 2000), (2000, 1)]
)
def test_line_counts_must_agree(tmp_path: Path, n_sources: int, n_targets: int) -> None:
    config = parallel(tmp_path, b"x\n" * n_sources, b"y\n" * n_targets)
    reader = read_pairs(config, tmp_path)
    for _ in range(min(n_sources, n_targets)):
        assert next(reader) == ("x", "y")
    message = rf"a\.de has {n_sources} lines but .*a\.en has {n_targets};"
    with pytest.raises(DataError, match=message):
        next(reader)


def test_tables(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("x\ty\n")
    (tmp_path / "a.jsonl").write_text('{"source": "x", "target": "y"}\n')
    assert list(read_pairs(TabSeparated(path=Path("a.tsv")), tmp_path)) == [("x", "y")]
    assert list(read_pairs(JsonLines(path=Path("a.jsonl")), tmp_path)) == [("x", "y")]


def test_tags_stand_before_the_source(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("fre\tN\tx y\tz\nfre\tN\t\tz\n")
    (tmp_path / "a.jsonl").write_text('{"source": "x", "target": "y", "to": {"language": "de"}}\n')
    (tmp_path / "a.en").write_text("x\n")
    (tmp_path / "a.de").write_text("y\n")
    columns = TabSeparated(path=Path("a.tsv"), source=2, target=3, tag_columns=(0, 1), tag="ipa")
    result = list(read_pairs(columns, tmp_path))
    assert result == [("<ipa> <fre> <N> x y", "z"), ("", "z")], "nothing to translate stays nothing"
    (tmp_path / "b.tsv").write_text("see\tsaw\tV; PST;;3 SG\n")
    features = TabSeparated(path=Path("b.tsv"), tag_columns=(2,), tag_separator=";")
    assert list(read_pairs(features, tmp_path)) == [("<V> <PST> <3 SG> see", "saw")]
    fields = JsonLines(path=Path("a.jsonl"), tag_columns=("to.language",))
    assert list(read_pairs(fields, tmp_path)) == [("<de> x", "y")]
    files = ParallelFiles(source=Path("a.en"), target=Path("a.de"), tag="de")
    assert list(read_pairs(files, tmp_path)) == [("<de> x", "y")]


def test_a_tag_of_a_column_has_no_brackets(tmp_path: Path) -> None:
    """They would hide where it ends, and with it which source is the same."""
    (tmp_path / "a.tsv").write_text("x\ty\tde\nx\ty\ten->de\n")
    columns = TabSeparated(path=Path("a.tsv"), tag_columns=(2,))
    with pytest.raises(
        DataError, match=r"a\.tsv: pair 2 has an invalid tag, 'en->de'; tags must not"
    ):
        list(read_pairs(columns, tmp_path))


@pytest.mark.parametrize("tag", ["a b", "<a>", "a\n"])
def test_a_tag_is_one_word(tag: str) -> None:
    with pytest.raises(SettingError, match="tag"):
        parse(ParallelFiles, {"source": "a", "target": "b", "tag": tag}, "data.train")


def test_parquet(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="needs the extra `parquet`")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = pyarrow.table({"source": ["x"], "target": ["y"]})
    parquet.write_table(table, tmp_path / "a.parquet")
    config = parsed({"kind": "parquet", "path": "a.parquet"})
    assert list(read_pairs(config, tmp_path)) == [("x", "y")]


def test_local_hub_data_set(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="needs the extra `hub`")
    data = datasets.Dataset.from_dict({"source": ["x"], "target": ["y"]})
    data.save_to_disk(tmp_path / "saved")
    config = HubDataset(path="saved")
    assert list(read_pairs(config, tmp_path)) == [("x", "y")]
    assert tmp_path / "saved" / "state.json" in config.files(tmp_path)


def test_inputs(tmp_path: Path) -> None:
    assert PARALLEL.files(tmp_path) == [tmp_path / "a.de", tmp_path / "a.en"]
    assert TabSeparated(path=Path("/x/a.tsv")).files(tmp_path) == [Path("/x/a.tsv")]
    assert HubDataset(path="hf://owner/name").files(tmp_path) == []


def test_fingerprint_is_stable(tmp_path: Path) -> None:
    config = parallel(tmp_path, b"x\n", b"y\n")
    first = fingerprint(config, tmp_path)
    assert first == fingerprint(config, tmp_path)
    built_anew = ParallelFiles(target=Path("a.en"), source=Path("a.de"))
    assert first == fingerprint(built_anew, tmp_path)


def test_fingerprint_sees_every_change(tmp_path: Path) -> None:
    config = parallel(tmp_path, b"x\n", b"y\n")
    observed = {fingerprint(config, tmp_path)}
    observed.add(fingerprint(ParallelFiles(source=Path("a.en"), target=Path("a.de")), tmp_path))
    (tmp_path / "a.en").write_bytes(b"yy\n")
    observed.add(fingerprint(config, tmp_path))
    status = (tmp_path / "a.en").stat()
    os.utime(tmp_path / "a.en", ns=(status.st_atime_ns, status.st_mtime_ns + 1_000_000))
    observed.add(fingerprint(config, tmp_path))
    (tmp_path / "b").mkdir()
    observed.add(fingerprint(parallel(tmp_path / "b", b"x\n", b"y\n"), tmp_path / "b"))
    for settings in ({"split": "a"}, {"split": "b"}, {"name": "a"}, {"path": "hf://o/n@2"}):
        given = {"kind": "hub", "path": "hf://o/n", **settings}
        observed.add(fingerprint(parsed(given), tmp_path))
    assert len(observed) == 9


@pytest.mark.parametrize("place", [0, 70_000, 200_001])
def test_fingerprint_sees_other_pairs_of_the_same_size_and_date(tmp_path: Path, place: int) -> None:
    """Not by the date of the entry alone, whose clock ticks too seldom for a test."""
    before = bytearray(b"abcde\n" * 33_334)
    config = parallel(tmp_path, bytes(before), b"y\n")
    file = tmp_path / "a.de"
    status = file.stat()
    first = fingerprint(config, tmp_path)
    before[place] = ord("x")
    file.write_bytes(before)
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    now = file.stat()
    assert (now.st_size, now.st_mtime_ns) == (status.st_size, status.st_mtime_ns)
    if place == 70_000:  # between the blocks
        while file.stat().st_ctime_ns == status.st_ctime_ns:
            os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert fingerprint(config, tmp_path) != first


def test_fingerprint_of_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a\.de: no such file"):
        fingerprint(PARALLEL, tmp_path)


def test_about_how_many(tmp_path: Path) -> None:
    """Though lines at the beginning are shorter than later ones."""
    path = tmp_path / "a.tsv"
    path.write_text("a\tb\n" * 5000 + "a longer line\tthan the others\n" * 20_000)
    result = about_how_many(TabSeparated(path=path), tmp_path)
    assert result == pytest.approx(25_000, rel=0.1)
    path.write_text("a\tb\n")
    assert about_how_many(TabSeparated(path=path), tmp_path) == 1
    for name in ("missing.tsv", "a.tsv.gz"):
        assert about_how_many(TabSeparated(path=tmp_path / name), tmp_path) is None
    assert about_how_many(HubDataset(path="hf://a/b"), tmp_path) is None
