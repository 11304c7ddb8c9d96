"""Tiny runs, trained in a second, and the command line to use them with."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from helpers.browser import Open, chromium, served_page
from helpers.command_line import Done, some_words, transduce, write_recipe
from helpers.ranks import RankServer
from helpers.served import Served, library, served, sibling_run, small_run, some_sentences
from transduce.cli.main import main
from transduce.training.weights import read_tensors, write_weights


@pytest.fixture
def here(capfdbinary: pytest.CaptureFixture[bytes]) -> Iterator[Callable[..., Done]]:
    """The same in this process, which spares the import of torch; it cannot read stdin."""
    before = dict(os.environ)

    def call(*arguments: object) -> Done:
        capfdbinary.readouterr()
        code = main([str(argument) for argument in arguments])
        sys.stdout.flush()
        out, err = capfdbinary.readouterr()
        return Done(code, out, err.decode("utf-8"))

    yield call
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(scope="session")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy the letters of a word."""
    pairs = [(word, word) for word in dict.fromkeys(some_words(220))]
    return write_recipe(tmp_path_factory.mktemp("copy"), "characters", pairs)


@pytest.fixture(scope="session")
def trained(recipe: Path) -> Done:
    """`transduce train` of that recipe."""
    return transduce("train", recipe, "--run", recipe.parent / "runs" / "copy")


@pytest.fixture(scope="session")
def run(trained: Done) -> Path:
    """Its run directory."""
    assert trained.code == 0, trained.err
    return Path(trained.lines[-1])


@pytest.fixture(scope="session")
def twin(run: Path) -> Path:
    """The same run with somewhat other weights."""
    directory = shutil.copytree(run, run.with_name("twin"))
    tensors = read_tensors(directory / "weights.safetensors")
    chance = torch.Generator().manual_seed(1)
    for tensor in tensors.values():
        tensor.add_(0.1 * torch.randn(tensor.shape, generator=chance))
    write_weights(directory / "weights.safetensors", tensors)
    return directory


@pytest.fixture(scope="session")
def speller(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose outputs are symbols, with two right answers for each source."""
    directory = tmp_path_factory.mktemp("spell")
    pairs = []
    for word in dict.fromkeys(some_words(120)):
        pairs += [(word, " ".join(word.upper())), (word, " ".join(word.upper()[::-1]))]
    recipe = write_recipe(directory, "symbols", pairs)
    done = transduce("train", recipe, "--set", "training.steps=20", cwd=directory)
    assert done.code == 0, done.err
    return directory / "runs" / "recipe"


@pytest.fixture(scope="session")
def de_en(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A translation run that names its languages."""
    return small_run(tmp_path_factory.mktemp("served") / "de-en", "de", "en")


@pytest.fixture(scope="session")
def en_fr(de_en: Path) -> Path:
    """A run of the same kind for English and French."""
    return sibling_run(de_en, "en", "fr")


@pytest.fixture(scope="session")
def server(de_en: Path, en_fr: Path) -> Iterator[Served]:
    """A server for de-en and en-fr, with en as the pivot."""
    with served(de_en, en_fr, "--pivot", "en", "--metrics") as result:
        yield result


@pytest.fixture(scope="session")
def truth(de_en: Path) -> dict[str, str]:
    """Translations of some sentences by the library."""
    texts = list(dict.fromkeys(some_sentences(40, seed=7)))
    return dict(zip(texts, (t.text for t in library(de_en).translate(texts)), strict=True))


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium, without a page."""
    with chromium() as opened:
        yield opened


@pytest.fixture
def show(browser: Any, server: Served) -> Iterator[Open]:
    """Opens the page of the server."""
    with served_page(browser, server) as open_page:
        yield open_page


@pytest.fixture(scope="module")
def listening(run: Path) -> Iterator[Served]:
    """A server of the run of a module."""
    with served(run) as server:
        yield server


@pytest.fixture
def client(listening: Served) -> Iterator[Any]:
    """The `openai` client of that server."""
    openai = pytest.importorskip("openai")
    with openai.OpenAI(api_key="x", base_url=f"{listening.url}/v1", max_retries=0) as opened:
        yield opened


@pytest.fixture(scope="session")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RankServer]:
    """Starts several processes of a training."""
    with contextlib.closing(RankServer(tmp_path_factory.mktemp("ranks"))) as server:
        yield server
