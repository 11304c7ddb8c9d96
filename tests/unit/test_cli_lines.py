"""Lines of input as they come, and Ctrl-C among them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from transduce.cli.inputs import (
    InputTable,
    LineBatch,
    LineReader,
    Records,
    read_records,
    texts_of_lines,
    with_options,
)
from transduce.data.text_files import available_lines
from transduce.decoding.options import DecodingOptions
from transduce.errors import DataError


def test_lines_come_as_they_are_written() -> None:
    source, sink = os.pipe()
    with os.fdopen(source, "rb") as file, os.fdopen(sink, "wb", buffering=0) as writer:
        batches = available_lines(file, "pipe", 2)
        for written, lines in (
            (b"a\nb\nc\nd", [[b"a\n", b"b\n"], [b"c\n"]]),
            (b"e\n", [[b"de\n"]]),
            (b"\n", [[b"\n"]]),
        ):
            writer.write(written)
            assert [next(batches) for _ in lines] == lines
        writer.write(b"f")
        writer.close()
        assert list(batches) == [[b"f"]]


def test_lines_before_an_error_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRANSDUCE_LIMIT_LINE", "1")
    (tmp_path / "a").write_bytes(b"a\nb\n" + b"c" * (2**20 + 1))
    batches = iter(LineReader(str(tmp_path / "a")))
    assert next(batches).lines == ["a", "b"]
    with pytest.raises(DataError, match="line 3 is longer than 1 MiB"):
        next(batches)


@pytest.mark.parametrize("sign", [",", ";", "\t"])
def test_rows_of_a_table_come_out_as_they_go_in(sign: str) -> None:
    asked = []

    def batches() -> Iterator[LineBatch]:
        texts = [["id,text"], ["1,a", "2,b"], [""], ["3,c"]]
        for number, lines in enumerate(texts):
            asked.append(number)
            lines = [line.replace(",", sign) for line in lines]
            yield LineBatch(0, lines, 0)

    result = []
    for rows in InputTable("stdin", ("text",), "new").read(batches()):
        result.append(list(rows.answered(text.upper() for (text,) in rows.inputs)))
        assert asked == list(range(len(asked))) and len(asked) == len(result) + 1
    joined = [[line.replace(sign, ",") for line in lines] for lines in result]
    assert joined == [["id,text,new", "1,a,A", "2,b,B"], [""], ["3,c,C"]]


def test_a_table_without_rows_has_its_header() -> None:
    (rows,) = InputTable("stdin", ("text",), "new").read(iter([LineBatch(0, ["text"], 0)]))
    assert list(rows.answered([])) == ["text,new"] and rows.inputs == []


@pytest.mark.parametrize(
    ("field", "near"),
    [
        ("beamsize", True),
        ("beamSize", True),
        ("beam-size", True),
        ("beam_sizes", True),
        ("bean_size", True),
        ("bema_size", True),
        ("eam_size", True),
        ("size", False),
        ("source", False),
        ("id", False),
        ("beam_width", False),
    ],
)
def test_a_misspelt_setting_is_known(
    field: str, near: bool, caplog: pytest.LogCaptureFixture
) -> None:
    records = Records(0, [{field: 1, "step": 1, "seen": 1}], [("",)], {})
    with_options(records, f"a {field}", DecodingOptions(), lambda options: None)
    assert ('did you mean "beam_size"' in caplog.text) is near
    assert len(caplog.records) == near


@pytest.mark.parametrize(
    "text",
    ['{\n  "a": "b"\n}', '[\n  {\n    "a": 1', '[{"a": "b"}, {"a": "c"}]', '[\n "a",\n "b"\n]'],
)
def test_a_json_document_is_no_lines_of_text(text: str) -> None:
    batch = LineBatch(0, text.split("\n"), len(text))
    with pytest.raises(DataError, match=r"a is a JSON document, .* `jq -c '\.\[\]'`.*--jsonl"):
        list(texts_of_lines([batch], "a"))


@pytest.mark.parametrize(
    ("text", "warned"),
    [
        ('{"a": "b"}\n{"a": "c"}', True),
        ("[a] b\n", False),
        ("{a} b", False),
        ("[\nb", False),
        ('"a": "b"', False),
    ],
)
def test_json_records_are_texts_with_a_warning(
    text: str, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    batches = [LineBatch(0, text.split("\n"), len(text))]
    assert list(texts_of_lines(batches, "a")) == batches
    assert ("use --jsonl for JSON records" in caplog.text) is warned


@pytest.mark.parametrize("field", ["source", "a.b"])
def test_lone_surrogates_of_a_record_reach_no_tokenizer(field: str) -> None:
    text = r'"x\ud800y\udfffz \ud83d\ude00"'
    line = f'{{"source": {text}}}' if field == "source" else f'{{"a": {{"b": {text}}}}}'
    (records,) = read_records([LineBatch(0, [line], len(line))], (field,), "-")
    assert records.inputs == [("x\ufffdy\ufffdz 😀",)] and not records.errors
    records.inputs[0][0].encode()


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_numbers_that_json_does_not_have_are_the_error_of_a_record(number: str) -> None:
    line = f'{{"source": "a", "score": {number}}}'
    (records,) = read_records([LineBatch(0, [line, line[:14] + "}"], 99)], ("source",), "-")
    assert list(records.errors) == [0] and records.errors[0].startswith("not valid JSON")
