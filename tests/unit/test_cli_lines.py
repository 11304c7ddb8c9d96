"""Lines of input as they come, and Ctrl-C among them."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from transduce.cli.inputs import Table, texts_of_lines
from transduce.cli.lines import LineBatch, LineReader
from transduce.cli.records import _one_letter_away
from transduce.errors import DataError


def test_ctrl_c_at_the_worst_moment_is_ctrl_c_and_loses_no_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As a wait that was told of a line is about to take its lock again."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    opened = threading.Thread(target=lambda: ends.append(pipe.open("wb", buffering=0)))
    ends: list[Any] = []
    opened.start()
    reader = LineReader(str(pipe))
    opened.join()
    changed: Any = reader._changed
    wait, lock_again, lines = changed.wait, changed._acquire_restore, iter([b"one\n", b"two\n"])

    def written_and_waited_for(timeout: float | None = None) -> bool:
        ends[0].write(next(lines))  # it is read on when `wait` lets go of the lock
        return bool(wait(timeout))

    def interrupted(state: object) -> None:
        monkeypatch.setattr(changed, "_acquire_restore", lock_again)
        raise KeyboardInterrupt

    monkeypatch.setattr(changed, "wait", written_and_waited_for)
    monkeypatch.setattr(changed, "_acquire_restore", interrupted)
    with pytest.raises(KeyboardInterrupt):
        reader._take()
    assert reader._take() == [b"one\n"]
    assert reader._take() == [b"two\n"]
    monkeypatch.setattr(changed, "wait", wait)
    ends[0].close()
    assert reader._take() == []


@pytest.mark.parametrize("sign", [",", ";", "\t"])
def test_rows_of_a_table_come_out_as_they_go_in(sign: str) -> None:
    asked = []

    def batches() -> Iterator[LineBatch]:
        texts = [["id,text"], ["1,a", "2,b"], [""], ["3,c"]]
        for number, lines in enumerate(texts):
            asked.append(number)
            lines = [line.replace(",", sign) for line in lines]
            yield LineBatch(0, lines, 0)

    found = []
    for rows in Table("stdin", ("text",), "new").read(batches()):
        found.append(list(rows.answered(text.upper() for (text,) in rows.inputs)))
        assert asked == list(range(len(asked))) and len(asked) == len(found) + 1
    joined = [[line.replace(sign, ",") for line in lines] for lines in found]
    assert joined == [["id,text,new", "1,a,A", "2,b,B"], [""], ["3,c,C"]]


def test_a_table_without_rows_has_its_header() -> None:
    (rows,) = Table("stdin", ("text",), "new").read(iter([LineBatch(0, ["text"], 0)]))
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
def test_a_misspelt_setting_is_known(field: str, near: bool) -> None:
    assert _one_letter_away(field, "beam_size") is near
    assert not _one_letter_away("step", "stop") and not _one_letter_away("seen", "seed")


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
