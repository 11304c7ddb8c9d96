"""`transduce explain` as a command: a report, JSON, a page."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from helpers.command_line import Done, transduce

Here = Callable[..., Done]


def test_a_report_begins_with_input_and_answer(run: Path, here: Here) -> None:
    done = here("explain", run, "abc")
    (answer,) = transduce("predict", run, stdin=b"abc\n").lines
    assert done.code == 0 and done.lines[0] == f"abc → {answer}"
    assert any("decoder.layers.0.cross_attention" in line for line in done.lines)
    assert any(line.startswith("beam of") for line in done.lines)


def test_mistakes_are_one_line(run: Path, tmp_path: Path) -> None:
    assert (
        "nothing to make a page of"
        in transduce("explain", run, "--html", tmp_path / "page.html").complaint
    )
    assert not (tmp_path / "page.html").exists()
    many = transduce("explain", run, "--html", tmp_path / "page.html", stdin=b"a\n" * 65)
    assert "64 texts" in many.complaint
    assert "not a directory" in transduce("explain", tmp_path / "none", "abc").complaint
    assert "--engine" in transduce("explain", run, "a", "--engine", "native").complaint


@pytest.mark.parametrize("verb", [("explain", "none", "abc", "--html"), ("page",)])
def test_pages_replace_nothing_unasked_and_end_in_html(
    verb: tuple[str, ...], here: Here, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    page.write_text("mine")
    assert "page.html exists; --again replaces it" in here(*verb, page).complaint
    assert page.read_text() == "mine"
    assert "x.txt must end in .html" in here(*verb, tmp_path / "x.txt").complaint
    for directory in ("", tmp_path):
        assert "is a directory; give the page a name" in here(*verb, directory).complaint


@pytest.mark.parametrize("form", [("--json",), ("--html", "-")])
def test_warnings_name_the_line(run: Path, form: tuple[str, ...]) -> None:
    done = transduce("explain", run, *form, stdin="ab\nbc\nabж\n".encode())
    assert "line 3: 1 of 3 tokens are unknown" in done.err and "line 1:" not in done.err


def test_a_live_page_is_of_one_whole_model(run: Path, twin: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("before")
    done = transduce("explain", run, "abc", "--html", page, "--live", "--again")
    assert done.code == 0 and '<script id="model"' in page.read_text(encoding="utf-8")
    for words in (["--live"], ["--live", "--html", page, "--again", "--against", twin]):
        assert (
            "--live needs --html and one whole model"
            in transduce("explain", run, "abc", *words).complaint
        )


def test_runs_stand_side_by_side(run: Path, twin: Path, here: Here) -> None:
    done = here("explain", run, "abc", "--against", twin, "--against", run, "--json")
    (line,) = done.lines
    result = json.loads(line)["runs"]
    assert [one["run"] for one in result] == [str(run), str(twin), str(run)]
    for one, path in zip(result, (run, twin, run), strict=True):
        alone = json.loads(here("explain", path, "abc", "--json").lines[0])
        own = {key: value for key, value in one.items() if key in alone}
        assert own == {**alone, "run": str(path)}, "looking beside others changes nothing"
        assert one["parameters"] == result[0]["parameters"] > 1000 and one["seconds"] > 0
    report = here("explain", run, "abc", "--against", twin)
    table = report.lines.index(next(line for line in report.lines if "parameters" in line))
    rows = [line.split()[0] for line in report.lines[table + 1 : table + 3]]
    assert report.lines[0] == "abc" and rows == ["copy", "twin"]


def test_a_page_of_texts_and_runs(run: Path, twin: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    done = transduce(
        "explain", run, "--against", twin, "--html", page, "--json", stdin=b"abc\n\nde\n"
    )
    assert [len(json.loads(line)["runs"]) for line in done.lines] == [2, 2, 2]
    text = page.read_text(encoding="utf-8")
    assert text.count('"text":1') == 2 and text.count('"run":"twin"') == 3
    many = transduce("explain", run, "--against", twin, "--html", "-", stdin=b"a\n" * 33)
    assert "32 texts of 2 runs" in many.complaint


def test_runs_of_other_tasks_are_refused(run: Path, here: Here) -> None:
    other = Path(__file__).parents[1] / "runs" / "0.1.0" / "classification"
    output = here("explain", run, "abc", "--against", other).complaint
    assert "different tasks (classification; translation)" in output


def test_warnings_are_those_of_one_explanation(run: Path, here: Here) -> None:
    text = "abc " * 100
    alone = [line for line in here("explain", run, text).err.splitlines() if "pieces" in line]
    beside = here("explain", run, "--against", run, text).err.splitlines()
    assert alone and [line for line in beside if "pieces" in line] == 2 * alone


def test_a_model_stands_beside_itself_without_parts(run: Path, here: Here) -> None:
    head = "decoder.layers.0.cross_attention:1"
    parts = ("--without-head", head, "--without-token", "1", "--without-token", "2")
    whole, part = json.loads(here("explain", run, "abc", *parts, "--json").lines[0])["runs"]
    alone = json.loads(here("explain", run, "abc", "--json").lines[0])
    assert {key: whole[key] for key in alone} == alone, "looking changes no answer"
    assert part["run"] == f"copy without {head}, token 1, token 2"
    assert part["log_prob"] != whole["log_prob"]
    (weights,) = [one["weights"] for one in part["attention"] if one["name"] == head[:-2]]
    assert {value for rows in weights for row in rows for value in row[:2]} == {0.0}
    report = here("explain", run, "abc", *parts)
    assert sum(line.startswith("copy") for line in report.lines) >= 4
    page = here("explain", run, "abc", *parts, "--html", "-").out.decode()
    assert '"run":"copy without' in page


def test_parts_that_are_not_there_are_one_line(run: Path, here: Here) -> None:
    for parts, complaint in (
        (("--without-head", "decoder.layers.9.cross_attention:1"), "no such attention; try"),
        (("--without-token", "9"), "token 9 is not one of the 4 tokens of the source"),
        (("--without-token", "1", "--against", run), "--against compares whole models"),
    ):
        done = here("explain", run, "abc", *parts)
        assert done.code == 2 and complaint in done.complaint and not done.out
