"""Many files, shard by shard: what is done, what is left, and what belongs to other work."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import json
import lzma
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import transduce
from transduce.bulk import plan as planning
from transduce.bulk.plan import (
    MANIFEST,
    BulkPlan,
    Shard,
    TranslatorSpec,
    fingerprint,
    open_plan,
    translate_shard,
)
from transduce.decoding.options import DecodingOptions
from transduce.errors import DataError, RunError, SettingError

pytest.importorskip("fsspec", reason="needs the extra `scale`")

RUN = Path(__file__).parents[1] / "runs" / "0.1.0" / "translation"
SPEC = TranslatorSpec(RUN, DecodingOptions(beam_size=1))
LINES = ["a good dog", "", "the cat  sees\ta house", "\u2028", "x" * 3000, "\N{OX}"]


@pytest.fixture(scope="module")
def run() -> transduce.Run:
    return SPEC.load()


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    directory = tmp_path / "in"
    (directory / "more").mkdir(parents=True)
    text = "".join(f"{line}\n" for line in LINES).encode()
    (directory / "1.txt").write_bytes(text)
    (directory / "2.txt.gz").write_bytes(gzip.compress(text))
    (directory / "more" / "3.txt").write_bytes(b"\xef\xbb\xbfa dog\r\nbad \xff byte\nno end")
    (directory / "empty.txt").touch()
    return directory


def planned(inputs: Path, spec: TranslatorSpec = SPEC, column: str | None = None) -> BulkPlan:
    with open_plan(str(inputs), str(inputs.parent / "out"), spec, column) as plan:
        return plan


def text_of(path: Path) -> str:
    data = path.read_bytes()
    return (gzip.decompress(data) if path.suffix == ".gz" else data).decode()


class TestShards:
    def test_one_line_out_for_every_line_in(self, inputs: Path, run: transduce.Run) -> None:
        plan = planned(inputs)
        counts = {s.name: translate_shard(run, SPEC.options, s) for s in plan.todo}
        assert counts == {"1.txt": 6, "2.txt.gz": 6, "empty.txt": 0, "more/3.txt": 3}
        out = inputs.parent / "out"
        expected = [translation.text for translation in run.translate(LINES, SPEC.options)]
        for name in ("1.txt", "2.txt.gz"):
            assert text_of(out / name) == "".join(f"{line}\n" for line in expected)
        assert text_of(out / "empty.txt") == ""
        texts = ["a dog", "bad \ufffd byte", "no end"]
        expected = [translation.text for translation in run.translate(texts, SPEC.options)]
        assert text_of(out / "more" / "3.txt").split("\n") == [*expected, ""]

    def test_twice_gives_equal_bytes(self, inputs: Path, run: transduce.Run) -> None:
        out = inputs.parent / "out"
        shard = next(s for s in planned(inputs).todo if s.name == "2.txt.gz")
        files = []
        for _ in range(2):
            translate_shard(run, SPEC.options, shard)
            files.append((out / "2.txt.gz").read_bytes())
        assert files[0] == files[1]

    def test_any_packing_and_encoding_is_read_and_written_as_its_name_says(
        self, inputs: Path, run: transduce.Run
    ) -> None:
        text = (inputs / "1.txt").read_bytes()
        (inputs / "4.bz2").write_bytes(bz2.compress(text))
        (inputs / "5.xz").write_bytes(lzma.compress(text))
        (inputs / "6").write_bytes(gzip.compress(text.decode().encode("utf-16")))
        for shard in planned(inputs).todo:
            translate_shard(run, SPEC.options, shard)
        out = inputs.parent / "out"
        expected = (out / "1.txt").read_bytes()
        assert bz2.decompress((out / "4.bz2").read_bytes()) == expected
        assert lzma.decompress((out / "5.xz").read_bytes()) == expected
        assert (out / "6").read_bytes() == expected

    def test_sampling_draws_as_for_the_file_alone(self, inputs: Path, run: transduce.Run) -> None:
        options = DecodingOptions(method="sample", seed=3)
        for shard in planned(inputs, replace(SPEC, options=options)).todo:
            translate_shard(run, options, shard)
        expected = [translation.text for translation in run.translate(LINES, options)]
        assert text_of(inputs.parent / "out" / "1.txt").split("\n") == [*expected, ""]

    @pytest.mark.parametrize("spoil", ["cut", "long"])
    def test_a_shard_that_cannot_be_read_is_absent(
        self, inputs: Path, run: transduce.Run, monkeypatch: pytest.MonkeyPatch, spoil: str
    ) -> None:
        bad = inputs / "2.txt.gz"
        if spoil == "cut":
            bad.write_bytes(bad.read_bytes()[:-9])
        else:
            monkeypatch.setenv("TRANSDUCE_LIMIT_LINE", "0")
        shard = next(s for s in planned(inputs).todo if s.name == "2.txt.gz")
        with pytest.raises(DataError, match=r"2\.txt\.gz.*(damaged gzip|longer)"):
            translate_shard(run, SPEC.options, shard)
        files = [p.name for p in (inputs.parent / "out").iterdir()]
        assert sorted(files) == [".lock", MANIFEST]


class TestParquet:
    @pytest.fixture
    def table(self, tmp_path: Path) -> Any:
        arrow = pytest.importorskip("pyarrow", reason="needs the extra `scale`")
        n = 2500  # more than one batch
        rows = {"id": list(range(n)), "text": [f"dog {i}" for i in range(n)], "tag": [None] * n}
        rows["text"][7] = None
        return arrow.table(rows)

    def write(self, directory: Path, table: Any) -> Path:
        parquet = pytest.importorskip("pyarrow.parquet", reason="needs the extra `scale`")
        (directory / "in").mkdir(parents=True)
        parquet.write_table(table, directory / "in" / "a.parquet", row_group_size=700)
        return directory / "in"

    def test_a_column_is_added_and_all_else_stays(
        self, tmp_path: Path, run: transduce.Run, table: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        parquet = pytest.importorskip("pyarrow.parquet")
        monkeypatch.setattr("transduce.bulk.plan.GROUP_ROWS", 1000)
        (shard,) = planned(self.write(tmp_path, table), column="text").todo
        assert translate_shard(run, SPEC.options, shard) == table.num_rows
        made = parquet.read_table(tmp_path / "out" / "a.parquet")
        assert made.select(table.column_names).equals(table)
        texts = [text or "" for text in table["text"].to_pylist()]
        expected = [translation.text for translation in run.translate(texts, SPEC.options)]
        assert made["translation"].to_pylist() == expected

    def test_columns_that_cannot_be(self, tmp_path: Path, run: transduce.Run, table: Any) -> None:
        inputs = self.write(tmp_path, table.append_column("translation", table["text"]))
        (shard,) = planned(inputs, column="text").todo
        for column, message in (
            ("txt", "no column 'txt' \\(it has id"),
            ("id", "must be text, not int64"),
        ):
            with pytest.raises(DataError, match=message):
                translate_shard(run, SPEC.options, replace(shard, column=column))
        with pytest.raises(DataError, match="already has a column 'translation'"):
            translate_shard(run, SPEC.options, shard)
        twice = self.write(tmp_path / "twice", table.append_column("text", table["text"]))
        (shard,) = planned(twice, column="text").todo
        with pytest.raises(DataError, match="several columns 'text'; rename all but one"):
            translate_shard(run, SPEC.options, shard)

    @pytest.mark.parametrize("content", [b"", b"PAR1 no table at all PAR1", b"text\n"])
    def test_what_is_no_table_is_one_line(
        self, tmp_path: Path, run: transduce.Run, content: bytes
    ) -> None:
        pytest.importorskip("pyarrow", reason="needs the extra `scale`")
        (tmp_path / "a.parquet").write_bytes(content)
        shard = Shard("a.parquet", str(tmp_path / "a.parquet"), str(tmp_path / "out"), "text")
        with pytest.raises(DataError, match=r"a\.parquet cannot be read as Parquet: ") as caught:
            translate_shard(run, SPEC.options, shard)
        assert "\n" not in str(caught.value)
        assert not (tmp_path / "out").exists()


class TestPlan:
    def test_goes_on_with_what_is_left(self, inputs: Path) -> None:
        names = ["1.txt", "2.txt.gz", "empty.txt", "more/3.txt"]
        assert [shard.name for shard in planned(inputs).todo] == names
        (inputs.parent / "out" / "2.txt.gz").write_bytes(b"")
        (inputs.parent / "out" / "more").mkdir()
        (inputs.parent / "out" / "more" / "3.txt").write_bytes(b"")
        plan = planned(inputs)
        assert [shard.name for shard in plan.todo] == ["1.txt", "empty.txt"]
        assert [shard.name for shard in plan.shards] == names

    def test_batches_of_another_size_are_the_same_work(self, inputs: Path) -> None:
        planned(inputs)
        options = replace(SPEC.options, batch_tokens=99)
        assert planned(inputs, replace(SPEC, options=options, threads=2, device="cuda")).todo

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ("beam", r"decoding \(beam_size has changed\)"),
            ("precision", "precision"),
            ("gone", r"inputs \(1.txt was removed\)"),
            ("new", r"inputs \(0.txt was added\)"),
            ("changed", r"inputs \(1.txt has changed\)"),
            ("weights", "weights or vocabularies"),
            ("vocabulary", "weights or vocabularies"),
            ("format", "version of transduce"),
        ],
    )
    def test_other_work_is_refused(self, inputs: Path, change: str, message: str) -> None:
        copy = inputs.parent / "run"
        shutil.copytree(RUN, copy)
        spec = replace(SPEC, run=copy)
        planned(inputs, spec)
        manifest = inputs.parent / "out" / MANIFEST
        before = manifest.read_bytes()
        if change == "beam":
            spec = replace(spec, options=DecodingOptions(beam_size=2))
        elif change == "precision":
            spec = replace(spec, precision="int8")
        elif change == "gone":
            (inputs / "1.txt").unlink()
        elif change == "new":
            (inputs / "0.txt").touch()
        elif change == "changed":
            (inputs / "1.txt").write_text("other")
        elif change == "format":
            manifest.write_text(json.dumps({**json.loads(before), "format": 2}))
            before = manifest.read_bytes()
        else:
            file = copy / ("weights.safetensors" if change == "weights" else "tokenizer.model")
            file.write_bytes(file.read_bytes() + b"\0")
        with pytest.raises(
            DataError, match=f"out was made with different {message}; choose"
        ) as caught:
            planned(inputs, spec)
        assert "\n" not in str(caught.value)
        assert manifest.read_bytes() == before

    def test_directory_of_other_things_is_left_alone(self, inputs: Path) -> None:
        out = inputs.parent / "out"
        out.mkdir()
        (out / "thesis.tex").touch()
        with pytest.raises(DataError, match=r"contains other files \(thesis\.tex\)"):
            planned(inputs)
        (out / "thesis.tex").rename(out / MANIFEST)
        with pytest.raises(DataError, match="is damaged"):
            planned(inputs)

    def test_outputs_never_become_inputs(self, inputs: Path) -> None:
        for place, output in ((inputs, inputs / "out"), (inputs, inputs), (inputs, inputs.parent)):
            with pytest.raises(SettingError, match=r"is inside the (in|out)put directory"):
                with_output = open_plan(str(place), str(output), SPEC)
                with with_output:
                    pass
        assert not (inputs / "out").exists() and not (inputs / MANIFEST).exists()

    @pytest.mark.parametrize(
        ("name", "column", "error", "message"),
        [
            ("a.7z", None, DataError, r"a\.7z has an unsupported compression; use \.gz"),
            ("a.parquet", None, SettingError, "is a Parquet file; name its text column"),
            ("a.txt", "text", SettingError, "--column applies only to Parquet"),
        ],
    )
    def test_files_that_cannot_be(
        self, tmp_path: Path, name: str, column: str | None, error: type[Exception], message: str
    ) -> None:
        (tmp_path / "in").mkdir()
        (tmp_path / "in" / name).touch()
        with pytest.raises(error, match=message):
            planned(tmp_path / "in", column=column)
        assert not (tmp_path / "out").exists()

    def test_one_process_at_a_time(self, inputs: Path) -> None:
        with contextlib.ExitStack() as stack:
            stack.enter_context(open_plan(str(inputs), str(inputs.parent / "out"), SPEC))
            with pytest.raises(RunError, match="another process"):
                planned(inputs)
        assert planned(inputs).todo

    def test_leftovers_of_killed_workers_go(self, inputs: Path) -> None:
        planned(inputs)
        left = inputs.parent / "out" / ".1.txt.0123.part"
        left.write_bytes(b"half")
        planned(inputs)
        assert not left.exists()

    def test_fingerprint_covers_what_outputs_hang_on(self) -> None:
        names = {"recipe.toml", "weights.safetensors", "tokenizer.model"}
        assert set(fingerprint(RUN)) == names
        assert planning.FORMAT == 1
