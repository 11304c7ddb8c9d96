"""Fully sharded training: what one process learns, in checkpoints that any number can resume."""

import json
import shutil
import signal
from pathlib import Path

import pytest
import torch

from helpers.kills import FAMILIES, write_family
from helpers.rank_runs import (
    AT_STEP,
    CHANCE,
    NO_MEMORY,
    NOT_FINITE,
    STEPS,
    WEIGHTS,
    check_quiet,
    losses,
    restarted,
    train,
    write_recipe,
)
from helpers.ranks import RankServer
from helpers.tiny_run import records
from transduce.errors import RunError
from transduce.loading import load
from transduce.runs.importing import average_runs
from transduce.training.checkpoints import check_sums, checkpoint_path, served_weights
from transduce.training.weight_files import checkpoints_of
from transduce.training.weights import read_tensors

pytestmark = pytest.mark.slow

SHARDED = "training.sharding='full'"
STRICT = "import warnings; warnings.simplefilter('error')\n"
"""Python that makes an error of a warning that a user would see."""


def recipe_without_chance(place: Path) -> Path:
    return write_recipe(
        place, "training.ema=0.8", "training.clip_norm=0.5", "training.label_smoothing=0.1"
    )


def on(ranks: int, sharding: str) -> list[str]:
    """Settings for four batches a step, whatever the number of ranks."""
    return ["--set", f"training.accumulate={4 // ranks}", "--set", f"training.sharding={sharding}"]


def check_close(run: Path, other: Path, within: float = 1e-4) -> None:
    assert losses(run) == pytest.approx(losses(other), abs=within)
    check_close_files(run / WEIGHTS, other / WEIGHTS, within)


def check_close_files(file: Path, other: Path, within: float = 1e-4) -> None:
    result, expected = read_tensors(file), read_tensors(other)
    assert result.keys() == expected.keys()
    # A bias of keys has no gradient but rounding errors, and Adam makes steps of these.
    for name in (name for name in result if not name.endswith("key_value.bias")):
        torch.testing.assert_close(result[name], expected[name], atol=within, rtol=0)


@pytest.fixture(scope="module")
def one(ranks: RankServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What one process learns; the recipe is beside it."""
    place = tmp_path_factory.mktemp("one")
    train(ranks, recipe_without_chance(place), place / "run", *on(1, "none"), world=1)
    return place / "run"


@pytest.fixture(scope="module")
def whole(ranks: RankServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two ranks with all sorts of chance, never touched; its recipe is beside it."""
    place = tmp_path_factory.mktemp("whole")
    train(ranks, write_recipe(place, *CHANCE, SHARDED, "training.keep_last=3"), place / "run")
    return place / "run"


def check_alike(run: Path, whole: Path) -> None:
    """To the last bit, what each rank has written as well."""
    assert losses(run) == losses(whole)
    last = checkpoint_path(whole, STEPS)
    shards = [*last.glob("*/*.safetensors")]
    assert len(shards) == 6  # weights, averages and optimizer of two ranks
    for file in (whole / WEIGHTS, last / "random.safetensors", *shards):
        assert (run / file.relative_to(whole)).read_bytes() == file.read_bytes(), file


@pytest.mark.parametrize("recompute", ["false", "true"])
def test_two_sharded_ranks_learn_what_one_does(
    ranks: RankServer, one: Path, tmp_path: Path, recompute: str
) -> None:
    run = tmp_path / "run"
    command = "train", one.parent / "recipe.toml", "--run", run, *on(2, "full")
    command = *command, "--set", f"training.recompute={recompute}"
    first, second = ranks.run(*command, before=(STRICT, STRICT))
    check_quiet([second])
    assert first.code == 0, first
    check_close(run, one, 1e-5)
    last = checkpoint_path(run, STEPS)
    assert not list(last.glob("model.safetensors"))
    sizes = [sum(f.stat().st_size for f in last.glob(f"*/shard-0000{i}-*")) for i in (1, 2)]
    assert min(sizes) > 0.4 * sum(sizes)
    for path in checkpoints_of(run):
        check_sums(path)
    assert load(run).predictor.model.training is False


def test_sharded_checkpoints_are_served_and_averaged(whole: Path, tmp_path: Path) -> None:
    progress = json.loads((checkpoint_path(whole, STEPS) / "progress.json").read_text())
    best = served_weights(checkpoint_path(whole, progress["best_step"]))
    kept = read_tensors(whole / WEIGHTS)
    assert all(torch.equal(kept[name], best[name]) for name in kept)
    average_runs([whole], tmp_path / "mean", last=2)
    two = [served_weights(path) for path in checkpoints_of(whole)[-2:]]
    for name, mean in read_tensors(tmp_path / "mean" / WEIGHTS).items():
        torch.testing.assert_close(mean, (two[0][name] + two[1][name]) / 2)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param((2, "full"), (1, "none"), id="2 to 1"),
        pytest.param((1, "none"), (2, "full"), id="1 to 2"),
        pytest.param((2, "full"), (4, "full"), id="2 to 4"),
        pytest.param((4, "none"), (2, "none"), id="4 to 2, each with all"),
    ],
)
def test_another_number_of_ranks_goes_on(
    ranks: RankServer, one: Path, tmp_path: Path, before: tuple[int, str], after: tuple[int, str]
) -> None:
    """With the batches that one process would have gone on with; weights sharded or not.

    The last rank is sent a signal before: where there are four, SIGKILL.
    """
    command = "train", one.parent / "recipe.toml", "--run", tmp_path / "run"
    kind = signal.SIGKILL if before[0] == 4 else signal.SIGTERM
    stop = AT_STEP.format(step=6, what=f"os.kill(os.getpid(), {int(kind)})")
    scripts = [*[""] * (before[0] - 1), stop]
    *others, last = ranks.run(*command, *on(*before), world=before[0], before=scripts)
    killed = kind == signal.SIGKILL
    assert last.code == (-kind if killed else 128 + kind), last
    assert {ended.code for ended in others} <= {1 if killed else 128 + kind}
    message = train(ranks, *command[1::2], "--resume", *on(*after), world=after[0]).err
    assert f"number of processes: {before[0]} before, {after[0]} now" in message
    assert "batches per step" not in message
    check_close(tmp_path / "run", one)


