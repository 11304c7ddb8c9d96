"""`transduce distil`: sequence-level knowledge distillation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from transduce.cli.options import (
    AS_IN_RECIPE,
    Decoding,
    Flag,
    Machine,
    Models,
    chosen_options,
    with_decoding,
)
from transduce.cli.synthetic import Student


@with_decoding("translation", "ensemble")
def distil(
    teacher: Path,
    recipe: Path,
    /,
    *more: Annotated[str, Parameter(show=False)],
    monolingual: Annotated[tuple[Path, ...], Parameter(show_default=False)] = (),
    keep_references: Flag = False,
    ensemble: Models = (),
    student: Student = Student(),
    decoding: Decoding = AS_IN_RECIPE,
    machine: Machine = Machine(),
) -> None:
    """Train a student by sequence-level knowledge distillation.

    The teacher translates the training sources; the student is trained on the translations instead
    of the references. Validation and test data are unchanged. Prints the run directory. Repeat the
    command to continue interrupted translation.

    Parameters
    ----------
    teacher
        Run directory of the teacher.
    recipe
        Recipe of the student (TOML file).
    more
        Further overrides, as in `--set a.b=1 c.d=2`.
    monolingual
        File with a source-language text per line, plain or compressed, to translate instead of
        the training sources. May be repeated.
    keep_references
        Train on the original pairs as well.
    ensemble
        Another teacher to decode with as an ensemble; requires the same vocabularies. May be
        repeated.
    """
    from transduce.runs.synthetic import distillation

    plan = student.plan((teacher, *ensemble), recipe, more, keep_references)
    model = machine.load_together(teacher, ensemble)
    options = chosen_options(model.translator, decoding)
    plan.make_pairs(model, distillation(plan.original.data, options, monolingual))
    del model  # frees memory for the student
    plan.train()
