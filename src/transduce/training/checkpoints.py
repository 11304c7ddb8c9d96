"""Checkpoints: everything that an exact resume needs, in a directory each; differences of a
resumed training.

checkpoints/step-00001000/
    model.safetensors  optimizer.safetensors  [ema.safetensors]
    random.safetensors      states of the random generators, of each rank
    progress.json           step, place in the data, best score, time used
    SHA256SUMS              checksums of all of these, as `sha256sum --check` reads them

In sharded training, the first three are directories (model/ and so on) with a part per rank.
Either kind can be resumed by any number of ranks, sharded or not.
"""

import dataclasses
import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from transduce.data.batches import DataState
from transduce.errors import RunError
from transduce.support.files import read_json
from transduce.training.distributed import (
    Ranks,
    assign,
    is_sharded,
    read_shards,
    shapes_of_shards,
    write_shards,
)
from transduce.training.weight_files import checkpoints_of, names_today
from transduce.training.weights import (
    MovingAverage,
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
    """Progress of training."""

    step: int = 0
    data: DataState = dataclasses.field(default_factory=lambda: DataState(0, 0))
    seconds: float = 0.0
    """Wall-clock time used so far, across resumptions."""
    minutes_used: float = 0.0
    """`training.minutes` if it ended training, else 0."""
    limits: list[float] = dataclasses.field(default_factory=list)
    """Steps and minutes of the budget, and three estimates, with `training.minutes` alone."""
    share: float = 0.0
    """Share of the budget used, which a schedule goes by."""
    expected_steps: int = 0
    """Steps of the whole training, as estimated last."""
    step_seconds: list[float] = dataclasses.field(default_factory=lambda: [0.0, 0.0])
    """Median and mean seconds of a step at the last validation."""
    best: float | None = None
    """Best validation score so far; the task defines the direction."""
    best_step: int = 0
    best_scores: dict[str, float] = dataclasses.field(default_factory=dict)
    """All validation scores of the best weights."""
    since_best: int = 0
    """Validations since the best."""
    select_by: str = ""
    """Score that selects the best weights; empty in older checkpoints."""
    target_tokens: int = 0
    """Predictions of all steps so far, for comparisons at equal data."""
    skipped: int = 0
    """Consecutive steps skipped up to this one because of non-finite gradients."""
    interrupted: bool = False
    """Written on a signal, not after a validation. Such a checkpoint serves only to resume and is
    replaced by the next, so that an interruption does not affect the results."""
    unlogged: dict[str, float] = dataclasses.field(default_factory=dict)
    """Sums since the last line of the log, if `interrupted`."""
    ranks: int = 1
    """Processes at the last step."""
    batches: int = 0
    """Batches per step over all ranks; 0 in older checkpoints."""
    data_checksum: str = ""
    """Checksum of the training data; empty in older checkpoints."""
    validation_checksum: str = ""
    """Checksum of the data and settings behind `select_by`; empty in older checkpoints."""
    validation_seconds: float = 0.0
    """Seconds of the last validation."""
    writing_seconds: float = 0.0
    """Longest time in seconds to write a checkpoint and the best weights."""


def checkpoint_path(run: Path, step: int) -> Path:
    """Path of the checkpoint of a step."""
    return run / "checkpoints" / f"step-{step:08d}"


def served_weights(checkpoint: Path) -> dict[str, Tensor]:
    """Weights of a checkpoint to serve, averaged if there are such; RunError if damaged."""
    averaged = (checkpoint / "ema").is_dir() or (checkpoint / "ema.safetensors").is_file()
    part = checkpoint / ("ema" if averaged else "model")
    check_sums(checkpoint, part.name)
    return _fill(
        part, lambda stored: {n: torch.empty_like(t, device="cpu") for n, t in stored.items()}
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

    Called on all ranks; the main process writes everything except the parts of others.  random: the
    `random_states` of all ranks.  Raises RunError if writing fails; older checkpoints are kept.

    run: directory.  progress: step and state of training.  model: with its weights.  optimizer:
    with its moments.  ema: moving average of the weights; None without.
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
            f"cannot write the checkpoint of step {progress.step:,}: {reason}; "
            f"{what_is_kept(run)}; free some disk space and continue with --resume"
        )
        raise ranks.error_on_main(lost) from None


def _write_whole(aside: Path, parts: Mapping[str, Mapping[str, Tensor]]) -> dict[str, str]:
    sums = {}
    for name, values in parts.items():
        file = aside / f"{name}.safetensors"
        write_tensors(file, values)
        sums[file.name] = sha256_of(file)
    return sums


def _write_shards(
    aside: Path, parts: Mapping[str, Mapping[str, Tensor]], ranks: Ranks
) -> dict[str, str]:
    ranks.barrier()  # for the first to make the directories
    checksums = {}
    for name, values in parts.items():
        for file in write_shards(aside / name, values):
            sort_header(file)
            flush(file)
            checksums[f"{name}/{file.name}"] = sha256_of(file)
        flush_directory(aside / name)
    return {
        name: digest for sums in ranks.gather_values(checksums) for name, digest in sums.items()
    }


def what_is_kept(run: Path) -> str:
    """Last checkpoint available, for messages."""
    checkpoints = checkpoints_of(run)
    if not checkpoints:
        return "there is no earlier checkpoint"
    return f"the last checkpoint is of step {int(checkpoints[-1].name[5:]):,}"


def check_sums(path: Path, part: str = "") -> None:
    """Raises RunError for the first missing or damaged file of a checkpoint, or of a part."""
    try:
        lines = (path / SUMS).read_text(encoding="ascii").splitlines()
        sums = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    except FileNotFoundError:
        raise RunError(f"{path / SUMS} is missing") from None
    except (OSError, ValueError):
        raise RunError(f"{path / SUMS} is damaged") from None
    names = {name for name in sums if part in ("", re.split(r"[/.]", name)[0])}
    if not part:
        names.add(PROGRESS)
    for name in sorted(names or {f"{part}.safetensors"}):
        try:
            whole = sha256_of(path / name) == sums.get(name)
        except OSError as error:
            raise RunError(f"{path / name} cannot be read: {error.strerror}") from None
        if not whole:
            raise RunError(f"{path / name} is damaged: its checksum differs from {SUMS}")


def is_read_together(path: Path, model: nn.Module) -> bool:
    """True if all ranks have to load the checkpoint together: checkpoint and model are sharded."""
    return (path / "model").is_dir() and is_sharded(weights_of(model))


def read_progress(path: Path) -> Progress:
    """Read the progress of a checkpoint. Raises RunError if that fails."""
    try:
        values = read_json(path / PROGRESS)
        known = {field.name for field in dataclasses.fields(Progress)}
        fields = {name: value for name, value in values.items() if name in known}
        return Progress(**{**fields, "data": DataState(**values["data"])})
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise RunError(f"{path}/{PROGRESS} cannot be read ({error})") from None


def load_checkpoint(
    path: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    ema: MovingAverage | None,
    checked: bool = False,
) -> Progress:
    """Restore a checkpoint whose checksums are verified unless `checked`; random generators start
    afresh if the number of ranks has changed.  Raises RunError for a damaged checkpoint, or another
    model's.

    path: of the checkpoint.  optimizer: receives its moments.  ema: moving average, if the run has
    one.
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
        raise RunError(f"{path / RANDOM} has no states of random generators") from None
    return progress


def best_scores_of(run: Path) -> dict[str, float]:
    """Validation scores of the best weights, from the newest readable checkpoint."""
    for path in reversed(checkpoints_of(run)):
        try:
            return {name: float(score) for name, score in read_progress(path).best_scores.items()}
        except (RunError, ValueError, TypeError, AttributeError):
            continue
    return {}


def prune_checkpoints(run: Path, keep: int, step: int) -> None:
    """Delete all but the newest `keep` checkpoints up to the current `step`, those of
    interruptions, and damaged checkpoints beyond `step`, whose steps are repeated."""
    regular = []
    for path in checkpoints_of(run):
        if _is_interrupted(path) or int(path.name[5:]) > step:
            _remove(path)
        else:
            regular.append(path)
    for path in regular[:-keep]:
        _remove(path)
    for path in (run / "checkpoints").glob(".step-*"):  # left by killed processes
        shutil.rmtree(path, ignore_errors=True)


def _remove(path: Path) -> None:
    """Delete a checkpoint; if killed meanwhile, the rest is no longer recognised."""
    if path.is_dir():
        away = path.with_name(f".{path.name}.old")
        shutil.rmtree(away, ignore_errors=True)
        path.replace(away)
        shutil.rmtree(away, ignore_errors=True)


def _is_interrupted(path: Path) -> bool:
    try:
        return read_progress(path).interrupted
    except RunError:
        return False


def _optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    state = optimizer.state_dict()["state"]
    # In an order unchanged by loading, as it decides which rank writes whole tensors.
    return {f"{i}.{name}": state[i][name] for i in sorted(state) for name in sorted(state[i])}


def _load_weights(part: Path, model_weights: dict[str, Tensor]) -> None:
    def checked(stored: Mapping[str, Tensor]) -> dict[str, Tensor]:
        check_weights(model_weights, stored, str(part.parent))
        return model_weights

    _fill(part, checked)


def _load_optimizer(optimizer: torch.optim.Optimizer, path: Path) -> None:
    parameters = [p for group in optimizer.param_groups for p in group["params"]]

    def room(stored: Mapping[str, Tensor]) -> dict[str, Tensor]:
        indices = {name: name.partition(".")[0] for name in stored}
        if stored and set(indices.values()) != {str(i) for i in range(len(parameters))}:
            raise RunError(f"{path}: the optimizer state is for another model; start a new run")
        rooms = {}
        for name, tensor in stored.items():
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
    """Read a part of a checkpoint into the tensors that `choose` makes of the stored tensors."""
    if part.is_dir():
        shapes = shapes_of_shards(part)
        names = names_today(shapes)
        tensors = choose({names[name]: shape for name, shape in shapes.items()})
        read_shards(part, {name: tensors[names[name]] for name in names})
        return tensors
    stored = read_tensors(part.with_name(part.name + ".safetensors"))
    tensors = choose(stored)
    for name, tensor in tensors.items():
        assign(tensor, stored[name])
    return tensors


def random_states() -> dict[str, Tensor]:
    """States of the random generators of all ranks; a collective call."""
    ranks = Ranks.present()
    if ranks.world == 1:
        return _own_random_states()
    states = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():  # of the one GPU that the rank has
        states["cuda"] = torch.cuda.get_rng_state()
    return {
        f"rank{rank}.{name}": state
        for name, part in states.items()
        for rank, state in enumerate(ranks.gather_values(part))
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


def taken_up(before: Progress, now: Progress) -> tuple[Progress, list[str]]:
    """Progress of a resumed training, from the checkpoint's and that of the present data, processes
    and validation, and a line for each difference.

    Scores of other validation data, settings or another `select_by` are not compared: the best is
    then unknown, and patience starts again.
    """
    lines = list(_differences(before, now))
    same_score = before.select_by in ("", now.select_by)
    best, since_best = before.best_scores.get(now.select_by), before.since_best
    if same_score and _differ(before.validation_checksum, now.validation_checksum):
        best = None
        lines.append(
            "validation data or settings have changed: earlier values of "
            f"{now.select_by} are not compared with new ones"
        )
    if not same_score or (before.best_scores and best is None):
        since_best = 0
    progress = dataclasses.replace(
        before,
        best=best,
        since_best=since_best,
        select_by=now.select_by,
        ranks=now.ranks,
        batches=now.batches,
        data_checksum=now.data_checksum,
        validation_checksum=now.validation_checksum,
    )
    return progress, lines


def _differences(before: Progress, now: Progress) -> Iterator[str]:
    if _differ(before.data_checksum, now.data_checksum):
        yield (
            "the training data have changed; training continues with the new data, at the same "
            "position of the epoch"
        )
    if before.ranks != now.ranks:
        yield (
            f"number of processes: {before.ranks} before, {now.ranks} now; random generators start "
            "afresh"
        )
    if before.batches not in (0, now.batches):
        yield (
            f"batches per step: {before.batches} before, {now.batches} now "
            "(training.accumulate times the number of processes)"
        )


def _differ(before: str, now: str) -> bool:
    """True if both are known and differ."""
    return "" not in (before, now) and before != now
