"""Table of tasks: `TASKS`.  A task joins data, model, loss and metric."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from transduce.errors import SettingError
from transduce.inspect.explanation import Explanation
from transduce.tasks.language_model.dialogue import DIALOGUE
from transduce.tasks.language_model.explain import explain_generation, explain_recommendation
from transduce.tasks.language_model.recommendation import RECOMMENDATION
from transduce.tasks.language_model.task import LANGUAGE_MODEL
from transduce.tasks.speech.explain import explain_speech
from transduce.tasks.speech.explain_synthesis import explain_synthesis
from transduce.tasks.speech.synthesis import SPEECH_SYNTHESIS
from transduce.tasks.speech.task import SPEECH_RECOGNITION, SPEECH_TRANSLATION
from transduce.tasks.task import Task
from transduce.tasks.text_encoder.classification import CLASSIFICATION
from transduce.tasks.text_encoder.contrastive import EMBEDDING
from transduce.tasks.text_encoder.explain import (
    explain_classification,
    explain_embedding,
    explain_masked_language_model,
    explain_question_answering,
)
from transduce.tasks.text_encoder.mask_filler import MASKED_LANGUAGE_MODEL
from transduce.tasks.text_encoder.question_answering import QUESTION_ANSWERING
from transduce.tasks.translation.explain import explain_translation
from transduce.tasks.translation.task import TRANSLATION
from transduce.tasks.vision.captioning import CAPTIONING
from transduce.tasks.vision.explain import (
    explain_captioning,
    explain_image_classification,
    explain_image_embedding,
)
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
        SPEECH_RECOGNITION,
        SPEECH_TRANSLATION,
        SPEECH_SYNTHESIS,
    )
}

EXPLAINERS: dict[str, Callable[[Any, tuple[str, ...]], Explanation]] = {
    "masked-language-model": explain_masked_language_model,
    "question-answering": explain_question_answering,
    "translation": explain_translation,
    "classification": explain_classification,
    "embedding": explain_embedding,
    "captioning": explain_captioning,
    "image-classification": explain_image_classification,
    "image-embedding": explain_image_embedding,
    "language-model": explain_generation,
    "dialogue": explain_generation,
    "recommendation": explain_recommendation,
    "speech-recognition": explain_speech,
    "speech-translation": explain_speech,
    "speech-synthesis": explain_synthesis,
}
"""By task: trained model, the parts of one input -> that input on its way through the model."""


def explainer_of(task: str) -> Callable[[Any, tuple[str, ...]], Explanation]:
    """The row of `EXPLAINERS` of a task.  Raises SettingError if there is none."""
    if task not in EXPLAINERS:
        raise SettingError(f"the task {task!r} has no explanation; add it to EXPLAINERS")
    return EXPLAINERS[task]
