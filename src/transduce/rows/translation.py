"""Row of translation.  Imports no torch."""

from transduce.tasks.task import Task, imported
from transduce.tasks.translation.recipe import TranslationRecipe

_TASK = "transduce.tasks.translation"

TRANSLATION = Task(
    TranslationRecipe,
    imported("transduce.tasks.translation.training", "prepare_translation"),
    imported("transduce.tasks.translation.training", "load_translation"),
    imported("transduce.explain.tasks", "explain_translation"),
    imported("transduce.tasks.translation.native", "load_native"),
    imported("transduce.explain.tasks", "live_translation"),
    "translation",
)
