"""`transduce backtranslate`: back-translation of monolingual text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from transduce.cli.options import (
    AS_IN_RECIPE,
    Decoding,
    Machine,
    Models,
    chosen_options,
    with_decoding,
)
from transduce.cli.synthetic import Student


@with_decoding("translation", "ensemble")
def backtranslate(
    reverse: Path,
    recipe: Path,
    /,
    *more: Annotated[str, Parameter(show=False)],
    monolingual: tuple[Path, ...],
    tag: Annotated[str, Parameter(show_default=False)] = "",
    ensemble: Models = (),
    student: Student = Student(),
    decoding: Decoding = AS_IN_RECIPE,
    machine: Machine = Machine(),
) -> None:
    """Train with back-translated monolingual text.

    Translates target-language text into the source language with a reverse model, then trains the
    recipe on the parallel and the synthetic pairs. Prints the run directory. Repeat the command to
    continue interrupted translation.

    Parameters
    ----------
    reverse
        Run directory of the reverse model, from the target into the source language.
    recipe
        Recipe to train (TOML file).
    more
        Further overrides, as in `--set a.b=1 c.d=2`.
    monolingual
        File with a target-language text per line, plain or compressed. May be repeated.
    tag
        Tagged back-translation: begin each synthetic source with `<tag> `.
    ensemble
        Another reverse run to decode with as an ensemble; requires the same vocabularies. May be
        repeated.
    """
    from transduce.runs.synthetic import back_translation

    plan = student.plan((reverse, *ensemble), recipe, more, True, tag)
    model = machine.load_together(reverse, ensemble)
    options = chosen_options(model.translator, decoding)
    plan.make_pairs(model, back_translation(monolingual, options))
    del model  # frees memory for training
    plan.train()
