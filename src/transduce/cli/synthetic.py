"""Shared part of `distil` and `backtranslate`: make pairs, then train on them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter, validators

from transduce.cli.options import Flag
from transduce.cli.output import print_lines
from transduce.errors import RunError, SettingError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from transduce.run import Run
    from transduce.synthetic import GenerationJob
    from transduce.tasks.translation.recipe import TranslationRecipe

Positive = Annotated[float, Parameter(validator=validators.Number(gt=0))]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Student:
    """The run that is trained on the pairs."""

    run: Path | None = None
    """Directory to make; by default runs/ and the recipe's name.  The pairs stand in its
    directory synthetic/."""
    overrides: Annotated[tuple[str, ...], Parameter(name="--set", show_default=False)] = ()
    """Settings of the recipe to change, as a.b=value; may be given several times."""
    weight: Positive = 1.0
    """How often an epoch sees the synthetic pairs; for the real ones, there is
    `--set data.train_weight=N`."""
    only_data: Flag = False
    """Make the pairs, print the file with them, and train nothing."""
    resume: Flag = False
    """Go on with the training that was interrupted; translations are gone on with in any case."""
    overwrite: Flag = False
    """Delete the run that is there, and synthetic pairs of another making."""

    def plan(
        self, makers: Sequence[Path], recipe: Path, more: tuple[str, ...], keep: bool, tag: str = ""
    ) -> StudentPlan:
        """What is to be done, checked before anything long has begun.

        makers: the runs that translate.  more: further overrides.  keep: whether the real pairs
        stay beside the synthetic ones.  tag: of the synthetic sources.  Raises SettingError or
        RunError for what cannot be.
        """
        import torch

        from transduce.recipes import as_recipe
        from transduce.run_directory import SYNTHETIC, check_available
        from transduce.synthetic import PAIRS, with_pairs
        from transduce.tasks.common import find_device
        from transduce.tasks.splits import check_trainable
        from transduce.tasks.translation.recipe import TranslationRecipe
        from transduce.training.distributed import check_single_process

        check_single_process("make pairs")
        for one in more:
            if "=" not in one:  # as a pattern of the shell gives several
                raise SettingError(
                    f"{one!r} is no setting; each text has a --monolingual of its own"
                )
        if self.resume and self.overwrite:
            raise SettingError("--resume keeps what --overwrite would delete; give one of them")
        given, name = as_recipe(recipe, (*self.overrides, *more))
        if not isinstance(given, TranslationRecipe):
            raise SettingError(
                f"{recipe} is of the task {given.task!r}; synthetic pairs are for 'translation'"
            )
        check_trainable(given.data)
        run = self.run if self.run is not None else Path("runs") / name
        if run.resolve() in [maker.resolve() for maker in makers]:
            raise RunError(f"{run} is the run that translates; give another --run")
        pairs = run.resolve() / SYNTHETIC / PAIRS
        recipe_with_pairs = with_pairs(given, pairs, self.weight, keep, tag)
        if not self.only_data:
            find_device(given.training.device)
            check_available(run, recipe_with_pairs, self.resume, self.overwrite)
        return StudentPlan(self, run, given, recipe_with_pairs, torch.get_num_threads())


@dataclass(frozen=True)
class StudentPlan:
    """A run to make, by the recipe that was given or, with the pairs, is to be trained by."""

    student: Student
    run: Path
    given: TranslationRecipe
    with_pairs: TranslationRecipe
    threads: int
    """PyTorch's before the run that translates was given its own."""

    def make_pairs(self, model: Run, job: GenerationJob) -> None:
        """Translate what `job` says with `model`."""
        from transduce.run_directory import SYNTHETIC, locked
        from transduce.synthetic import make_pairs
        from transduce.tasks.run_files import check_written_to

        check_written_to(self.run)
        with locked(self.run):
            alone = not self.student.only_data and not self.with_pairs.data.train_weight
            weight = self.student.weight if alone else 1.0
            pairs = make_pairs(model, job, self.run / SYNTHETIC, self.student.overwrite, weight)
        if self.student.only_data:
            print_lines(str(pairs))

    def train(self) -> None:
        """Train on the pairs, unless they alone were asked for; print the run directory."""
        import torch

        import transduce

        student = self.student
        if not student.only_data:
            torch.set_num_threads(self.threads)
            transduce.train(self.with_pairs, self.run, (), student.resume, student.overwrite)
            print_lines(str(self.run))
