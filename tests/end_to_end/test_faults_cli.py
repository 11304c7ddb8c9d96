"""The command when the disk is full, another process is at work, or the seed is another."""

import itertools
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
import torch

from helpers.command_line import command, environment, transduce, write_recipe
from helpers.tiny_run import records, reversal_pairs, tiny_task, train_tiny, write_tsv
from helpers.waiting import wait_for
from transduce.cli.main import main
from transduce.data.batches import DataState
from transduce.training.checkpoints import check_sums
from transduce.training.weight_files import checkpoints_of
from transduce.training.weights import read_tensors


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pairs = reversal_pairs(200)
    return write_recipe(tmp_path_factory.mktemp("recipe"), "symbols", pairs)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tsv(tmp_path_factory.mktemp("data") / "a.tsv", reversal_pairs(200))


def has_own_file_systems() -> bool:
    unshare = shutil.which("unshare")
    mounting = ["unshare", "-rm", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    return unshare is not None and not subprocess.run(mounting, capture_output=True).returncode


@pytest.mark.slow
def test_a_full_file_system(recipe: Path, tmp_path: Path) -> None:
    """Room for one checkpoint, but not for all to come: what is there stays whole."""
    if not has_own_file_systems():
        pytest.skip("small file systems cannot be made here")
    place, saved = tmp_path / "small", tmp_path / "saved"
    place.mkdir()
    first = "training.steps=20", "training.validate_every=20", "training.keep_last=1"
    size = trained_size(recipe, tmp_path / "measured", first) * 3 // 2
    script = (
        'mount -t tmpfs -o size=$1 tmpfs "$2"; place=$2; saved=$3; shift 3; '
        '"$@" --run "$place/run"; code=$?; cp -r "$place/run" "$saved"; exit $code'
    )
    train = command("train", recipe, "--set", *first[1:], "training.steps=60")
    ended = subprocess.run(
        ["unshare", "-rm", "sh", "-c", script, "sh", str(size), str(place), str(saved), *train],
        capture_output=True,
        text=True,
        env=environment(),
    )
    assert ended.returncode == 1, ended.stderr
    message = ended.stderr.splitlines()[-1]
    assert message.startswith("transduce: ") and "No space left on device" in message, ended.stderr
    kept = checkpoints_of(saved)
    assert kept
    for checkpoint in kept:
        check_sums(checkpoint)
    read_tensors(saved / "weights.safetensors")
    changed = "training.steps=60", "training.validate_every=20", "training.keep_last=1"
    resumed = transduce("train", recipe, "--run", saved, "--resume", "--set", *changed)
    assert resumed.code == 0, resumed.err
    whole = transduce("train", recipe, "--run", tmp_path / "whole", "--set", *changed)
    assert whole.code == 0, whole.err
    name = "weights.safetensors"
    assert (saved / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def trained_size(recipe: Path, run: Path, overrides: tuple[str, ...]) -> int:
    done = transduce("train", recipe, "--run", run, "--set", *overrides)
    assert done.code == 0, done.err
    files = [file for file in run.parent.rglob("*") if file.is_file()]
    return sum(-(-file.stat().st_size // 4096) * 4096 for file in files)


@pytest.mark.slow
def test_a_second_process_refuses(recipe: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    long = command("train", recipe, "--run", run, "--set", "training.steps=1000000")
    with subprocess.Popen(
        long, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment()
    ) as first:
        wait_for(lambda: checkpoints_of(run) or first.poll() is not None)
        assert first.poll() is None
        for how in ("--resume", "--overwrite"):
            second = transduce("train", recipe, "--run", run, how, "--set", "training.steps=60")
            assert (second.code, second.complaint) == (1, f"{run} is in use by another process")
        first.send_signal(signal.SIGKILL)
    # What died holds nothing: the lock is the kernel's.
    step = int(checkpoints_of(run)[-1].name[5:])
    more = f"training.steps={step + 20}"
    assert transduce("train", recipe, "--run", run, "--resume", "--set", more).code == 0


def test_a_first_try_killed_at_once_is_no_obstacle(recipe: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / ".lock").touch()
    (run / "recipe.toml.tmp").write_text("task = ")
    assert transduce("train", recipe, "--run", run, "--set", "training.steps=20").code == 0


class TestSeed:
    def test_equal_seeds_are_equal_runs(self, data: Path, tmp_path: Path) -> None:
        dropout = ("model.encoder.dropout=0.2", "model.decoder.dropout=0.2")
        for name, seed in (("one", 5), ("two", 5), ("other", 6)):
            train_tiny(data, tmp_path / name, *dropout, f"seed={seed}")
            torch.rand(3)  # what is drawn elsewhere is of no influence
        one, two, other = (
            (tmp_path / name / "weights.safetensors").read_bytes()
            for name in ("one", "two", "other")
        )
        assert one == two != other
        losses = [
            [r["loss"] for r in records(tmp_path / n, "train")] for n in ("one", "two", "other")
        ]
        assert losses[0] == losses[1] != losses[2]

    def test_what_a_seed_changes(self, data: Path, tmp_path: Path) -> None:
        result = []
        for seed in (5, 5, 6):
            task = tiny_task(data, tmp_path / "task", f"seed={seed}", "model.encoder.dropout=0.5")
            weights = [p.detach().clone() for p in task.model.parameters()]
            batches = itertools.islice(task.batches.iterate(DataState()), 6)
            rows = [batch.rows.tolist() for batch, _ in batches]
            fixed = torch.ones(4, 8, 16)
            drawn = torch.nn.functional.dropout(fixed, 0.5)
            valid = [batch.source.values.tolist() for batch in task._valid.in_order()]
            held_out = sorted(tuple(row) for rows_of_batch in valid for row in rows_of_batch)
            result.append((weights, rows, drawn, held_out))
        same, again, other = result
        assert all(torch.equal(x, y) for x, y in zip(same[0], again[0], strict=True))
        assert same[1] == again[1] and torch.equal(same[2], again[2])
        # Biases begin at 0 and gains at 1, whatever the seed.
        drawn = [(x, y) for x, y in zip(same[0], other[0], strict=True) if x.std() > 0]
        assert drawn and not any(torch.equal(x, y) for x, y in drawn)
        assert same[1] != other[1] and not torch.equal(same[2], other[2])
        assert same[3] == other[3]

    def test_the_option(self, recipe: Path, tmp_path: Path) -> None:
        steps = ("--set", "training.steps=2", "training.validate_every=2")
        for name, how in (("a", ("--seed", "7", *steps)), ("b", (*steps, "seed=7"))):
            assert main(["train", str(recipe), "--run", str(tmp_path / name), *how]) == 0
        a, b = ((tmp_path / n / "weights.safetensors").read_bytes() for n in "ab")
        assert a == b and "seed = 7" in (tmp_path / "a" / "recipe.toml").read_text()
