"""`transduce predict`: one answer for every input, in the same order, whatever the task."""

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
from transduce.cli.lines import STDIN, LineBatch, LineReader, shown
from transduce.cli.options import AS_THE_RECIPE, THIS_MACHINE, Decoding, Flag, Machine
from transduce.cli.output import STDOUT, check_not_read, open_output
from transduce.cli.records import ErrorCount, Records, read_records
from transduce.errors import InputError

if TYPE_CHECKING:
    from transduce.decoding.options import DecodingOptions
    from transduce.tasks.task import Prediction, Predictor

PREDICTION = "prediction"
"""Column of a table that the answers are put into."""


def predict(
    run: Path,
    file: Annotated[str, Parameter(show_default=False)] = STDIN,
    /,
    *,
    output: Annotated[str, Parameter(show_default=False)] = STDOUT,
    jsonl: Flag = False,
    column: tuple[str, ...] = (),
    decoding: Decoding = AS_THE_RECIPE,
    machine: Machine = THIS_MACHINE,
) -> None:
    """Answer each line of input: a label, an answer, a continuation, a translation.

    Every line gives one line, in order.  A line is a text, or the path of an image; where an input
    has several parts, such as a question and the passage with its answer, they stand between tabs.
    `transduce info RUN` names the parts.

    Parameters
    ----------
    run
        A run directory.
    file
        One input a line, plain or compressed; without it, or with -, stdin.
    output
        File to write instead of stdout; it appears when it is complete.
    jsonl
        Lines are JSON objects whose fields are the parts of the input.  They come back with all
        their fields and all that the model says: probabilities, scores. A record without an
        answer has the field "error" instead.
    column
        Column of the texts in a CSV or TSV file whose first line names its columns; its rows come
        back with a further column "prediction". With --jsonl, the field of the texts. Where an
        input has several parts, one for each.
    """
    check_not_read(output, file)
    lines = LineReader(file)
    with open_output(output) as out:
        model = machine.load(run)
        options = decoding.over_any(model.predictor)
        names = model.predictor.inputs
        columns = columns_of(column, names) if column else names
        batches = shown(lines, quiet=output == STDOUT and sys.stdout.isatty())
        if jsonl:
            errors = ErrorCount(lines.name)
            for batch in batches:
                records = read_records(batch, lines.name, columns)
                found = _answers(model.predictor, records, options)
                out.write(records.answered(prediction.fields() for prediction in found))
                errors.note(records)
                if records.error is not None:
                    raise records.error
            errors.tell()
            return
        for part in _texts(batches, lines.name, columns, named=bool(column)):
            found = _answers(model.predictor, part, options)
            out.write(part.answered(prediction.text for prediction in found))
            if part.error is not None:
                raise part.error


def _texts(
    batches: Iterator[LineBatch], name: str, columns: tuple[str, ...], named: bool
) -> Iterator[TextLines | TableRows]:
    """Inputs of a table, or else of lines that have their parts between tabs.

    named: whether the columns are those of a table.
    """
    if named:
        return Table(name, columns, PREDICTION).read(batches)
    return (read_lines_of(batch, name, columns) for batch in texts_of_lines(batches, name))


def _answers(
    predictor: Predictor, part: Inputs | Records, options: DecodingOptions | None
) -> list[Prediction]:
    """One for each input that `part` has when all have been tried."""
    found: list[Prediction] = []
    while len(found) < len(part.inputs):
        start = len(found)
        try:
            found += predictor.predict(part.inputs[start:], options, part.first + start)
        except InputError as error:  # those beside it are answered none the less
            wrong = error.number - part.first
            if not any(part.inputs[wrong]):
                raise  # a blank one always has an answer
            if wrong > start:
                before = part.inputs[start:wrong]
                found += predictor.predict(before, options, part.first + start)
            part.reject(wrong, error.reason)
    return found
