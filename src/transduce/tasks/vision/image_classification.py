"""Image classification by a ViT."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from transduce.data.batches import TokenBatches, halves_of
from transduce.decoding.options import DecodingOptions
from transduce.errors import DataError, printable_name
from transduce.image.transform import AugmentationConfig, ImageConfig, augment, normalise
from transduce.metrics.measure import measure
from transduce.models.encoder_only import EncoderOnly
from transduce.models.single_stack_presets import VISION_PRESETS
from transduce.models.vision import VisionConfig, build_vision, fit_positions
from transduce.nn.front_ends.patches import PatchFrontEnd
from transduce.settings.sections import parse, section
from transduce.tasks.common import find_device, prepare_training, with_weights
from transduce.tasks.evaluation import Evaluation
from transduce.tasks.labels import (
    LabelPrediction,
    label_loss,
    labels_for,
    load_labels,
    new_head,
)
from transduce.tasks.prediction import OnDevice
from transduce.tasks.recipe import Recipe, Split
from transduce.tasks.recipe_settings import check_selection, rooted, with_base_section, with_preset
from transduce.tasks.sequence_training import SequenceTraining
from transduce.tasks.task import Example
from transduce.tasks.validation import checksum_of, warn_of_few
from transduce.tasks.vision.images import (
    ImageDataConfig,
    SplitImages,
    labels_set,
    named_images,
    read_images_of,
    training_images,
)
from transduce.training.config import FineTuneConfig
from transduce.training.loss import LossSums
from transduce.training.trainer import Outcome, train

logger = logging.getLogger("transduce")

PREDICTED_TOGETHER = 64
"""Images in a batch of prediction."""


@section
class ImageClassificationRecipe(Recipe):
    """Recipe of an image classifier."""

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


class ImageBatch(NamedTuple):
    """Some images and their labels.

    images: (b, c, h, w) uint8.  labels: (b,) places in the list of labels; -1 for one that is not
    in it.  rows: (b,) which images of the data these are.
    """

    images: Tensor
    labels: Tensor
    rows: NDArray[np.int64]

    @property
    def target_tokens(self) -> int:
        """Labels to predict: one for each image."""
        return len(self.labels)

    def halves(self) -> tuple[ImageBatch, ImageBatch] | None:
        """The first and the other half of its rows; None for a single row."""
        return halves_of(self)


class ImageClassifier(OnDevice):
    """Trained image classifier."""

    inputs = ("image",)
    options: DecodingOptions | None = None

    def __init__(
        self, recipe: ImageClassificationRecipe, labels: tuple[str, ...], cache: Path
    ) -> None:
        """cache: where images of the recipe's data are kept, once decoded."""
        self.recipe = recipe
        self.labels = labels
        self.cache = cache
        image = recipe.image
        self.model: EncoderOnly = build_vision(
            recipe.model, image.size, image.channels, len(labels)
        )

    def predict(
        self,
        inputs: Sequence[tuple[str, ...]],
        options: DecodingOptions | None = None,
        first: int = 0,
    ) -> list[LabelPrediction]:
        """Classify each image, given by its path; blank paths get an empty label.

        Raises DataError for a file that is not an image.
        """
        predictions = [LabelPrediction()] * len(inputs)
        for places, images in named_images(inputs, self.recipe.image, first, PREDICTED_TOGETHER):
            for i, scores in zip(places, self.scores(images), strict=True):
                predictions[i] = LabelPrediction.of(self.labels, scores)
        return predictions

    @torch.inference_mode()
    def scores(self, images: Tensor) -> Tensor:
        """Log-probabilities (b, labels) for normalised images (b, c, h, w), on the CPU."""
        self.model.eval()
        scores: Tensor = self.model(images.to(self.device))
        return scores.float().log_softmax(-1).cpu()

    def evaluate(
        self,
        split: Split,
        examples: Iterable[Example] | None = None,
        options: DecodingOptions | None = None,
    ) -> Evaluation:
        """Accuracy on held-out images."""
        if examples is not None:
            pairs = [(path, printable_name(label)) for (path,), label in examples]
            sources, labels = [path for path, _ in pairs], [label for _, label in pairs]
            answers = [
                prediction.text for prediction in self.predict([(path,) for path in sources])
            ]
        else:
            images = read_images_of(self.recipe.data, self.recipe.image, split, self.cache)
            sources, labels = [f"{split} image {i}" for i in images.rows], images.classes
            every = images.normalised(range(len(images)), self.recipe.image, PREDICTED_TOGETHER)
            answers = [self.labels[i] for x in every for i in self.scores(x).argmax(1).tolist()]
        references = [[label] for label in labels]
        scores = measure(("accuracy",), answers, references)
        return Evaluation(scores, sources, answers, references, by_name=examples is None)

    def facts(self) -> dict[str, Any]:
        """The labels."""
        return {"labels": list(self.labels)}


