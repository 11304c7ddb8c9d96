"""Tiny runs, trained in a second, and the command line to use them with."""

from __future__ import annotations

import logging
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from transduce.cli.main import main

RECIPE = """
task = "translation"
[data]
root = "{root}"
hold_out = 0.1
[data.train]
kind = "tsv"
path = "pairs.tsv"
[text]
source = {{ kind = "characters" }}
target = {{ kind = "{target}" }}
[model]
d_model = 16
tie = "two-way"
encoder = {{ n_layers = 1, n_heads = 2, d_ff = 32, dropout = 0.0 }}
decoder = {{ n_layers = 1, n_heads = 2, d_ff = 32, dropout = 0.0 }}
[training]
steps = 60
batch_tokens = 512
schedule = {{ kind = "constant", peak = 1e-2, warmup_steps = 10 }}
validate_every = 20
log_every = 20
threads = 1
device = "cpu"
[decoding]
max_length_ratio = 1.0
max_length_extra = 2
[evaluation]
validation_pairs = 0
"""


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    out: bytes
    err: str

    @property
    def lines(self) -> list[str]:
        """Lines on stdout; only a line feed ends one."""
        assert self.out == b"" or self.out.endswith(b"\n")
        return self.out.decode("utf-8").split("\n")[:-1]

    @property
    def complaint(self) -> str:
        """The one line that says what is wrong; nothing was written to stdout."""
        assert self.code in (1, 2), self
        assert "Traceback" not in self.err
        said = [line for line in self.err.splitlines() if line.startswith("transduce: ")]
        assert len(said) == 1 and self.err.endswith(said[0] + "\n"), self.err
        return said[0].removeprefix("transduce: ")


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "error::ResourceWarning"}


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "transduce", *map(str, arguments)]


def transduce(*arguments: object, stdin: bytes = b"", cwd: Path | None = None) -> Done:
    """The real command in a process of its own."""
    ended = subprocess.run(
        command(*arguments), input=stdin, capture_output=True, env=environment(), cwd=cwd
    )
    return Done(ended.returncode, ended.stdout, ended.stderr.decode("utf-8"))


@pytest.fixture
def here(capfdbinary: pytest.CaptureFixture[bytes]) -> Iterator[Callable[..., Done]]:
    """The same in this process, which spares the import of torch; it cannot read stdin."""
    logger = logging.getLogger("transduce")
    before = logger.handlers, logger.level, logger.propagate, dict(os.environ)

    def call(*arguments: object) -> Done:
        capfdbinary.readouterr()
        code = main([str(argument) for argument in arguments])
        sys.stdout.flush()
        out, err = capfdbinary.readouterr()
        return Done(code, out, err.decode("utf-8"))

    yield call
    logger.handlers, logger.level, logger.propagate = before[:3]
    os.environ.clear()
    os.environ.update(before[3])


def write_recipe(directory: Path, target: str, pairs: list[tuple[str, str]]) -> Path:
    """A recipe beside its data."""
    lines = "".join(f"{source}\t{reference}\n" for source, reference in pairs)
    (directory / "pairs.tsv").write_text(lines, encoding="utf-8")
    recipe = directory / "recipe.toml"
    recipe.write_text(RECIPE.format(root=directory, target=target), encoding="utf-8")
    return recipe


def some_words(count: int, seed: int = 1) -> list[str]:
    chance = random.Random(seed)
    return ["".join(chance.choices("abcdefgh", k=chance.randint(2, 6))) for _ in range(count)]


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
