"""`transduce export`: convert a run for another inference engine."""

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
    """Export a run to CTranslate2.

    Writes the converted model, its vocabularies, the tokenizer and a README with usage. Prints the
    directory.

    Parameters
    ----------
    run
        Run directory of a translation model.
    directory
        Directory to create.
    form
        Output format.
    precision
        Numeric precision of the weights; int8 quantises them to a quarter of the size.
    """
    from transduce.export_run import export_run

    print_lines(str(export_run(run, directory, precision)))
