"""`transduce predict`, `transduce generate` and `transduce chat`: outputs of every task."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from transduce.cli.console import write_stderr
from transduce.cli.inputs import (
    STDIN,
    Inputs,
    InputTable,
    LineReader,
    TableRows,
    TextLines,
    input_columns,
    read_lines_of,
    read_records,
    shown_input,
    texts_of_lines,
)
from transduce.cli.options import (
    AS_IN_RECIPE,
    Count,
    Decoding,
    Flag,
    Machine,
    chosen_options,
    chosen_options_if_any,
    with_decoding,
)
from transduce.cli.output import STDOUT, Output, check_not_read, open_output
from transduce.errors import InputError, RunError, SettingError, TransduceError

if TYPE_CHECKING:
    from transduce.decoding.options import DecodingOptions
    from transduce.tasks.language_model.dialogue import Conversation
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
        columns = input_columns(column, names) if column else names
        batches = shown_input(lines, quiet=output == STDOUT and sys.stdout.isatty())
        if jsonl:
            for records in read_records(batches, columns, lines.name):
                answers = _answers(model.predictor, records, options)
                out.write(records.answered(answer.fields() if answer else {} for answer in answers))
            return
        parts: Iterator[TextLines | TableRows]
        if column:
            parts = InputTable(lines.name, columns, PREDICTION).read(batches)
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
    from transduce.tasks.predictors import attempt

    results = attempt(predictor, part.inputs, [options] * len(part.inputs), part.first)
    answers = [None if isinstance(result, TransduceError) else result for result in results]
    for index, result in reversed(list(enumerate(results))):
        if isinstance(result, TransduceError):
            if not isinstance(result, InputError) or not any(part.inputs[index]):
                raise result  # of all inputs: a blank one always has an answer
            part.reject(index, result.reason)
    return answers[: len(part.inputs)]


@with_decoding("continuation")
def generate(
    run: Path,
    prompt: Annotated[str, Parameter(show_default=False)] = "",
    /,
    *,
    decoding: Decoding = AS_IN_RECIPE,
    machine: Machine = Machine(),
) -> None:
    """Continue a prompt with a language model.

    Streams the continuation, without the prompt, to stdout and ends it with a newline. For one
    prompt per line, use `transduce predict`.

    Parameters
    ----------
    run
        Run directory of a language model.
    prompt
        Prompt to continue. Default: empty, for unconditional generation.
    """
    with open_output() as out:
        model = machine.load(run)
        from transduce.tasks.predictors import CanContinue

        generator = model.predictor
        if not isinstance(generator, CanContinue):
            raise RunError(
                f"{run}: task {model.recipe.task!r} does not support text generation; use "
                "`transduce predict`"
            )
        # Invalid UTF-8 in arguments arrives as surrogates, which no tokenizer accepts.
        text = prompt.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        ended_line = False
        with contextlib.closing(
            generator.stream(text, chosen_options(generator, decoding))
        ) as parts:
            for part in parts:
                out.write_text(part)
                ended_line = part.endswith("\n") if part else ended_line
        if not ended_line:
            out.write_text("\n")


logger = logging.getLogger("transduce")

PROMPT = "> "
COMMANDS = {
    "/reset": "clear the conversation",
    "/history": "show it",
    "/exit": "quit, like Ctrl-D",
}


@with_decoding("continuation")
def chat(
    run: Path,
    /,
    *,
    decoding: Decoding = AS_IN_RECIPE,
    machine: Machine = Machine(),
) -> None:
    """Chat with a dialogue model.

    Each input line is a turn; replies are streamed. The conversation is kept as context; the
    oldest turns are dropped once it exceeds the maximum length. Commands: /reset clears the
    conversation, /history shows it, /exit or Ctrl-D quits; Ctrl-C stops a reply.

    In a pipe, each input line yields an output line, and a blank line stays blank. Lines of a
    slash and letters are commands and yield none. Only replies go to stdout.

    Parameters
    ----------
    run
        Run directory of a dialogue model.
    """
    with open_output() as out:
        model = machine.load(run)
        conversation = model.conversation(chosen_options_if_any(model.predictor, decoding))
        at_terminal = sys.stdin is not None and sys.stdin.isatty()
        if at_terminal:
            logger.info(", ".join(f"{name} to {what}" for name, what in COMMANDS.items()))
        _converse(conversation, _turns(at_terminal), out, at_terminal)


def _converse(
    conversation: Conversation, turns: Iterator[str], out: Output, at_terminal: bool
) -> None:
    """Reply to each turn, or execute its command, until the input ends."""
    full = False
    for turn in turns:
        match turn:
            case "":
                if not at_terminal:
                    out.write([""])
            case "/exit":
                return
            case "/reset":
                conversation.reset()
                full = False
            case "/history":
                for line in conversation.history():
                    logger.info("%s", line)
            case _ if turn.startswith("/") and turn[1:].isalpha():
                logger.warning("unknown command %s; available: %s", turn, ", ".join(COMMANDS))
            case _:
                _answer(conversation, turn, out, at_terminal)
                if conversation.forgotten and not full:
                    full = True
                    logger.warning(
                        "the conversation exceeds the maximum length; the oldest turns are dropped "
                        "from now on"
                    )


def _answer(conversation: Conversation, turn: str, out: Output, at_terminal: bool) -> None:
    """Stream a reply; at a terminal, Ctrl-C stops only the reply."""
    with contextlib.closing(conversation.reply(turn)) as parts:
        try:
            for part in parts:
                out.write_text(part if at_terminal else _in_one_line(part))
        except KeyboardInterrupt:
            if not at_terminal:
                raise
    out.write_text("\n")


def _turns(at_terminal: bool) -> Iterator[str]:
    """Stripped input lines, with a prompt for each at a terminal."""
    if not at_terminal:
        for batch in LineReader():
            yield from (line.strip() for line in batch.lines)
        return
    while True:
        try:
            write_stderr(PROMPT)
            raw = sys.stdin.buffer.readline()
            if not raw:
                logger.info("")  # Ctrl-D leaves the cursor behind the prompt
                return
            yield raw.decode("utf-8", "replace").strip()
        except KeyboardInterrupt:
            logger.info("\n/exit or Ctrl-D quits")


def _in_one_line(text: str) -> str:
    ends = {ord(character): " " for character in "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"}
    return text.translate(ends)
