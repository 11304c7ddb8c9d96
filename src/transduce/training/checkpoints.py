"""Everything needed to go on as if nothing had happened, in one directory per checkpoint.

checkpoints/step-00001000/
    model.safetensors  optimizer.safetensors  [ema.safetensors]
    random.safetensors      states of the random generators, of each rank
    progress.json           step, place in the data, best score, time used
    SHA256SUMS              checksums of all of these, as `sha256sum --check` reads them
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
from collections.abc import Collection
from pathlib import Path

import torch
from torch import Tensor, nn

from transduce.data.batches import DataState
from transduce.errors import RunError
from transduce.training.averaging import MovingAverage
from transduce.training.distributed import Ranks
from transduce.training.weights import (
    flush_directory,
    load_weights,
    read_tensors,
    weights_of,
    write_tensors,
    write_text,
)

SUMS = "SHA256SUMS"


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
    skipped: int = 0
    """Steps up to this one, without a break, that were skipped as their gradient was not finite."""
    interrupted: bool = False
    """Written where a signal came, not after a validation.  Such a checkpoint is there to resume
    from and goes with the next one, so that an interruption leaves no trace in the results."""
    ranks: int = 1
    """Processes that made the last step."""


def checkpoint_path(run: Path, step: int) -> Path:
    """Where the checkpoint of a step lies."""
    return run / "checkpoints" / f"step-{step:08d}"


def checkpoints_of(run: Path) -> list[Path]:
    """Complete checkpoints of a run, oldest first."""
    found = (run / "checkpoints").glob("step-*")
    named = (path for path in found if path.name[5:].isdecimal())
    return sorted(path for path in named if (path / "progress.json").is_file())


def served_weights(checkpoint: Path) -> Path:
    """The file with the weights that this checkpoint would serve: the average if there is one.

    Raises RunError where it is damaged.
    """
    averaged = checkpoint / "ema.safetensors"
    file = averaged if averaged.is_file() else checkpoint / "model.safetensors"
    check_sums(checkpoint, [file.name])
    return file


def save_checkpoint(
    run: Path,
    progress: Progress,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    ema: MovingAverage | None,
    random: dict[str, Tensor] | None = None,
) -> None:
    """Write a checkpoint aside and rename it into place: it is complete or absent.

    random: the `random_states` of all ranks; by default those of this process, which is alone.
    Raises RunError when it cannot be written; older checkpoints are left as they are.
    """
    final = checkpoint_path(run, progress.step)
    aside = final.with_name("." + final.name)
    tensors = {
        "model.safetensors": weights_of(model),
        "optimizer.safetensors": _optimizer_tensors(optimizer),
        **({} if ema is None else {"ema.safetensors": ema.weights}),
        "random.safetensors": _own_random_states() if random is None else random,
    }
    try:
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        for name, values in tensors.items():
            write_tensors(aside / name, values)
        written = json.dumps(dataclasses.asdict(progress), indent=1) + "\n"
        write_text(aside / "progress.json", written)
        sums = [f"{_sha256(aside / name)}  {name}\n" for name in (*tensors, "progress.json")]
        write_text(aside / SUMS, "".join(sums))
        flush_directory(aside)
        _remove(final)
        aside.replace(final)
        flush_directory(final.parent)
    except (RunError, OSError) as error:
        shutil.rmtree(aside, ignore_errors=True)  # or it would fill the disk further
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise RunError(
            f"the checkpoint of step {progress.step:,} was not kept: {reason}; "
            f"{what_is_kept(run)}; make room and go on with --resume"
        ) from None


def what_is_kept(run: Path) -> str:
    """Which checkpoint there is to go back to, for messages."""
    kept = checkpoints_of(run)
    if not kept:
        return "no checkpoint yet"
    return f"the checkpoint of step {int(kept[-1].name[5:]):,} is kept"


def check_sums(path: Path, names: Collection[str] = ()) -> None:
    """Compare the files of a checkpoint, or some of them, with their checksums.

    Raises RunError for the first that is missing or damaged.
    """
    try:
        lines = (path / SUMS).read_text(encoding="ascii").splitlines()
        sums = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    except FileNotFoundError:  # from before there were checksums
        return
    except (OSError, ValueError):
        raise RunError(f"{path / SUMS} is damaged") from None
    for name in names or sorted({*sums, "model.safetensors", "progress.json"}):
        try:
            whole = _sha256(path / name) == sums.get(name)
        except OSError as error:
            raise RunError(f"{path / name} cannot be read: {error.strerror}") from None
        if not whole:
            raise RunError(f"{path / name} is damaged: its checksum is not the one in {SUMS}")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def load_checkpoint(
    path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, ema: MovingAverage | None
) -> Progress:
    """Put everything back as it was when the checkpoint was written.

    Random numbers begin afresh where it was written by another number of ranks.
    Raises RunError for a checkpoint that is damaged, or of something else.
    """
    check_sums(path)
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
        _load_random_states(read_tensors(path / "random.safetensors"), progress)
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


def prune_checkpoints(run: Path, keep: int, step: int) -> None:
    """Delete all but the newest `keep` checkpoints up to `step`, where the run stands.

    Those that interruptions left go as well, and those beyond `step`: they were damaged, and
    their steps are being made again.
    """
    regular = []
    for path in checkpoints_of(run):
        if _is_interrupted(path) or int(path.name[5:]) > step:
            _remove(path)
        else:
            regular.append(path)
    for path in regular[:-keep]:
        _remove(path)
    for path in (run / "checkpoints").glob(".step-*"):  # what was killed while at work
        shutil.rmtree(path, ignore_errors=True)


def _remove(path: Path) -> None:
    """Delete a checkpoint; killed in between, it is no longer seen as one."""
    if path.is_dir():
        away = path.with_name(f".{path.name}.old")
        shutil.rmtree(away, ignore_errors=True)
        path.replace(away)
        shutil.rmtree(away, ignore_errors=True)


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


def random_states() -> dict[str, Tensor]:
    """States of the random generators of all ranks, which they ask for together."""
    ranks = Ranks.present()
    if ranks.world == 1:
        return _own_random_states()
    own = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():  # of the one GPU that the rank has
        own["cuda"] = torch.cuda.get_rng_state()
    return {
        f"rank{rank}.{name}": state
        for name, part in own.items()
        for rank, state in enumerate(ranks.gather_bytes(part))
    }


def _own_random_states() -> dict[str, Tensor]:
    states = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        states |= {f"cuda.{i}": s for i, s in enumerate(torch.cuda.get_rng_state_all())}
    return states


def _load_random_states(states: dict[str, Tensor], progress: Progress) -> None:
    ranks = Ranks.present()
    if progress.ranks != ranks.world:
        ranks.own_random_numbers(progress.step)
        return
    if ranks.world > 1:
        torch.set_rng_state(states[f"rank{ranks.rank}.cpu"])
        if torch.cuda.is_available() and f"rank{ranks.rank}.cuda" in states:
            torch.cuda.set_rng_state(states[f"rank{ranks.rank}.cuda"])
        return
    torch.set_rng_state(states["cpu"])
    if torch.cuda.is_available():
        for i in range(torch.cuda.device_count()):
            if f"cuda.{i}" in states:
                torch.cuda.set_rng_state(states[f"cuda.{i}"], i)
