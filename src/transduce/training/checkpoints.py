"""Checkpoints: everything that an exact resume needs, in one directory each.

checkpoints/step-00001000/
    model.safetensors  optimizer.safetensors  [ema.safetensors]
    random.safetensors      states of the random generators, of each rank
    progress.json           step, place in the data, best score, time used
    SHA256SUMS              checksums of all of these, as `sha256sum --check` reads them

Where training is sharded, the first three are directories, model/ and so on, in which each rank
has written its part.  Either kind can be resumed from by any number of ranks, sharded or not.
"""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from transduce.data.batches import DataState
from transduce.errors import RunError
from transduce.limits import read_json
from transduce.training.averaging import MovingAverage
from transduce.training.distributed import Ranks
from transduce.training.sharding import (
    assign,
    is_sharded,
    read_shards,
    shapes_of_shards,
    write_shards,
)
from transduce.training.weight_names import names_today
from transduce.training.weights import (
    check_weights,
    flush,
    flush_directory,
    read_tensors,
    sha256_of,
    sort_header,
    weights_of,
    write_tensors,
    write_text,
)

SUMS = "SHA256SUMS"
RANDOM = "random.safetensors"
PROGRESS = "progress.json"


@dataclasses.dataclass
class Progress:
    """Where training stands."""

    step: int = 0
    data: DataState = dataclasses.field(default_factory=lambda: DataState(0, 0))
    seconds: float = 0.0
    """Wall-clock time used so far, over all sittings."""
    minutes_used: float = 0.0
    """`training.minutes` where training has ended by it; else 0."""
    best: float | None = None
    """Best validation score so far; smaller or larger is better as the task says."""
    best_step: int = 0
    best_scores: dict[str, float] = dataclasses.field(default_factory=dict)
    """All validation scores of the best weights."""
    since_best: int = 0
    """Validations since the best one."""
    select_by: str = ""
    """What decided which is best; empty where it was not noted yet."""
    skipped: int = 0
    """Steps up to this one, without a break, that were skipped as their gradient was not finite."""
    interrupted: bool = False
    """Written where a signal came, not after a validation.  Such a checkpoint is there to resume
    from and goes with the next one, so that an interruption leaves no trace in the results."""
    unlogged: dict[str, float] = dataclasses.field(default_factory=dict)
    """What was added up since the last line of the log, where `interrupted`."""
    ranks: int = 1
    """Processes that made the last step."""
    batches: int = 0
    """Batches of a step, of all ranks together; 0 where it was not noted yet."""
    data_checksum: str = ""
    """Checksum of the training data; empty in older checkpoints."""
    validation_checksum: str = ""
    """Checksum of what `select_by` is measured on and by; empty in older checkpoints."""
    validation_seconds: float = 0.0
    """Seconds of the last validation."""
    writing_seconds: float = 0.0
    """Most seconds that a checkpoint and the best weights took."""


def checkpoint_path(run: Path, step: int) -> Path:
    """Where the checkpoint of a step lies."""
    return run / "checkpoints" / f"step-{step:08d}"


def checkpoints_of(run: Path) -> list[Path]:
    """The checkpoints of a run, oldest first; they are renamed into place when they are whole."""
    found = (run / "checkpoints").glob("step-*")
    return sorted(path for path in found if path.name[5:].isdecimal() and path.is_dir())


def served_weights(checkpoint: Path) -> dict[str, Tensor]:
    """The weights that this checkpoint would serve: the average if there is one.

    Raises RunError where they are damaged.
    """
    averaged = (checkpoint / "ema").is_dir() or (checkpoint / "ema.safetensors").is_file()
    part = checkpoint / ("ema" if averaged else "model")
    check_sums(checkpoint, part.name)
    return _fill(
        part, lambda found: {n: torch.empty_like(t, device="cpu") for n, t in found.items()}
    )


