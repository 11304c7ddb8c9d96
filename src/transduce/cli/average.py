"""`transduce average`: average the weights of runs or checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter, validators

from transduce.cli.output import print_lines


def average(
    *runs: Path,
    output: Path,
    last: Annotated[int, Parameter(validator=validators.Number(gte=0), show_default=False)] = 0,
) -> None:
    """Average the weights of runs or checkpoints.

    Prints the new run directory.

    Parameters
    ----------
    runs
        Run directories with the same vocabulary, architecture and inputs; dropout may differ.
    output
        Run directory to create.
    last
        Checkpoint averaging: use the last N checkpoints of each run instead of its final weights.
    """
    from transduce.runs.averaging import average_runs

    average_runs(runs, output, last)
    print_lines(str(output))
