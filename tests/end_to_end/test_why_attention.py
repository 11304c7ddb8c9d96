"""The command behind docs/measurements/why-attention.md: all parts, on little data, in a moment."""

import gzip
import json
import random
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("matplotlib")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # it measures everything, if briefly

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
import why_attention  # noqa: E402  a script, not a package

MODELS = list(why_attention.MODELS)
BUDGET = ["--steps=2", "--batch-tokens=96", "--vocabulary=300", "--peaks=0.001,0.004", "--beyond=1"]
BUDGET += ["--rounds=1", "--speed-tokens=64", "--longest=256"]


def command(directory: Path, *arguments: str) -> int:
    """The exit status of the command, called in this process to spare the import of torch."""
    places = [f"--{name}={directory / name}" for name in ("data", "output", "runs")]
    return why_attention.main([*places, *arguments])


def write_corpus(directory: Path) -> None:
    """Pairs of made-up words, one Chinese character for each English word."""
    chance = random.Random(1)
    words = dict(
        zip("天地人山水火木金土日月风", ["sky", "earth", "man", "hill", "water"] * 3, strict=False)
    )
    directory.mkdir(parents=True)
    for split, count in (("train", 60), ("dev", 8), ("test", 24)):
        sources = [chance.choices(list(words), k=chance.randint(1, 14)) for _ in range(count)]
        for language, lines in (
            ("zh", ["".join(source) for source in sources]),
            ("en", [" ".join(words[letter] for letter in source) for source in sources]),
        ):
            with gzip.open(directory / f"{split}.{language}.gz", "wt", encoding="utf-8") as file:
                file.writelines(line + "\n" for line in lines)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory where the command has measured everything."""
    directory = tmp_path_factory.mktemp("why")
    write_corpus(directory / "data" / "tatoeba-zh-en")
    shutil.copy(ROOT / "docs" / "measurements" / "why-attention.md", directory / "output.md")
    assert command(directory, *BUDGET) == 0
    return directory


@pytest.fixture(scope="module")
def results(place: Path) -> Any:
    return json.loads((place / "output" / "results.json").read_text(encoding="utf-8"))


def test_all_models_saw_as_many_target_tokens(results: Any) -> None:
    models = results["translation"]["models"]
    assert list(models) == MODELS
    assert len({model["target_tokens"] for model in models.values()}) == 1
    assert models["tiny"]["target_tokens"] > 0


def test_the_peak_with_the_lowest_loss_is_tested(results: Any) -> None:
    for name, model in results["translation"]["models"].items():
        losses = {
            p: t["validation_loss"] for p, t in results["translation"]["trials"][name].items()
        }
        peaks = sorted(losses, key=float)
        assert {"0.001", "0.004"} < set(peaks), "of two, one is the lowest and one the highest"
        assert len(peaks) == 3
        assert f"{model['peak']:g}" == min(losses, key=losses.__getitem__)


def test_every_test_sentence_is_in_one_length_group(results: Any) -> None:
    for model in results["translation"]["models"].values():
        assert sum(bucket["sentences"] for bucket in model["by_length"]) == 24
    pairs = [(result["a"], result["b"]) for result in results["translation"]["comparisons"]]
    assert pairs == list(why_attention.COMPARED)


def test_paths_follow_the_formulas(results: Any) -> None:
    for point in results["paths"]["points"]:
        predicted = dict(point["predicted"])
        if point["distance"] >= 65:  # the dilation has begun anew
            assert point["dilated"] > predicted.pop("dilated")
        assert {name: point[name] for name in predicted} == predicted
        assert point["recurrent_layers"] == 1


def test_redrawing_changes_nothing_and_measures_nothing(place: Path) -> None:
    files = [place / "output.md", *sorted((place / "output").iterdir())]
    assert len(files) == 10, files
    before = [file.read_bytes() for file in files]
    assert command(place, "--draw") == 0
    assert [file.read_bytes() for file in files] == before


def test_what_is_done_is_not_trained_again(place: Path) -> None:
    weights = {path.parent.name: path for path in (place / "runs").glob("*/weights.safetensors")}
    assert len(weights) == 3 * len(MODELS)
    before = {name: path.stat().st_mtime_ns for name, path in weights.items()}
    weights["tiny-0.004"].unlink()
    results = (place / "output" / "results.json").read_bytes()
    assert command(place, *BUDGET, "--only=translation", "--models=rnn-dot") == 0
    assert not weights["tiny-0.004"].exists(), "it was not asked for"
    assert (place / "output" / "results.json").read_bytes() == results
    assert command(place, *BUDGET, "--only=translation") == 0
    after = {name: path.stat().st_mtime_ns for name, path in weights.items()}
    assert [name for name in weights if after[name] != before[name]] == ["tiny-0.004"]