def save_checkpoint(
    run: Path,
    progress: Progress,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    ema: MovingAverage | None,
    random: dict[str, Tensor] | None = None,
) -> None:
    """Write a checkpoint aside and rename it into place: it is complete or absent.

    All ranks ask for it; the first one writes all but the parts of others.
    random: the `random_states` of all ranks; by default those of this process, which is alone.
    Raises RunError when it cannot be written; older checkpoints are left as they are.
    """
    ranks = Ranks.present()
    final = checkpoint_path(run, progress.step)
    aside = final.with_name("." + final.name)
    parts = {
        "model": weights_of(model),
        "optimizer": _optimizer_tensors(optimizer),
        **({} if ema is None else {"ema": ema.weights}),
    }
    sharded = is_sharded(parts["model"])
    if not (ranks.is_main or sharded):
        return
    try:
        if ranks.is_main:
            shutil.rmtree(aside, ignore_errors=True)
            for name in parts if sharded else [""]:
                (aside / name).mkdir(parents=True)
        sums = _write_shards(aside, parts, ranks) if sharded else _write_whole(aside, parts)
        if not ranks.is_main:
            return
        write_tensors(aside / RANDOM, _own_random_states() if random is None else random)
        written = json.dumps(dataclasses.asdict(progress), indent=1) + "\n"
        write_text(aside / PROGRESS, written)
        sums |= {name: sha256_of(aside / name) for name in (RANDOM, PROGRESS)}
        write_text(aside / SUMS, "".join(f"{digest}  {name}\n" for name, digest in sums.items()))
        flush_directory(aside)
        _remove(final)
        aside.replace(final)
        flush_directory(final.parent)
    except (RunError, OSError) as error:
        shutil.rmtree(aside, ignore_errors=True)  # or it would fill the disk further
        reason = error.strerror if isinstance(error, OSError) else str(error)
        lost = RunError(
            f"the checkpoint of step {progress.step:,} was not kept: {reason}; "
            f"{what_is_kept(run)}; make room and go on with --resume"
        )
        raise ranks.error_on_main(lost) from None


def _write_whole(aside: Path, parts: Mapping[str, Mapping[str, Tensor]]) -> dict[str, str]:
    """Write each part into a file; returns their checksums."""
    sums = {}
    for name, values in parts.items():
        file = aside / f"{name}.safetensors"
        write_tensors(file, values)
        sums[file.name] = sha256_of(file)
    return sums


def _write_shards(
    aside: Path, parts: Mapping[str, Mapping[str, Tensor]], ranks: Ranks
) -> dict[str, str]:
    """Write each part into a directory, all ranks together; returns the checksums of all files."""
    ranks.barrier()  # for the first to make the directories
    own = {}
    for name, values in parts.items():
        for file in write_shards(aside / name, values):
            sort_header(file)
            flush(file)
            own[f"{name}/{file.name}"] = sha256_of(file)
        flush_directory(aside / name)
    return {name: digest for sums in ranks.gather_values(own) for name, digest in sums.items()}


def what_is_kept(run: Path) -> str:
    """Which checkpoint there is to go back to, for messages."""
    kept = checkpoints_of(run)
    if not kept:
        return "no checkpoint yet"
    return f"the checkpoint of step {int(kept[-1].name[5:]):,} is kept"


def check_sums(path: Path, part: str = "") -> None:
    """Compare the files of a checkpoint, or those of one part of it, with their checksums.

    Raises RunError for the first that is missing or damaged.
    """
    try:
        lines = (path / SUMS).read_text(encoding="ascii").splitlines()
        sums = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    except FileNotFoundError:
        raise RunError(f"{path / SUMS} is missing") from None
    except (OSError, ValueError):
        raise RunError(f"{path / SUMS} is damaged") from None
    found = {name for name in sums if part in ("", re.split(r"[/.]", name)[0])}
    if not part:
        found.add(PROGRESS)
    for name in sorted(found or {f"{part}.safetensors"}):
        try:
            whole = sha256_of(path / name) == sums.get(name)
        except OSError as error:
            raise RunError(f"{path / name} cannot be read: {error.strerror}") from None
        if not whole:
            raise RunError(f"{path / name} is damaged: its checksum is not the one in {SUMS}")


