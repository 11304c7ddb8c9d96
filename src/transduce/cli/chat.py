"""`transduce chat`: conversation in the terminal or through a pipe."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from transduce.cli.console import write_stderr
from transduce.cli.lines import LineReader
from transduce.cli.options import (
    AS_IN_RECIPE,
    Decoding,
    Machine,
    chosen_options_if_any,
    with_decoding,
)
from transduce.cli.output import Output, open_output

if TYPE_CHECKING:
    from transduce.tasks.language_model.dialogue import Conversation

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
