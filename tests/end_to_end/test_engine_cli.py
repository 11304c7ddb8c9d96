"""`--engine ctranslate2` and `transduce export` from the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from helpers.command_line import Done, transduce
from helpers.tiny_run import write_jsonl

pytest.importorskip("ctranslate2", reason="needs the extra ctranslate2")

Here = Callable[..., Done]
ENGINE = ["--engine", "ctranslate2"]
LINES = ["abc", "", "hgfed", "aabb", "   ", "abcdefgh", "cab"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "lines.txt"
    path.write_text("".join(f"{line}\n" for line in LINES * 3), encoding="utf-8")
    return path


def test_a_pipe_gives_the_same_lines(run: Path) -> None:
    stdin = "\n".join(LINES).encode()
    own = transduce("translate", run, "--device", "cpu", stdin=stdin)
    other = transduce("translate", run, *ENGINE, "--threads", 1, stdin=stdin)
    assert own.code == other.code == 0, other.err
    assert other.lines == own.lines
    assert len(other.lines) == len(LINES)


@pytest.mark.parametrize(
    "options",
    [
        ["--beam-size", 1],
        ["--beam-size", 1, "--prefix", "ab"],
        ["--beam-size", 4, "--length-penalty", "none"],
        ["--beam-size", 4, "--minimum-risk", "chrf"],
    ],
)
def test_options_mean_the_same(here: Here, run: Path, file: Path, options: list[object]) -> None:
    own = here("translate", run, file, "--device", "cpu", *options)
    other = here("translate", run, file, *ENGINE, *options)
    assert (other.code, other.lines) == (0, own.lines)
    assert len(other.lines) == 3 * len(LINES)


def test_n_best_and_scores(here: Here, run: Path, file: Path) -> None:
    asked = ["--beam-size", 4, "--n-best", 2, "--length-penalty", "mean"]
    own = here("translate", run, file, "--device", "cpu", *asked)
    other = here("translate", run, file, *ENGINE, *asked)
    rows = [[line.split(" ||| ") for line in done.lines] for done in (own, other)]
    assert [row[0] for row in rows[1]] == [row[0] for row in rows[0]]
    seen = set()
    for mine, theirs in zip(*rows, strict=True):
        if mine[0] not in seen:  # of the n best the last may differ
            assert theirs[1] == mine[1]
            assert float(theirs[2]) == pytest.approx(float(mine[2]), abs=1e-4)
        seen.add(mine[0])
    assert len(seen) == 3 * len(LINES)


def test_records_and_confidence(here: Here, run: Path, tmp_path: Path) -> None:
    records = [{"source": line, "id": i} for i, line in enumerate(LINES)]
    records[0]["beam_size"] = 1
    path = write_jsonl(tmp_path / "lines.jsonl", records)
    own = here("translate", run, path, "--jsonl", "--confidence", "--device", "cpu")
    other = here("translate", run, path, "--jsonl", "--confidence", *ENGINE)
    assert other.code == 0, other.err
    for mine, theirs in zip(map(json.loads, own.lines), map(json.loads, other.lines), strict=True):
        assert theirs["translation"] == mine["translation"]
        assert theirs["tokens"] == mine["tokens"] and theirs["id"] == mine["id"]
        assert theirs["score"] == pytest.approx(mine["score"], abs=1e-4)
        assert theirs.get("confidence") == pytest.approx(mine.get("confidence"), abs=1e-4)


def test_evaluate_and_predict(here: Here, run: Path, file: Path) -> None:
    own = here("evaluate", run, "--json", "--device", "cpu")
    other = here("evaluate", run, "--json", *ENGINE)
    assert json.loads(other.out) == json.loads(own.out)
    assert here("predict", run, file, *ENGINE).lines == here("predict", run, file).lines


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--sample"], "method = 'sample'"),
        (["--constraint", "ab", "--avoid", "c"], "constraints, avoid"),
        (["--coverage-penalty", 0.2], "coverage_penalty"),
        (["--beam-size", 4, "--beam-groups", 2], "beam_groups"),
        (["--repetition-penalty", 1.2], "repetition_penalty"),
        (["--no-repeat-ngram", 2], "no_repeat_ngram with a beam"),
        (["--min-length", 2], "min_length with a beam"),
        (["--prefix", "ab"], "prefix with a beam"),
        (["--shortlist"], "shortlist"),
        (["--stream"], "streaming"),
        (["--ensemble", "RUN"], "ensemble"),
        (["--device", "cuda"], "'cuda'"),
    ],
)
def test_what_it_lacks_is_one_line(
    here: Here, run: Path, file: Path, options: list[object], named: str
) -> None:
    given = [run if option == "RUN" else option for option in options]
    done = here("translate", run, file, *ENGINE, *given)
    assert done.code == 2
    assert named in done.complaint and "remove" in done.complaint
    assert done.lines == []


def test_verbs_that_search_for_nothing(here: Here, run: Path, file: Path) -> None:
    said = here("score", run, "--source", file, "--target", file, *ENGINE)
    assert said.code == 2 and "`transduce score` does not support --engine" in said.complaint
    said = here("align", run, "--source", file, "--target", file, *ENGINE)
    assert said.code == 2 and "`transduce align` does not support --engine" in said.complaint


def test_export(here: Here, run: Path, tmp_path: Path) -> None:
    directory = tmp_path / "model"
    done = here("export", run, directory, "--format", "ctranslate2", "--precision", "int8")
    assert (done.code, done.lines) == (0, [str(directory)]), done.err
    assert (directory / "model.bin").is_file()
    again = here("export", run, directory)
    assert again.code == 1 and "exists; give another DIRECTORY" in again.complaint
    assert here("export", run, tmp_path / "other", "--format", "onnx").code == 2
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_export_in_other_forms(here: Here, tmp_path: Path) -> None:
    run = Path(__file__).parents[1] / "runs" / "0.1.0" / "translation"
    package, directory = tmp_path / "de-en.argosmodel", tmp_path / "marian"
    done = here("export", run, package, "--format", "argos", "--languages", "de-en")
    assert (done.code, done.lines) == (0, [str(package)]), done.err
    done = here("export", run, directory, "--format", "marian")
    assert (done.code, done.lines) == (0, [str(directory)]), done.err
    said = here("export", run, tmp_path / "b.argosmodel", "--format", "argos", "--languages", "de")
    assert said.code == 2 and "must be two codes with a hyphen: de-en" in said.complaint
    assert {path.name for path in tmp_path.iterdir()} == {"de-en.argosmodel", "marian"}
