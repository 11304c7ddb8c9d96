"""`transduce distil` and `transduce backtranslate`: make pairs, then train on them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter, validators

from transduce.cli.options import (
    AS_IN_RECIPE,
    Decoding,
    Flag,
    Machine,
    Models,
    chosen_options,
    with_decoding,
)
from transduce.cli.output import print_lines
from transduce.errors import RunError, SettingError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from transduce.loading import Run
    from transduce.runs.synthetic import GenerationJob
    from transduce.tasks.translation.recipe import TranslationRecipe


Positive = Annotated[float, Parameter(validator=validators.Number(gt=0))]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Student:
    """Options of the run trained on the pairs."""

    run: Path | None = None
    """Run directory to create, with the pairs in synthetic/. Default: the recipe's name, in
    runs/."""
    overrides: Annotated[tuple[str, ...], Parameter(name="--set", show_default=False)] = ()
    """Override a setting of the recipe: SECTION.NAME=VALUE. May be repeated."""
    weight: Positive = 1.0
    """Weight (repetitions per epoch) of the synthetic pairs. For the parallel data, use
    `--set data.train_weight=N`."""
    only_data: Flag = False
    """Generate the synthetic pairs and print their file, without training."""
    resume: Flag = False
    """Resume interrupted training. Interrupted translation is always continued."""
    overwrite: Flag = False
    """Replace an existing run, and synthetic pairs made with other settings."""

    def plan(
        self, makers: Sequence[Path], recipe: Path, more: tuple[str, ...], keep: bool, tag: str = ""
    ) -> StudentPlan:
        """Plan the job and validate it before any long step.

        makers: runs that translate.  more: further overrides.  keep: train on the original pairs
        too.  tag: tag of synthetic sources.  Raises SettingError or RunError.
        """
        import torch

        from transduce.recipes import as_recipe
        from transduce.runs.directory import SYNTHETIC, check_available
        from transduce.runs.synthetic import PAIRS, with_pairs
        from transduce.tasks.recipe import check_trainable
        from transduce.tasks.training import find_device
        from transduce.tasks.translation.recipe import TranslationRecipe
        from transduce.training.distributed import check_single_process

        check_single_process("make pairs")
        for override in more:
            if "=" not in override:  # as from a shell pattern
                raise SettingError(
                    f"{override!r}: expected SECTION.NAME=VALUE; repeat --monolingual for each file"
                )
        if self.resume and self.overwrite:
            raise SettingError("--resume cannot be combined with --overwrite; give one of them")
        original, name = as_recipe(recipe, (*self.overrides, *more))
        if not isinstance(original, TranslationRecipe):
            raise SettingError(
                f"{recipe}: expected a recipe of task 'translation', got {original.task!r}"
            )
        check_trainable(original.data)
        run = self.run if self.run is not None else Path("runs") / name
        if run.resolve() in [maker.resolve() for maker in makers]:
            raise RunError(f"{run} is the translating run itself; give another --run")
        pairs = run.resolve() / SYNTHETIC / PAIRS
        recipe_with_pairs = with_pairs(original, pairs, self.weight, keep, tag)
        if not self.only_data:
            find_device(original.training.device)
            check_available(run, recipe_with_pairs, self.resume, self.overwrite)
        return StudentPlan(self, run, original, recipe_with_pairs, torch.get_num_threads())


@dataclass(frozen=True)
class StudentPlan:
    """Validated job: the run, the original recipe, and the recipe with the synthetic pairs."""

    student: Student
    run: Path
    original: TranslationRecipe
    with_pairs: TranslationRecipe
    threads: int
    """PyTorch's number of threads before --threads applied to translation."""

    def make_pairs(self, model: Run, job: GenerationJob) -> None:
        """Generate the pairs of `job` with `model`."""
        from transduce.runs.directory import SYNTHETIC, locked
        from transduce.runs.synthetic import make_pairs
        from transduce.training.weight_files import check_written_to

        check_written_to(self.run)
        with locked(self.run):
            alone = not self.student.only_data and not self.with_pairs.data.train_weight
            weight = self.student.weight if alone else 1.0
            pairs = make_pairs(model, job, self.run / SYNTHETIC, self.student.overwrite, weight)
        if self.student.only_data:
            print_lines(str(pairs))

    def train(self) -> None:
        """Train on the pairs, unless --only-data; print the run directory."""
        import torch

        import transduce

        student = self.student
        if not student.only_data:
            torch.set_num_threads(self.threads)
            transduce.train(self.with_pairs, self.run, (), student.resume, student.overwrite)
            print_lines(str(self.run))


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
