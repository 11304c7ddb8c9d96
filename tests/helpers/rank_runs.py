"""A training so small that several ranks end it in a second, faults of one rank, and results."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import tomli_w

from helpers.ranks import Ended, RankServer, children_of, torchrun, torchrun_environment
from helpers.tiny_run import records, reversal_pairs, tiny_settings, write_tsv
from helpers.waiting import PATIENCE, wait_for
from transduce.training.weight_files import checkpoints_of

STEPS = 12
CHANCE = (
    "model.encoder.dropout=0.2",
    "model.decoder.dropout=0.2",
    "training.ema=0.8",
    "training.accumulate=2",
    "text.source={kind='bpe', size=280}",
    "text.source_sampling=0.3",
)
WEIGHTS = "weights.safetensors"

AT_STEP = """
from transduce.training.log import SilentLog
from transduce.training.step import OptimizerStep
import os, signal
made = OptimizerStep.__call__
def call(self, number, *rest):
    nll = made(self, number, *rest)
    if number == {step}:
        {what}
    return nll
OptimizerStep.__call__ = call
"""
"""Python that has a rank do something after it has made a step."""

BAD_LOSS = """
import transduce.tasks.translation.training as translation
right, calls = translation.pair_loss, []
def pair_loss(model, batch, *rest):
    calls.append(batch)
    if len(calls) == 3:
        {what}
    return right(model, batch, *rest)
translation.pair_loss = pair_loss
"""
NOT_FINITE = BAD_LOSS.format(
    what="sums = right(model, batch, *rest); return sums._replace(total=sums.total * float('nan'))"
)
NO_MEMORY = BAD_LOSS.format(what='raise RuntimeError("can\'t allocate memory")')


def write_recipe(place: Path, *overrides: str) -> Path:
    place.mkdir(parents=True, exist_ok=True)
    data = write_tsv(place / "pairs.tsv", reversal_pairs(200))
    sizes = (
        f"training.steps={STEPS}",
        "training.validate_every=4",
        "training.batch_tokens=96",
        "training.threads=1",
        "evaluation.validation_pairs=4",
    )
    recipe = place / "recipe.toml"
    recipe.write_text(tomli_w.dumps(tiny_settings(data, *sizes, *overrides)))
    return recipe


def check_quiet(others: list[Ended], code: int = 0) -> None:
    for other in others:
        assert (other.code, other.out, other.err) == (code, "", ""), other


def train(server: RankServer, recipe: Path, run: Path, *more: object, world: int = 2) -> Ended:
    """Train to the end; how the first rank ended."""
    first, *others = server.run("train", recipe, "--run", run, *more, world=world)
    check_quiet(others)
    assert first.code == 0, first
    return first


def losses(run: Path) -> list[float]:
    steps = [record["step"] for record in records(run, "train")]
    assert steps == list(range(1, STEPS + 1))
    return [record["loss"] for kind in ("train", "validation") for record in records(run, kind)]


def restarted(recipe: Path, run: Path, victim: int) -> str:
    """Train with the real torchrun and two workers, without --resume, and kill one of them after
    the first checkpoint; return the output after success."""
    code, output = _with_a_kill(recipe, run, victim, "--max-restarts=1")
    assert code == 0, output
    return output


def killed_once(recipe: Path, run: Path, victim: int) -> str:
    """The same without a restart, and without success."""
    code, output = _with_a_kill(recipe, run, victim, "--max-restarts=0")
    assert code == 1, output
    return output


def _with_a_kill(recipe: Path, run: Path, victim: int, restarts: str) -> tuple[int, str]:
    options = torchrun("--standalone", "--nproc-per-node=2", restarts)
    command = [*options, "train", str(recipe), f"--run={run}"]
    log = run.with_name("said")
    with log.open("w") as message:
        agent = subprocess.Popen(
            command, stdout=message, stderr=message, env=torchrun_environment()
        )
        wait_for(lambda: checkpoints_of(run) or agent.poll() is not None, log.read_text)
        if workers := children_of(agent.pid):
            os.kill(workers[victim], signal.SIGKILL)
        return agent.wait(PATIENCE), log.read_text()
