"""`transduce predict`: an output per input, in order, for every task."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from transduce.cli.inputs import (
    Inputs,
    Table,
    TableRows,
    TextLines,
    columns_of,
    read_lines_of,
    texts_of_lines,
)
from transduce.cli.lines import STDIN, LineReader, shown
from transduce.cli.options import (
    AS_IN_RECIPE,
    Count,
    Decoding,
    Flag,
    Machine,
    chosen_options_if_any,
    with_decoding,
)
from transduce.cli.output import STDOUT, check_not_read, open_output
from transduce.cli.records import read_records
from transduce.errors import InputError, SettingError, TransduceError

if TYPE_CHECKING:
    from transduce.decoding.options import DecodingOptions
    from transduce.tasks.task import Prediction, Predictor

PREDICTION = "prediction"
"""Column added to a table."""


@with_decoding()
def predict(
    run: Path,
    file: Annotated[str, Parameter(show_default=False)] = STDIN,
    /,
    *,
    output: Annotated[str, Parameter(show_default=False)] = STDOUT,
    jsonl: Flag = False,
    column: Annotated[tuple[str, ...], Parameter(show_default=False)] = (),
    n_best: Annotated[Count | None, Parameter(show_default=False)] = None,
    decoding: Decoding = AS_IN_RECIPE,
    machine: Machine = Machine(),
) -> None:
    """Predict an output for each input line, for any task.

    Outputs are labels, answers, continuations, captions or translations, a line per input line,
    in order. An input is a text or an image path; inputs of several parts, such as question and
    context, are tab-separated. `transduce info RUN` lists the parts.

    Parameters
    ----------
    run
        Run directory.
    file
        Input file with an input per line, plain or compressed. Default: stdin (also -).
    output
        Output file, written atomically. Default: stdout.
    jsonl
        Read and write JSON Lines. The fields of a record are the parts of the input; it is returned
        with the prediction, probabilities and scores added, or with a field "error".
    column
        Read inputs from this column of a CSV or TSV file with a header row, and add a column
        "prediction". With --jsonl, the field of the input. Repeat for each part of the input.
    n_best
        Number of texts of each recording, best first, in the field "n_best" of --jsonl.
    """
    if n_best is not None and not jsonl:
        raise SettingError("--n-best needs --jsonl; add it")
    check_not_read(output, file)
    lines = LineReader(file)
    with open_output(output) as out:
        model = machine.load(run)
        options = chosen_options_if_any(model.predictor, decoding, n_best)
        names = model.predictor.inputs
        columns = columns_of(column, names) if column else names
        batches = shown(lines, quiet=output == STDOUT and sys.stdout.isatty())
        if jsonl:
            for records in read_records(batches, columns, lines.name):
                answers = _answers(model.predictor, records, options)
                out.write(records.answered(answer.fields() if answer else {} for answer in answers))
            return
        parts: Iterator[TextLines | TableRows]
        if column:
            parts = Table(lines.name, columns, PREDICTION).read(batches)
        else:
            texts = texts_of_lines(batches, lines.name)
            parts = (read_lines_of(batch, lines.name, columns) for batch in texts)
        for part in parts:
            answers = _answers(model.predictor, part, options)
            out.write(part.answered(answer.text for answer in answers if answer))
            if part.error is not None:
                raise part.error


def _answers(
    predictor: Predictor, part: Inputs, options: DecodingOptions | None
) -> list[Prediction | None]:
    """Predictions of a batch, after rejecting invalid inputs; None for a rejected record."""
    from transduce.tasks.attempts import attempt

    results = attempt(predictor, part.inputs, [options] * len(part.inputs), part.first)
    answers = [None if isinstance(result, TransduceError) else result for result in results]
    for index, result in reversed(list(enumerate(results))):
        if isinstance(result, TransduceError):
            if not isinstance(result, InputError) or not any(part.inputs[index]):
                raise result  # of all inputs: a blank one always has an answer
            part.reject(index, result.reason)
    return answers[: len(part.inputs)]
