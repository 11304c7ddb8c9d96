"""`transduce export`: a run as a model of another program."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from transduce.cli.output import print_lines


def export(
    run: Path,
    directory: Path,
    /,
    *,
    form: Annotated[Literal["ctranslate2"], Parameter(name="--format")] = "ctranslate2",
    precision: Literal["float32", "int8"] = "float32",
) -> None:
    """Write a run as a directory that another program loads: CTranslate2.

    Prints the directory. It holds the model, its vocabulary, the tokenizer's file and a page that
    says how to use them.

    Parameters
    ----------
    run
        A run directory that translates.
    directory
        Directory to make.
    form
        What program it is for.
    precision
        int8 rounds the model's matrices to 8 bits: a quarter of the size.
    """
    from transduce.export_run import export_run

    print_lines(str(export_run(run, directory, precision)))
