"""`transduce distil`: sequence-level knowledge distillation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from transduce.cli.options import (
    THIS_MACHINE,
    TOGETHER_AS_THE_RECIPE,
    EnsembleDecoding,
    Flag,
    Machine,
)
from transduce.cli.synthetic import Student

AS_GIVEN = Student()


def distil(
    teacher: Path,
    recipe: Path,
    /,
    *more: Annotated[str, Parameter(show=False)],
    monolingual: tuple[Path, ...] = (),
    keep_references: Flag = False,
    ensemble: tuple[Path, ...] = (),
    student: Student = AS_GIVEN,
    decoding: EnsembleDecoding = TOGETHER_AS_THE_RECIPE,
    machine: Machine = THIS_MACHINE,
) -> None:
    """Train a student on what a teacher makes of the training sources, or of other texts.

    The teacher translates the source side of the recipe's training data; the student learns these
    translations instead of the references. Validation and test data stay as they are. Prints the
    run directory. The same command goes on with translations that were interrupted.

    Parameters
    ----------
    teacher
        The run directory of the model that translates.
    recipe
        The recipe of the student: a TOML file.
    more
        Further overrides, as in `--set a.b=1 c.d=2`.
    monolingual
        Text of the source language, one a line, plain or compressed, to be translated instead of
        the training sources; may be given several times.
    keep_references
        Train on the original pairs as well.
    ensemble
        Another teacher with the same vocabularies, to translate with both; may be given several
        times.
    """
    from transduce.synthetic import distillation

    plan = student.plan((teacher, *ensemble), recipe, more, keep_references)
    model = machine.load_together(teacher, ensemble)
    options = decoding.over(model.translator)
    plan.make_pairs(model, distillation(plan.given.data, options, monolingual))
    del model  # its memory is for the student
    plan.train()
