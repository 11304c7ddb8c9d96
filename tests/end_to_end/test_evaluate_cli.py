"""The command line, on runs that are there: evaluate, score, average, info."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from helpers.command_line import Done, environment, some_words, transduce

Here = Callable[..., Done]


# evaluate, score, average, info
def test_evaluate_prints_a_table_or_one_object(here: Here, run: Path, tmp_path: Path) -> None:
    output = tmp_path / "outputs"
    table = here("evaluate", run, "--output", output)
    rows = {line.split()[0]: line.split()[1:] for line in table.lines}
    assert set(rows) == {"accuracy", "cer", "chrf", "items"}  # a model of characters
    assert rows["chrf"][1].startswith("nrefs:1|")
    count = int(rows["items"][0])
    assert len(output.read_text().splitlines()) == count > 10
    done = here("evaluate", run, "--json")
    assert len(done.lines) == 1
    result = json.loads(done.lines[0])
    assert result["items"] == count
    assert f"{result['chrf']:.2f}" == rows["chrf"][0]
    assert result["chrf_signature"] == rows["chrf"][1]
    by_error = json.loads(here("evaluate", run, "--json", "--metric", "per").lines[0])
    assert set(by_error) == {"per", "items"}
    other = json.loads(here("evaluate", run, "--json", "--split", "valid").lines[0])
    assert other["chrf"] != result["chrf"]


def test_evaluate_against_outputs_or_a_run(here: Here, run: Path, tmp_path: Path) -> None:
    source, worse = tmp_path / "source", tmp_path / "worse"
    words = some_words(40, seed=3)
    source.write_text("".join(f"{word}\n" for word in words))
    worse.write_text("zzz\n" * 40)
    pairs = ["--source", source, "--reference", source]
    result = json.loads(here("evaluate", run, *pairs, "--against", worse, "--json").lines[0])
    assert set(result["against"]) == {"accuracy", "cer", "chrf"}
    chrf = result["against"]["chrf"]
    assert set(chrf) == {"score", "difference", "low", "high", "p_value"}
    assert chrf["score"] == 0.0
    assert chrf["difference"] == pytest.approx(result["chrf"])
    assert 0 < chrf["low"] < chrf["difference"] < chrf["high"]
    assert chrf["p_value"] < 0.01
    done = here("evaluate", run, *pairs, "--against", run)
    table = done.lines
    assert done.err.count("only 40 items: the 95 % interval") == 1
    assert f"against {run}" in table
    assert table[-1].split()[2] == "+0.00"


def test_an_ensemble_is_measured_by_what_it_translates(
    here: Here, run: Path, twin: Path, tmp_path: Path
) -> None:
    source, output = tmp_path / "source", tmp_path / "outputs"
    source.write_text("".join(f"{word}\n" for word in some_words(60, seed=4)))
    pairs = ["--source", source, "--reference", source]
    result = here("evaluate", run, *pairs, "--ensemble", twin, "--output", output, "--json")
    together = here("translate", run, source, "--ensemble", twin).lines
    assert output.read_text().splitlines() == together
    assert together not in [here("translate", one, source).lines for one in (run, twin)]
    assert (
        json.loads(result.out)["chrf"]
        != json.loads(here("evaluate", run, *pairs, "--json").out)["chrf"]
    )


def test_evaluate_refuses_what_does_not_match(here: Here, run: Path, tmp_path: Path) -> None:
    two, three = tmp_path / "two", tmp_path / "three"
    two.write_text("ab\ncd\n")
    three.write_text("ab\ncd\nef\n")
    pairs = ["--source", two, "--reference", two]
    assert "3" in here("evaluate", run, "--source", two, "--reference", three).complaint
    done = here("evaluate", run, *pairs, "--against", three, "--json")
    assert done.code == 1 and "3 outputs" in done.err
    assert json.loads(done.out)["items"] == 2  # what has been measured is told all the same
    assert "no such run" in here("evaluate", run, *pairs, "--against", tmp_path / "x").complaint
    assert "give one" in here("evaluate", run, *pairs, "--split", "test").complaint
    assert "give a file" in here("evaluate", run, "--output", "-", "--json").complaint
    data = run.parent.parent / "pairs.tsv"
    before = data.read_bytes()
    assert "is also an input" in here("evaluate", run, "--output", data).complaint
    assert data.read_bytes() == before


def test_symbols_have_one_item_for_equal_sources(here: Here, speller: Path, tmp_path: Path) -> None:
    source, reference, other = tmp_path / "s", tmp_path / "r", tmp_path / "o"
    source.write_text("ab\ncd\nab\n")
    reference.write_text("A B\nC D\nB A\n")
    other.write_text("B A\nC D\n")  # one output for each distinct source
    pairs = ["--source", source, "--reference", reference]
    result = json.loads(here("evaluate", speller, *pairs, "--against", other, "--json").lines[0])
    assert {"wer", "per", "accuracy"} <= set(result)
    assert result["items"] == 2
    assert result["against"]["wer"]["score"] == 0.0
    other.write_text("B A\nC D\nB A\n")
    assert "3 outputs" in here("evaluate", speller, *pairs, "--against", other).err


def test_score_gives_a_number_for_each_pair(here: Here, run: Path, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_text("abc\nabc\n\n")
    target.write_text("abc\nhhhhhhh\n\n")
    done = here("score", run, "--source", source, "--target", target)
    assert all(re.fullmatch(r"-\d+\.\d{6}", line) for line in done.lines)
    good, bad, _ = map(float, done.lines)
    assert good > bad
    source.write_text("abc\n" * 20 + "ab" * 4000 + "\nabc\n")
    target.write_text("abc\n" * 20 + "ab" * 4000 + "\nhhhhhhh\n")
    done = here("score", run, "--source", source, "--target", target)
    assert len(done.lines) == 22  # whatever becomes of the very long pair
    among = [float(done.lines[0]), float(done.lines[21])]
    assert among == pytest.approx([good, bad], abs=1e-4)
    target.write_text("abc\n")
    done = here("score", run, "--source", source, "--target", target)
    assert done.code == 1 and "has 22 lines but" in done.err
    done = here("score", run, "--source", source, "--target", target, "--weight", 2)
    assert (done.code, done.complaint) == (2, "--weight requires --n-best")


def test_average(here: Here, run: Path, tmp_path: Path) -> None:
    same, last, words = tmp_path / "same", tmp_path / "last", tmp_path / "words"
    words.write_text("\n".join(some_words(20)))
    assert here("average", run, run, "--output", same).lines == [str(same)]
    assert here("translate", same, words).out == here("translate", run, words).out
    assert here("average", run, "--last", 2, "--output", last).lines == [str(last)]
    assert len(here("translate", last, words).lines) == 20
    assert "exists" in here("average", run, run, "--output", same).complaint
    new = tmp_path / "new"
    many = here("average", run, "--last", 9, "--output", new)
    assert "of the 9 checkpoints; raise training.keep_last" in many.complaint
    assert "at least two" in here("average", run, "--output", new).complaint
    assert "not a directory" in here("average", new, "--last", 2, "--output", new).complaint
    assert not new.exists()


def test_where_outputs_go_is_known_before_they_are_made(
    here: Here, run: Path, tmp_path: Path
) -> None:
    missing = tmp_path / "missing" / "out"
    done = here("evaluate", tmp_path / "no-run", "--output", missing)
    assert f"{missing} cannot be written" in done.complaint  # before anything is loaded


def test_info(here: Here, run: Path) -> None:
    facts = json.loads(here("info", run, "--json").lines[0])
    assert facts["parameters"] > 1000
    assert facts["recipe"]["model"]["d_model"] == 16
    text = "\n".join(here("info", run).lines)
    assert re.search(rf"^parameters +{facts['parameters']:,}$", text, re.MULTILINE)
    assert "\n[model.encoder]\n" in text


def test_an_average_is_whole_or_not_there(run: Path, twin: Path, tmp_path: Path) -> None:
    output = tmp_path / "mean"
    arguments = " ".join(map(str, ("average", run, twin, "--output", output)))
    program = f"ulimit -f 8; exec {sys.executable} -m transduce {arguments}"  # 8 blocks: no room
    done = subprocess.run(
        ["sh", "-c", program], env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 1 and "cannot be written" in done.stderr
    assert list(tmp_path.iterdir()) == []
    done = transduce("average", run, twin, "--output", output)
    assert done.code == 0, done.err
