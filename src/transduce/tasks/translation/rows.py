"""Row of translation.  Imports no torch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from transduce.nn.kernels.precision import Precision
from transduce.tasks.task import Task
from transduce.tasks.translation.recipe import TranslationRecipe, parse_translation

if TYPE_CHECKING:
    from transduce.explain.explanation import Explanation
    from transduce.tasks.translation.translator import Translator
    from transduce.training.trainer import Outcome


def train(recipe: TranslationRecipe, run: Path, resume: bool) -> Outcome:
    """As `train_translation`."""
    from transduce.tasks.translation.task import train_translation

    return train_translation(recipe, run, resume)


def load(recipe: TranslationRecipe, run: Path, device: str) -> Translator:
    """As `load_translation`."""
    from transduce.tasks.translation.task import load_translation

    return load_translation(recipe, run, device)


def load_native(
    recipe: TranslationRecipe, run: Path, precision: Precision, threads: int | None
) -> Translator:
    """As `load_native` of `native.py`."""
    from transduce.tasks.translation import native

    return native.load_native(recipe, run, precision, threads)


def explain(translator: Translator, parts: tuple[str, ...]) -> Explanation:
    """As `explain_translation`."""
    from transduce.explain.tasks.translation import explain_translation

    return explain_translation(translator, parts)


TRANSLATION = Task(
    TranslationRecipe,
    parse_translation,
    train,
    load,
    explain,
    load_native,
    pipeline_tag="translation",
)
