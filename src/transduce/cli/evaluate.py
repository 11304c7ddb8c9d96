"""`transduce evaluate` and `transduce score`: scores of outputs, and log-probabilities of given
pairs."""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from cyclopts import Parameter

from transduce.cli.inputs import pairs_of_files, split_input
from transduce.cli.options import (
    AS_IN_RECIPE,
    AuxiliaryModel,
    Decoding,
    Flag,
    Machine,
    Models,
    chosen_options_if_any,
    with_decoding,
)
from transduce.cli.output import STDOUT, check_not_read, open_output, print_json, print_lines
from transduce.errors import DataError, SettingError

if TYPE_CHECKING:
    from transduce.decoding.options import DecodingOptions
    from transduce.loading import Run
    from transduce.metrics.metric import Comparison
    from transduce.tasks.evaluation import Evaluation
    from transduce.tasks.recipe import Split


logger = logging.getLogger("transduce")


@with_decoding(None, "ensemble", "language-model")
def evaluate(
    run: Path,
    /,
    *,
    split: Literal["test", "valid"] | None = None,
    source: Path | None = None,
    reference: Path | None = None,
    metric: Annotated[tuple[str, ...], Parameter(show_default=False)] = (),
    against: Path | None = None,
    ensemble: Models = (),
    language_model: AuxiliaryModel = None,
    output: Annotated[str | None, Parameter(show_default=False)] = None,
    json: Flag = False,
    decoding: Decoding = AS_IN_RECIPE,
    machine: Machine = Machine(),
) -> None:
    """Evaluate a run on held-out data.

    Prints the metrics of the task, in percent unless named otherwise. For symbol targets, such as
    the phones of a word, pairs with equal sources count as an item with several references.

    Parameters
    ----------
    run
        Run directory.
    split
        Data split of the recipe. Default: test.
    source
        File with an input per line (tab-separated parts), instead of the recipe's data; requires
        --reference.
    reference
        File with a reference per line.
    metric
        Measure this metric instead of the task's own, such as chrf, or rouge for rouge-1, rouge-2
        and rouge-l. May be repeated.
    against
        Compare with another run, decoded with the same options, or with a file of outputs, one per
        item in order of first occurrence. Adds a significance test (paired bootstrap): the
        difference, its 95 % confidence interval and p-value.
    ensemble
        Another run to decode with as an ensemble; requires the same vocabularies. May be repeated.
    language_model
        Run of a language model for shallow fusion; requires the same target vocabulary.
    output
        Write the outputs to this file, a line per item.
    json
        Print a JSON object.
    """
    if (source is None) != (reference is None):
        raise SettingError("--source and --reference must be given together")
    if source is not None and split is not None:
        raise SettingError("--split cannot be combined with --source; give one of them")
    if against is not None and not against.exists():
        raise DataError(f"--against {against}: no such run or file")
    if output == STDOUT:
        raise SettingError("--output - is not supported, as the scores go to stdout; give a file")
    check_not_read(output, source, reference, against)
    from transduce.metrics.measure import metrics_named

    metrics = [name for text in metric for name in metrics_named(text)]
    with contextlib.nullcontext() if output is None else open_output(output) as file:
        model = machine.load_together(run, ensemble, language_model)
        check_not_read(output, *_data_of(model))
        other = None if against is None else _other(against, model, machine)
        options = chosen_options_if_any(model.predictor, decoding)
        evaluation = model.evaluate(split or "test", _examples(model, source, reference), options)
        if metrics:
            evaluation = evaluation.measured_by(metrics)
        if evaluation.few:
            logger.warning("%s", evaluation.few)
        if file is not None:
            if not evaluation.hypotheses:
                _print_scores(evaluation, {}, "", json)
                raise DataError(
                    "--output is not supported for this task, which has no text outputs; remove it"
                )
            file.write(evaluation.hypotheses)
    comparisons: Mapping[str, Comparison] = {}
    try:
        if other is not None:
            outputs = _evaluate_outputs(other, model, evaluation, options, split or "test")
            comparisons = evaluation.against(outputs)
    finally:  # print the scores even if the comparison failed
        _print_scores(evaluation, comparisons, str(against), json)


