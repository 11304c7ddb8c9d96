"""Table of tasks: `TASKS`.  A task joins data, model, loss and metric."""

from __future__ import annotations

from transduce.tasks.language_model.dialogue import DIALOGUE
from transduce.tasks.language_model.recommendation import RECOMMENDATION
from transduce.tasks.language_model.task import LANGUAGE_MODEL
from transduce.tasks.task import Task
from transduce.tasks.text_encoder.classification import CLASSIFICATION
from transduce.tasks.text_encoder.embedding import EMBEDDING
from transduce.tasks.text_encoder.mask_filler import MASKED_LANGUAGE_MODEL
from transduce.tasks.text_encoder.question_answering import QUESTION_ANSWERING
from transduce.tasks.translation.task import TRANSLATION
from transduce.tasks.vision.captioning import CAPTIONING
from transduce.tasks.vision.image_classification import IMAGE_CLASSIFICATION
from transduce.tasks.vision.image_embedding import IMAGE_EMBEDDING

TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        MASKED_LANGUAGE_MODEL,
        QUESTION_ANSWERING,
        TRANSLATION,
        CLASSIFICATION,
        EMBEDDING,
        CAPTIONING,
        IMAGE_CLASSIFICATION,
        IMAGE_EMBEDDING,
        LANGUAGE_MODEL,
        DIALOGUE,
        RECOMMENDATION,
    )
}
