"""Settings of recipes that tasks share: presets, base runs, relations.  Imports no torch."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from transduce.decoding.options import DecodingOptions, OutputKind, without_meaning
from transduce.errors import RunError, SettingError
from transduce.nn.stack_configs import StackConfig
from transduce.nn.transformer_config import TransformerConfig
from transduce.settings.mistakes import did_you_mean
from transduce.settings.paths import LiteralText, absolute_path, literal
from transduce.settings.sections import load_toml, merge, to_dict
from transduce.tasks.run_files import check_files
from transduce.training.config import RDropTrainingConfig, TrainingConfig
from transduce.training.weights_header import read_header


def check_decoding(options: DecodingOptions, kind: OutputKind = "continuation") -> None:
    """Raises SettingError for a decoding setting without effect in this task."""
    plain = DecodingOptions()
    for name, outputs in without_meaning(kind).items():
        if getattr(options, name) != getattr(plain, name):
            raise SettingError(f"decoding.{name} applies only to {outputs}; remove it")


def check_not_decoding(call_options: DecodingOptions | None, defaults: DecodingOptions) -> None:
    """Raises SettingError for decoding options if only probabilities are measured."""
    if call_options is not None and call_options != dataclasses.replace(
        defaults, n_best=call_options.n_best
    ):
        raise SettingError("this evaluation does not decode; remove the decoding options")


def check_model_size(settings: Any, run: Path) -> None:
    """Raises RunError if the model of a recipe is far larger than the run's weights file.

    settings: the recipe's `model`.  Limits the time to build a model, which is long even without
    allocating memory.
    """
    file = run / "weights.safetensors"
    shapes = read_header(file).shapes
    most = {"n_layers": len(shapes), "d_model": sum(map(math.prod, shapes.values()))}
    for name, value in _numbers(settings, "model"):
        limit = most.get(name.rpartition(".")[2])
        if limit is not None and value > limit:
            raise RunError(
                f"{run}: the recipe sets {name} = {value}, but {file.name} has a smaller model"
            )


def _numbers(settings: Any, name: str) -> Iterator[tuple[str, float]]:
    if isinstance(settings, Mapping):
        for key, value in settings.items():
            yield from _numbers(value, f"{name}.{key}")
    elif isinstance(settings, int | float):
        yield name, settings


def check_selection(chosen: str, measured: Sequence[str]) -> None:
    """Raises SettingError if `training.select_by` is not a score measured in validation."""
    if chosen not in measured:
        known = ", ".join(map(repr, measured))
        raise SettingError(f"training.select_by = {chosen!r}, but validation measures {known}")


def check_r_drop(training: RDropTrainingConfig, *networks: Any) -> None:
    """Raises SettingError for R-Drop without dropout: its two passes would be equal."""
    if not training.r_drop:
        return
    shares = [pair for network in networks for pair in _numbers(to_dict(network), "")]
    if not any(share for name, share in shares if name.endswith("dropout")):
        raise SettingError(
            "training.r_drop needs dropout, but all dropout is 0; raise it, or remove "
            "training.r_drop"
        )


def check_recompute(training: TrainingConfig, *stacks: StackConfig) -> None:
    """Raises SettingError for gradient checkpointing without Transformer layers."""
    if training.recompute and not any(isinstance(stack, TransformerConfig) for stack in stacks):
        raise SettingError("training.recompute: this model has no Transformer layers; remove it")


def with_preset(
    settings: Mapping[str, Any], presets: Mapping[str, Any], where: str
) -> Mapping[str, Any]:
    """Settings with `model.preset` spelled out, overridden by other settings of the model.

    presets: of the task, by name.  Raises SettingError for another name.
    """
    model = settings.get("model")
    if not isinstance(model, Mapping) or "preset" not in model:
        return settings
    name, rest = model["preset"], {key: model[key] for key in model if key != "preset"}
    if not isinstance(name, str) or name not in presets:
        hint = did_you_mean(str(name), presets) or f"; choose from {', '.join(presets)}"
        raise SettingError(f"{where}: unknown model.preset {name!r}{hint}")
    return {**settings, "model": merge(to_dict(presets[name]), rest)}


def base_settings(run: Path, setting: str = "fine_tune.run") -> dict[str, Any]:
    """Recipe settings of another run, which `setting` names. Raises RunError if it is not a run."""
    if not (run / "recipe.toml").is_file():
        raise RunError(f"{setting}: {run} is not a run directory")
    check_files(run)
    settings: dict[str, Any] = literal(load_toml(run / "recipe.toml"))
    for name in ("data", "text", "image", "audio", "model"):
        if not isinstance(settings.get(name, {}), dict):
            raise RunError(f"{setting}: {run / 'recipe.toml'} is damaged: {name} is not a section")
    return settings


def auxiliary_run(run: Path, setting: str, task: str, use: str) -> dict[str, Any]:
    """Recipe settings of a run of another task, which `setting` names.

    use: of the run, for the RunError of a run of a wrong task.
    """
    settings = base_settings(run, setting)
    if settings.get("task") != task:
        raise RunError(f"{setting}: {run} is a run of the task {settings.get('task')!r}{use}")
    return settings


def named_base(settings: Mapping[str, Any]) -> Path | None:
    """Absolute path of the base run named by the settings; None if there is none.

    None also in the recipe of a run, which leaves nothing open.  Raises SettingError for an unset
    environment variable.
    """
    fine_tune = settings.get("fine_tune")
    base = fine_tune.get("run") if isinstance(fine_tune, Mapping) else None
    if not isinstance(base, str | Path) or isinstance(base, LiteralText):
        return None
    try:
        return Path(absolute_path(base))
    except ValueError as error:
        raise SettingError(f"fine_tune.run: {error}") from None


def with_base_run(
    settings: Mapping[str, Any], tasks: Sequence[str], inherited: Sequence[str]
) -> Mapping[str, Any]:
    """Settings with defaults from the base run in `fine_tune.run`: `model`, and those inherited.

    tasks: possible tasks of the base run.  inherited: as in `Recipe`.  Complete model settings, as
    in a run directory, need no base run.  Raises RunError for a base that is not a run, or of
    another task.
    """
    base = named_base(settings) if tasks else None
    model = settings.get("model", {})
    if base is None or not isinstance(model, Mapping):
        return settings
    if model and not (base / "recipe.toml").is_file():
        return settings
    theirs = base_settings(base)
    if theirs.get("task") not in tasks:
        raise RunError(
            f"fine_tune.run: {base} is a run of the task {theirs.get('task')!r}; the task "
            f"{settings.get('task')!r} can start from {', '.join(map(repr, tasks))}"
        )
    filled = {**settings, "model": merge(theirs.get("model", {}), model)}
    for name in inherited:
        section, _, key = name.partition(".")
        written, below = filled.get(section, {}), theirs.get(section, {})
        if isinstance(written, Mapping) and (not key or key in below):  # else for `parse` to refuse
            filled[section] = {**({key: below[key]} if key else below), **written}
    return filled