def _data_of(run: Run) -> Iterator[Path]:
    """Candidate data files: every string in the data section of the recipe, as a path."""
    from transduce.settings.sections import to_dict

    def texts(value: Any) -> Iterator[str]:
        if isinstance(value, str):
            yield value
        elif isinstance(value, Mapping | list | tuple):
            for part in value.values() if isinstance(value, Mapping) else value:
                yield from texts(part)

    data = to_dict(run.recipe)["data"]
    return (Path(data.get("root", "")) / text for text in texts(data))


def _examples(
    run: Run, source: Path | None, reference: Path | None
) -> Iterator[tuple[tuple[str, ...], str]] | None:
    if source is None or reference is None:
        return None
    pairs = pairs_of_files(source, reference)
    names = run.predictor.inputs
    return (
        (split_input(line, names, f"{source}: line {number}"), answer)
        for number, (line, answer) in enumerate(pairs, 1)
    )


def _other(against: Path, run: Run, machine: Machine) -> Run | list[str]:
    """Comparison system: another run, or the outputs in a file."""
    from transduce.data.text_files import read_lines

    if not against.is_dir():
        return list(read_lines(against))
    other = machine.load(against)
    names, theirs = run.predictor.inputs, other.predictor.inputs
    if names != theirs:
        raise DataError(
            f"{against} and {run.path} have different inputs ({' and '.join(theirs)}; "
            f"{' and '.join(names)}); compare runs with the same inputs"
        )
    return other


def _evaluate_outputs(
    other: Run | list[str],
    run: Run,
    evaluation: Evaluation,
    options: DecodingOptions | None,
    split: Split,
) -> list[str]:
    if isinstance(other, list):
        return other
    if evaluation.by_name:
        evaluated = other.evaluate(split, None, options)
        same = list(evaluated.sources) == list(evaluation.sources)
        if not same or list(evaluated.references) != list(evaluation.references):
            raise DataError(
                f"{other.path} and {run.path} have different {split} data; give image paths with "
                "--source, and --reference"
            )
        return list(evaluated.hypotheses)
    inputs = evaluation.inputs or [(line,) for line in evaluation.sources]
    return [prediction.text for prediction in other.predict(inputs, options)]


def _print_scores(
    evaluation: Evaluation, comparisons: Mapping[str, Comparison], other: str, as_json: bool
) -> None:
    scores = {**evaluation.scores, **evaluation.other_scores, "items": len(evaluation.sources)}
    if not as_json:
        print_lines(*_as_table(scores, comparisons, other))
        return
    against = {
        name: {"score": comparison.score_a, **comparison.as_dict()}
        for name, comparison in comparisons.items()
    }
    print_json({**scores, "against": against} if against else scores)


def _as_table(
    scores: Mapping[str, Any], comparisons: Mapping[str, Comparison], other: str
) -> Iterator[str]:
    names = [name for name, score in scores.items() if isinstance(score, float)]
    width = max(map(len, [*names, "items"]))
    for name in names:
        signature = scores.get(f"{name}_signature", "")
        yield f"{name:<{width}}  {scores[name]:6.2f}  {signature}".rstrip()
    yield f"{'items':<{width}}  {scores['items']:6d}"
    if not comparisons:
        return
    yield ""
    yield f"against {other}"
    yield f"{'':<{width}}   other  difference  95 % interval     p-value"
    for name, comparison in comparisons.items():
        interval = f"[{comparison.low:+.2f}, {comparison.high:+.2f}]"
        yield (
            f"{name:<{width}}  {comparison.score_a:6.2f}  {comparison.difference:+10.2f}  "
            f"{interval:<16}  {comparison.p_value:7.3f}"
        )


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
    from transduce.data.text_files import read_lines

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
    from transduce.data.text_files import read_lines

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
