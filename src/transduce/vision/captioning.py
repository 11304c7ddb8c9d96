"""Image captioning: image front end, text decoder."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from transduce.data.batches import Packed, TokenBatches, beside, filled, parted, shifted
from transduce.decoding.backend import Decoded, Piece
from transduce.decoding.options import DecodingOptions
from transduce.decoding.session import Prepared
from transduce.decoding.step_search import EncoderDecoderSearch
from transduce.errors import SettingError
from transduce.metrics.measure import check_metric
from transduce.models.encoder_decoder import EncoderDecoder
from transduce.nn.stack_configs import max_sequence_length
from transduce.sequence import Padded, at_places
from transduce.settings.sections import section
from transduce.tasks.predictors import EvaluationSet, FilePredictor
from transduce.tasks.recipe import Recipe, Split, check_decoding, check_selection, warn_of_few
from transduce.tasks.task import Example
from transduce.tasks.text_inputs import READ_AT_ONCE, EncoderTextConfig
from transduce.tasks.training import SequenceTraining, TargetBatch, tokenizer_for
from transduce.text import BOS, EOS, PAD, Tokenizer
from transduce.training.config import FineTuneConfig
from transduce.training.loss import LossSums, token_loss
from transduce.training.weight_files import cache_of
from transduce.vision.images import (
    AugmentationConfig,
    ImageConfig,
    changed,
    normalise_pixels,
    read_image,
)
from transduce.vision.splits import (
    ImageDataConfig,
    SplitImages,
    equal_images,
    read_images_of,
    training_images,
)
from transduce.vision.vit import CaptioningConfig, PatchFrontEnd, build_captioning, fit_positions


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

    bases = ("captioning",)
    inherited = (*READ_AT_ONCE, "image")

    task: Literal["captioning"] = "captioning"
    data: ImageDataConfig
    image: ImageConfig
    augmentation: AugmentationConfig = AugmentationConfig()
    text: EncoderTextConfig = EncoderTextConfig()
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


@dataclass(frozen=True)
class CaptionBatch(TargetBatch):
    """Some images and their captions.  images: (b, c, h, w) uint8."""

    images: Tensor


@dataclass(eq=False, kw_only=True, repr=False)
class Captioner(FilePredictor[Tensor | None, Caption]):
    """Trained captioning model.  An input that has been read is a normalised image (c, h, w); None
    for a blank path."""

    inputs = ("image",)
    together = 32
    output_name = "the caption"
    items = "images"

    recipe: CaptioningRecipe
    model: EncoderDecoder

    def read_file(self, path: str) -> Tensor | None:
        """Normalised image (c, h, w) of a path; None if blank.  Raises DataError for no
        image."""
        if not path.strip():
            return None
        shape = self.recipe.image
        return normalise_pixels(read_image(Path(path), shape.channels, path)[None], shape)[0]

    def pieces(
        self, source: Tensor | None, options: DecodingOptions, owner: int, number: int
    ) -> Iterator[Piece]:
        """The piece of an image; none of a blank path.

        source: the image; None for a blank path.  options: of decoding.  owner: index in its call.
        number: in a longer sequence.
        """
        if source is not None:
            limit, _ = self.longest_output(options)
            positions, constraints = _front_end(self.model).n_positions, self.constraints(options)
            yield Piece(owner, source, positions, limit, number, constraints)

    def answer(self, prepared: Prepared[Tensor | None], decoded: Sequence[Decoded]) -> Caption:
        """The caption of an image, of the best hypothesis."""
        if not decoded:
            return Caption()
        hypotheses = decoded[0].hypotheses
        texts = [self.text_of(h.tokens) for h in hypotheses]
        best, score = self.ranked(prepared.options, texts, hypotheses)[0]
        return Caption(texts[best], score)

    def longest_output(self, options: DecodingOptions) -> tuple[int, str]:
        """Maximum tokens of a caption, and the option that sets it."""
        # BOS and EOS come on top
        return min(options.max_tokens, self.recipe.text.max_length - 2), "max_tokens"

    def held_out(self, split: Split) -> EvaluationSet:
        """The images of a split; equal images are an input with several right captions."""
        images = read_images_of(self.recipe.data, self.recipe.image, split, self.cache)
        labels, groups = images.labels, equal_images(images)
        names = [f"{split} image {images.rows[group[0]]}" for group in groups]
        firsts = [group[0] for group in groups]
        batches = images.normalised(firsts, self.recipe.image, self.together)
        references = [[labels[i] for i in group] for group in groups]
        return EvaluationSet(names, references, stored=itertools.chain.from_iterable(batches))

    def examples(self, examples: Iterable[Example]) -> EvaluationSet:
        """Images by their paths; equal paths are an input with several right captions."""
        captions: dict[str, list[str]] = {}
        for (path,), caption in examples:
            captions.setdefault(path, []).append(self.reference(caption))
        return EvaluationSet(
            list(captions), list(captions.values()), [(path,) for path in captions]
        )


def new_captioner(recipe: CaptioningRecipe, tokenizer: Tokenizer, cache: Path) -> Captioner:
    """A captioning model as a recipe describes it, with first weights.

    tokenizer: of the captions.  cache: directory of decoded images.
    """
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


class CaptioningTraining(SequenceTraining[Captioner]):
    """Images, captions, model and loss for the training loop."""

    items = "training images"
    has_targets = True

    def __init__(self, captioner: Captioner, data: dict[Split, SplitImages]) -> None:
        super().__init__(captioner)
        self.recipe = captioner.recipe
        self.numbers = data["train"].rows
        self.batches = self._batches(data["train"])
        self._valid = self._batches(data["valid"])

    def loss(self, batch: CaptionBatch) -> LossSums:
        """Cross-entropy of every token of the captions, the images being augmented."""
        return self._loss(self._changed(batch), batch, self.recipe.training.label_smoothing)

    def pack(self, batch: CaptionBatch) -> Packed:
        """The captions in one row of one shape, the images filled to the most in a batch."""
        n, positions = len(batch.rows), _front_end(self.model).n_positions
        inputs, labels = shifted(batch.target)
        places = Padded.unpadded(torch.arange(n * positions).view(n, positions))
        source, row = self.shape.pack(places, beside(inputs, labels))
        inputs, labels = parted(row)
        images = filled(self._changed(batch), self.shape.sequences, 0.0)
        return Packed((source, inputs), (labels, images), batch.target_tokens)

    def packed_loss(self, packed: Packed) -> LossSums:
        """As `loss`, of a packed batch."""
        (source, inputs), (labels, images) = packed.sides, packed.parts
        memory = at_places(self.model.encode(images), source)
        hidden = self.model.advance(inputs, self.model.decoder.start(memory))
        smoothing = self.recipe.training.label_smoothing
        return token_loss(self.model.head, hidden, labels, inputs.real, 0, smoothing)

    def _changed(self, batch: CaptionBatch) -> Tensor:
        return changed(batch.images, self.recipe.image, self.recipe.augmentation, self.device)

    def validate(self) -> dict[str, float]:
        """Loss in nats per token."""

        def sums(batch: CaptionBatch) -> LossSums:
            images = normalise_pixels(batch.images.to(self.device), self.recipe.image)
            return self._loss(images, batch, 0.0)

        return {"loss": self.mean_loss(map(sums, self._valid.in_order()))}

    def _loss(self, images: Tensor, batch: CaptionBatch, smoothing: float) -> LossSums:
        inputs, labels = shifted(batch.target.to(images.device))
        hidden = self.model.advance(inputs, self.model.start(images))
        count, head = batch.target_tokens, self.model.head
        return token_loss(head, hidden, labels, inputs.real, count, smoothing)

    def _batches(self, data: SplitImages) -> TokenBatches[CaptionBatch]:
        max_length = self.recipe.text.max_length
        encoded = self.predictor.tokenizer.encode_batch(data.labels)
        targets = [[BOS, *ids[: max_length - 2], EOS] for ids in encoded]

        def assemble(rows: NDArray[np.int64]) -> CaptionBatch:
            pixels = torch.from_numpy(data.pixels(rows))
            return CaptionBatch(rows, Padded.from_rows([targets[i] for i in rows], PAD), pixels)

        patches = np.full(len(targets), _front_end(self.model).n_positions)
        lengths = np.array([len(ids) for ids in targets])
        tokens, seed = self.recipe.training.batch_tokens, self.recipe.seed
        return TokenBatches((patches, lengths), assemble, tokens, seed)


def prepare_captioning(recipe: CaptioningRecipe, run: Path) -> CaptioningTraining:
    """Data, model and loss of a recipe, for training into the directory `run`."""
    check_decoding(recipe.decoding)
    cache = cache_of(run)
    data = training_images(recipe.data, recipe.image, cache)
    tokenizer = tokenizer_for(recipe.text, recipe.fine_tune, run, data["train"].labels)
    captioner = new_captioner(recipe, tokenizer, cache)
    warn_of_few(recipe.data, len(data["valid"]), "images")
    task = CaptioningTraining(captioner, data)
    task.adapt = fit_positions(captioner.model.front_end)
    return task
