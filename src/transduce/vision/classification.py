"""Classification and embedding of images by a ViT."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NoReturn, Self

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from transduce.data.batches import Packed, RowBatch, TokenBatches, filled
from transduce.decoding.options import DecodingOptions
from transduce.engine.encoder import EngineEncoder
from transduce.engine.model import plain_weight
from transduce.engine.pair_shape import layers_shape
from transduce.errors import DataError, SettingError, printable_name
from transduce.models.encoder_only import EncoderOnly
from transduce.nn.heads.label import PoolingHead
from transduce.nn.precision import Precision
from transduce.sequence import Padded
from transduce.settings.sections import section
from transduce.tasks.evaluation import Evaluation
from transduce.tasks.labels import LabelPrediction
from transduce.tasks.predictors import A, EvaluationSet, Inputs, MeasuredPredictor, OnePassPredictor
from transduce.tasks.recipe import Recipe, RootedData, Split, check_selection, warn_of_few
from transduce.tasks.task import Example
from transduce.tasks.text_encoder.predictor import EmbeddingPrediction
from transduce.tasks.text_encoder.recipes import EmbeddingEvaluation
from transduce.tasks.training import (
    SequenceTraining,
    check_unknown,
    label_loss,
    labels_for,
    new_head,
)
from transduce.training.config import FineTuneConfig
from transduce.training.loss import IGNORED, LossSums
from transduce.training.weight_files import cache_of
from transduce.vision.images import AugmentationConfig, ImageConfig, changed, normalise_pixels
from transduce.vision.splits import (
    ImageDataConfig,
    SplitImages,
    labels_set,
    named_images,
    read_images_of,
    training_images,
)
from transduce.vision.vit import (
    VISION_PRESETS,
    PatchFrontEnd,
    VisionConfig,
    build_vision,
    fit_positions,
)

PREDICTED_TOGETHER = 64
"""Images in a batch."""


class ImagePredictor(OnePassPredictor[A]):
    """A trained encoder of images: paths in.  The model has `front_end`, `encoder`, `head`."""

    inputs = ("image",)
    recipe: Any
    model: Any
    encoder: EngineEncoder | None = None

    def natively(self, precision: Precision) -> Self:
        """This predictor, its layers in the engine.  Raises as `EngineWeights` does."""
        shape = layers_shape(self.recipe.model.encoder, self.recipe.model.d_model, precision)
        shape.encoder.max_positions = self.model.front_end.n_positions
        layers = self.model.encoder.state_dict(prefix="encoder.")
        weights = {name: plain_weight(weight) for name, weight in layers.items()}
        self.encoder = EngineEncoder(shape, weights, torch.get_num_threads)
        return self

    @torch.inference_mode()
    def outputs(self, images: Tensor) -> Tensor:
        """Outputs for normalised images (b, c, h, w), on the CPU; the engine's of each alone."""
        model = self.model.eval()
        if self.encoder is None:
            return model(images.to(self.device)).float().cpu()  # type: ignore[no-any-return]
        vectors = torch.cat([model.front_end(image).values for image in images.unsqueeze(1)])
        layers = torch.from_numpy(self.encoder.layers(vectors.numpy()))
        return torch.cat([model.head(Padded.unpadded(rows)) for rows in layers.unsqueeze(1)])


@section
class ImageClassificationRecipe(Recipe):
    """Recipe of an image classifier."""

    presets = VISION_PRESETS
    bases = ("image-classification", "image-embedding")
    inherited = ("image",)

    task: Literal["image-classification"] = "image-classification"
    data: ImageDataConfig
    image: ImageConfig
    augmentation: AugmentationConfig = AugmentationConfig()
    model: VisionConfig = VisionConfig()
    fine_tune: FineTuneConfig | None = None
    """Base run, whose weights are the start."""

    def __post_init__(self) -> None:
        self.model.check_size(self.image.size)
        self.augmentation.check_size(self.image.size)
        check_selection(self.training.select_by, ("loss", "accuracy"))


@dataclass(frozen=True)
class ImageBatch(RowBatch):
    """Some images and their labels.

    images: (b, c, h, w) uint8.  labels: (b,) places in the list of labels; -1 for others.
    """

    images: Tensor
    labels: Tensor


class ImageClassifier(ImagePredictor[LabelPrediction], MeasuredPredictor):
    """Trained image classifier."""

    prediction = LabelPrediction
    items = "images"
    metrics = ("accuracy",)

    def __init__(
        self, recipe: ImageClassificationRecipe, labels: tuple[str, ...], cache: Path
    ) -> None:
        """cache: where images of the recipe's data are kept, once decoded."""
        self.recipe = recipe
        self.labels = labels
        self.cache = cache
        config, image = recipe.model, recipe.image
        head = config.label_head(len(labels))
        self.model: EncoderOnly = build_vision(config, image.size, image.channels, head)

    def answers(self, inputs: Inputs, numbers: Sequence[int]) -> Iterator[LabelPrediction]:
        """Labels of images given by their paths.  Raises InputError for another file."""
        for images in named_images(inputs, self.recipe.image, numbers, PREDICTED_TOGETHER):
            for scores in self.scores(images):
                yield LabelPrediction.of(self.labels, scores)

    def scores(self, images: Tensor) -> Tensor:
        """Log-probabilities (b, labels) for normalised images (b, c, h, w), on the CPU."""
        return self.outputs(images).log_softmax(-1)

    def held_out(self, split: Split) -> EvaluationSet:
        """The images of a split."""
        images = read_images_of(self.recipe.data, self.recipe.image, split, self.cache)
        names = [f"{split} image {i}" for i in images.rows]
        batches = images.normalised(range(len(images)), self.recipe.image, PREDICTED_TOGETHER)
        return EvaluationSet(names, [[label] for label in images.classes], stored=batches)

    def reference(self, answer: str) -> str:
        """The name of a label."""
        return printable_name(answer)

    def predictions(
        self, data: EvaluationSet, options: DecodingOptions | None
    ) -> list[LabelPrediction]:
        """Labels of the images."""
        if data.texts:
            return super().predictions(data, options)
        scores = (row for images in data.stored for row in self.scores(images))
        return [LabelPrediction.of(self.labels, row) for row in scores]

    def facts(self) -> dict[str, Any]:
        """The labels."""
        return {"labels": list(self.labels)}


