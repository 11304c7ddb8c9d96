"""A task joins data, model, loss and metric.  `TASKS` is the table of all of them."""

from __future__ import annotations

from transduce.tasks.captioning import load_captioning, parse_captioning, train_captioning
from transduce.tasks.classification import (
    load_classification,
    parse_classification,
    train_classification,
)
from transduce.tasks.dialogue import load_dialogue, parse_dialogue, train_dialogue
from transduce.tasks.embedding import load_embedding, parse_embedding, train_embedding
from transduce.tasks.image_classification import (
    load_image_classification,
    parse_image_classification,
    train_image_classification,
)
from transduce.tasks.image_embedding import (
    load_image_embedding,
    parse_image_embedding,
    train_image_embedding,
)
from transduce.tasks.language_model import (
    load_language_model,
    parse_language_model,
    train_language_model,
)
from transduce.tasks.mask_filler import load_masked_language_model, train_masked_language_model
from transduce.tasks.masked_language_model import parse_masked_language_model
from transduce.tasks.question_answering import (
    load_question_answering,
    parse_question_answering,
    train_question_answering,
)
from transduce.tasks.recipe import parse_translation
from transduce.tasks.recommendation import (
    load_recommendation,
    parse_recommendation,
    train_recommendation,
)
from transduce.tasks.task import Task
from transduce.tasks.translation import load_translation, train_translation

TASKS: dict[str, Task] = {
    "masked-language-model": Task(
        parse_masked_language_model, train_masked_language_model, load_masked_language_model
    ),
    "question-answering": Task(
        parse_question_answering, train_question_answering, load_question_answering
    ),
    "translation": Task(parse_translation, train_translation, load_translation),
    "classification": Task(parse_classification, train_classification, load_classification),
    "embedding": Task(parse_embedding, train_embedding, load_embedding),
    "captioning": Task(parse_captioning, train_captioning, load_captioning),
    "image-classification": Task(
        parse_image_classification, train_image_classification, load_image_classification
    ),
    "image-embedding": Task(parse_image_embedding, train_image_embedding, load_image_embedding),
    "language-model": Task(parse_language_model, train_language_model, load_language_model),
    "dialogue": Task(parse_dialogue, train_dialogue, load_dialogue),
    "recommendation": Task(parse_recommendation, train_recommendation, load_recommendation),
}
