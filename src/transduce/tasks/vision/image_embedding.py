"""Embedding of images, by the encoder of an imported ViT."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, NoReturn

from transduce.decoding.options import DecodingOptions
from transduce.errors import DataError, SettingError
from transduce.image.transform import ImageConfig
from transduce.models.vision import VisionConfig, build_vision
from transduce.nn.heads.label import PoolingHead
from transduce.settings.sections import section
from transduce.tasks.evaluation import Evaluation
from transduce.tasks.predictors import Inputs
from transduce.tasks.recipe import Recipe, Split
from transduce.tasks.sections import RootedData
from transduce.tasks.task import Example
from transduce.tasks.text_encoder.embedding import EmbeddingPrediction
from transduce.tasks.text_encoder.recipes import EmbeddingEvaluation
from transduce.tasks.vision.images import named_images
from transduce.tasks.vision.predictor import PREDICTED_TOGETHER, ImagePredictor


@section
class ImageEmbeddingRecipe(Recipe):
    """Recipe of an imported image encoder."""

    task: Literal["image-embedding"] = "image-embedding"
    data: RootedData = RootedData()
    image: ImageConfig
    model: VisionConfig = VisionConfig()
    evaluation: EmbeddingEvaluation = EmbeddingEvaluation()

    def __post_init__(self) -> None:
        self.model.check_size(self.image.size)


class ImageEmbedder(ImagePredictor[EmbeddingPrediction]):
    """A trained encoder of images: paths in, vectors out."""

    prediction = EmbeddingPrediction

    def __init__(self, recipe: ImageEmbeddingRecipe) -> None:
        self.recipe = recipe
        config, image = recipe.model, recipe.image
        head = PoolingHead(config.pooling, recipe.evaluation.normalize)
        self.model = build_vision(config, image.size, image.channels, head)

    def answers(self, inputs: Inputs, numbers: Sequence[int]) -> list[EmbeddingPrediction]:
        """Embeddings of images given by their paths.  Raises InputError for another file."""
        return [
            EmbeddingPrediction(tuple(vector))
            for images in named_images(inputs, self.recipe.image, numbers, PREDICTED_TOGETHER)
            for vector in self.outputs(images).tolist()
        ]

    def evaluate(
        self,
        split: Split,
        examples: Iterable[Example] | None = None,
        options: DecodingOptions | None = None,
    ) -> Evaluation:
        """Raises DataError: no embedding is right or wrong by itself."""
        raise DataError(
            "embeddings of images have no references to evaluate against; fine-tune a classifier "
            "on them and evaluate it"
        )

    def facts(self) -> dict[str, Any]:
        """Dimension of the vectors."""
        return {"dimensions": self.recipe.model.d_model}


def prepare_image_embedding(recipe: ImageEmbeddingRecipe, run: Path) -> NoReturn:
    """Raises SettingError: image embeddings are not trained."""
    raise SettingError(
        "image embedding models are imported (transduce import), not trained; to train on images, "
        'set task = "image-classification" or "captioning"'
    )
