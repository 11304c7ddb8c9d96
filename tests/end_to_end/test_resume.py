"""An interrupted and resumed run ends with the very weights of one that was left alone."""

import random
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import transduce
from helpers.tiny_run import (
    interrupt_at,
    records,
    reversal_pairs,
    steps_of,
    tiny_settings,
    tiny_task,
    train_tiny,
    write_tsv,
)
from transduce.training.checkpoints import checkpoint_path, served_weights
from transduce.training.signals import InterruptedTraining
from transduce.training.step import OptimizerStep
from transduce.training.weight_files import checkpoints_of
from transduce.training.weights import read_tensors

KINDS = ("train", "validation")
STEPS = 16
# 8 batches an epoch, so that 16 steps go through several epochs
BASE = (
    f"training.steps={STEPS}",
    "training.validate_every=6",
    "training.batch_tokens=64",
    "model.encoder.dropout=0.2",
    "model.decoder.dropout=0.2",
    "model.decoder.attention_dropout=0.1",
    "data.hold_out=0.2",
)
SCHEDULES = {
    kind: (f"training.schedule={{kind='{kind}', warmup_steps=5, {size}}}",)
    for kind, size in [
        ("noam", "factor=0.5"),
        ("inverse-sqrt", "peak=3e-3"),
        ("cosine", "peak=3e-3"),
        ("constant", "peak=3e-3"),
    ]
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tsv(tmp_path_factory.mktemp("data") / "a.tsv", reversal_pairs(60))


def train_interrupted(data: Path, run: Path, overrides: Sequence[str], steps: list[int]) -> None:
    """Train with a SIGTERM at each of `steps`, resuming after each."""
    for i, step in enumerate(steps):
        with pytest.MonkeyPatch.context() as patch:
            interrupt_at(step, patch)
            with pytest.raises(InterruptedTraining) as caught:
                train_tiny(data, run, *overrides, resume=i > 0)
        assert caught.value.number == signal.SIGTERM
        assert f"after step {step}" in str(caught.value)
    train_tiny(data, run, *overrides, resume=True)


def losses(run: Path, kind: str) -> list[tuple[int, float]]:
    return [(record["step"], record["loss"]) for record in records(run, kind)]


def assert_alike(run: Path, whole: Path) -> None:
    name = "weights.safetensors"
    assert (run / name).read_bytes() == (whole / name).read_bytes()
    assert [p.name for p in checkpoints_of(run)] == [p.name for p in checkpoints_of(whole)]
    last = checkpoints_of(run)[-1].name
    for part in ("model", "optimizer", "random"):
        file = Path("checkpoints") / last / f"{part}.safetensors"
        assert (run / file).read_bytes() == (whole / file).read_bytes()
    for kind in KINDS:
        assert losses(run, kind) == losses(whole, kind)


@pytest.mark.parametrize(
    ("settings", "steps"),
    [
        pytest.param(SCHEDULES["noam"], [4], id="noam, within an epoch"),
        pytest.param(SCHEDULES["inverse-sqrt"], [8], id="inverse-sqrt, in a later epoch"),
        pytest.param(SCHEDULES["cosine"], [6], id="cosine, at a validation"),
        pytest.param(SCHEDULES["constant"], [15], id="constant, right before the end"),
        pytest.param((), [1, 5, 7, 13], id="many times"),
        pytest.param(("training.ema=0.8",), [5, 11], id="moving average"),
        pytest.param(("training.accumulate=3",), [5], id="accumulation"),
        pytest.param(("training.optimizer.kind=muon",), [5, 11], id="muon"),
        pytest.param(("training.average_last=2",), [7, 14], id="average of checkpoints"),
        pytest.param(("training.average_last=2", "training.ema=0.8"), [9], id="both averages"),
        pytest.param(
            ("training.clip_norm=0.1", "training.optimizer.weight_decay=0.1"), [5], id="clip"
        ),
        pytest.param(
            ("training.select_by=per", "training.keep_last=1"), [9], id="best by decoding"
        ),
        pytest.param(("training.precision=bf16",), [5], id="bf16"),
        pytest.param(
            ("model.encoder.positions=rotary", "decoding.method=sample"), [9], id="sampling"
        ),
        pytest.param(
            ("text.source={kind='bpe', size=300}", "text.source_sampling=0.3"),
            [3, 11],
            id="sampled segmentations",
        ),
        pytest.param(("training.r_drop=5",), [7], id="two passes"),
        pytest.param(("training.patience=1", "training.schedule.peak=0.5"), [7], id="patience"),
    ],
)
def test_exact(data: Path, tmp_path: Path, settings: tuple[str, ...], steps: list[int]) -> None:
    whole, run = tmp_path / "whole", tmp_path / "run"
    train_tiny(data, whole, *BASE, *settings)
    train_interrupted(data, run, [*BASE, *settings], steps)
    assert_alike(run, whole)


def test_a_line_of_the_log_for_several_steps(data: Path, tmp_path: Path) -> None:
    settings = (*BASE, "training.log_every=4", "training.validate_every=16")
    train_tiny(data, tmp_path / "whole", *settings)
    step = OptimizerStep.__call__

    def interrupted(self: OptimizerStep, number: int, *rest: Any) -> float:
        if number == 6:
            signal.raise_signal(signal.SIGTERM)
        return step(self, number, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OptimizerStep, "__call__", interrupted)
        with pytest.raises(InterruptedTraining, match="after step 6"):
            train_tiny(data, tmp_path / "run", *settings)
    train_tiny(data, tmp_path / "run", *settings, resume=True)
    assert [step for step, _ in losses(tmp_path / "run", "train")] == [4, 8, 12, 16]
    assert_alike(tmp_path / "run", tmp_path / "whole")


def test_a_longer_budget_goes_on_alike(data: Path, tmp_path: Path) -> None:
    whole, run = tmp_path / "whole", tmp_path / "run"
    train_tiny(data, whole, *BASE, "training.steps=18")
    train_tiny(data, run, *BASE, "training.steps=12")
    train_tiny(data, run, *BASE, "training.steps=18", resume=True)
    assert_alike(run, whole)


def test_a_smaller_budget_ends_where_it_stands(data: Path, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        interrupt_at(4, patch)
        with pytest.raises(InterruptedTraining):
            train_tiny(data, tmp_path / "run", *BASE)
    outcome = train_tiny(data, tmp_path / "run", *BASE, "training.steps=2", resume=True)[1]
    assert (outcome.step, outcome.best_step) == (4, 4)
    assert (tmp_path / "run" / "weights.safetensors").exists()


def test_an_older_checkpoint_has_best_weights_of_its_own(data: Path, tmp_path: Path) -> None:
    """Those that the run kept since are of a step that it knows no more."""
    _, outcome = train_tiny(data, tmp_path, "training.keep_last=3")
    assert steps_of(tmp_path) == [6, 12] and outcome.best_step == 12
    shutil.rmtree(checkpoint_path(tmp_path, 12))
    _, outcome = train_tiny(data, tmp_path, "training.keep_last=3", "training.steps=6", resume=True)
    assert outcome.best_step == 6
    kept = read_tensors(tmp_path / "weights.safetensors")
    older = served_weights(checkpoint_path(tmp_path, 6))
    assert all(torch.equal(kept[name], older[name]) for name in older)


def test_tensorboard_is_told_of_each_step_once(data: Path, tmp_path: Path) -> None:
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")

    def told() -> dict[str, list[int]]:
        result = events.EventAccumulator(str(tmp_path / "run")).Reload()
        return {kind: [one.step for one in result.Scalars(f"{kind}/loss")] for kind in KINDS}

    overrides = ("training.tensorboard=true", "training.keep_last=3")
    train_tiny(data, tmp_path / "run", *overrides)
    shutil.rmtree(checkpoint_path(tmp_path / "run", 12))
    train_tiny(data, tmp_path / "run", *overrides, resume=True)
    assert told() == {"train": list(range(1, 13)), "validation": [6, 12]}
    settings = tiny_settings(data, *overrides, "training.steps=6")
    transduce.train(settings, tmp_path / "run", overwrite=True)
    assert told() == {"train": list(range(1, 7)), "validation": [6]}


def test_looking_on_does_not_disturb(data: Path, tmp_path: Path) -> None:
    quiet, chatty = tmp_path / "quiet", tmp_path / "chatty"
    train_tiny(data, quiet, *BASE, "training.validate_every=100", "training.log_every=100")
    train_tiny(
        data, chatty, *BASE, "training.validate_every=1", "evaluation.validation_beam_size=3"
    )
    for name in ("model", "optimizer", "random"):
        file = f"{name}.safetensors"
        a, b = (checkpoint_path(run, STEPS) / file for run in (quiet, chatty))
        assert a.read_bytes() == b.read_bytes()


@pytest.mark.parametrize("method", ["beam", "sample"])
def test_validation_draws_no_random_numbers(data: Path, tmp_path: Path, method: str) -> None:
    task = tiny_task(data, tmp_path, *BASE, f"decoding.method={method}")
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()
    task.model.eval()
    first = task.validate()
    after = torch.get_rng_state(), random.getstate(), np.random.get_state()
    assert torch.equal(before[0], after[0]) and before[1] == after[1]
    assert (before[2][1] == after[2][1]).all() and before[2][2:] == after[2][2:]
    assert task.validate() == first
    assert "per" in first
