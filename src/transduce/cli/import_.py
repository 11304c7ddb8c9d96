"""`transduce import`: convert a Hugging Face model into a run directory."""

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
    """Import a model of Hugging Face (BERT, GPT-2, NLLB, …), CTranslate2, Marian or OpenNMT-py.

    Reads config.json, the tokenizer files, and safetensors weights or model.bin; no pickled code.
    Prints the run directory, for predict, translate or fine-tuning (fine_tune.run in a recipe).

    Parameters
    ----------
    directory
        Local model directory, as written by `save_pretrained` or downloaded as a repository, with a
        model.bin of CTranslate2, or with a model (.npz, .bin) and a vocabulary (.spm) of Marian; or
        a checkpoint of OpenNMT-py (.pt), beside its SentencePiece model.
    run
        Run directory to create.
    overrides
        Override a setting of the new recipe: SECTION.NAME=VALUE. May be repeated. Sentence-pair
        classifiers need data.pairs=true.
    overwrite
        Replace an existing run.
    """
    from transduce.runs.importing import import_run

    print_lines(str(import_run(directory, run, overwrite, overrides)))
