"""A task joins data, model, loss and metric.  `TASKS` is the table of all of them."""

from __future__ import annotations

from transduce.tasks.language_model.dialogue import load_dialogue, parse_dialogue, train_dialogue
from transduce.tasks.language_model.recommendation import (
    load_recommendation,
    parse_recommendation,
    train_recommendation,
)
from transduce.tasks.language_model.task import (
    load_language_model,
    parse_language_model,
    train_language_model,
)
from transduce.tasks.task import Task
from transduce.tasks.text_encoder.classification import (
    load_classification,
    parse_classification,
    train_classification,
)
from transduce.tasks.text_encoder.embedding import load_embedding, parse_embedding, train_embedding
from transduce.tasks.text_encoder.mask_filler import (
    load_masked_language_model,
    train_masked_language_model,
)
from transduce.tasks.text_encoder.masked_language_model import parse_masked_language_model
from transduce.tasks.text_encoder.question_answering import (
    load_question_answering,
    parse_question_answering,
    train_question_answering,
)
from transduce.tasks.translation.recipe import parse_translation
from transduce.tasks.translation.task import load_translation, train_translation
from transduce.tasks.vision.captioning import load_captioning, parse_captioning, train_captioning
from transduce.tasks.vision.image_classification import (
    load_image_classification,
    parse_image_classification,
    train_image_classification,
)
from transduce.tasks.vision.image_embedding import (
    load_image_embedding,
    parse_image_embedding,
    train_image_embedding,
)

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
