"""Several processes train one model: the same one, and nothing is lost when one of them dies."""

import json
import shutil
import signal
from pathlib import Path

import pytest
import torch

from helpers.kills import FAMILIES, assert_same_run, write_family
from helpers.rank_runs import (
    AT_STEP,
    CHANCE,
    NO_MEMORY,
    NOT_FINITE,
    STEPS,
    WEIGHTS,
    check_quiet,
    killed_once,
    losses,
    restarted,
    train,
    write_recipe,
)
from helpers.ranks import Ended, RankServer
from helpers.tiny_run import records
from transduce.training.checkpoints import checkpoint_path
from transduce.training.weight_files import checkpoints_of
from transduce.training.weights import read_tensors


def check_alike(run: Path, whole: Path) -> None:
    assert (run / WEIGHTS).read_bytes() == (whole / WEIGHTS).read_bytes()
    for file in ("model", "optimizer", "random", "ema"):
        parts = [checkpoint_path(p, STEPS) / f"{file}.safetensors" for p in (run, whole)]
        assert parts[0].read_bytes() == parts[1].read_bytes()
    assert losses(run) == losses(whole)


@pytest.fixture(scope="module")
def whole(ranks: RankServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two ranks with all sorts of chance, never touched; its recipe is beside it."""
    place = tmp_path_factory.mktemp("whole")
    train(ranks, write_recipe(place, *CHANCE), place / "run")
    return place / "run"


def begun(ranks: RankServer, whole: Path, place: Path, what: str, step: int) -> list[Ended]:
    """The same training in `place`, where something happens to the second rank at a step."""
    place.mkdir()
    command = "train", whole.parent / "recipe.toml", "--run", place / "run"
    return ranks.run(*command, before=("", AT_STEP.format(step=step, what=what)))


WATCH = """
import os, sys
def watch(event, arguments):
    if event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
        touched = arguments[0]
    elif event in ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "shutil.rmtree"):
        touched = arguments[0]
    else:
        return
    if {place!r} in str(touched):
        os.write(2, f"{{event}} {{touched}}\\n".encode())
