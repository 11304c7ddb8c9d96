"""`transduce score`: log-probabilities of given pairs, or of the candidates of another model."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from transduce.cli.options import THIS_MACHINE, Flag, Machine
from transduce.cli.output import open_output
from transduce.errors import DataError, SettingError

if TYPE_CHECKING:
    from transduce.run import Run

BAR = " ||| "


def score(
    run: Path,
    /,
    *,
    source: Path,
    target: Path | None = None,
    n_best: Path | None = None,
    reverse: Flag = False,
    weight: float | None = None,
    machine: Machine = THIS_MACHINE,
) -> None:
    """Print the log-probability of each given pair.

    One line for each pair: the natural logarithm of the probability of the whole target, its end
    included, given the source; "nan", with a warning, for a pair that is too long to score.

    With --n-best instead of --target, the candidates of another run are put into a new order:
    lines `id ||| text ||| score` as `translate --n-best` writes them come back, best first for
    each id, with --weight times the log-probability added to their scores. Those of one id need
    not stand together, as where the files of two runs were joined.

    Parameters
    ----------
    run
        A run directory.
    source
        File with one source text a line, plain or compressed.
    target
        File with one target text a line, plain or compressed.
    n_best
        File with the candidates for the lines of --source, which count from 0.
    reverse
        With --n-best: the run goes from target to source, and says how likely the source is.
    weight
        With --n-best: what the log-probability counts beside the score that is there; by default
        1.
    """
    if (target is None) == (n_best is None):
        raise SettingError("give --target for pairs, or --n-best for candidates, and not both")
    if n_best is None and reverse:
        raise SettingError("--reverse is for --n-best; for pairs, exchange --source and --target")
    if n_best is None and weight is not None:
        raise SettingError("--weight is for --n-best; add that")
    if weight is not None and not math.isfinite(weight):
        raise SettingError(f"--weight {weight} is no number to multiply by")
    machine.check_no_engine("score")
    model = machine.load(run)
    with open_output() as output:
        if n_best is not None:
            output.write(
                _rescored(model, source, n_best, reverse, 1.0 if weight is None else weight)
            )
            return
        assert target is not None
        from transduce.data.pairs import ParallelFiles, read_pairs

        pairs = read_pairs(ParallelFiles(source=source, target=target), Path())
        for log_probability in model.score(pairs):
            output.write([f"{log_probability:.6f}"])


class _Candidate(NamedTuple):
    number: int
    text: str
    score: float


def _rescored(
    model: Run, source: Path, n_best: Path, reverse: bool, weight: float
) -> Iterator[str]:
    """The candidates, those of each id best first."""
    from transduce.data.lines import read_lines

    sources = list(read_lines(source))
    found = list(_candidates(n_best, source, len(sources)))
    pairs = [(sources[c.number], c.text) for c in found]
    if reverse:
        pairs = [(text, line) for line, text in pairs]
    said = [sources[c.number].strip() != "" for c in found]  # a blank line was not translated
    scores = model.score(pair for pair, real in zip(pairs, said, strict=True) if real)
    totals = [
        c._replace(score=c.score + weight * next(scores)) if real else c
        for c, real in zip(found, said, strict=True)
    ]
    groups: dict[int, list[_Candidate]] = {}  # in the order in which each is begun
    for candidate in totals:
        groups.setdefault(candidate.number, []).append(candidate)
    for number, group in groups.items():
        # what is too long to score is no number, and comes last
        order = sorted(group, key=lambda c: (c.score != c.score, -c.score))
        yield from (f"{number}{BAR}{c.text}{BAR}{c.score:.6f}" for c in order)


def _candidates(file: Path, source: Path, count: int) -> Iterator[_Candidate]:
    """Raises DataError for a line that is no candidate, or one of a source that is not there."""
    from transduce.data.lines import read_lines

    for line_number, line in enumerate(read_lines(file), 1):
        number, first, rest = line.partition("|||")
        text, second, score = rest.rpartition("|||")
        try:
            if not first or not second:
                raise ValueError
            found = _Candidate(int(number), text.strip(), float(score))
            if math.isinf(found.score):
                raise ValueError
        except ValueError:
            raise DataError(
                f"{file}: line {line_number} is not 'id ||| text ||| score', but {line[:40]!r}"
            ) from None
        if not 0 <= found.number < count:
            raise DataError(
                f"{file}: line {line_number} is for source {found.number}, but {source} has "
                f"{count} lines, numbered from 0"
            )
        yield found
