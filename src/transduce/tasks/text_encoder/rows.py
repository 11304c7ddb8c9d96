"""Rows of the tasks of encoders of text.  Imports no torch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from transduce.nn.kernels.precision import Precision
from transduce.tasks.labels import load_labels
from transduce.tasks.recipe import Recipe
from transduce.tasks.task import Predictor, Task, imported
from transduce.tasks.text_encoder import recipes
from transduce.tasks.text_encoder.answerer import Answerer
from transduce.tasks.text_encoder.classifier import TextClassifier
from transduce.tasks.text_encoder.embedding import TextEmbedder
from transduce.tasks.text_encoder.mask_filler import MaskFiller
from transduce.tasks.text_encoder.native import NativeRun
from transduce.tasks.text_inputs import tokenizer_of

_TASKS = "transduce.tasks.text_encoder"


def _row(
    recipe: type[Recipe],
    predictor: Callable[..., Predictor],
    module: str,
    pipeline_tag: str,
    *files: Callable[[Path], Any],
) -> Task:
    """Row of a task, named as the functions that prepare and explain it.

    module: of its training.  files: read the parts of a predictor from a run, after the tokenizer.
    """
    files = (tokenizer_of, *files)
    name = recipe.task.replace("-", "_")

    def load(recipe: Any, run: Path, device: str) -> Predictor:
        from transduce.tasks.common import loader

        loaded: Predictor = loader(predictor, *files)(recipe, run, device)
        return loaded

    def load_native(recipe: Any, run: Path, precision: Precision, threads: int | None) -> Predictor:
        natively = NativeRun(run, precision, threads, lambda: load(recipe, run, "cpu").model)
        return predictor(recipe, *(read(run) for read in files), natively)

    return Task(
        recipe,
        imported(f"{_TASKS}.{module}", f"prepare_{name}"),
        load,
        imported("transduce.explain.tasks.text_encoder", f"explain_{name}"),
        load_native,
        pipeline_tag,
    )


MASKED_LANGUAGE_MODEL = _row(
    recipes.MaskedLanguageModelRecipe, MaskFiller, "mask_filler", "fill-mask"
)
QUESTION_ANSWERING = _row(
    recipes.QuestionAnsweringRecipe, Answerer, "question_answering", "question-answering"
)
CLASSIFICATION = _row(
    recipes.ClassificationRecipe,
    TextClassifier,
    "classification",
    "text-classification",
    load_labels,
)
EMBEDDING = _row(recipes.EmbeddingRecipe, TextEmbedder, "contrastive", "feature-extraction")
