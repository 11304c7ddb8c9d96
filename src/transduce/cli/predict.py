"""`transduce predict`: one answer for every input, in the same order, whatever the task."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from transduce.cli.lines import STDIN, LineBatch, LineReader, shown
from transduce.cli.options import AS_THE_RECIPE, THIS_MACHINE, Decoding, Flag, Machine
from transduce.cli.output import STDOUT, check_not_read, open_output
from transduce.cli.records import read_records, split_input
from transduce.errors import DataError, InputError


def predict(
    run: Path,
    file: Annotated[str, Parameter(show_default=False)] = STDIN,
    /,
    *,
    output: Annotated[str, Parameter(show_default=False)] = STDOUT,
    jsonl: Flag = False,
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
        their fields and all that the model says: probabilities, scores.
    """
    check_not_read(output, file)
    lines = LineReader(file)
    with open_output(output) as out:
        model = machine.load(run)
        options = decoding.over_any(model.predictor)
        names = model.predictor.inputs
        quiet = output == STDOUT and sys.stdout.isatty()
        for batch in shown(lines, quiet):
            if jsonl:
                records = read_records(batch, lines.name, names)
                inputs, wrong = records.inputs, records.error
            else:
                inputs, wrong = _inputs(batch, lines.name, names)
            try:
                found = model.predictor.predict(inputs, options, batch.first)
            except InputError as error:  # those before it are answered none the less
                wrong = DataError(f"{lines.name}: line {error.number + 1}: {error.reason}")
                inputs = inputs[: error.number - batch.first]
                found = model.predictor.predict(inputs, options, batch.first)
            if jsonl:
                records = dataclasses.replace(records, items=records.items[: len(found)])
                out.write(records.answered(prediction.fields() for prediction in found))
            else:
                out.write(prediction.text for prediction in found)
            if wrong is not None:
                raise wrong


def _inputs(
    batch: LineBatch, name: str, parts: tuple[str, ...]
) -> tuple[list[tuple[str, ...]], DataError | None]:
    """The inputs of a batch of lines, up to the first line that is none, and what is wrong there.

    name: the input's, for messages.  parts: what an input is made of.
    """
    inputs: list[tuple[str, ...]] = []
    for number, line in enumerate(batch.lines, batch.first + 1):
        try:
            inputs.append(split_input(line, parts, f"{name}: line {number}"))
        except DataError as error:
            return inputs, error
    return inputs, None
