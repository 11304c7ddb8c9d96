"""`transduce merge`: one run from a base run and a low-rank adapter."""

from __future__ import annotations

from pathlib import Path

from transduce.cli.output import print_lines
from transduce.errors import RunError


def merge(base: Path, adapter: Path, output: Path, /) -> None:
    """Make a run from a base run and an adapter that LoRA trained on top of it.

    Prints the directory of the new run, which is used like any other.

    Parameters
    ----------
    base
        The run that the adapter was trained from.
    adapter
        Run directory with adapter.safetensors, recipe.toml and the vocabulary; the weights need
        not be there.
    output
        Directory to make.
    """
    from transduce.recipes import read_recipe
    from transduce.run_directory import write_run
    from transduce.tasks.model_card import code
    from transduce.training.fine_tuning import ADAPTER_FILE, apply_adapter
    from transduce.training.weights import read_tensors

    if output.exists():
        raise RunError(f"{output} exists; give another OUTPUT")
    recipe = read_recipe(adapter)
    if not (adapter / ADAPTER_FILE).is_file():
        raise RunError(f"{adapter} has no {ADAPTER_FILE}; it was not trained with fine_tune.lora")
    weights = apply_adapter(read_tensors(base / "weights.safetensors"), adapter / ADAPTER_FILE)
    names = [code(run.resolve().name) for run in (base, adapter)]
    told = f"The run {names[0]} with the adapter of {names[1]} merged into it."
    write_run(output, recipe, (adapter, base), told, weights)
    print_lines(str(output))
