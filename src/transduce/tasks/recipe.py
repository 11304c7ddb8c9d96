"""Base of the recipes of all tasks.  Imports no torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field

from transduce.errors import SettingError
from transduce.settings.paths import LiteralText, absolute_path
from transduce.settings.sections import parse, section
from transduce.tasks.recipe_settings import with_base_run, with_preset
from transduce.tasks.sections import RootedData
from transduce.training.config import TrainingConfig

Split = Literal["train", "valid", "test"]


@section
class Recipe:
    """Base of all recipes: task, seed, data, model, training; a task adds sections of its own.

    presets: values of `model.preset`.  bases: tasks of runs to start from, with `fine_tune`.
    inherited: settings of the base run that are the defaults, as `section` or `section.name`,
    beside those of the model.
    """

    presets: ClassVar[Mapping[str, Any]] = {}
    bases: ClassVar[tuple[str, ...]] = ()
    inherited: ClassVar[tuple[str, ...]] = ()

    task: str
    """A key of `TASKS`."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 1
    """Random seed of the initial weights, dropout and the order of the data; also of augmentation,
    token masking and the cropping of long texts, in tasks with them."""
    data: RootedData
    model: Any
    training: TrainingConfig = TrainingConfig()

    @classmethod
    def parse(cls, settings: Mapping[str, Any], where: str) -> Self:
        """Settings of a file as a recipe, usable from any directory.

        where: name of the file, for messages.  Raises SettingError for a wrong setting.
        """
        if cls.presets:
            settings = with_preset(settings, cls.presets, where)
        recipe = parse(cls, cls.with_base(settings), where)
        try:
            root = absolute_path(LiteralText(recipe.data.root))
        except ValueError as error:
            raise SettingError(f"data.root: {error}") from None
        return dataclasses.replace(recipe, data=dataclasses.replace(recipe.data, root=root))

    @classmethod
    def with_base(cls, settings: Mapping[str, Any]) -> Mapping[str, Any]:
        """Settings with those inherited from the run in `fine_tune.run`."""
        return with_base_run(settings, cls.bases, cls.inherited)
