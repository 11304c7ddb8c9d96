"""Rows of the tasks of images."""

from transduce.tasks.labels import load_labels
from transduce.tasks.task import Task
from transduce.tasks.text_inputs import tokenizer_of
from transduce.tasks.training import loader
from transduce.training.weight_files import cache_of
from transduce.vision import captioning, classification
from transduce.vision import explaining as explained

CAPTIONING = Task(
    captioning.CaptioningRecipe,
    captioning.prepare_captioning,
    loader(captioning.new_captioner, tokenizer_of, cache_of),
    explained.explain_captioning,
    pipeline_tag="image-to-text",
)
IMAGE_CLASSIFICATION = Task(
    classification.ImageClassificationRecipe,
    classification.prepare_image_classification,
    loader(classification.ImageClassifier, load_labels, cache_of),
    explained.explain_image_classification,
    live=explained.live_image_encoder,
    pipeline_tag="image-classification",
)
IMAGE_EMBEDDING = Task(
    classification.ImageEmbeddingRecipe,
    classification.prepare_image_embedding,
    loader(classification.ImageEmbedder),
    explained.explain_image_embedding,
    live=explained.live_image_encoder,
    pipeline_tag="image-feature-extraction",
)
