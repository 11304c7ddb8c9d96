"""`transduce chat`: a conversation in the terminal, or through a pipe."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from transduce.cli.lines import LineReader
from transduce.cli.options import AS_THE_RECIPE, THIS_MACHINE, Decoding, Machine
from transduce.cli.output import Output, open_output

if TYPE_CHECKING:
    from transduce.tasks.language_model.dialogue import Conversation

logger = logging.getLogger("transduce")

PROMPT = "> "
COMMANDS = {
    "/reset": "forget what was said",
    "/history": "show what was said",
    "/exit": "end, as Ctrl-D does",
}


def chat(
    run: Path,
    /,
    *,
    decoding: Decoding = AS_THE_RECIPE,
    machine: Machine = THIS_MACHINE,
) -> None:
    """Talk with a model that was trained on dialogues.

    Each line is a turn, and is replied to as the reply is made; what was said is remembered for as
    long as there is room.  /reset forgets it, /history shows it, /exit or Ctrl-D end; Ctrl-C stops
    a reply.  Replies go to stdout, everything else to stderr: through a pipe each line gets one
    line, a blank one a blank one, but for lines of / and letters alone: commands, right or wrong.

    Parameters
    ----------
    run
        A run directory of the task `dialogue`.
    """
    with open_output() as out:
        model = machine.load(run)
        conversation = model.conversation(decoding.over_any(model.predictor))
        at_terminal = sys.stdin is not None and sys.stdin.isatty()
        lines = LineReader()
        if at_terminal:
            logger.info(", ".join(f"{name} to {what}" for name, what in COMMANDS.items()))
        _converse(conversation, _turns(lines, at_terminal), out, at_terminal)


def _converse(
    conversation: Conversation, turns: Iterator[str], out: Output, at_terminal: bool
) -> None:
    """Answer each line, or do as it says, until there are no more."""
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
                logger.warning("there is no command %s; there are %s", turn, ", ".join(COMMANDS))
            case _:
                _answer(conversation, turn, out, at_terminal)
                if conversation.forgotten and not full:
                    full = True
                    logger.warning(
                        "there is no more room for all that was said: from now on the model "
                        "forgets the oldest turns"
                    )


def _answer(conversation: Conversation, turn: str, out: Output, at_terminal: bool) -> None:
    """Write a reply as it is made; Ctrl-C at a terminal ends the reply and nothing else."""
    with contextlib.closing(conversation.reply(turn)) as parts:
        try:
            for part in parts:
                out.write_text(part if at_terminal else _in_one_line(part))
        except KeyboardInterrupt:
            if not at_terminal:
                raise
    out.write_text("\n")


def _turns(lines: LineReader, at_terminal: bool) -> Iterator[str]:
    """Lines as they come, without white space around them; at a terminal each is asked for."""
    if not at_terminal:
        for batch in lines:
            yield from (line.strip() for line in batch.lines)
        return
    while True:
        try:
            _ask()
            for batch in lines:
                for line in batch.lines:
                    yield line.strip()
                    _ask()
            logger.info("")  # Ctrl-D leaves the cursor behind the prompt
            return
        except KeyboardInterrupt:
            logger.info("\n/exit or Ctrl-D end the conversation")


def _in_one_line(text: str) -> str:
    """The text with a space for each character that may end a line."""
    ends = {ord(character): " " for character in "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"}
    return text.translate(ends)


def _ask() -> None:
    if sys.stderr is not None:
        with contextlib.suppress(OSError):  # nobody looks: no reason to stop
            sys.stderr.write(PROMPT)
            sys.stderr.flush()
