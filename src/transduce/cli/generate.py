"""`transduce generate`: continue a prompt, printed as it is generated."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from transduce.cli.options import AS_THE_RECIPE, THIS_MACHINE, Decoding, Machine
from transduce.cli.output import open_output
from transduce.errors import RunError


def generate(
    run: Path,
    prompt: Annotated[str, Parameter(show_default=False)] = "",
    /,
    *,
    decoding: Decoding = AS_THE_RECIPE,
    machine: Machine = THIS_MACHINE,
) -> None:
    """Go on from a prompt, and show the text as it comes.

    The continuation goes to stdout exactly as it is, without the prompt and with a line end after
    it.  For many prompts, one a line, there is `transduce predict`.

    Parameters
    ----------
    run
        A run directory of a language model.
    prompt
        The text to go on from; without it, a text from its beginning.
    """
    with open_output() as out:
        model = machine.load(run)
        from transduce.tasks.language_model.generator import Generator

        generator = model.predictor
        if not isinstance(generator, Generator):
            raise RunError(
                f"{run} is a run of the task {model.recipe.task!r}, which does not go on from "
                "texts; use predict"
            )
        # Bytes of the command line that are not UTF-8 come as surrogates, which no tokenizer knows.
        text = prompt.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        ended_line = False
        with contextlib.closing(generator.generate_stream(text, decoding.over(generator))) as parts:
            for part in parts:
                out.write_text(part)
                ended_line = part.endswith("\n") if part else ended_line
        if not ended_line:
            out.write_text("\n")
