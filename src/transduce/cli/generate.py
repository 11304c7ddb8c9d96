"""`transduce generate`: continue a prompt, printed as it is generated."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from transduce.cli.options import (
    AS_IN_RECIPE,
    Decoding,
    Machine,
    chosen_options,
    with_decoding,
)
from transduce.cli.output import open_output
from transduce.errors import RunError


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
        from transduce.runs.capabilities import CanContinue

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