def is_read_together(path: Path, model: nn.Module) -> bool:
    """Whether all ranks have to load a checkpoint at once: it is sharded, and so is the model."""
    return (path / "model").is_dir() and is_sharded(weights_of(model))


def read_progress(path: Path) -> Progress:
    """Where training stood at a checkpoint.  Raises RunError where that cannot be read."""
    try:
        values = read_json(path / PROGRESS)
        known = {field.name for field in dataclasses.fields(Progress)}
        found = {name: value for name, value in values.items() if name in known}
        return Progress(**{**found, "data": DataState(**values["data"])})
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise RunError(f"{path}/{PROGRESS} cannot be read ({error})") from None


def load_checkpoint(
    path: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    ema: MovingAverage | None,
    checked: bool = False,
) -> Progress:
    """Put everything back as it was when the checkpoint was written.

    Random numbers begin afresh where it was written by another number of ranks.
    checked: its checksums are known to be right.
    Raises RunError for a checkpoint that is damaged, or of something else.
    """
    if not checked:
        check_sums(path)
    progress = read_progress(path)
    _load_weights(path / "model", weights_of(model))
    _load_optimizer(optimizer, path)
    if ema is not None:
        _load_weights(path / "ema", ema.weights)
    try:
        _load_random_states(read_tensors(path / RANDOM), progress)
    except (KeyError, TypeError, RuntimeError):
        raise RunError(f"{path / RANDOM} holds no states of random generators") from None
    return progress


def best_scores_of(run: Path) -> dict[str, float]:
    """Validation scores of the best weights, as the newest readable checkpoint tells them."""
    for path in reversed(checkpoints_of(run)):
        try:
            scores = read_json(path / PROGRESS)["best_scores"]
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
        return bool(read_json(path / PROGRESS)["interrupted"])
    except (OSError, ValueError, TypeError, KeyError):
        return False


def _optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    state = optimizer.state_dict()["state"]
    # In an order that loading does not change, for it decides which rank writes what is whole.
    return {f"{i}.{name}": state[i][name] for i in sorted(state) for name in sorted(state[i])}


def _load_weights(part: Path, own: dict[str, Tensor]) -> None:
    def checked(found: Mapping[str, Tensor]) -> dict[str, Tensor]:
        check_weights(own, found, str(part.parent))
        return own

    _fill(part, checked)


def _load_optimizer(optimizer: torch.optim.Optimizer, path: Path) -> None:
    parameters = [p for group in optimizer.param_groups for p in group["params"]]

    def room(found: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Sharded as the parameters are."""
        indices = {name: name.partition(".")[0] for name in found}
        if found and set(indices.values()) != {str(i) for i in range(len(parameters))}:
            raise RunError(f"{path}: the optimizer's state is of another model; start a new run")
        rooms = {}
        for name, tensor in found.items():
            parameter = parameters[int(indices[name])]
            alike = parameter.shape == tensor.shape  # else it is a count of steps
            rooms[name] = torch.zeros_like(parameter if alike else tensor, device=parameter.device)
        return rooms

    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in _fill(path / "optimizer", room).items():
        index, _, key = name.partition(".")
        state.setdefault(int(index), {})[key] = tensor
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})


def _fill(
    part: Path, choose: Callable[[Mapping[str, Tensor]], dict[str, Tensor]]
) -> dict[str, Tensor]:
    """Read a part of a checkpoint, be it sharded or in one file, into tensors.

    choose: given what there is, which may be without values, the tensors to fill.
    """
    if part.is_dir():
        shapes = shapes_of_shards(part)
        names = names_today(shapes)
        tensors = choose({names[name]: shape for name, shape in shapes.items()})
        read_shards(part, {name: tensors[names[name]] for name in names})
        return tensors
    found = read_tensors(part.with_name(part.name + ".safetensors"))
    tensors = choose(found)
    for name, tensor in tensors.items():
        assign(tensor, found[name])
    return tensors


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
        ranks.seed_rank(progress.step)
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
