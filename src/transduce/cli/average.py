"""`transduce average`: one run from the mean of several sets of weights."""

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
    """Average the weights of several runs, or of a run's last checkpoints.

    Prints the directory of the new run, which is used like any other.

    Parameters
    ----------
    runs
        Run directories with the same vocabulary, model and inputs, but for dropout.
    output
        Directory to make.
    last
        Average the last N checkpoints of each run instead of its final weights.
    """
    from transduce.average import average_runs

    average_runs(runs, output, last)
    print_lines(str(output))
