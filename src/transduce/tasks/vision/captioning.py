"""Image captioning: image front end, text decoder."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from transduce.data.batches import TokenBatches, halves_of, shifted
from transduce.decoding.backend import Decoded, Piece
from transduce.decoding.options import DecodingOptions
from transduce.decoding.session import Prepared, SequencePredictor
from transduce.decoding.step_search import EncoderDecoderSearch
from transduce.errors import DataError, InputError, SettingError
from transduce.image.read import read_image
from transduce.image.transform import AugmentationConfig, ImageConfig, augment, normalise
from transduce.metrics.measure import check_metric, measure
from transduce.models.encoder_decoder import EncoderDecoder
from transduce.models.vision import CaptioningConfig, build_captioning, fit_positions
from transduce.nn.front_ends.patches import PatchFrontEnd
from transduce.nn.stack_configs import max_sequence_length
from transduce.sequence import Padded
from transduce.settings.sections import parse, section
from transduce.tasks.common import find_device, prepare_training, with_weights
from transduce.tasks.evaluation import Evaluation
from transduce.tasks.prediction import OnDevice
from transduce.tasks.recipe import Recipe, Split
from transduce.tasks.recipe_settings import (
    check_decoding,
    check_selection,
    rooted,
    with_base_section,
)
from transduce.tasks.sequence_training import SequenceTraining
from transduce.tasks.task import Example
from transduce.tasks.text_inputs import READ_AT_ONCE, TextConfig, tokenizer_for, tokenizer_of
from transduce.tasks.validation import checksum_of, warn_of_few
from transduce.tasks.vision.images import (
    ImageDataConfig,
    SplitImages,
    equal_images,
    read_images_of,
    training_images,
)
from transduce.text import BOS, EOS, PAD, Tokenizer
from transduce.training.config import FineTuneConfig
from transduce.training.loss import LossSums
from transduce.training.token_loss import token_loss
from transduce.training.trainer import Outcome, train


@section
class CaptioningEvaluation:
    """Evaluation settings."""

    target_language: str = ""
    """Code of the language of the captions, such as "de" or "zh"; some metrics need it."""
    metrics: tuple[str, ...] = ("bleu", "chrf")
    """Metrics of the test; all captions of an image are its references."""

    def __post_init__(self) -> None:
        for name in self.metrics:
            check_metric(name)


@section
class CaptioningRecipe(Recipe):
    """Recipe of image captioning."""

    task: Literal["captioning"] = "captioning"
    data: ImageDataConfig
    image: ImageConfig
    augmentation: AugmentationConfig = AugmentationConfig()
    text: TextConfig = TextConfig()
    model: CaptioningConfig = CaptioningConfig()
    fine_tune: FineTuneConfig | None = None
    """Base run, whose weights are the start."""
    decoding: DecodingOptions = DecodingOptions()
    evaluation: CaptioningEvaluation = CaptioningEvaluation()

    def __post_init__(self) -> None:
        self.model.vision.check_size(self.image.size)
        self.augmentation.check_size(self.image.size)
        room = max_sequence_length(self.model.decoder)
        if room is not None and room < self.text.max_length:
            raise SettingError(
                f"text.max_length = {self.text.max_length} exceeds the {room} learned "
                "positions; lower it, or raise model.decoder.max_positions"
            )
        check_selection(self.training.select_by, ("loss",))


@dataclass(frozen=True)
class Caption:
    """Caption of an image."""

    text: str = ""
    score: float = 0.0
    """Log-probability after the length penalty."""

    def fields(self) -> dict[str, Any]:
        """Fields of a JSON record."""
        return {"caption": self.text, "score": self.score}


class CaptionBatch(NamedTuple):
    """Some images and their captions.

    images: (b, c, h, w) uint8.  target: (b, t) BOS + ids + EOS.  rows: (b,) which these are.
    """

    images: Tensor
    target: Padded
    rows: NDArray[np.int64]

    @property
    def target_tokens(self) -> int:
        """Tokens to predict: all but the first of each row."""
        return int(self.target.real.sum()) - len(self.rows)

    def halves(self) -> tuple[CaptionBatch, CaptionBatch] | None:
        """The first and the other half of its rows; None for a single row."""
        return halves_of(self)


@dataclass(eq=False, kw_only=True, repr=False)
class Captioner(OnDevice, SequencePredictor[Tensor | None, Caption]):
    """Trained captioning model.  An input that has been read is a normalised image (c, h, w); None
    for a blank path.

    cache: directory with images of the recipe's data, once decoded.
    """

    inputs = ("image",)
    together = 32
    output_name = "the caption"

    recipe: CaptioningRecipe
    model: EncoderDecoder
    tokenizer: Tokenizer
    cache: Path

    @property
    def output_tokenizer(self) -> Tokenizer:
        """Tokenizer of the captions."""
        return self.tokenizer

    @property
    def language(self) -> str:
        """Language code of the captions."""
        return self.recipe.evaluation.target_language

    def read(self, inputs: Sequence[str | Tensor], first: int) -> list[Tensor | InputError | None]:
        """The image of each path; None for a blank one.  Those already read stay."""
        images: list[Tensor | InputError | None] = []
        for number, image in enumerate(inputs, first):
            try:
                images.append(image if isinstance(image, Tensor) else self.image(image))
            except DataError as error:
                images.append(InputError(number, str(error)))
        return images

    def image(self, path: str) -> Tensor | None:
        """Normalised image (c, h, w) of a path; None for a blank one.  Raises DataError for no
        image."""
        if not path.strip():
            return None
        shape = self.recipe.image
        return normalise(read_image(Path(path), shape.channels, path)[None], shape)[0]

    def pieces(
        self, source: Tensor | None, options: DecodingOptions, owner: int, number: int
    ) -> Iterator[Piece]:
        """The one piece of an image; none of a blank path."""
        if source is not None:
            limit, _ = self.longest_output(options)
            positions, constraints = _front_end(self.model).n_positions, self.constraints(options)
            yield Piece(owner, source, positions, limit, number, constraints)

    def answer(self, prepared: Prepared[Tensor | None], decoded: Sequence[Decoded]) -> Caption:
        """The caption of an image, of the best hypothesis."""
        if not decoded:
            return Caption()
        hypotheses = decoded[0].hypotheses
        texts = [" ".join(self.tokenizer.decode(h.tokens).splitlines()) for h in hypotheses]
        best, score = self.ranked(prepared.options, texts, hypotheses)[0]
        return Caption(texts[best], score)

    def longest_output(self, options: DecodingOptions) -> tuple[int, str]:
        """Maximum tokens of a caption, and the option that sets it."""
        # BOS and EOS come on top
        return min(options.max_tokens, self.recipe.text.max_length - 2), "max_tokens"

    def evaluate(
        self,
        split: Split,
        examples: Iterable[Example] | None = None,
        options: DecodingOptions | None = None,
    ) -> Evaluation:
        """Caption held-out images and measure the captions against the given ones.

        Equal images, or equal paths, are one item with several right captions.
        """
        options = options or self.options
        if examples is not None:
            captions: dict[str, list[str]] = {}
            for (path,), caption in examples:
                captions.setdefault(path, []).append(" ".join(caption.split()))
            sources, references = list(captions), list(captions.values())
            answers = [c.text for c in self.predict([(path,) for path in sources], options)]
        else:
            images = read_images_of(self.recipe.data, self.recipe.image, split, self.cache)
            labels, groups = images.labels, equal_images(images)
            sources = [f"{split} image {images.rows[group[0]]}" for group in groups]
            references = [[labels[i] for i in group] for group in groups]
            firsts = [group[0] for group in groups]
            batches = images.normalised(firsts, self.recipe.image, self.together)
            each = itertools.chain.from_iterable(batches)
            answers = [caption.text for caption in self.each(each, options, 0, self.answer)]
        evaluation = self.recipe.evaluation
        scores = measure(evaluation.metrics, answers, references, evaluation.target_language)
        language, by_name = evaluation.target_language, examples is None
        return Evaluation(scores, sources, answers, references, language, by_name=by_name)

    def facts(self) -> dict[str, Any]:
        """Size of the vocabulary."""
        return {"vocabulary": self.tokenizer.size}


def new_captioner(recipe: CaptioningRecipe, tokenizer: Tokenizer, cache: Path) -> Captioner:
    """A captioning model as a recipe describes it, with first weights."""
    image = recipe.image
    model = build_captioning(recipe.model, image.size, image.channels, tokenizer.size)
    search = EncoderDecoderSearch(model, torch.stack)
    return Captioner(
        options=recipe.decoding,
        backend=search,
        recipe=recipe,
        model=model,
        tokenizer=tokenizer,
        cache=cache,
    )


def _front_end(model: EncoderDecoder) -> PatchFrontEnd:
    front_end = model.front_end
    assert isinstance(front_end, PatchFrontEnd)
    return front_end


class CaptioningTraining(SequenceTraining):
    """Images, captions, model and loss for the training loop."""

    def __init__(self, captioner: Captioner, data: dict[Split, SplitImages]) -> None:
        self.recipe = recipe = captioner.recipe
        self.captioner = captioner
        self.model = captioner.model
        self.d_model = recipe.model.vision.d_model
        self._images = data["train"]
        self.batches = self._batches(data["train"])
        self._valid = self._batches(data["valid"])

    def loss(self, batch: CaptionBatch) -> LossSums:
        """Cross-entropy of every token of the captions, the images being augmented."""
        images = normalise(batch.images.to(self.captioner.device), self.recipe.image)
        # The global generator, since checkpoints keep its state.
        images = augment(images, self.recipe.augmentation, torch.default_generator)
        return self._loss(images, batch, self.recipe.training.label_smoothing)

    def describe(self, batch: CaptionBatch) -> str:
        """Describe a batch by the numbers of its images."""
        return self._images.describe(batch.rows)

    def validate(self) -> dict[str, float]:
        """Loss in nats per token."""

        def sums(batch: CaptionBatch) -> LossSums:
            images = normalise(batch.images.to(self.captioner.device), self.recipe.image)
            return self._loss(images, batch, 0.0)

        return {"loss": self.mean_loss(map(sums, self._valid.in_order()))}

    def validation_checksum(self, score: str) -> str:
        """Checksum of the data and settings behind a score."""
        return checksum_of(self._valid.checksum())

    def _loss(self, images: Tensor, batch: CaptionBatch, smoothing: float) -> LossSums:
        inputs, labels = shifted(batch.target.to(images.device))
        hidden = self.model.advance(inputs, self.model.start(images))
        count, head = batch.target_tokens, self.model.head
        return token_loss(head, hidden, labels, inputs.real, count, smoothing)

    def _batches(self, data: SplitImages) -> TokenBatches[CaptionBatch]:
        max_length = self.recipe.text.max_length
        encoded = self.captioner.tokenizer.encode_batch(data.labels)
        targets = [[BOS, *ids[: max_length - 2], EOS] for ids in encoded]

        def assemble(rows: NDArray[np.int64]) -> CaptionBatch:
            pixels = torch.from_numpy(data.pixels(rows))
            return CaptionBatch(pixels, Padded.from_rows([targets[i] for i in rows], PAD), rows)

        patches = np.full(len(targets), _front_end(self.model).n_positions)
        lengths = np.array([len(ids) for ids in targets])
        tokens, seed = self.recipe.training.batch_tokens, self.recipe.seed
        return TokenBatches((patches, lengths), assemble, tokens, seed)


def parse_captioning(settings: Mapping[str, Any], where: str) -> CaptioningRecipe:
    """Settings of a file as a recipe; with `fine_tune`, model and image are the other run's."""
    filled = with_base_section(settings, ("captioning",), "image", READ_AT_ONCE)
    return rooted(parse(CaptioningRecipe, filled, where))


def train_captioning(recipe: CaptioningRecipe, run: Path, resume: bool) -> Outcome:
    """Train from a recipe into the directory `run`."""
    check_decoding(recipe.decoding)
    started = prepare_training(recipe.data, recipe.training, recipe.seed)
    cache = run.parent / ".cache"
    data = training_images(recipe.data, recipe.image, cache)
    tokenizer = tokenizer_for(recipe.text, recipe.fine_tune, run, data["train"].labels)
    captioner = new_captioner(recipe, tokenizer, cache)
    captioner.model.to(find_device(recipe.training.device))
    warn_of_few(recipe.data, len(data["valid"]), "images")
    task = CaptioningTraining(captioner, data)
    fit = fit_positions(captioner.model.front_end)
    return train(task, recipe.training, run, resume, recipe.fine_tune, fit, started=started)


def load_captioning(recipe: CaptioningRecipe, run: Path, device: str) -> Captioner:
    """Trained model of a run directory. Raises RunError if a file is missing or damaged."""
    tokenizer, cache = tokenizer_of(run), run.parent / ".cache"
    return with_weights(lambda: new_captioner(recipe, tokenizer, cache), run, device)
