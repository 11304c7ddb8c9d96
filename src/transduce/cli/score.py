"""`transduce score`: log-probabilities of given pairs, or of the candidates of another model."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from transduce.cli.inputs import pairs_of_files
from transduce.cli.options import Flag, Machine
from transduce.cli.output import open_output
from transduce.errors import DataError, SettingError

if TYPE_CHECKING:
    from transduce.runs.run import Run

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
    machine: Machine = Machine(),
) -> None:
    """Score sentence pairs or rerank an n-best list.

    With --target, prints a line per pair: the natural log-probability of the target, including
    its end of sentence, given the source; nan, with a warning, for a pair that is too long.

    With --n-best, reranks the candidates of another run, in lines `id ||| text ||| score` as
    written by `translate --n-best`. Adds --weight times the log-probability to each score and
    prints the candidates of each id best first. Concatenated n-best lists are merged by id.

    Parameters
    ----------
    run
        Run directory.
    source
        File with a source text per line, plain or compressed.
    target
        File with a target text per line, plain or compressed.
    n_best
        N-best list to rerank; ids are line numbers of --source, counted from 0.
    reverse
        With --n-best, RUN is a reverse model: use the probability of the source given the candidate
        (noisy channel).
    weight
        With --n-best, weight of the log-probability. Default: 1.
    """
    if (target is None) == (n_best is None):
        raise SettingError(
            "give either --target, to score pairs, or --n-best, to rerank candidates"
        )
    if n_best is None and reverse:
        raise SettingError(
            "--reverse requires --n-best; to score pairs, swap --source and --target"
        )
    if n_best is None and weight is not None:
        raise SettingError("--weight requires --n-best")
    if weight is not None and not math.isfinite(weight):
        raise SettingError(f"--weight: expected a finite number, got {weight}")
    machine = machine.without_engine("score")
    model = machine.load(run)
    with open_output() as output:
        if n_best is not None:
            output.write(
                _rescored(model, source, n_best, reverse, 1.0 if weight is None else weight)
            )
            return
        assert target is not None
        for log_probability in model.score(pairs_of_files(source, target)):
            output.write([f"{log_probability:.6f}"])


class _Candidate(NamedTuple):
    number: int
    text: str
    score: float


def _rescored(
    model: Run, source: Path, n_best: Path, reverse: bool, weight: float
) -> Iterator[str]:
    from transduce.data.lines import read_lines

    sources = list(read_lines(source))
    candidates = list(_candidates(n_best, source, len(sources)))
    pairs = [(sources[c.number], c.text) for c in candidates]
    if reverse:
        pairs = [(text, line) for line, text in pairs]
    translated = [sources[c.number].strip() != "" for c in candidates]  # blank lines are not
    scores = model.score(pair for pair, real in zip(pairs, translated, strict=True) if real)
    totals = [
        c._replace(score=c.score + weight * next(scores)) if real else c
        for c, real in zip(candidates, translated, strict=True)
    ]
    groups: dict[int, list[_Candidate]] = {}  # in order of first occurrence
    for candidate in totals:
        groups.setdefault(candidate.number, []).append(candidate)
    for number, group in groups.items():
        # nan, for a pair that is too long, comes last
        order = sorted(group, key=lambda c: (c.score != c.score, -c.score))
        yield from (f"{number}{BAR}{c.text}{BAR}{c.score:.6f}" for c in order)


def _candidates(file: Path, source: Path, count: int) -> Iterator[_Candidate]:
    """Parse an n-best list.  Raises DataError for a malformed line or an unknown id."""
    from transduce.data.lines import read_lines

    for line_number, line in enumerate(read_lines(file), 1):
        number, first, rest = line.partition("|||")
        text, second, score = rest.rpartition("|||")
        try:
            if not first or not second:
                raise ValueError
            candidate = _Candidate(int(number), text.strip(), float(score))
            if math.isinf(candidate.score):
                raise ValueError
        except ValueError:
            raise DataError(
                f"{file}: line {line_number}: expected 'id ||| text ||| score', got {line[:40]!r}"
            ) from None
        if not 0 <= candidate.number < count:
            raise DataError(
                f"{file}: line {line_number}: id {candidate.number} is out of range; {source} has "
                f"{count} lines, numbered from 0"
            )
        yield candidate
