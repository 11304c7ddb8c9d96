"""Rows of the tasks of images."""

from __future__ import annotations

from transduce.explain.tasks import vision as explained
from transduce.tasks.common import cache_of, loader
from transduce.tasks.labels import load_labels
from transduce.tasks.task import Task
from transduce.tasks.text_inputs import tokenizer_of
from transduce.tasks.vision import captioning, image_classification, image_embedding

CAPTIONING = Task(
    captioning.CaptioningRecipe,
    captioning.prepare_captioning,
    loader(captioning.new_captioner, tokenizer_of, cache_of),
    explained.explain_captioning,
    pipeline_tag="image-to-text",
)
IMAGE_CLASSIFICATION = Task(
    image_classification.ImageClassificationRecipe,
    image_classification.prepare_image_classification,
    loader(image_classification.ImageClassifier, load_labels, cache_of),
    explained.explain_image_classification,
    pipeline_tag="image-classification",
)
IMAGE_EMBEDDING = Task(
    image_embedding.ImageEmbeddingRecipe,
    image_embedding.prepare_image_embedding,
    loader(image_embedding.ImageEmbedder),
    explained.explain_image_embedding,
    pipeline_tag="image-feature-extraction",
)
