"""Every way to decode from the command line: alone, in pairs, and line by line."""

from __future__ import annotations

import functools
import itertools
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import transduce
from helpers.command_line import Done
from helpers.tiny_run import write_jsonl
from transduce.nn.precision import Precision
from transduce.runs.arguments import EngineName

Here = Callable[..., Done]

LINES = ["abc", "", "hgfed", "aabb"]
OPTIONS: dict[str, list[object]] = {
    "beam-size": ["--beam-size", 3],
    "greedy": ["--beam-size", 1],
    "n-best": ["--n-best", 2],
    "length-penalty": ["--length-penalty", "mean"],
    "prefix": ["--prefix", "ab"],
    "constraint": ["--constraint", "ab|h", "--constraint", "c"],
    "avoid": ["--avoid", "bc"],
    "coverage": ["--coverage-penalty", 0.2],
    "groups": ["--beam-size", 4, "--beam-groups", 2, "--diversity", 0.3],
    "lengths": ["--min-length-ratio", 0.5, "--max-length-ratio", 1.5, "--max-length-extra", 4],
    "no-repeat": ["--no-repeat-ngram", 2],
    "repetition": ["--repetition-penalty", 1.3],
    "risk": ["--minimum-risk", "chrf"],
    "sample": ["--sample", "--temperature", 0.8, "--top-k", 5, "--seed", 3],
    "ensemble": ["--ensemble", "RUN", "--ensemble-mean", "arithmetic"],
    "jsonl": ["--jsonl"],
    "stream": ["--stream"],
}
REFUSED = {
    frozenset(pair): words
    for pair, words in {
        ("constraint", "groups"): "beam_groups",
        ("stream", "jsonl"): "--stream",
        ("stream", "n-best"): "--stream",
        ("stream", "risk"): "minimum_risk",
        ("beam-size", "sample"): "--beam-size applies to beam search, not to sampling",
        ("greedy", "sample"): "--beam-size applies to beam search, not to sampling",
        ("groups", "sample"): "--beam-size applies to beam search, not to sampling",
    }.items()
}
PAIRS = [(name,) for name in OPTIONS] + [
    pair
    for pair in itertools.combinations(OPTIONS, 2)
    if not {"beam-size", "greedy", "groups"} > set(pair)
]