class ImageClassificationTraining(SequenceTraining[ImageClassifier]):
    """Images, model and loss for the training loop."""

    unit = "images"
    items = "training images"

    def __init__(self, classifier: ImageClassifier, data: dict[Split, SplitImages]) -> None:
        super().__init__(classifier)
        self.recipe = classifier.recipe
        self.numbers = data["train"].rows
        self.batches = self._batches(data["train"], "train")
        self._valid = self._batches(data["valid"], "valid")
        self._valid_labels = data["valid"].labels

    def loss(self, batch: ImageBatch) -> LossSums:
        """Cross-entropy of the label, given the image as augmentation changed it."""
        parts = self._changed(batch), batch.labels
        return self.packed_loss(Packed((), parts, batch.target_tokens))

    def pack(self, batch: ImageBatch) -> Packed:
        """The images, filled to the most in a batch."""
        images, most = self._changed(batch), self.shape.sequences
        parts = filled(images, most), filled(batch.labels, most, IGNORED)
        return Packed((), parts, batch.target_tokens)

    def packed_loss(self, packed: Packed) -> LossSums:
        """As `loss`, of a packed batch."""
        images, labels = packed.parts
        return label_loss(self.model(images), labels, self.recipe.training.label_smoothing)

    def _changed(self, batch: ImageBatch) -> Tensor:
        return changed(batch.images, self.recipe.image, self.recipe.augmentation, self.device)

    def validate(self) -> dict[str, float]:
        """Loss in nats per image, and accuracy in percent.

        A label that training never saw cannot be answered: it counts as wrong, not for the loss.
        """
        nll, right, count, known = 0.0, 0, 0, 0
        for batch in self._valid.in_order():
            scores = self.predictor.scores(normalise_pixels(batch.images, self.recipe.image))
            right += int((scores.argmax(1) == batch.labels).sum())
            count += len(batch.labels)
            known += int((batch.labels >= 0).sum())
            nll += F.nll_loss(scores, batch.labels, reduction="sum", ignore_index=-1).item()
        return {"loss": nll / known, "accuracy": 100 * right / count}

    def behind(self, score: str) -> Sequence[Any]:
        """Labels of the validation images."""
        return (self._valid_labels,)

    def _batches(self, data: SplitImages, split: Split) -> TokenBatches[ImageBatch]:
        labels = _numbers(data, self.predictor.labels, split)

        def assemble(rows: NDArray[np.int64]) -> ImageBatch:
            pixels = torch.from_numpy(data.pixels(rows))
            return ImageBatch(rows, pixels, torch.from_numpy(labels[rows]))

        front_end = self.model.front_end
        assert isinstance(front_end, PatchFrontEnd)
        positions = np.full(len(labels), front_end.n_positions)
        tokens, seed = self.recipe.training.batch_tokens, self.recipe.seed
        return TokenBatches((positions, positions), assemble, tokens, seed)


def _numbers(data: SplitImages, labels: Sequence[str], split: Split) -> NDArray[np.int64]:
    """(n,) places of the images' labels among `labels`, -1 for others."""
    places = {label: i for i, label in enumerate(labels)}
    numbers = np.array([places.get(label, -1) for label in data.classes])
    check_unknown(int((numbers < 0).sum()), len(numbers), split, "image", labels)
    return numbers


def prepare_image_classification(
    recipe: ImageClassificationRecipe, run: Path
) -> ImageClassificationTraining:
    """Data, model and loss of a recipe, for training into the directory `run`."""
    cache = cache_of(run)
    data = training_images(recipe.data, recipe.image, cache)
    _check_labels(data["train"])
    labels = labels_for(run, data["train"].classes, labels_set(recipe.data), recipe.fine_tune)
    classifier = ImageClassifier(recipe, labels, cache)
    warn_of_few(recipe.data, len(data["valid"]), "images")
    task = ImageClassificationTraining(classifier, data)
    task.adapt = fit_positions(classifier.model.front_end)
    task.reinit = new_head(labels, recipe.fine_tune)
    return task


def _check_labels(data: SplitImages) -> None:
    blank = next((i for i, label in zip(data.rows, data.classes, strict=True) if not label), None)
    if blank is not None:
        raise DataError(f"training image {blank}, counted from 0, has no label")


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
        """Raises DataError: no embedding is right or wrong by itself.

        split, examples and options are not used.
        """
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
