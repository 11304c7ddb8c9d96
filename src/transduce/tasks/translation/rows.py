"""Row of translation.  Imports no torch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from transduce.nn.kernels.precision import Precision
from transduce.tasks.task import Task
from transduce.tasks.translation.recipe import TranslationRecipe

if TYPE_CHECKING:
    from transduce.explain.explanation import Explanation
    from transduce.tasks.translation.task import TranslationTraining
    from transduce.tasks.translation.translator import Translator


def prepare(recipe: TranslationRecipe, run: Path) -> TranslationTraining:
    """As `prepare_translation`."""
    from transduce.tasks.translation.task import prepare_translation

    return prepare_translation(recipe, run)


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
    prepare,
    load,
    explain,
    load_native,
    pipeline_tag="translation",
)
