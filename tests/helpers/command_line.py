"""The command line in a process of its own, and a recipe that it trains in a second."""

from __future__ import annotations

import os
import random
import sys
from dataclasses import dataclass
from pathlib import Path

from helpers.command_server import AT_START, forked_command

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
    """Exit code and output of a command."""

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
        """The error message, of one line; stdout is empty."""
        assert self.code in (1, 2), self
        assert "Traceback" not in self.err
        message = [line for line in self.err.splitlines() if line.startswith("transduce: ")]
        assert len(message) == 1 and self.err.endswith(message[0] + "\n"), self.err
        return message[0].removeprefix("transduce: ")


def environment() -> dict[str, str]:
    return {**os.environ, **AT_START}


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "transduce", *map(str, arguments)]


def transduce(*arguments: object, stdin: bytes = b"", cwd: Path | None = None) -> Done:
    """The real command in a process of its own."""
    code, out, err = forked_command(list(map(str, arguments)), stdin, cwd, environment())
    return Done(code, out, err.decode("utf-8"))


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
