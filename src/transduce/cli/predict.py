"""`transduce predict`: one output per input, in order, for every task."""

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
from transduce.cli.options import THIS_MACHINE, Decoding, Flag, Machine
from transduce.cli.output import STDOUT, check_not_read, open_output
from transduce.cli.records import ErrorCount, read_records
from transduce.errors import InputError

if TYPE_CHECKING:
    from transduce.decoding.options import DecodingOptions
    from transduce.tasks.task import Prediction, Predictor

PREDICTION = "prediction"
"""Column added to a table."""


def predict(
    run: Path,
    file: Annotated[str, Parameter(show_default=False)] = STDIN,
    /,
    *,
    output: Annotated[str, Parameter(show_default=False)] = STDOUT,
    jsonl: Flag = False,
    column: Annotated[tuple[str, ...], Parameter(show_default=False)] = (),
    decoding: Decoding = Decoding(),
    machine: Machine = THIS_MACHINE,
) -> None:
    """Predict an output for each input line, for any task.

    Outputs are labels, answers, continuations, captions or translations, one line per input line,
    in order. An input is a text or an image path; inputs of several parts, such as question and
    context, are tab-separated. `transduce info RUN` lists the parts.

    Parameters
    ----------
    run
        Run directory.
    file
        Input file with one input per line, plain or compressed. Default: stdin (also -).
    output
        Output file, written atomically. Default: stdout.
    jsonl
        Read and write JSON Lines. The fields of a record are the parts of the input; it is returned
        with the prediction, probabilities and scores added, or with a field "error".
    column
        Read inputs from this column of a CSV or TSV file with a header row, and add a column
        "prediction". With --jsonl, the field of the input. Repeat for each part of the input.
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
                records = read_records(batch, columns)
                found = _answers(model.predictor, records, options)
                out.write(records.answered(prediction.fields() for prediction in found))
                errors.note(records)
            errors.log_total()
            return
        for part in _texts(batches, lines.name, columns, named=bool(column)):
            found = _answers(model.predictor, part, options)
            out.write(part.answered(prediction.text for prediction in found))
            if part.error is not None:
                raise part.error


def _texts(
    batches: Iterator[LineBatch], name: str, columns: tuple[str, ...], named: bool
) -> Iterator[TextLines | TableRows]:
    """Inputs of a table or, unless `named`, of lines with tab-separated parts.

    named: True for columns of a table.
    """
    if named:
        return Table(name, columns, PREDICTION).read(batches)
    return (read_lines_of(batch, name, columns) for batch in texts_of_lines(batches, name))


def _answers(
    predictor: Predictor, part: Inputs, options: DecodingOptions | None
) -> list[Prediction]:
    """Predictions of a batch, one per input left after rejecting invalid ones."""
    found: list[Prediction] = []
    while len(found) < len(part.inputs):
        start = len(found)
        try:
            found += predictor.predict(part.inputs[start:], options, part.first + start)
        except InputError as error:  # the others are answered nevertheless
            wrong = error.number - part.first
            if not any(part.inputs[wrong]):
                raise  # a blank input always has an answer
            if wrong > start:
                before = part.inputs[start:wrong]
                found += predictor.predict(before, options, part.first + start)
            part.reject(wrong, error.reason)
    return found
