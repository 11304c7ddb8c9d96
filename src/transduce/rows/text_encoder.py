"""Rows of the tasks of encoders of text.  Imports no torch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transduce.nn.precision import Precision
from transduce.tasks.labels import load_labels
from transduce.tasks.recipe import Recipe
from transduce.tasks.task import Predictor, Task, imported
from transduce.tasks.text_encoder import recipes
from transduce.tasks.text_encoder.mask_filler import MaskFiller
from transduce.tasks.text_encoder.predictor import Answerer, NativeRun, TextClassifier, TextEmbedder
from transduce.tasks.text_inputs import tokenizer_of

if TYPE_CHECKING:
    from transduce.explain.explanation import Explanation
    from transduce.explain.live import LiveModel
    from transduce.tasks.training import PreparedTask


def _prepared(module: str, name: str) -> Callable[..., Any]:
    return imported(f"transduce.tasks.text_encoder.{module}", name)


def _shown(name: str) -> Callable[..., Any]:
    return imported("transduce.explain.tasks", name)


LIVE = _shown("live_text_encoder")


def _row(
    recipe: type[Recipe],
    predictor: Callable[..., Predictor],
    prepare: Callable[[Any, Path], PreparedTask],
    *files: Callable[[Path], Any],
    explain: Callable[..., Explanation] | None = None,
    live: Callable[[Any, str], LiveModel] | None = None,
    pipeline_tag: str = "",
) -> Task:
    """Row of a task, as in `Task`.

    files: read the parts of a predictor from a run, after the tokenizer.
    """
    files = (tokenizer_of, *files)

    def load(recipe: Any, run: Path, device: str) -> Predictor:
        from transduce.tasks.training import loader

        loaded: Predictor = loader(predictor, *files)(recipe, run, device)
        return loaded

    def load_native(recipe: Any, run: Path, precision: Precision, threads: int | None) -> Predictor:
        natively = NativeRun(run, precision, threads, lambda: load(recipe, run, "cpu").model)
        return predictor(recipe, *(read(run) for read in files), natively)

    return Task(recipe, prepare, load, explain, load_native, live, pipeline_tag)


MASKED_LANGUAGE_MODEL = _row(
    recipes.MaskedLanguageModelRecipe,
    MaskFiller,
    _prepared("mask_filler", "prepare_masked_language_model"),
    explain=_shown("explain_masked_language_model"),
    live=LIVE,
    pipeline_tag="fill-mask",
)
QUESTION_ANSWERING = _row(
    recipes.QuestionAnsweringRecipe,
    Answerer,
    _prepared("question_answering", "prepare_question_answering"),
    explain=_shown("explain_question_answering"),
    pipeline_tag="question-answering",
)
CLASSIFICATION = _row(
    recipes.ClassificationRecipe,
    TextClassifier,
    _prepared("classification", "prepare_classification"),
    load_labels,
    explain=_shown("explain_classification"),
    live=LIVE,
    pipeline_tag="text-classification",
)
EMBEDDING = _row(
    recipes.EmbeddingRecipe,
    TextEmbedder,
    _prepared("contrastive", "prepare_embedding"),
    explain=_shown("explain_embedding"),
    live=LIVE,
    pipeline_tag="feature-extraction",
)
