"""Rows of the tasks of images."""

from __future__ import annotations

from transduce.explain.tasks.vision import (
    explain_captioning,
    explain_image_classification,
    explain_image_embedding,
)
from transduce.tasks.task import Task
from transduce.tasks.vision.captioning import (
    CaptioningRecipe,
    load_captioning,
    parse_captioning,
    train_captioning,
)
from transduce.tasks.vision.image_classification import (
    ImageClassificationRecipe,
    load_image_classification,
    parse_image_classification,
    train_image_classification,
)
from transduce.tasks.vision.image_embedding import (
    ImageEmbeddingRecipe,
    load_image_embedding,
    parse_image_embedding,
    train_image_embedding,
)

CAPTIONING = Task(
    CaptioningRecipe,
    parse_captioning,
    train_captioning,
    load_captioning,
    explain_captioning,
    pipeline_tag="image-to-text",
)
IMAGE_CLASSIFICATION = Task(
    ImageClassificationRecipe,
    parse_image_classification,
    train_image_classification,
    load_image_classification,
    explain_image_classification,
    pipeline_tag="image-classification",
)
IMAGE_EMBEDDING = Task(
    ImageEmbeddingRecipe,
    parse_image_embedding,
    train_image_embedding,
    load_image_embedding,
    explain_image_embedding,
    pipeline_tag="image-feature-extraction",
)
