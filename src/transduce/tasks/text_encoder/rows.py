"""Rows of the tasks of encoders of text."""

from __future__ import annotations

from transduce.explain.tasks.text_encoder import (
    explain_classification,
    explain_embedding,
    explain_masked_language_model,
    explain_question_answering,
)
from transduce.tasks.task import Task
from transduce.tasks.text_encoder.classification import (
    ClassificationRecipe,
    load_classification,
    parse_classification,
    train_classification,
)
from transduce.tasks.text_encoder.contrastive import load_embedding, train_embedding
from transduce.tasks.text_encoder.embedding import EmbeddingRecipe, parse_embedding
from transduce.tasks.text_encoder.mask_filler import (
    load_masked_language_model,
    train_masked_language_model,
)
from transduce.tasks.text_encoder.masked_language_model import (
    MaskedLanguageModelRecipe,
    parse_masked_language_model,
)
from transduce.tasks.text_encoder.question_answering import (
    QuestionAnsweringRecipe,
    load_question_answering,
    parse_question_answering,
    train_question_answering,
)

MASKED_LANGUAGE_MODEL = Task(
    MaskedLanguageModelRecipe,
    parse_masked_language_model,
    train_masked_language_model,
    load_masked_language_model,
    explain_masked_language_model,
    pipeline_tag="fill-mask",
)
QUESTION_ANSWERING = Task(
    QuestionAnsweringRecipe,
    parse_question_answering,
    train_question_answering,
    load_question_answering,
    explain_question_answering,
    pipeline_tag="question-answering",
)
CLASSIFICATION = Task(
    ClassificationRecipe,
    parse_classification,
    train_classification,
    load_classification,
    explain_classification,
    pipeline_tag="text-classification",
)
EMBEDDING = Task(
    EmbeddingRecipe,
    parse_embedding,
    train_embedding,
    load_embedding,
    explain_embedding,
    pipeline_tag="feature-extraction",
)
