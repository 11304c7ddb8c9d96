"""`transduce merge`: a run from a base run and a low-rank adapter."""

from __future__ import annotations

from pathlib import Path

from transduce.cli.output import print_lines
from transduce.errors import RunError


def merge(base: Path, adapter: Path, output: Path, /) -> None:
    """Merge a LoRA adapter into its base run.

    Prints the new run directory.

    Parameters
    ----------
    base
        Run directory of the base model.
    adapter
        Run directory of the fine-tuned adapter: adapter.safetensors, recipe.toml and the
        vocabulary; its weights are not needed.
    output
        Run directory to create.
    """
    from transduce.recipes import read_recipe
    from transduce.runs.directory import write_run
    from transduce.tasks.model_card import code
    from transduce.training.fine_tuning import ADAPTER_FILE, apply_adapter
    from transduce.training.weights import read_tensors

    if output.exists():
        raise RunError(f"{output} already exists; give another OUTPUT")
    recipe = read_recipe(adapter)
    if not (adapter / ADAPTER_FILE).is_file():
        raise RunError(f"{adapter} has no {ADAPTER_FILE}; give a run trained with fine_tune.lora")
    weights = apply_adapter(read_tensors(base / "weights.safetensors"), adapter / ADAPTER_FILE)
    names = [code(run.resolve().name) for run in (base, adapter)]
    description = f"The run {names[0]} with the adapter of {names[1]} merged into it."
    write_run(output, recipe, (adapter, base), description, weights)
    print_lines(str(output))