def test_a_killed_rank(ranks: RankServer, whole: Path, tmp_path: Path) -> None:
    """The other ends too; the newest checkpoint has a flipped bit, so the one before it is used."""
    run, recipe = tmp_path / "run", whole.parent / "recipe.toml"
    kill = AT_STEP.format(step=10, what="os.kill(os.getpid(), signal.SIGKILL)")
    first, second = ranks.run("train", recipe, "--run", run, before=("", kill))
    assert (first.code, second.code) == (1, -signal.SIGKILL)
    (complaint,) = first.complaints
    assert "another training process has ended" in complaint
    file = next((checkpoint_path(run, 8) / "optimizer").glob("shard-00002-*"))
    content = bytearray(file.read_bytes())
    content[-5] ^= 4
    file.write_bytes(content)
    message = train(ranks, recipe, run, "--resume").err
    assert (
        "shard-00002" in message and "is damaged" in message and "resuming after step 4" in message
    )
    check_alike(run, whole)


FULL_DISK = """
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
"""


def test_a_disk_that_is_full_for_one(ranks: RankServer, whole: Path, tmp_path: Path) -> None:
    """It is said in one line, and nothing older is lost."""
    run, recipe = tmp_path / "run", whole.parent / "recipe.toml"
    full = AT_STEP.format(step=6, what=f"exec({FULL_DISK!r})")
    first, second = ranks.run("train", recipe, "--run", run, before=("", full))
    check_quiet([second], 1)
    (complaint,) = first.complaints
    assert first.code == 1 and "cannot write the checkpoint of step 8" in complaint
    assert "File too large" in complaint and "the last checkpoint is of step 4" in complaint
    assert [path.name for path in (run / "checkpoints").iterdir()] == ["step-00000004"]
    assert "resuming after step 4" in train(ranks, recipe, run, "--resume").err
    check_alike(run, whole)


WRITING = """
import os, signal
import transduce.training.checkpoints as checkpoints
right, calls = checkpoints.{name}, []
def counted(*rest):
    calls.append(rest)
    if len(calls) == {call}:
        os.kill(os.getpid(), signal.SIGKILL)
    return right(*rest)
checkpoints.{name} = counted
"""