class ImageClassificationTraining(SequenceTraining):
    """Images, model and loss for the training loop."""

    unit = "images"

    def __init__(self, classifier: ImageClassifier, data: dict[Split, SplitImages]) -> None:
        self.recipe = recipe = classifier.recipe
        self.classifier = classifier
        self.model = classifier.model
        self.d_model = recipe.model.d_model
        self._images = data["train"]
        self.batches = self._batches(data["train"], "train")
        self._valid = self._batches(data["valid"], "valid")
        self._valid_labels = data["valid"].labels

    def loss(self, batch: ImageBatch) -> LossSums:
        """Cross-entropy of the label, given the image as augmentation changed it."""
        images = normalise(batch.images.to(self.classifier.device), self.recipe.image)
        # The global generator, since checkpoints keep its state.
        images = augment(images, self.recipe.augmentation, torch.default_generator)
        return label_loss(self.model(images), batch.labels, self.recipe.training.label_smoothing)

    def describe(self, batch: ImageBatch) -> str:
        """Describe a batch by the numbers of its images."""
        return self._images.describe(batch.rows)

    def validate(self) -> dict[str, float]:
        """Loss in nats per image, and accuracy in percent.

        A label that training never saw cannot be answered: it counts as wrong, not for the loss.
        """
        nll, right, count, known = 0.0, 0, 0, 0
        for batch in self._valid.in_order():
            scores = self.classifier.scores(normalise(batch.images, self.recipe.image))
            right += int((scores.argmax(1) == batch.labels).sum())
            count += len(batch.labels)
            known += int((batch.labels >= 0).sum())
            nll += F.nll_loss(scores, batch.labels, reduction="sum", ignore_index=-1).item()
        return {"loss": nll / known, "accuracy": 100 * right / count}

    def validation_checksum(self, score: str) -> str:
        """Checksum of the data and settings behind a score."""
        return checksum_of(self._valid.checksum(), self._valid_labels)

    def _batches(self, data: SplitImages, split: Split) -> TokenBatches[ImageBatch]:
        labels = _numbers(data, self.classifier.labels, split)

        def assemble(rows: NDArray[np.int64]) -> ImageBatch:
            pixels = torch.from_numpy(data.pixels(rows))
            return ImageBatch(pixels, torch.from_numpy(labels[rows]), rows)

        front_end = self.model.front_end
        assert isinstance(front_end, PatchFrontEnd)
        positions = np.full(len(labels), front_end.n_positions)
        tokens, seed = self.recipe.training.batch_tokens, self.recipe.seed
        return TokenBatches((positions, positions), assemble, tokens, seed)


def _numbers(data: SplitImages, labels: Sequence[str], split: Split) -> NDArray[np.int64]:
    """(n,) places of the images' labels among `labels`, -1 for one that is not there."""
    places = {label: i for i, label in enumerate(labels)}
    numbers = np.array([places.get(label, -1) for label in data.classes])
    unknown = int((numbers < 0).sum())
    if unknown and split == "train":
        raise DataError("the labels of the training images have changed; start a new run")
    if unknown == len(numbers):
        raise DataError(f"no {split} image has a label of the training images ({labels[0]!r}, …)")
    if unknown:
        message = "%d of %d %s images have labels that no training image has; they count as wrong"
        logger.warning(message, unknown, len(numbers), split)
    return numbers


def parse_image_classification(
    settings: Mapping[str, Any], where: str
) -> ImageClassificationRecipe:
    """Settings of a file as a recipe; with `fine_tune`, model and image are the other run's."""
    settings = with_preset(settings, VISION_PRESETS, where)
    filled = with_base_section(settings, ("image-classification", "image-embedding"), "image")
    return rooted(parse(ImageClassificationRecipe, filled, where))


def train_image_classification(
    recipe: ImageClassificationRecipe, run: Path, resume: bool
) -> Outcome:
    """Train from a recipe into the directory `run`."""
    started = prepare_training(recipe.data, recipe.training, recipe.seed)
    cache = run.parent / ".cache"
    data = training_images(recipe.data, recipe.image, cache)
    _check_labels(data["train"])
    labels = labels_for(run, data["train"].classes, labels_set(recipe.data), recipe.fine_tune)
    classifier = ImageClassifier(recipe, labels, cache)
    classifier.model.to(find_device(recipe.training.device))
    warn_of_few(recipe.data, len(data["valid"]), "images")
    task = ImageClassificationTraining(classifier, data)
    fit = fit_positions(classifier.model.front_end)
    reinit = new_head(labels, recipe.fine_tune)
    return train(task, recipe.training, run, resume, recipe.fine_tune, fit, reinit, started=started)


def _check_labels(data: SplitImages) -> None:
    blank = next((i for i, label in zip(data.rows, data.classes, strict=True) if not label), None)
    if blank is not None:
        raise DataError(f"training image {blank}, counted from 0, has no label")


def load_image_classification(
    recipe: ImageClassificationRecipe, run: Path, device: str
) -> ImageClassifier:
    """Trained model of a run directory. Raises RunError if a file is missing or damaged."""
    labels, cache = load_labels(run), run.parent / ".cache"
    return with_weights(lambda: ImageClassifier(recipe, labels, cache), run, device)