@pytest.fixture
def loaded(run: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The run, read only once for all the commands."""
    monkeypatch.setattr(transduce, "load", load_once)
    return run


@functools.cache
def load_once(path: Path, device: str, precision: Precision, engine: EngineName) -> transduce.Run:
    return transduce.Run(path, device, precision, engine)


@pytest.mark.parametrize("names", PAIRS, ids="+".join)
def test_options_alone_and_in_pairs(
    here: Here, loaded: Path, tmp_path: Path, names: tuple[str, ...]
) -> None:
    run = loaded
    jsonl = "jsonl" in names
    lines = [json.dumps({"source": line}) if line else "" for line in LINES] if jsonl else LINES
    file = tmp_path / "in.txt"
    file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    words = [run if word == "RUN" else word for name in names for word in OPTIONS[name]]
    done = here("translate", run, file, *words)
    if frozenset(names) in REFUSED:
        assert REFUSED[frozenset(names)] in done.complaint
        return
    assert done.code == 0, done.err
    if "n-best" in names and not jsonl:
        assert {line.split(" ||| ")[0] for line in done.lines} == set("0123")
        texts = [line.split(" ||| ")[1] for line in done.lines if line[0] != "1"]
    elif jsonl:
        texts = [json.loads(line)["translation"] for line in done.lines if line]
    else:
        assert len(done.lines) == len(LINES) and done.lines[1] == ""
        texts = [line for line in done.lines if line]
    if "prefix" in names:
        assert all(text.startswith("ab") for text in texts)
    if "constraint" in names:
        assert all("c" in text and ("ab" in text or "h" in text) for text in texts)
    if "avoid" in names and "prefix" not in names:
        assert not any("bc" in text for text in texts)


def test_each_line_may_have_its_own_settings(here: Here, run: Path, tmp_path: Path) -> None:
    records = [
        {"source": "abc", "id": 7},
        {"source": "abc", "prefix": "h", "note": "kept"},
        {"source": "abc", "constraints": ["gg", ["hh", "ha"]], "avoid": ["ab"], "beam_size": 8},
        {"source": "abc", "n_best": 7},
        {"source": "abc", "method": "sample", "seed": 5, "temperature": 2.0},
    ]
    done = here("translate", run, write_jsonl(tmp_path / "in.jsonl", records), "--jsonl")
    assert done.code == 0, done.err
    plain, prefixed, constrained, several, _ = map(json.loads, done.lines)
    assert plain["id"] == 7 and prefixed["note"] == "kept"
    assert prefixed["translation"].startswith("h")
    held = constrained["translation"]
    assert "gg" in held and ("hh" in held or "ha" in held) and "ab" not in held
    assert len(several["n_best"]) == 7 and several["n_best"][0]["text"] == plain["translation"]
    assert "n_best" not in plain


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"beam_size": 0}, "line 2: beam_size"),
        ({"constraints": "ab"}, "line 2: constraints"),
        ({"constraints": ["é"]}, "line 2: constraints: 'é' has characters"),
        ({"prefix": 3}, "line 2: prefix"),
        ({"shortlist": True}, "line 2: this run has no shortlist"),
        ({"method": "guess"}, "line 2: method"),
        ({"beam_size": 5, "beam_groups": 2}, "line 2: beam_groups = 2 must divide"),
    ],
)
def test_what_a_line_cannot_ask_is_named(
    here: Here, run: Path, tmp_path: Path, wrong: dict[str, object], message: str
) -> None:
    records = [{"source": "abc"}, {"source": "abc", **wrong}, {"source": "abc"}]
    done = here("translate", run, write_jsonl(tmp_path / "in.jsonl", records), "--jsonl")
    assert done.code == 0
    assert message in done.err and len(done.lines) == 3
    before, answer, after = map(json.loads, done.lines)
    assert "translation" not in answer and message.partition(": ")[2] in answer["error"]
    assert before == after


def test_a_prefix_that_cannot_be_said_is_refused_at_once(
    here: Here, run: Path, tmp_path: Path
) -> None:
    file = tmp_path / "in.txt"
    file.write_text("abc\n")
    assert "prefix: 'é'" in here("translate", run, file, "--prefix", "é").complaint
    complaint = here("translate", run, file, "--language-model", run).complaint
    assert "a language model is needed" in complaint


def test_candidates_are_put_into_a_new_order(here: Here, run: Path, tmp_path: Path) -> None:
    source, candidates = tmp_path / "source.txt", tmp_path / "n-best.txt"
    source.write_text("abc\n\nhg\n")
    candidates.write_text(here("translate", run, source, "--n-best", 4).out.decode())
    given = [line.split(" ||| ") for line in candidates.read_text().splitlines()]
    done = here("score", run, "--source", source, "--n-best", candidates, "--weight", 2)
    assert done.code == 0, done.err
    rows = [line.split(" ||| ") for line in done.lines]
    assert sorted(row[:2] for row in rows) == sorted(row[:2] for row in given)
    target = tmp_path / "target.txt"
    (tmp_path / "s.txt").write_text("".join("abc\n" for row in given if row[0] == "0"))
    target.write_text("".join(f"{row[1]}\n" for row in given if row[0] == "0"))
    message = here("score", run, "--source", tmp_path / "s.txt", "--target", target).lines
    known = {
        row[1]: float(row[2]) + 2 * float(log_prob)
        for row, log_prob in zip(given, message, strict=False)
    }
    first = [row for row in rows if row[0] == "0"]
    assert [row[1] for row in first] == sorted(known, key=lambda text: -known[text])
    assert float(first[0][2]) == pytest.approx(max(known.values()), abs=1e-4)
    back = here("score", run, "--source", source, "--n-best", candidates, "--reverse")
    assert back.code == 0 and len(back.lines) == len(given)
    # The same ones as the files of two runs, one after the other, have them.
    halves = [line for part in (0, 1) for line in given[part::2]]
    candidates.write_text("".join(" ||| ".join(row) + "\n" for row in halves))
    joined = here("score", run, "--source", source, "--n-best", candidates, "--weight", 2)
    assert joined.lines == done.lines
    candidates.write_text("0 ||| a ||| -0.4\n0 |||  ||| 9.0\n1 |||  ||| 0\n")
    done = here("score", run, "--source", source, "--n-best", candidates)
    # An output that says nothing has a probability too; a line that says nothing was not asked.
    empty = next(iter(transduce.load(run).score([("abc", "")])))
    scores = {row.split(" ||| ")[1]: float(row.split(" ||| ")[2]) for row in done.lines[:2]}
    assert scores[""] == pytest.approx(9 + empty, abs=1e-4)
    assert done.lines[2] == "1 |||  ||| 0.000000"


def test_candidates_that_are_none(here: Here, run: Path, tmp_path: Path) -> None:
    source, candidates = tmp_path / "source.txt", tmp_path / "n-best.txt"
    source.write_text("abc\n")
    arguments = ("score", run, "--source", source, "--n-best", candidates)
    candidates.write_text("0 ||| ab ||| -1.0\nab\n")
    assert "line 2: expected 'id ||| text ||| score'" in here(*arguments).complaint
    candidates.write_text("0 ||| ab ||| inf\n")
    assert "line 1: expected 'id ||| text ||| score'" in here(*arguments).complaint
    assert here(*arguments, "--weight", "nan").complaint.startswith(
        "--weight: expected a finite number"
    )
    candidates.write_text("1 ||| ab ||| -1.0\n")
    assert "line 1: id 1 is out of range" in here(*arguments).complaint
    assert "give either --target" in here(*arguments, "--target", source).complaint
    assert "--reverse requires --n-best" in (
        here("score", run, "--source", source, "--target", source, "--reverse").complaint
    )


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--stop", "a"], "--stop applies only to continuations and dialogue; remove it"),
        (["--max-tokens", 3], "--max-tokens applies only to continuations and dialogue"),
        (["--alpha", 1, "--length-penalty", "mean"], "--alpha requires --length-penalty gnmt"),
        (["--diversity", 1], "--diversity requires --beam-groups of at least 2"),
        (["--sample", "--candidates", 4], "--candidates requires --minimum-risk"),
        (["--language-model-weight", 1], "--language-model-weight requires --language-model"),
        (["--ensemble-mean", "geometric"], "--ensemble-mean requires --ensemble"),
        (["--constraint", "a|"], "--constraint 'a|': empty alternative before or after |"),
    ],
)
def test_what_would_change_nothing_is_refused(
    here: Here, run: Path, words: list[object], complaint: str
) -> None:
    done = here("translate", run, "/dev/null", *words)
    assert (done.code, done.out) == (2, b"")
    assert done.complaint.startswith(complaint)


def test_an_output_without_its_constraint_is_said(here: Here, run: Path, tmp_path: Path) -> None:
    file = tmp_path / "in.txt"
    file.write_text("abc\nba\n")
    held = here("translate", run, file, "--constraint", "h")
    assert held.code == 0 and "warning" not in held.err
    done = here("translate", run, file, "--constraint", "hh", "--no-repeat-ngram", 1)
    assert len(done.lines) == 2
    message = "the output does not meet its constraints: other options may rule it out"
    warnings = [line for line in done.err.splitlines() if line.startswith("warning")]
    assert warnings == [f"warning: line {n}: {message}" for n in (1, 2)]
    done = here("translate", run, file, "--constraint", "h", "--avoid", "h")
    assert done.complaint.endswith("constraints: 'h' is banned by avoid; remove it there")


def test_the_recipes_number_of_outputs(here: Here, run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    recipe = copy / "recipe.toml"
    recipe.write_text(recipe.read_text().replace("n_best = 1", "n_best = 3"))
    plain, records = tmp_path / "in.txt", tmp_path / "in.jsonl"
    plain.write_text("abc\n")
    records.write_text('{"source": "abc"}\n{"source": "abc", "n_best": 2}\n')
    assert len(here("translate", copy, plain).lines) == 1
    result = [json.loads(line) for line in here("translate", copy, records, "--jsonl").lines]
    assert [len(record["n_best"]) for record in result] == [3, 2]
