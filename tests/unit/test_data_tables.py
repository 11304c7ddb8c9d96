from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from transduce.data.labelled import LabelledParquet, read_labelled
from transduce.data.sources import HubData, JsonLinesFile, ParquetFile
from transduce.data.tables import tsv_rows
from transduce.errors import DataError

ROWS = [{"source": "ein Haus", "target": "a house"}, {"source": "zwei", "target": "two"}]
PAIRS = [("ein Haus", "a house"), ("zwei", "two")]


def text_file(directory: Path, text: str, name: str = "data.txt") -> Path:
    path = directory / name
    path.write_text(text, encoding="utf-8", newline="")
    return path


def jsonl_rows(path: Path, columns: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    return JsonLinesFile(path=path).rows(Path(), columns)


def parquet_rows(path: Path, columns: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    return ParquetFile(path=path).rows(Path(), columns)


def hub_rows(
    path: str | Path, columns: tuple[str, ...], split: str, name: str | None = None
) -> Iterator[tuple[str, ...]]:
    return HubData(path=str(path), split=split, name=name).rows(Path(), columns)


class TestTsv:
    def test_by_number(self, tmp_path: Path) -> None:
        path = text_file(tmp_path, 'a\tb "x\tc\r\nd\te\tf\r\n')
        assert list(tsv_rows(path, (2, 0))) == [("c", "a"), ("f", "d")]
        assert list(tsv_rows(path, (1,))) == [('b "x',), ("e",)]

    def test_by_name_takes_the_first_line_as_header(self, tmp_path: Path) -> None:
        path = text_file(tmp_path, "de\ten\nein\tone\n")
        assert list(tsv_rows(path, ("en", "de"))) == [("one", "ein")]
        assert list(tsv_rows(path, ("en", 0))) == [("one", "ein")]

    def test_empty_fields_and_lines_are_empty_texts(self, tmp_path: Path) -> None:
        path = text_file(tmp_path, "a\t\n\n\tb\n")
        assert list(tsv_rows(path, (0, 1))) == [("a", ""), ("", ""), ("", "b")]

    def test_a_few_lines_with_more_columns_are_warned_of(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        def warned(name: str, *lines: str) -> list[str]:
            caplog.clear()
            list(tsv_rows(text_file(tmp_path, "".join(lines), name), (0, 1)))
            return [record.getMessage() for record in caplog.records]

        (warning,) = warned("a.tsv", *["a\tb\n"] * 30, "a\tcut\tb\n", "a\tb\n", "a\tcut\tb\n")
        assert "a.tsv: line 31 has more columns than line 1" in warning
        assert warning.endswith("so 2 of 33 lines")
        assert warned("b.tsv", *["a\tb\tc\n"] * 30, "a\tb\n") == []
        assert warned("c.tsv", *["a\tb\n", "a\tb\tnote\n"] * 15) == []

    def test_missing_name(self, tmp_path: Path) -> None:
        path = text_file(tmp_path, "german\tenglish\nein\tone\n")
        with pytest.raises(DataError, match=r"no column 'englsh'; did you mean 'english'\?"):
            list(tsv_rows(path, ("german", "englsh")))

    def test_missing_number(self, tmp_path: Path) -> None:
        path = text_file(tmp_path, "a\tb\nc d\n")
        with pytest.raises(DataError, match="line 2 has 1 of 2 columns; separate"):
            list(tsv_rows(path, (0, 1)))
        with pytest.raises(DataError, match="invalid column -1"):
            list(tsv_rows(path, (0, -1)))


class TestJsonLines:
    def test_plain_and_nested_fields(self, tmp_path: Path) -> None:
        path = text_file(
            tmp_path,
            '{"translation": {"de": "ein", "en": "one"}, "a.b": "x"}\n\n'
            '{"translation": null, "a": {"b": "\\u2028"}}\n',
        )
        rows = list(jsonl_rows(path, ("translation.de", "translation.en", "a.b")))
        assert rows == [("ein", "one", "x"), ("", "", "\u2028")]

    def test_items_of_a_list(self, tmp_path: Path) -> None:
        path = text_file(tmp_path, '{"s": ["One.", "Two."], "t": {"r": ["a", "b"]}, "n": [1]}\n')
        rows = list(jsonl_rows(path, ("s.*", "s.1", "t.r.0")))
        assert rows == [("One. Two.", "Two.", "a")]
        for column, message in (
            ("s", "name one text of the list, 's.0', or all of them, 's.\\*'"),
            ("s.2", "line 1: 's.2' is missing; the list has 2 items"),
            ("n.*", "'n.\\*' must be a list of texts"),
        ):
            with pytest.raises(DataError, match=message):
                list(jsonl_rows(path, (column,)))

    @pytest.mark.parametrize("line", ["{'a': 1}", '{"a": "b"', "[" * 100_000, "1" * 5000 + "x"])
    def test_malformed_line(self, tmp_path: Path, line: str) -> None:
        path = text_file(tmp_path, '{"a": "b"}\n' + line + "\n")
        with pytest.raises(DataError, match=r"data\.txt: line 2 is not valid JSON"):
            list(jsonl_rows(path, ("a",)))

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            (
                '[{"a": "b"}]\n',
                r"line 1 is not a JSON object; convert a JSON array .* `jq -c '\.\[\]' FILE`",
            ),
            (
                '[\n  {"a": "b"}\n]\n',
                r"line 1 is not valid JSON: .*; convert a JSON array .* `jq -c '\.\[",
            ),
            (
                '{\n  "a": "b"\n}\n',
                r"line 1 is not valid JSON: .*; convert multi-line records .* `jq -c \. FILE`",
            ),
        ],
    )
    def test_json_of_several_lines_names_the_remedy(
        self, tmp_path: Path, text: str, message: str
    ) -> None:
        with pytest.raises(DataError, match=message):
            list(jsonl_rows(text_file(tmp_path, text), ("a",)))

    def test_what_is_not_an_object(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match="line 1 is not a JSON object"):
            list(jsonl_rows(text_file(tmp_path, '["a", "b"]\n'), ("a",)))

    def test_missing_field_names_the_nearest(self, tmp_path: Path) -> None:
        path = text_file(tmp_path, '{"translation": {"de": "ein", "en": "one"}}\n')
        with pytest.raises(
            DataError, match=r"line 1 has no column 'translatoin\.en'; did you mean"
        ):
            list(jsonl_rows(path, ("translatoin.en",)))

    def test_what_is_not_text(self, tmp_path: Path) -> None:
        path = text_file(tmp_path, '{"n": 3, "t": {"de": "ein"}, "s": "\\ud800", "l": [1]}\n')
        with pytest.raises(
            DataError, match="'l' must be text, not list; store one text in each row"
        ):
            list(jsonl_rows(path, ("l",)))
        with pytest.raises(DataError, match="line 1: 'n' must be text, not int"):
            list(jsonl_rows(path, ("n",)))
        with pytest.raises(DataError, match=r"'t' must be text, not dict; did you mean 't\.de'"):
            list(jsonl_rows(path, ("t",)))
        with pytest.raises(DataError, match="surrogate"):
            list(jsonl_rows(path, ("s",)))


class TestParquet:
    def written(self, directory: Path, rows: list[dict[str, Any]], **options: Any) -> Path:
        pyarrow = pytest.importorskip("pyarrow", reason="needs the extra `parquet`")
        parquet = importlib.import_module("pyarrow.parquet")
        path = directory / "data.parquet"
        parquet.write_table(pyarrow.Table.from_pylist(rows), path, **options)
        return path

    def test_columns_in_the_order_asked_for(self, tmp_path: Path) -> None:
        rows = [{"n": i, "target": f"t{i}", "source": f"s{i}"} for i in range(10_000)]
        path = self.written(tmp_path, rows, row_group_size=3000)
        expected = [(f"s{i}", f"t{i}") for i in range(10_000)]
        assert list(parquet_rows(path, ("source", "target"))) == expected

    def test_nested_columns_and_nulls(self, tmp_path: Path) -> None:
        rows = [{"translation": {"de": "ein", "en": None}}, {"translation": None}]
        path = self.written(tmp_path, rows)
        columns = ("translation.en", "translation.de")
        assert list(parquet_rows(path, columns)) == [("", "ein"), ("", "")]

    def test_items_of_lists(self, tmp_path: Path) -> None:
        path = self.written(tmp_path, [{"s": ["One.", "Two."]}, {"s": None}])
        assert list(parquet_rows(path, ("s.*", "s.0"))) == [("One. Two.", "One."), ("", "")]

    def test_maps(self, tmp_path: Path) -> None:
        pyarrow = pytest.importorskip("pyarrow", reason="needs the extra `parquet`")
        kind = pyarrow.map_(pyarrow.string(), pyarrow.string())
        rows = pyarrow.array([[("de", "ein"), ("en", "one")], None], kind)
        path = tmp_path / "m.parquet"
        nested = pyarrow.StructArray.from_arrays([rows], names=["x"])
        table = pyarrow.table({"m": rows, "s": nested})
        importlib.import_module("pyarrow.parquet").write_table(table, path)
        assert list(parquet_rows(path, ("m.en", "m.de"))) == [("one", "ein"), ("", "")]
        assert list(parquet_rows(path, ("s.x.de",))) == [("ein",), ("",)]
        with pytest.raises(DataError, match=r"'m' must be text, not dict; did you mean 'm\.de'\?"):
            list(parquet_rows(path, ("m",)))
        with pytest.raises(
            DataError, match=r"row 1 has no column 'm\.fr'.* \(it has 'm\.de', 'm\.en"
        ):
            list(parquet_rows(path, ("m.fr",)))
        with pytest.raises(
            DataError, match=r"no column 'source' .*'m' is a map: name a key .*'m\."
        ):
            list(parquet_rows(path, ("source",)))

    def test_what_is_not_text_names_what_to_do(self, tmp_path: Path) -> None:
        path = self.written(tmp_path, [{"b": b"abc", "f": 0.5, "i": 3, "t": "x"}])
        with pytest.raises(DataError, match=r"row 1: 'b' must be text, not bytes; .*str\.decode"):
            list(parquet_rows(path, ("b",)))
        for column in "fi":
            with pytest.raises(DataError, match="store the column as strings, or use another"):
                list(parquet_rows(path, (column,)))
        with pytest.raises(DataError, match=r"row 1: 'f' is a float, .*astype"):
            list(read_labelled(LabelledParquet(path=path, text="t", label="f"), tmp_path))

    def test_missing_column(self, tmp_path: Path) -> None:
        path = self.written(tmp_path, ROWS)
        with pytest.raises(DataError, match=r"no column 'sorce'; did you mean 'source'\?"):
            list(parquet_rows(path, ("sorce", "target")))

    def test_not_parquet_and_missing(self, tmp_path: Path) -> None:
        pytest.importorskip("pyarrow", reason="needs the extra `parquet`")
        with pytest.raises(DataError, match="cannot be read as Parquet"):
            list(parquet_rows(text_file(tmp_path, "text\n"), ("a",)))
        with pytest.raises(DataError, match="no such file"):
            list(parquet_rows(tmp_path / "nowhere.parquet", ("a",)))

    def test_without_pyarrow(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "pyarrow", None)
        with pytest.raises(DataError, match="needs the extra 'parquet'"):
            list(parquet_rows(tmp_path / "data.parquet", ("a",)))


@pytest.fixture
def datasets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    library = pytest.importorskip("datasets", reason="needs the extra `hub`")
    monkeypatch.setattr(library.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    return library


class TestHub:
    def test_saved_to_disk(self, tmp_path: Path, datasets: Any) -> None:
        datasets.Dataset.from_list(ROWS).save_to_disk(tmp_path / "saved")
        assert list(hub_rows(tmp_path / "saved", ("source", "target"), "train")) == PAIRS

    def test_saved_with_splits_and_nested_columns(self, tmp_path: Path, datasets: Any) -> None:
        rows = [{"id": 1, "translation": {"de": s, "en": t}} for s, t in PAIRS]
        splits = {
            "train": datasets.Dataset.from_list(rows),
            "test": datasets.Dataset.from_list(rows[1:]),
        }
        datasets.DatasetDict(splits).save_to_disk(tmp_path / "saved")
        columns = ("translation.de", "translation.en")
        assert list(hub_rows(tmp_path / "saved", columns, "train")) == PAIRS
        assert list(hub_rows(tmp_path / "saved", columns, "test")) == PAIRS[1:]
        with pytest.raises(DataError, match=r"no split 'tests'; did you mean 'test'\?"):
            list(hub_rows(tmp_path / "saved", columns, "tests"))
        with pytest.raises(DataError, match=r"did you mean 'translation\.(de|en)'"):
            list(hub_rows(tmp_path / "saved", ("translation.den",), "train"))

    def test_directory_of_data_files(self, tmp_path: Path, datasets: Any) -> None:
        directory = tmp_path / "files"
        directory.mkdir()
        text = "".join(json.dumps(row) + "\n" for row in ROWS)
        text_file(directory, text, "train.jsonl")
        assert list(hub_rows(directory, ("source", "target"), "train")) == PAIRS
        with pytest.raises(DataError, match="the datasets library cannot read it"):
            list(hub_rows(directory, ("source", "target"), "validation"))

    def test_directory_of_parquet_files(self, tmp_path: Path, datasets: Any) -> None:
        directory = tmp_path / "files"
        directory.mkdir()
        datasets.Dataset.from_list(ROWS).to_parquet(directory / "train-00000-of-00001.parquet")
        assert list(hub_rows(directory, ("target", "source"), "train")) == [
            (target, source) for source, target in PAIRS
        ]

    def test_name_on_the_hub_is_streamed(
        self, datasets: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked: list[Any] = []

        def load_dataset(*args: Any, **options: Any) -> Any:
            asked.append((args, options))
            return datasets.Dataset.from_list(ROWS).to_iterable_dataset()

        monkeypatch.setattr(datasets, "load_dataset", load_dataset)
        rows = hub_rows("hf://owner/corpus@v1", ("source", "target"), "test", "de-en")
        assert list(rows) == PAIRS
        options = {"split": "test", "revision": "v1", "streaming": True}
        assert asked == [(("owner/corpus", "de-en"), options)]

    def test_what_the_library_raises_is_one_line(
        self, datasets: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def load_dataset(*args: Any, **options: Any) -> Any:
            raise ConnectionError("no route\nto the host")

        monkeypatch.setattr(datasets, "load_dataset", load_dataset)
        with pytest.raises(DataError) as caught:
            list(hub_rows("hf://owner/corpus", ("source",), "train"))
        message = str(caught.value)
        assert message.startswith("hf://owner/corpus: ")
        assert message.endswith("ConnectionError: no route")

    def test_neither_directory_nor_hub(self, tmp_path: Path, datasets: Any) -> None:
        with pytest.raises(DataError, match="hf://owner/name"):
            list(hub_rows(tmp_path / "owner" / "name", ("a",), "train"))

    def test_without_datasets(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "datasets", None)
        with pytest.raises(DataError, match="needs the extra 'hub'"):
            list(hub_rows(tmp_path, ("a",), "train"))
