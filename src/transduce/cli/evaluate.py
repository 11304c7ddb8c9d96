"""`transduce evaluate`: scores of a model's outputs, and a comparison with others."""

from __future__ import annotations

import contextlib
import json as json_format
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from transduce.cli.inputs import split_input
from transduce.cli.options import (
    THIS_MACHINE,
    TOGETHER_AS_THE_RECIPE,
    EnsembleDecoding,
    Flag,
    Machine,
)
from transduce.cli.output import STDOUT, check_not_read, open_output, print_lines
from transduce.errors import DataError, SettingError

logger = logging.getLogger("transduce")

if TYPE_CHECKING:
    from transduce.decoding.options import DecodingOptions
    from transduce.metrics.significance import Comparison
    from transduce.run import Run
    from transduce.tasks.task import Evaluation, Split


def evaluate(
    run: Path,
    /,
    *,
    split: Literal["test", "valid"] | None = None,
    source: Path | None = None,
    reference: Path | None = None,
    against: Path | None = None,
    ensemble: tuple[Path, ...] = (),
    output: Annotated[str | None, Parameter(show_default=False)] = None,
    json: Flag = False,
    decoding: EnsembleDecoding = TOGETHER_AS_THE_RECIPE,
    machine: Machine = THIS_MACHINE,
) -> None:
    """Predict for held-out inputs and measure the answers.

    Scores are in percent, unless their name says otherwise.  For text every pair is an item; for
    symbols, such as the phones of a word, equal sources are one item with several right answers.

    Parameters
    ----------
    run
        A run directory.
    split
        Which part of the recipe's data; by default test.
    source
        File with one input a line, to use instead of the recipe's data; where an input has
        several parts, they stand between tabs.
    reference
        File with the right answer for each line of --source.
    against
        Another run, decoded with the same options, or a text file with one output for each
        item, in the order of the items' first appearance.  Adds the difference (this run minus
        the other), its 95 % confidence interval and the p-value of a paired bootstrap.
    ensemble
        Another run with the same vocabularies, to decode with both; may be given several times.
    output
        File to write the outputs to, one line for each item.
    json
        Print one JSON object.
    """
    if (source is None) != (reference is None):
        raise SettingError("--source and --reference go together; give both")
    if source is not None and split is not None:
        raise SettingError("--split and --source both say what to translate; give one")
    if against is not None and not against.exists():
        raise DataError(f"{against}: no such run or file to compare with")
    if output == STDOUT:
        raise SettingError("--output is for the outputs, stdout for the scores; give a file")
    check_not_read(output, source, reference, against)
    with contextlib.nullcontext() if output is None else open_output(output) as file:
        model = machine.load_together(run, ensemble)
        check_not_read(output, *_data_of(model))
        other = None if against is None else _other(against, model, machine)
        options = decoding.over_any(model.predictor)
        evaluation = model.evaluate(split or "test", _examples(model, source, reference), options)
        if evaluation.few:
            logger.warning("%s", evaluation.few)
        if file is not None:
            if not evaluation.hypotheses:
                _print_scores(evaluation, {}, "", json)
                raise DataError(
                    "this task has no outputs that could be written; leave out --output"
                )
            file.write(evaluation.hypotheses)
    comparison: Mapping[str, Comparison] = {}
    try:
        if other is not None:
            outputs = _outputs(other, model, evaluation, options, split or "test")
            comparison = evaluation.against(outputs)
    finally:  # whatever is wrong with the others, these have been measured
        _print_scores(evaluation, comparison, str(against), json)


def _data_of(run: Run) -> Iterator[Path]:
    """The files that the recipe of a run names as its data, and some paths that are none."""
    from transduce.config import to_dict

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
    from transduce.data.pairs import ParallelFiles, read_pairs

    pairs = read_pairs(ParallelFiles(source=source, target=reference), Path())
    names = run.predictor.inputs
    return (
        (split_input(line, names, f"{source}: line {number}"), answer)
        for number, (line, answer) in enumerate(pairs, 1)
    )


def _other(against: Path, run: Run, machine: Machine) -> Run | list[str]:
    """What to compare with: another run, or the outputs that a file holds."""
    from transduce.data.lines import read_lines

    if not against.is_dir():
        return list(read_lines(against))
    other = machine.load(against)
    names, theirs = run.predictor.inputs, other.predictor.inputs
    if names != theirs:
        raise DataError(
            f"{against} answers to {' and '.join(theirs)}, {run.path} to {' and '.join(names)}; "
            "compare runs with the same inputs"
        )
    return other


def _outputs(
    other: Run | list[str],
    run: Run,
    evaluation: Evaluation,
    options: DecodingOptions | None,
    split: Split,
) -> list[str]:
    """The outputs to compare with."""
    if isinstance(other, list):
        return other
    if evaluation.by_name:
        own = other.evaluate(split, None, options)
        same = list(own.sources) == list(evaluation.sources)
        if not same or list(own.references) != list(evaluation.references):
            raise DataError(
                f"{other.path} has other {split} data than {run.path}; give the paths of images "
                "as --source, with --reference"
            )
        return list(own.hypotheses)
    inputs = evaluation.inputs or [(line,) for line in evaluation.sources]
    return [prediction.text for prediction in other.predict(inputs, options)]


def _print_scores(
    evaluation: Evaluation, comparison: Mapping[str, Comparison], other: str, as_json: bool
) -> None:
    if as_json:
        print_lines(json_format.dumps(_as_object(evaluation, comparison)))
    else:
        print_lines(*_as_table(evaluation, comparison, other))


def _as_object(evaluation: Evaluation, comparison: Mapping[str, Comparison]) -> dict[str, Any]:
    result: dict[str, Any] = {**evaluation.scores, "items": len(evaluation.sources)}
    if comparison:
        result["against"] = {
            name: {
                "score": found.score_a,
                "difference": found.difference,
                "low": found.low,
                "high": found.high,
                "p_value": found.p_value,
            }
            for name, found in comparison.items()
        }
    return result


def _as_table(
    evaluation: Evaluation, comparison: Mapping[str, Comparison], other: str
) -> Iterator[str]:
    scores = evaluation.scores
    names = [name for name, value in scores.items() if isinstance(value, float)]
    width = max(map(len, [*names, "items"]))
    for name in names:
        signature = scores.get(f"{name}_signature", "")
        yield f"{name:<{width}}  {scores[name]:6.2f}  {signature}".rstrip()
    yield f"{'items':<{width}}  {len(evaluation.sources):6d}"
    if not comparison:
        return
    yield ""
    yield f"against {other}"
    yield f"{'':<{width}}   other  difference  95 % interval     p-value"
    for name, found in comparison.items():
        interval = f"[{found.low:+.2f}, {found.high:+.2f}]"
        yield (
            f"{name:<{width}}  {found.score_a:6.2f}  {found.difference:+10.2f}  "
            f"{interval:<16}  {found.p_value:7.3f}"
        )
