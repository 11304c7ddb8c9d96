"""Rows of the tasks of encoders of text."""

from __future__ import annotations

from transduce.explain.tasks import text_encoder as explained
from transduce.tasks.common import loader
from transduce.tasks.labels import load_labels
from transduce.tasks.task import Task
from transduce.tasks.text_encoder import (
    classification,
    contrastive,
    embedding,
    mask_filler,
    masked_language_model,
    question_answering,
)
from transduce.tasks.text_inputs import tokenizer_of

MASKED_LANGUAGE_MODEL = Task(
    masked_language_model.MaskedLanguageModelRecipe,
    mask_filler.prepare_masked_language_model,
    loader(mask_filler.MaskFiller, tokenizer_of),
    explained.explain_masked_language_model,
    pipeline_tag="fill-mask",
)
QUESTION_ANSWERING = Task(
    question_answering.QuestionAnsweringRecipe,
    question_answering.prepare_question_answering,
    loader(question_answering.TrainedAnswerer, tokenizer_of),
    explained.explain_question_answering,
    pipeline_tag="question-answering",
)
CLASSIFICATION = Task(
    classification.ClassificationRecipe,
    classification.prepare_classification,
    loader(classification.TextClassifier, tokenizer_of, load_labels),
    explained.explain_classification,
    pipeline_tag="text-classification",
)
EMBEDDING = Task(
    embedding.EmbeddingRecipe,
    contrastive.prepare_embedding,
    loader(embedding.TextEmbedder, tokenizer_of),
    explained.explain_embedding,
    pipeline_tag="feature-extraction",
)