@pytest.mark.parametrize(
    ("name", "call"),
    [
        pytest.param("write_shards", 5, id="between two of its parts"),
        pytest.param("sort_header", 6, id="after its last part"),
    ],
)
def test_a_rank_killed_while_writing(
    ranks: RankServer, whole: Path, tmp_path: Path, name: str, call: int
) -> None:
    run, recipe = tmp_path / "run", whole.parent / "recipe.toml"
    kill = WRITING.format(name=name, call=call)
    first, second = ranks.run("train", recipe, "--run", run, before=("", kill))
    assert (first.code, second.code) == (1, -signal.SIGKILL)
    (complaint,) = first.complaints
    assert "another training process has ended" in complaint
    assert "resuming after step 4" in train(ranks, recipe, run, "--resume").err
    check_alike(run, whole)


def test_a_damaged_shard_is_not_served(whole: Path, tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    shutil.copytree(checkpoint_path(whole, STEPS), path)
    next((path / "ema").glob("shard-00002-*")).unlink()
    with pytest.raises(RunError, match=r"shard-00002.* cannot be read"):
        served_weights(path)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_is_sharded(ranks: RankServer, family: str, tmp_path: Path) -> None:
    recipe = write_family(tmp_path / "recipe", family, threads=1, steps=8)
    curves = []
    for sharding in ("none", "full"):
        run = tmp_path / sharding
        train(ranks, recipe, run, "--set", f"training.sharding={sharding}")
        curves.append([r["loss"] for kind in ("train", "validation") for r in records(run, kind)])
    assert len(curves[1]) > 8
    assert curves[1] == pytest.approx(curves[0], abs=2e-4)


def test_low_rank_updates_are_sharded(ranks: RankServer, one: Path, tmp_path: Path) -> None:
    settings = f"fine_tune.run={str(one)!r}", "fine_tune.lora.rank=2"
    runs = []
    for sharding in ("none", "full"):
        recipe = write_recipe(tmp_path / sharding, *settings, f"training.sharding={sharding!r}")
        runs.append(tmp_path / sharding / "run")
        train(ranks, recipe, runs[-1])
    check_close(runs[1], runs[0])
    adapters = [run / "adapter.safetensors" for run in runs]
    check_close_files(adapters[1], adapters[0])


def test_a_loss_that_is_not_finite_on_one(ranks: RankServer, tmp_path: Path) -> None:
    settings = SHARDED, "training.non_finite='skip'", "training.accumulate=2"
    recipe, run = write_recipe(tmp_path, *settings), tmp_path / "run"
    first, second = ranks.run("train", recipe, "--run", run, before=("", NOT_FINITE))
    check_quiet([second])
    assert first.code == 0 and "the loss is nan" in first.err and "the step is skipped" in first.err
    assert [r["step"] for r in records(run, "train") if r["loss"] is None] == [2]
    losses(run)


def test_memory_that_does_not_suffice_on_one(ranks: RankServer, tmp_path: Path) -> None:
    """Ranks that share a model go through a step alike, so there is no splitting."""
    recipe, run = write_recipe(tmp_path, SHARDED), tmp_path / "run"
    first, second = ranks.run("train", recipe, "--run", run, before=(NO_MEMORY, ""))
    (complaint,) = first.complaints
    assert first.code == 1 and "out of memory at step 3" in complaint
    assert "lower training.batch_tokens" in complaint
    check_quiet([second], 1)


def test_what_does_not_go_together_is_said_before_the_data_are_read(
    ranks: RankServer, tmp_path: Path
) -> None:
    missing = "data.train.path=nowhere.tsv"
    recipe = write_recipe(tmp_path, SHARDED, "training.compile=true", missing)
    first, second = ranks.run("train", recipe, "--run", tmp_path / "run")
    check_quiet([second], 1)
    (complaint,) = first.complaints
    assert first.code == 2 and "training.compile cannot be combined with" in complaint


def test_torchrun_starts_again_what_was_killed(whole: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    text = restarted(whole.parent / "recipe.toml", run, 0)
    assert "resuming after step" in text, text
    check_alike(run, whole)
