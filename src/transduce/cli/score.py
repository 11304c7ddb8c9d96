"""`transduce score`: how likely the model finds given pairs."""

from __future__ import annotations

from pathlib import Path

from transduce.cli.options import THIS_MACHINE, Machine
from transduce.cli.output import open_output


def score(
    run: Path,
    /,
    *,
    source: Path,
    target: Path,
    machine: Machine = THIS_MACHINE,
) -> None:
    """Print the log-probability of each given pair.

    One line for each pair: the natural logarithm of the probability of the whole target, its end
    included, given the source; "nan", with a warning, for a pair that is too long to score.

    Parameters
    ----------
    run
        A run directory.
    source
        File with one source text a line, plain or .gz.
    target
        File with one target text a line, plain or .gz.
    """
    model = machine.load(run)
    from transduce.data.pairs import ParallelFiles, read_pairs

    pairs = read_pairs(ParallelFiles(source=source, target=target), Path())
    with open_output() as output:
        for log_probability in model.score(pairs):
            output.write([f"{log_probability:.6f}"])
