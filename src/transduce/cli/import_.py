"""`transduce import`: a run directory from a model that was trained elsewhere."""

from __future__ import annotations

from pathlib import Path

from transduce.cli.options import Flag
from transduce.cli.output import print_lines


def import_(directory: Path, run: Path, /, *, overwrite: Flag = False) -> None:
    """Make a run directory of a Hugging Face directory: BERT, GPT-2, ViT or Marian.

    Reads config.json, *.safetensors and the tokenizer's files; never pickles.  Prints the run
    directory, which is used like any other: predict, translate, or fine_tune.run in a recipe.

    Parameters
    ----------
    directory
        What `save_pretrained` of `transformers` wrote, or a repository of a model copied whole.
    run
        Run directory to make.
    overwrite
        Replace the run that is there.
    """
    from transduce.import_run import import_run

    print_lines(str(import_run(directory, run, overwrite)))
