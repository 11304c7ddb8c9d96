"""Distillation and back-translation as their users meet them, through the real command."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from helpers.command_line import Done, command, environment, some_words, transduce

Here = Callable[..., Done]

SHORT = ("--set", "training.steps=4", "training.validate_every=2", "training.log_every=2")


def pairs_of(file: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def distilled(run: Path, recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("distil") / "student"
    arguments = ("distil", run, recipe, "--run", directory, "--beam-size", 2, *SHORT)
    done = transduce(*arguments)
    assert done.code == 0, done.err
    assert done.lines == [str(directory)]
    return directory


def test_a_student_learns_what_the_teacher_says(
    here: Here, run: Path, recipe: Path, distilled: Path, tmp_path: Path
) -> None:
    made = pairs_of(distilled / "synthetic" / "pairs.jsonl")
    sources = tmp_path / "sources.txt"
    sources.write_text("".join(pair["source"] + "\n" for pair in made), encoding="utf-8")
    message = here("translate", run, sources, "--beam-size", 2).lines
    assert [pair["target"] for pair in made] == message
    words = list(dict.fromkeys(some_words(220)))
    assert len(words) * 0.6 < len(made) < len(words) * 0.95  # those set aside are not among them
    student = json.loads(here("info", distilled, "--json").out)["recipe"]["data"]
    assert student["train_weight"] == 0 and len(student["mix"]) == 1
    (facts,) = json.loads((distilled / "provenance.json").read_bytes())["synthetic"]
    assert facts["run"] == str(run.resolve()) and facts["texts"] == len(made)
    assert facts["decoding"]["beam_size"] == 2
    assert f"`{run.name}`" in (distilled / "README.md").read_text(encoding="utf-8")
    scores = json.loads(here("evaluate", distilled, "--json").out)
    assert len(scores) > 0


def test_teachers_and_reverse_runs_work_together(
    here: Here, run: Path, twin: Path, recipe: Path, tmp_path: Path
) -> None:
    words = some_words(60, seed=4)
    texts = tmp_path / "mono.txt"
    texts.write_text("".join(f"{word}\n" for word in words))
    message = here("translate", run, texts, "--ensemble", twin).lines
    assert message != here("translate", run, texts).lines
    back = ("backtranslate", run, recipe, "--run", tmp_path / "a", "--monolingual", texts)
    (file,) = here(*back, "--ensemble", twin, "--only-data").lines
    assert [(pair["source"], pair["target"]) for pair in pairs_of(Path(file))] == list(
        zip(message, words, strict=True)
    )
    done = here("distil", run, recipe, "--run", tmp_path / "b", "--ensemble", twin, *SHORT)
    assert done.code == 0, done.err
    (facts,) = json.loads((tmp_path / "b" / "provenance.json").read_bytes())["synthetic"]
    assert facts["run"] == str(run.resolve())
    assert facts["runs_beside"] == [str(twin.resolve())]
    assert f"with `{twin.name}` beside it" in (tmp_path / "b" / "README.md").read_text("utf-8")
    itself = ("distil", run, recipe, "--run", twin, "--ensemble", twin)
    assert "is the translating run itself" in here(*itself).complaint


def test_a_student_learns_texts_without_references(
    here: Here, run: Path, twin: Path, recipe: Path, tmp_path: Path
) -> None:
    words = some_words(40, seed=9)
    halves = tmp_path / "a.txt", tmp_path / "b.txt.gz"
    halves[0].write_text("".join(f"{word}\n" for word in words[:25]))
    with gzip.open(halves[1], "wt") as file:
        file.write("".join(f"{word}\n" for word in words[25:]))
    texts = ("--monolingual", halves[0], "--monolingual", halves[1])
    student = tmp_path / "student"
    arguments = ("distil", run, recipe, "--run", student, *texts, "--ensemble", twin)
    done = here(*arguments, "--keep-references", "--weight", 2, *SHORT)
    assert done.lines == [str(student)], done.err
    made = pairs_of(student / "synthetic" / "pairs.jsonl")
    assert [pair["source"] for pair in made] == words
    whole = tmp_path / "words.txt"
    whole.write_text("".join(f"{word}\n" for word in words))
    message = here("translate", run, whole, "--ensemble", twin).lines
    assert [pair["target"] for pair in made] == message
    data = json.loads(here("info", student, "--json").out)["recipe"]["data"]
    assert data["train_weight"] == 1 and [corpus["weight"] for corpus in data["mix"]] == [2]
    (facts,) = json.loads((student / "provenance.json").read_bytes())["synthetic"]
    assert facts["made_by"] == "transduce distil"
    assert facts["files"] == [str(file) for file in halves] and facts["texts"] == 40
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "synthetic").symlink_to(tmp_path / "elsewhere")
    linked = here("distil", run, recipe, "--run", tmp_path / "linked", *texts, "--only-data")
    assert "links outside the run directory" in linked.complaint
    assert not list((tmp_path / "elsewhere").iterdir())
    pattern = ("distil", run, recipe, "--run", tmp_path / "c", "--monolingual", *halves)
    assert "repeat --monolingual for each file" in here(*pattern).complaint


def test_threads_are_of_the_run_that_translates_alone(
    here: Here, run: Path, recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, observed = torch.get_num_threads(), []
    monkeypatch.setattr("transduce.train", lambda *_: observed.append(torch.get_num_threads()))
    done = here("distil", run, recipe, "--run", tmp_path / "a", "--threads", before + 1)
    assert done.code == 0, done.err
    assert observed == [before]


def test_a_finished_run_is_not_spoiled(
    here: Here, run: Path, recipe: Path, distilled: Path
) -> None:
    again = ("distil", run, recipe, "--run", distilled, "--beam-size", 2, *SHORT)
    assert "holds a run already" in here(*again).complaint
    other = ("distil", run, recipe, "--run", distilled, "--beam-size", 1, *SHORT)
    assert here(*other, "--resume").complaint.endswith(
        "contains synthetic pairs made with different decoding; use --overwrite to replace them"
    )
    made = (distilled / "synthetic" / "pairs.jsonl").stat()
    done = here(*again[:-1], "training.log_every=1", "training.steps=6", "--resume")
    assert done.lines == [str(distilled)]
    assert (distilled / "synthetic" / "pairs.jsonl").stat() == made
    before = {file: file.stat().st_mtime_ns for file in distilled.rglob("*.*")}
    misspelt = here("distil", run.with_name("rum"), *other[2:], "--overwrite")
    assert "rum is not a directory" in misspelt.complaint
    assert {file: file.stat().st_mtime_ns for file in distilled.rglob("*.*")} == before
    done = here(*other, "--overwrite")
    assert done.lines == [str(distilled)]
    assert pairs_of(distilled / "synthetic" / "pairs.jsonl")
    assert (distilled / "synthetic" / "pairs.jsonl").stat().st_mtime_ns > made.st_mtime_ns


def test_back_translation_with_tag_and_sampling(
    here: Here, run: Path, recipe: Path, tmp_path: Path
) -> None:
    texts = tmp_path / "mono.gz"
    words = some_words(30, seed=7)
    with gzip.open(texts, "wt", encoding="utf-8") as file:
        file.writelines(f"{word}\n" for word in words)
    directory = tmp_path / "both"
    options = ("--monolingual", texts, "--tag", "BT", "--sample", "--top-k", 3, "--weight", 0.5)
    arguments = ("backtranslate", run, recipe, "--run", directory, *options, *SHORT)
    only = here(*arguments, "--only-data")
    pairs = directory / "synthetic" / "pairs.jsonl"
    assert only.lines == [str(pairs)]
    assert not (directory / "recipe.toml").exists()
    made = pairs_of(pairs)
    assert [pair["target"] for pair in made] == words
    before = pairs.stat()
    assert here(*arguments).lines == [str(directory)]
    assert pairs.stat() == before
    data = json.loads(here("info", directory, "--json").out)["recipe"]["data"]
    assert data["train_weight"] == 1 and data["mix"][0]["weight"] == 0.5
    assert data["mix"][0]["pairs"]["tag"] == "BT"
    (facts,) = json.loads((directory / "provenance.json").read_bytes())["synthetic"]
    assert facts["decoding"]["method"] == "sample"
    assert facts["files"] == [str(texts.resolve())]


def test_an_interrupted_command_goes_on(run: Path, recipe: Path, tmp_path: Path) -> None:
    texts = tmp_path / "mono.txt"
    texts.write_text("".join(f"{word}\n" for word in some_words(8000)), encoding="utf-8")
    directory = tmp_path / "run"
    arguments = ("backtranslate", run, recipe, "--run", directory, "--monolingual", texts, *SHORT)
    with subprocess.Popen(
        command(*arguments), env=environment(), stderr=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        shards = directory / "synthetic" / "shards"
        while not list(shards.glob("*.jsonl")):  # until there is something to go on with
            assert process.poll() is None
        os.kill(process.pid, signal.SIGINT)
        assert process.wait() == 130
    kept = {file: file.stat() for file in shards.glob("*.jsonl")}
    assert 1 <= len(kept) < 8
    done = transduce(*arguments, "--only-data")
    assert done.code == 0, done.err
    made = pairs_of(directory / "synthetic" / "pairs.jsonl")
    assert [pair["target"] for pair in made] == some_words(8000)


@pytest.mark.parametrize(
    ("mistake", "named"),
    [
        (("--tag", "B T"), "synthetic pairs: pairs.tag"),
        (("--weight", 2000), "synthetic pairs: weight"),
        (
            ("more.txt",),
            "'more.txt': expected SECTION.NAME=VALUE; repeat --monolingual for each file",
        ),
        (("--set", "training.select_by=blue"), "'blue' is not a metric"),
        (("--set", "training.device=cuda:9"), "device 'cuda:9' is not available"),
        (
            ("--set", "training.r_drop=1", "model.encoder.dropout=0", "model.decoder.dropout=0"),
            "r_drop",
        ),
    ],
)
def test_mistakes_are_found_before_anything_is_translated(
    here: Here, run: Path, recipe: Path, tmp_path: Path, mistake: tuple[str, ...], named: str
) -> None:
    texts = tmp_path / "mono.txt"
    texts.write_text("word\n")
    directory = tmp_path / "r"
    arguments = ("backtranslate", run, recipe, "--run", directory, "--monolingual", texts)
    assert named in here(*arguments, *mistake).complaint
    assert not directory.exists()


def test_mistakes_are_one_line(here: Here, run: Path, recipe: Path, tmp_path: Path) -> None:
    assert "is the translating run itself" in here("distil", run, recipe, "--run", run).complaint
    missing = ("backtranslate", run, recipe, "--run", tmp_path / "r", "--monolingual", "none.txt")
    assert "none.txt: no such file" in here(*missing).complaint
    assert "is not a directory" in here("distil", "none", recipe, "--run", tmp_path / "r").complaint
    both = ("distil", run, recipe, "--resume", "--overwrite")
    assert "give one of them" in here(*both).complaint
    other = tmp_path / "label.toml"
    other.write_text('task = "classification"\n[data.train]\nkind = "tsv"\npath = "x"\n')
    assert "expected a recipe of task 'translation'" in here("distil", run, other).complaint
