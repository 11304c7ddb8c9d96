"""The mean weights of several runs, or of several checkpoints of one, as a run of their own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from transduce.errors import RunError
from transduce.run_directory import read_recipe, vocabularies_of, write_run
from transduce.tasks.alike import check_alike
from transduce.tasks.model_card import code
from transduce.training.checkpoints import checkpoints_of, served_weights
from transduce.training.weights import average, read_tensors


def _vocabularies(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in vocabularies_of(path)}


def average_runs(paths: Sequence[Path], output: Path, last: int = 0) -> None:
    """Write a run with the mean weights of several runs, or of the last checkpoints of one.

    Raises RunError when the models or their inputs differ, other than in dropout, or `output`
    exists.
    """
    if output.exists():
        raise RunError(f"{output} exists; give another --output")
    recipes = [read_recipe(path) for path in paths]
    sources = [path / "weights.safetensors" for path in paths]
    if last:
        kept = [checkpoints_of(path) for path in paths]
        for path, checkpoints in zip(paths, kept, strict=True):
            if len(checkpoints) < last:
                raise RunError(
                    f"{path} has {len(checkpoints)} checkpoints, not {last}; training.keep_last "
                    "says how many a run keeps"
                )
        sources = [checkpoint for checkpoints in kept for checkpoint in checkpoints[-last:]]
    if len(sources) < 2:
        raise RunError(
            "averaging needs at least two sets of weights; give more runs, or --last N for "
            "the last N checkpoints of a run"
        )
    recipe = recipes[0]
    for path, other_recipe in zip(paths[1:], recipes[1:], strict=True):
        check_alike(path, other_recipe, paths[0], recipe)
        ours, theirs = (_vocabularies(one) for one in (paths[0], path))
        for name in {**ours, **theirs}:
            if ours.get(name) != theirs.get(name):
                raise RunError(
                    f"{path} and {paths[0]} have different vocabularies ({name}); they cannot be "
                    "averaged"
                )
    mean = average(map(served_weights if last else read_tensors, sources))
    names = ", ".join(code(path.resolve().name) for path in paths)
    made = f"the last {last} checkpoints of {names}" if last else f"the weights of {names}"
    write_run(output, recipe, paths, f"The mean of {made}.", mean)
