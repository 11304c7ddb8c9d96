"""`transduce import`: a run directory from a model that was trained elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from transduce.cli.options import Flag
from transduce.cli.output import print_lines


def import_(
    directory: Path,
    run: Path,
    /,
    *,
    overrides: Annotated[tuple[str, ...], Parameter(name="--set", show_default=False)] = (),
    overwrite: Flag = False,
) -> None:
    """Make a run directory of a Hugging Face directory: BERT, GPT-2, ViT or Marian.

    Reads config.json, *.safetensors and the tokenizer's files; never pickles.  Prints the run
    directory, which is used like any other: predict, translate, or fine_tune.run in a recipe.

    Parameters
    ----------
    directory
        What `save_pretrained` of `transformers` wrote, or a repository of a model copied whole.
    run
        Run directory to make.
    overrides
        Settings of its recipe to change, as a.b=value; may be given several times.  A classifier
        of pairs of texts needs data.pairs=true.
    overwrite
        Replace the run that is there.
    """
    from transduce.import_run import import_run

    print_lines(str(import_run(directory, run, overwrite, overrides)))
