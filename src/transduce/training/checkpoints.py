"""Everything needed to go on as if nothing had happened, in one directory per checkpoint.

checkpoints/step-00001000/
    model.safetensors  optimizer.safetensors  [ema.safetensors]
    random.safetensors      states of the random generators
    progress.json           step, place in the data, best score, time used
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from pathlib import Path

import torch
from torch import Tensor, nn

from transduce.data.batches import DataState
from transduce.errors import RunError
from transduce.training.averaging import MovingAverage
from transduce.training.weights import (
    load_weights,
    read_tensors,
    weights_of,
    write_tensors,
    write_text,
)


@dataclasses.dataclass
class Progress:
    """Where training stands."""

    step: int = 0
    data: DataState = dataclasses.field(default_factory=lambda: DataState(0, 0))
    seconds: float = 0.0
    """Wall-clock time used so far, over all sittings."""
    best: float | None = None
    """Best validation score so far; smaller or larger is better as the task says."""
    best_step: int = 0
    best_scores: dict[str, float] = dataclasses.field(default_factory=dict)
    """All validation scores of the best weights."""
    since_best: int = 0
    """Validations since the best one."""
    target_tokens: int = 0
    interrupted: bool = False
    """Written where a signal came, not after a validation.  Such a checkpoint is there to resume
    from and goes with the next one, so that an interruption leaves no trace in the results."""


def checkpoint_path(run: Path, step: int) -> Path:
    """Where the checkpoint of a step lies."""
    return run / "checkpoints" / f"step-{step:08d}"


def checkpoints_of(run: Path) -> list[Path]:
    """Complete checkpoints of a run, oldest first."""
    found = (run / "checkpoints").glob("step-*")
    return sorted(path for path in found if (path / "progress.json").is_file())


def served_weights(checkpoint: Path) -> Path:
    """The file with the weights that this checkpoint would serve: the average if there is one."""
    averaged = checkpoint / "ema.safetensors"
    return averaged if averaged.is_file() else checkpoint / "model.safetensors"


def save_checkpoint(
    run: Path,
    progress: Progress,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    ema: MovingAverage | None,
) -> None:
    """Write a checkpoint aside and rename it into place: it is complete or absent."""
    final = checkpoint_path(run, progress.step)
    aside = final.with_name("." + final.name)
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    write_tensors(aside / "model.safetensors", weights_of(model))
    write_tensors(aside / "optimizer.safetensors", _optimizer_tensors(optimizer))
    if ema is not None:
        write_tensors(aside / "ema.safetensors", ema.weights)
    write_tensors(aside / "random.safetensors", _random_states())
    write_text(aside / "progress.json", json.dumps(dataclasses.asdict(progress), indent=1) + "\n")
    shutil.rmtree(final, ignore_errors=True)
    aside.replace(final)
    if os.name == "posix":
        directory = os.open(final.parent, os.O_RDONLY)
        os.fsync(directory)
        os.close(directory)


def load_checkpoint(
    path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, ema: MovingAverage | None
) -> Progress:
    """Put everything back as it was when the checkpoint was written."""
    try:
        values = json.loads((path / "progress.json").read_text(encoding="utf-8"))
        progress = Progress(**{**values, "data": DataState(**values["data"])})
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise RunError(f"{path}/progress.json cannot be read ({error})") from None
    load_weights(model, read_tensors(path / "model.safetensors"), str(path))
    _load_optimizer(optimizer, read_tensors(path / "optimizer.safetensors"), path)
    if ema is not None:
        averages = read_tensors(path / "ema.safetensors")
        ema.load(averages, str(path / "ema.safetensors"))
    try:
        _load_random_states(read_tensors(path / "random.safetensors"))
    except (KeyError, TypeError, RuntimeError):
        raise RunError(f"{path}/random.safetensors holds no states of random generators") from None
    return progress


def best_scores_of(run: Path) -> dict[str, float]:
    """Validation scores of the best weights, as the newest readable checkpoint tells them."""
    for path in reversed(checkpoints_of(run)):
        try:
            scores = json.loads((path / "progress.json").read_text(encoding="utf-8"))["best_scores"]
            return {str(name): float(value) for name, value in scores.items()}
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            continue
    return {}


def prune_checkpoints(run: Path, keep: int) -> None:
    """Delete all but the newest `keep` checkpoints, and those that interruptions left."""
    regular = []
    for path in checkpoints_of(run):
        if _is_interrupted(path):
            shutil.rmtree(path, ignore_errors=True)
        else:
            regular.append(path)
    killed_while_writing = (run / "checkpoints").glob(".step-*")
    for path in [*regular[:-keep], *killed_while_writing]:
        shutil.rmtree(path, ignore_errors=True)


def _is_interrupted(path: Path) -> bool:
    try:
        return bool(json.loads((path / "progress.json").read_bytes())["interrupted"])
    except (OSError, ValueError, TypeError, KeyError):
        return False


def _optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    state = optimizer.state_dict()["state"]
    return {f"{i}.{name}": value for i, entry in state.items() for name, value in entry.items()}


def _load_optimizer(
    optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor], path: Path
) -> None:
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        index, _, key = name.partition(".")
        state.setdefault(int(index) if index.isdecimal() else -1, {})[key] = tensor
    whole = optimizer.state_dict()
    n_parameters = sum(len(group["params"]) for group in whole["param_groups"])
    if state and set(state) != set(range(n_parameters)):
        raise RunError(f"{path}: the optimizer's state is of another model; start a new run")
    optimizer.load_state_dict({**whole, "state": state})


def _random_states() -> dict[str, Tensor]:
    states = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        states |= {f"cuda.{i}": s for i, s in enumerate(torch.cuda.get_rng_state_all())}
    return states


def _load_random_states(states: dict[str, Tensor]) -> None:
    torch.set_rng_state(states["cpu"])
    if torch.cuda.is_available():
        for i in range(torch.cuda.device_count()):
            if f"cuda.{i}" in states:
                torch.cuda.set_rng_state(states[f"cuda.{i}"], i)