sys.addaudithook(watch)
"""


@pytest.mark.parametrize("optimizer", ["adam", "muon"])
def test_two_ranks_learn_what_one_does(ranks: RankServer, tmp_path: Path, optimizer: str) -> None:
    """With half the batches each; in buckets of the gradient; and the second touches no file."""
    one, two = tmp_path / "one", tmp_path / "two"
    settings = (
        "training.clip_norm=0.5",
        "training.label_smoothing=0.1",
        f"training.optimizer.kind={optimizer}",
    )
    train(ranks, write_recipe(tmp_path, *settings), one, "--set", "training.accumulate=4", world=1)
    small = "import transduce.training.distributed as d; d.BUCKET = 500\n"
    watched = small + WATCH.format(place=str(tmp_path))
    recipe = write_recipe(tmp_path, *settings, "training.accumulate=2")
    first, second = ranks.run("train", recipe, "--run", two, before=(small, watched))
    check_quiet([second])
    assert first.code == 0 and first.out == f"{two}\n"
    assert losses(two) == pytest.approx(losses(one), abs=1e-5)
    progress = [
        json.loads((checkpoints_of(p)[-1] / "progress.json").read_text()) for p in (one, two)
    ]
    for same in ("data", "best_step", "skipped"):
        assert progress[0][same] == progress[1][same]


def test_each_rank_has_chance_of_its_own(whole: Path) -> None:
    states = read_tensors(checkpoint_path(whole, STEPS) / "random.safetensors")
    assert set(states) >= {"rank0.cpu", "rank1.cpu"}
    assert not torch.equal(states["rank0.cpu"], states["rank1.cpu"])


def test_a_killed_rank(ranks: RankServer, whole: Path, tmp_path: Path) -> None:
    """The other one ends too; resumed by two the run is as never touched, and one can go on."""
    kill = "os.kill(os.getpid(), signal.SIGKILL)"
    first, second = begun(ranks, whole, tmp_path / "a", kill, step=7)
    assert second.code == -signal.SIGKILL
    assert first.code == 1
    (complaint,) = first.complaints
    assert "another training process has ended" in complaint
    run, recipe = tmp_path / "a" / "run", whole.parent / "recipe.toml"
    assert [path.name for path in checkpoints_of(run)] == ["step-00000004"]
    shutil.copytree(run, tmp_path / "b")
    said = train(ranks, recipe, run, "--resume").err
    assert "resuming after step 4" in said and "number of processes" not in said
    check_alike(run, whole)
    said = train(ranks, recipe, tmp_path / "b", "--resume", world=1).err
    assert "number of processes: 2 before, 1 now" in said
    assert "batches per step: 4 before, 2 now" in said
    assert len(losses(tmp_path / "b")) == len(losses(whole))
    assert (tmp_path / "b" / WEIGHTS).read_bytes() != (run / WEIGHTS).read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_is_resumed_exactly(ranks: RankServer, family: str, tmp_path: Path) -> None:
    recipe = write_family(tmp_path / "recipe", family, threads=1)
    train(ranks, recipe, tmp_path / "whole")
    kill = AT_STEP.format(step=10, what="os.kill(os.getpid(), signal.SIGKILL)")
    run = tmp_path / "run"
    first, second = ranks.run("train", recipe, "--run", run, before=("", kill))
    assert (first.code, second.code) == (1, -signal.SIGKILL)
    assert "resuming after step 8" in train(ranks, recipe, run, "--resume").err
    assert_same_run(run, tmp_path / "whole")


def test_a_signal_to_one_stops_all(ranks: RankServer, whole: Path, tmp_path: Path) -> None:
    first, second = begun(
        ranks, whole, tmp_path / "a", "signal.raise_signal(signal.SIGTERM)", step=6
    )
    check_quiet([second], 128 + signal.SIGTERM)
    assert first.code == 128 + signal.SIGTERM
    assert first.complaints == ["stopped after step 6; continue with --resume"]
    run = tmp_path / "a" / "run"
    train(ranks, whole.parent / "recipe.toml", run, "--resume")
    check_alike(run, whole)


def test_weights_that_part_are_noticed(ranks: RankServer, whole: Path, tmp_path: Path) -> None:
    # rows that change places, which no sum over them would tell
    part = "w = next(self.task.model.parameters()).data; w[[5, 6]] = w[[6, 5]]"
    first, second = begun(ranks, whole, tmp_path / "a", part, step=3)
    check_quiet([second], 1)
    (complaint,) = first.complaints
    assert first.code == 1 and "have diverged" in complaint
    assert checkpoints_of(tmp_path / "a" / "run") == []


@pytest.mark.parametrize("policy", ["skip", "stop"])
def test_a_loss_that_is_not_finite_on_one(ranks: RankServer, tmp_path: Path, policy: str) -> None:
    recipe, run = write_recipe(tmp_path, f"training.non_finite='{policy}'"), tmp_path / "run"
    first, second = ranks.run("train", recipe, "--run", run, before=("", NOT_FINITE))
    check_quiet([second], 0 if policy == "skip" else 1)
    (kept,) = (run / "non_finite").iterdir()
    content = json.loads(kept.read_text())
    assert kept.name == "step-00000003.json" and content["what"] == "loss is nan"
    assert len(content["batches"]) == 1 and content["batches"][0]["content"]["source"]
    if policy == "skip":
        assert first.code == 0 and "the step is skipped" in first.err
        assert [r["step"] for r in records(run, "train") if r["loss"] is None] == [3]
    else:
        (complaint,) = first.complaints
        assert first.code == 1 and "the loss is nan at step 3 in the batch of" in complaint


def test_memory_that_does_not_suffice_on_one(ranks: RankServer, tmp_path: Path) -> None:
    recipe, run, plain = write_recipe(tmp_path), tmp_path / "run", tmp_path / "plain"
    first, second = ranks.run("train", recipe, "--run", run, before=("", NO_MEMORY))
    check_quiet([second])
    assert first.code == 0
    train(ranks, recipe, plain)
    assert losses(run) == pytest.approx(losses(plain), abs=1e-5)


def test_what_is_wrong_is_said_once(ranks: RankServer, whole: Path, tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path, "data.train.path='nowhere.tsv'")
    first, second = ranks.run("train", recipe, "--run", tmp_path / "run")
    check_quiet([second], 1)
    assert first.code in (1, 2) and len(first.complaints) == 1 and "nowhere" in first.err
    first, second = ranks.run("train", whole.parent / "recipe.toml", "--run", whole)
    check_quiet([second], 1)
    assert len(first.complaints) == 1 and "holds a run already" in first.err


def test_work_of_one_process_is_refused(ranks: RankServer, whole: Path, tmp_path: Path) -> None:
    recipe, run = whole.parent / "recipe.toml", tmp_path / "run"
    for command in (
        ("distil", whole, recipe, "--run", run),
        ("backtranslate", whole, recipe, "--run", run, "--monolingual", recipe),
        ("sweep", recipe, "--runs", run, "--set", "seed=1,2"),
    ):
        first, second = ranks.run(*command)
        check_quiet([second], first.code)
        assert first.code and len(first.complaints) == 1
        assert "torchrun is only for `transduce train`" in first.err
        assert not run.exists()


AGAIN = """
import os
os.environ.update(TORCHELASTIC_RESTART_COUNT="1", TORCHELASTIC_RUN_ID="this")
"""
"""As torchrun has it where it has started a job again."""


def test_what_is_started_again(ranks: RankServer, whole: Path, tmp_path: Path) -> None:
    """Its own run is resumed, also by a machine that came later; that of another job is not."""
    recipe, run = whole.parent / "recipe.toml", tmp_path / "run"
    first, second = ranks.run("train", recipe, "--run", whole, before=(AGAIN, AGAIN))
    check_quiet([second], 1)
    assert first.code == 1 and "holds a run already" in first.err
    begun = AGAIN.replace("1", "0") + AT_STEP.format(step=6, what="signal.raise_signal(2)")
    for ended in ranks.run("train", recipe, "--run", run, before=(begun, begun)):
        assert ended.code == 130, ended
    for more in ([], ["--overwrite"]):
        first, second = ranks.run("train", recipe, "--run", run, *more, before=(AGAIN, ""))
        check_quiet([second])
        assert first.code == 0 and "resuming after step" in first.err
    check_alike(run, whole)
    for ended in ranks.run("train", recipe, "--run", tmp_path / "new", before=(AGAIN, AGAIN)):
        assert ended.code == 0 and "resuming after" not in ended.err
    check_alike(tmp_path / "new", whole)


CARD_FAILS = """
import transduce.errors, transduce.runs.training
def fail(*_):
    raise transduce.errors.RunError("no room for the card")
