"""Row of translation.  Imports no torch."""

from __future__ import annotations

from transduce.tasks.task import Task, imported
from transduce.tasks.translation.recipe import TranslationRecipe

_TASK = "transduce.tasks.translation"

TRANSLATION = Task(
    TranslationRecipe,
    imported(f"{_TASK}.task", "prepare_translation"),
    imported(f"{_TASK}.task", "load_translation"),
    imported("transduce.explain.tasks.translation", "explain_translation"),
    imported(f"{_TASK}.native", "load_native"),
    imported("transduce.explain.tasks.live", "live_translation"),
    "translation",
)
