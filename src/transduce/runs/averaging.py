"""Mean weights of several runs, or of several checkpoints of a run, as a new run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from transduce.errors import RunError
from transduce.image.transform import ImageConfig
from transduce.recipes import flat_settings, read_recipe
from transduce.runs.directory import vocabularies_of, write_run
from transduce.settings.sections import differing, to_dict
from transduce.tasks.model_card import code
from transduce.tasks.recipe import Recipe
from transduce.training.checkpoint_paths import checkpoints_of
from transduce.training.checkpoints import served_weights
from transduce.training.weights import average, read_tensors

ONLY_TRAINING = (".dropout", ".label_dropout", ".init")
"""Model settings that affect training only."""
COMPARED_AS_FILES = ("tokenizer", "source", "target", "transcript_tokenizer")
"""Sections of `text` that describe tokenizers; the tokenizer files themselves are compared."""
OF_THE_DATA = {
    "data.inputs": "inputs",
    "data.roles": "roles",
    "data.block": "block",
    "data.train.tag": "tag_names",
}
"""Settings that decide the layout of an input, and the attributes of `data` that have them."""


def _vocabularies(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in vocabularies_of(path)}


def average_runs(paths: Sequence[Path], output: Path, last: int = 0) -> None:
    """Write a run with the mean weights of several runs, or of the last checkpoints of a run.

    Raises RunError if the models or their inputs differ, except in dropout, or if `output` exists.
    """
    if output.exists():
        raise RunError(f"{output} already exists; choose another --output")
    recipes = [read_recipe(path) for path in paths]
    sources = [path / "weights.safetensors" for path in paths]
    if last:
        available = [checkpoints_of(path) for path in paths]
        for path, checkpoints in zip(paths, available, strict=True):
            if len(checkpoints) < last:
                raise RunError(
                    f"{path} has only {len(checkpoints)} of the {last} checkpoints; raise "
                    "training.keep_last to keep more"
                )
        sources = [checkpoint for checkpoints in available for checkpoint in checkpoints[-last:]]
    if len(sources) < 2:
        raise RunError(
            "averaging needs at least two sets of weights; name more runs, or use --last N "
            "for the last N checkpoints of a run"
        )
    recipe = recipes[0]
    for path, other_recipe in zip(paths[1:], recipes[1:], strict=True):
        check_alike(path, other_recipe, paths[0], recipe)
        for name in differing(_vocabularies(paths[0]), _vocabularies(path)):
            raise RunError(
                f"{path} and {paths[0]} have different vocabularies ({name}); they cannot be "
                "averaged"
            )
    mean = average(map(served_weights if last else read_tensors, sources))
    names = ", ".join(code(path.resolve().name) for path in paths)
    made = f"the last {last} checkpoints of {names}" if last else f"the weights of {names}"
    write_run(output, recipe, paths, f"The mean of {made}.", mean)


def check_alike(path: Path, recipe: Recipe, first_path: Path, first: Recipe) -> None:
    """Raises RunError, naming the setting, if the weights cannot be averaged."""
    ours, theirs = _decisive(first), _decisive(recipe)
    for name in differing(ours, theirs):
        kind = "models" if name.startswith("model.") else "inputs"
        raise RunError(
            f"{path} and {first_path} have different {kind} ({name}: {_shown(theirs, name)} and "
            f"{_shown(ours, name)}); they cannot be averaged"
        )


def _decisive(recipe: Recipe) -> dict[str, Any]:
    """Settings that decide the meaning of the weights and their inputs, by dotted name."""
    text = to_dict(getattr(recipe, "text", {}))
    sections = {
        "model": to_dict(recipe.model),
        "text": {name: text[name] for name in text if name not in COMPARED_AS_FILES},
        "audio": to_dict(getattr(recipe, "audio", {})),
    }
    image = getattr(recipe, "image", None)
    if isinstance(image, ImageConfig):
        channels = image.channels
        numbers = {"mean": image.mean, "std": image.std}
        whole = {name: list(n * channels if len(n) == 1 else n) for name, n in numbers.items()}
        sections["image"] = {**to_dict(image), **whole}
    settings: dict[str, Any] = {"task": recipe.task}
    for name, setting in flat_settings(sections):
        if not name.endswith((*ONLY_TRAINING, "sampling")):
            settings[name] = setting
    for name, attribute in OF_THE_DATA.items():
        if hasattr(recipe.data, attribute):
            settings[name] = getattr(recipe.data, attribute)
    return settings


def _shown(settings: Mapping[str, Any], name: str) -> str:
    return repr(settings[name]) if name in settings else "none"