transduce.runs.training.model_card = fail
"""


def test_a_failure_after_the_last_step_is_said_once(
    ranks: RankServer, recipe: Path, tmp_path: Path
) -> None:
    first, second = ranks.run("train", recipe, "--run", tmp_path / "run", before=(CARD_FAILS, ""))
    assert (first.code, first.complaints) == (1, ["no room for the card"])
    assert (second.code, second.complaints) == (1, [])


TOGETHER = """
import torch
from transduce.data.batches import DataState
from transduce.training.distributed import process_group
with process_group() as ranks:
    mine = ranks.rank
    assert ranks.world == 3
    assert ranks.gather(mine, 2.5) == [(0, 2.5), (1, 2.5), (2, 2.5)]
    assert ranks.all_reduce_sum(1, mine) == [3, 3] and ranks.all_reduce_max(mine, -mine) == [2, 0]
    values = ranks.gather_values({"rank": mine, "text": "é" * mine})
    assert [value["text"] for value in values] == ["", "é", "éé"]
    assert ranks.broadcast_from_main(lambda: [mine, None]) == [0, None]
    sizes = [len(part) for part in ranks.gather_values(torch.ones(mine * 5, dtype=torch.uint8))]
    assert sizes == [0, 5, 10]
    used, seldom, never, frozen = (torch.nn.Parameter(torch.zeros(2, 3)) for _ in range(4))
    frozen.requires_grad_(False)
    used.grad = torch.full((2, 3), float(mine))
    if mine == 1:
        seldom.grad = torch.arange(6.0).view(2, 3)
    ranks.sum_gradients([used, seldom, never, frozen])
    assert torch.equal(used.grad, torch.full((2, 3), 3.0))
    assert torch.equal(seldom.grad, torch.arange(6.0).view(2, 3))
    assert never.grad is None and frozen.grad is None
    assert ranks.gather_step(10 + mine, DataState(1, mine)) == (33, DataState(1, 2))
"""


def test_what_ranks_do_together(ranks: RankServer) -> None:
    check_quiet(ranks.run(world=3, before=[TOGETHER] * 3))


@pytest.mark.slow
def test_torchrun_starts_again_what_was_killed(whole: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    text = restarted(whole.parent / "recipe.toml", run, -1)
    assert "resuming after step" in text, text
    check_alike(run, whole)


@pytest.mark.parametrize("victim", [0, 1])
def test_the_line_about_a_killed_rank_is_the_last_of_torchrun(
    whole: Path, tmp_path: Path, victim: int
) -> None:
    output = killed_once(whole.parent / "recipe.toml", tmp_path / "run", victim)
    *_, report = (line for line in output.splitlines() if line.strip("= "))
    assert "transduce: " in report and report.endswith("continue with --resume"), output


HANG = AT_STEP.format(
    step=6,
    what="""import datetime, torch.distributed
        store = torch.distributed.distributed_c10d._get_default_store()
        store.wait(["never"], datetime.timedelta(minutes=5))""",
)
"""A rank that waits for something that never comes, until the first has gone."""


def test_a_rank_that_hangs_is_named_and_ends_the_run(ranks: RankServer, tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path, "training.rank_timeout=0.1")
    first, second = ranks.run("train", recipe, "--run", tmp_path / "run", before=("", HANG))
    assert (first.code, second.code) == (1, 1)
    waiting, ended = [line for line in first.err.splitlines() if "process 1 on " in line]
    assert "waiting for process 1 on " in waiting
    assert "training.rank_timeout" in ended and "continue with --resume" in ended
    assert first.err.splitlines()[-1] == ended
    recipe = write_recipe(tmp_path)
    assert "resuming after step 4" in train(ranks, recipe, tmp_path / "run", "--resume").err
