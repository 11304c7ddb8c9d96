"""`transduce backtranslate`: monolingual text as further training data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from transduce.cli.options import THIS_MACHINE, TOGETHER_AS_THE_RECIPE, EnsembleDecoding, Machine
from transduce.cli.synthetic import Student

AS_GIVEN = Student()


def backtranslate(
    reverse: Path,
    recipe: Path,
    /,
    *more: Annotated[str, Parameter(show=False)],
    monolingual: tuple[Path, ...],
    tag: Annotated[str, Parameter(show_default=False)] = "",
    ensemble: tuple[Path, ...] = (),
    student: Student = AS_GIVEN,
    decoding: EnsembleDecoding = TOGETHER_AS_THE_RECIPE,
    machine: Machine = THIS_MACHINE,
) -> None:
    """Train on monolingual text too, with sources that a reverse run makes.

    A run of the other direction translates text of the target language; the recipe is trained on
    its real pairs and on these, whose targets are genuine. Prints the run directory. The same
    command goes on with translations that were interrupted.

    Parameters
    ----------
    reverse
        A run directory that translates from the recipe's target language into its source's.
    recipe
        The recipe to train by: a TOML file.
    more
        Further overrides, as in `--set a.b=1 c.d=2`.
    monolingual
        Text of the target language, one a line, plain or compressed; may be given several times.
    tag
        Put before each synthetic source as `<tag> `, so that the model can tell them from real
        ones.
    ensemble
        Another reverse run with the same vocabularies, to translate with both; may be given
        several times.
    """
    from transduce.synthetic import back_translation

    plan = student.plan((reverse, *ensemble), recipe, more, True, tag)
    model = machine.load_together(reverse, ensemble)
    options = decoding.over(model.translator)
    plan.make_pairs(model, back_translation(monolingual, options))
    del model  # its memory is for the run to train
    plan.train()
