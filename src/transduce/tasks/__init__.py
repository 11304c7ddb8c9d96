"""A task joins data, model, loss and metric.  `TASKS` is the table of all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from transduce.tasks.recipe import TranslationRecipe, parse_translation
from transduce.tasks.translation import load_translation, train_translation
from transduce.tasks.translator import Translator
from transduce.training.trainer import Outcome


class Task(NamedTuple):
    """What a task can do."""

    parse: Callable[[Mapping[str, Any], str], TranslationRecipe]
    """Settings and the name of their file -> recipe."""
    train: Callable[[TranslationRecipe, Path, bool], Outcome]
    """Recipe, run directory, whether to resume -> how it ended."""
    load: Callable[[TranslationRecipe, Path, str], Translator]
    """Recipe, run directory, device -> trained model."""


TASKS: dict[str, Task] = {
    "translation": Task(parse_translation, train_translation, load_translation),
}
