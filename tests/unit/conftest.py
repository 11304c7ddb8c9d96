"""Small trained runs, shared by all their readers."""

from pathlib import Path

import numpy as np
import pytest

import transduce
from helpers.audio import encoded, manifest, noise, saved
from helpers.fine_tuned import train_base
from helpers.native import EACH_ENGINE, on_engine
from helpers.reversing_run import LEARNT, reversing_run
from helpers.shared import SharedDirectories
from helpers.tiny_run import reversal_pairs, train_tiny, write_tiny, write_tsv
from helpers.tunes import RATE, melodies, recognition_recipe, tune


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> SharedDirectories:
    return SharedDirectories(tmp_path_factory)


@pytest.fixture(scope="session")
def data(shared: SharedDirectories) -> Path:
    """Pairs to train from, tab-separated."""
    return shared("data", lambda path: write_tsv(path / "a.tsv", reversal_pairs(300))) / "a.tsv"


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recipe file of six steps, in a directory of its own."""
    settings = ("training.steps=6", "training.validate_every=3")
    return write_tiny(tmp_path_factory.mktemp("recipe"), *settings)


@pytest.fixture(scope="session")
def run_path(data: Path, shared: SharedDirectories) -> Path:
    """The directory of a translator that has learnt to reverse words."""
    return shared("tiny", lambda path: train_tiny(data, path / "run", *LEARNT)) / "run"


@pytest.fixture(scope="session")
def base(data: Path, shared: SharedDirectories) -> Path:
    """The directory of a run to start from."""
    return shared("base", lambda path: train_base(data, path / "run")) / "run"


@pytest.fixture(scope="session")
def trained(shared: SharedDirectories) -> transduce.Run:
    """A translator that has partly learnt to reverse words."""
    return transduce.load(shared("reversing", reversing_run) / "run", device="cpu")


@pytest.fixture(scope="module", params=EACH_ENGINE)
def on_each_engine(request: pytest.FixtureRequest, trained: transduce.Run) -> transduce.Run:
    """The same on each engine that follows all options."""
    return on_engine(request.param, trained)


def train_on_tunes(directory: Path) -> None:
    records = []
    for i, text in enumerate(melodies(300)):
        quiet = (noise(seconds, RATE, 3, 0.003) for seconds in (i % 7 / 50, i % 5 / 40))
        samples = np.concatenate([next(quiet), tune(text, i), next(quiet)])
        saved(directory / f"{i}.wav", encoded(samples, RATE))
        records.append({"audio": f"{i}.wav", "text": text})
    tunes = {"kind": "manifest", "path": str(manifest(directory / "a.jsonl", records))}
    transduce.train(recognition_recipe(tunes, 550), directory / "run")


@pytest.fixture(scope="session")
def tunes_path(shared: SharedDirectories) -> Path:
    """The directory of a run that has learnt tunes, with a little silence around them."""
    return shared("tunes", train_on_tunes) / "run"
