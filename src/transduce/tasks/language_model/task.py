"""Language modelling: training on texts, perplexity and bits per byte."""

from __future__ import annotations

import functools
import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, Self, TypeVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from transduce.data.batches import OneShape
from transduce.data.documents import (
    Coding,
    DocumentsConfig,
    EncodedDocuments,
    NoDocumentsError,
    TextFiles,
    cached_documents,
    coding_of_texts,
    read_documents,
)
from transduce.data.packing import PackedBatch, PackedBatches
from transduce.data.ragged_rows import Side
from transduce.decoding.options import DecodingOptions
from transduce.decoding.step_search import DecoderSearch
from transduce.errors import DataError, SettingError
from transduce.models.decoder_only import (
    DECODER_PRESETS,
    DecoderOnly,
    DecoderOnlyConfig,
    build_decoder_only,
)
from transduce.nn.stack_configs import max_sequence_length
from transduce.settings.sections import section
from transduce.support.work import available_cores
from transduce.tasks.evaluation import Evaluation
from transduce.tasks.language_model.generator import FORBIDDEN, Generator
from transduce.tasks.recipe import (
    Recipe,
    Split,
    SplitsConfig,
    check_decoding,
    check_not_decoding,
    check_r_drop,
    check_selection,
    digest_of,
    has_split,
    own_section,
    read_split,
    remedy_for_nothing_held_out,
    split_fingerprint,
    warn_of_few,
)
from transduce.tasks.task import Example
from transduce.tasks.training import ModelT, SequenceTraining, describe_batch, tokenizer_for
from transduce.tasks.vocabularies import digest_of_tokenizer
from transduce.text import UNK, SubwordConfig, Tokenizer, TokenizerConfig, token_names
from transduce.training.config import FineTuneConfig, RDropTrainingConfig, TrainingConfig
from transduce.training.film import MAX_LENGTH, Names, Scene, decoder_scene, nearest_lengths
from transduce.training.log import ProgressCounter
from transduce.training.loss import LossSums, token_loss, twice
from transduce.training.weight_files import cache_of
from transduce.training.weights import weights_of

logger = logging.getLogger("transduce")

READ_AT_ONCE = ("text.tokenizer", "text.block")
"""Settings of the base run that a fine-tuned run on documents or dialogues keeps."""


@section
class LanguageModelDataConfig(SplitsConfig):
    """Documents for training, validation and test."""

    train: DocumentsConfig | None = None
    valid: DocumentsConfig | None = None
    """By default, `hold_out` of the training documents; if each file is a document, the last
    `hold_out` of its characters."""
    test: DocumentsConfig | None = None
    """By default, another `hold_out` of the training documents, unless `valid` is given; none if
    each file is a document."""
    hold_out: Annotated[float, Field(gt=0, le=0.5)] = 0.05


@section
class LanguageModelTextConfig:
    """Tokenizer, and rows of tokens."""

    tokenizer: TokenizerConfig = SubwordConfig()
    """By default, the tokenizer of the base run in fine-tuning."""
    block: Annotated[int, Field(ge=2)] = 256
    """Context of the model in tokens."""


@section
class PerplexityEvaluationConfig:
    """Evaluation of the loss."""

    stride: Annotated[int, Field(ge=0)] = 0
    """Stride of a sliding window: only its last `stride` tokens count, each with context, at
    block / stride times the cost.  0 cuts texts into adjacent windows of `text.block` tokens, as
    does validation during training."""


T = TypeVar("T")

TRAINED_ON: tuple[Split, ...] = ("train", "valid")
MEASURED = ("loss", "perplexity", "bits_per_byte")
"""Scores of `text_scores`."""


@section
class DecoderRecipe(Recipe, ABC):
    """Base of the recipes of models that continue documents."""

    presets = DECODER_PRESETS
    inherited = READ_AT_ONCE

    data: SplitsConfig
    text: LanguageModelTextConfig = LanguageModelTextConfig()
    model: DecoderOnlyConfig = DecoderOnlyConfig()
    fine_tune: FineTuneConfig | None = None
    """Base run for fine-tuning."""
    training: RDropTrainingConfig = RDropTrainingConfig()
    decoding: DecodingOptions = DecodingOptions(method="sample")
    evaluation: PerplexityEvaluationConfig = PerplexityEvaluationConfig()

    def __post_init__(self) -> None:
        block = self.text.block
        check_block("text.block", block, self.model, self.training)
        check_selection(self.training.select_by, MEASURED)
        check_r_drop(self.training, self.model)
        if self.evaluation.stride > block:
            raise SettingError(
                f"evaluation.stride = {self.evaluation.stride} would skip tokens; set it to at "
                f"most text.block = {block}"
            )

    @property
    def marks(self) -> tuple[str, ...]:
        """Names of the ids after the tokenizer's."""
        return ()

    @abstractmethod
    def documents(self, split: Split) -> Iterator[Any]:
        """Stream the documents of a split.  Raises DataError if reading fails."""

    @abstractmethod
    def texts(self) -> Iterator[str]:
        """Texts for the vocabulary."""

    @staticmethod
    def text_of(document: Any) -> str:
        """Text of a document."""
        return str(document)


@section
class LanguageModelRecipe(DecoderRecipe):
    """Recipe of a language model."""

    bases = ("language-model",)

    task: Literal["language-model"] = "language-model"
    data: LanguageModelDataConfig

    def documents(self, split: Split) -> Iterator[str]:
        """Stream the texts of a split.  Raises DataError if reading fails."""
        return read_documents_of(self.data, split)

    def texts(self) -> Iterator[str]:
        """Texts with a visible last line end, since the tokenizer ignores those at the end."""
        return (text[len(text.rstrip("\r\n")) :] + text for text in self.documents("train"))


def check_block(name: str, block: int, model: DecoderOnlyConfig, training: TrainingConfig) -> None:
    """Raises SettingError if `block` positions, a setting of that name, have no room.

    model: settings, for its learned positions.  training: settings, for the tokens of a batch.
    """
    room = max_sequence_length(model.decoder)
    if room is not None and room < block:
        raise SettingError(
            f"{name} = {block} exceeds the {room} learned positions; lower it, or raise "
            "model.decoder.max_positions"
        )
    if training.batch_tokens < block:
        raise SettingError(
            f"training.batch_tokens = {training.batch_tokens} is less than one row of "
            f"{name} = {block} tokens; raise it"
        )


def read_documents_of(config: LanguageModelDataConfig, split: Split) -> Iterator[str]:
    """Stream the documents of a split. Raises DataError if reading fails."""
    files = isinstance(config.train, TextFiles) and config.train.documents == "file"
    section = own_section(config, split)
    if section is not None or not files or (split == "train" and config.valid is not None):
        yield from read_split(config, split, read_documents, str)
        return
    if split == "test" or not has_split(config, split):
        raise DataError(
            "the recipe has no test data: files of one document each are held out only for "
            "validation; set data.test, or give --split valid"
        )
    assert config.train is not None
    for text in read_documents(config.train, Path(config.root)):
        middle = int(len(text) * (1 - config.hold_out))
        yield text[:middle] if split == "train" else text[middle:]


class PackedTraining(SequenceTraining[ModelT]):
    """Packed rows of ids, model and loss for the training loop; subclasses define validation.

    r_drop: α of R-Drop.
    """

    def __init__(self, predictor: ModelT, train: PackedBatches, r_drop: float = 0.0) -> None:
        super().__init__(predictor)
        self.smoothing: float = predictor.recipe.training.label_smoothing
        self.r_drop = r_drop
        self.batches = train

    def pack(self, batch: PackedBatch) -> PackedBatch:
        """The documents in one row of one shape."""
        return batch.packed(self.shape)

    def packed_loss(self, batch: PackedBatch) -> LossSums:
        """As `loss`, of a packed batch."""
        return packed_loss(self.model, batch, self.smoothing, self.r_drop)

    @functools.cached_property
    def shape(self) -> OneShape:
        """Shape of packed batches."""
        shape: OneShape = self.batches.one_shape()
        return shape

    def loss(self, batch: PackedBatch) -> LossSums:
        """Cross-entropy of every token given those before it in its document."""
        return self.packed_loss(batch)

    def describe(self, batch: PackedBatch) -> str:
        """Describe a batch by the numbers of its documents."""
        return describe_batch("documents", batch.documents)


class LanguageModelTraining(PackedTraining["DocumentModel[Any]"]):
    """Language model training, validated by the loss on held-out rows."""

    _valid: PackedBatches

    def __init__(
        self, generator: DocumentModel[Any], train: PackedBatches, valid: PackedBatches
    ) -> None:
        super().__init__(generator, train, generator.recipe.training.r_drop)
        self._valid = valid
        self.adapt = generator.adapt if generator.recipe.marks else None

    def scenes(self) -> list[Scene]:
        """Validation documents for the film of learning, each from its beginning."""
        chosen = nearest_lengths(np.diff(self._valid.data.offsets))
        rows = (self._valid.beginning(i, MAX_LENGTH) for i in chosen)
        return [decoder_scene(self.model, row, self.predictor.names) for row in rows]

    def validate(self) -> dict[str, float]:
        """Loss in nats per token, perplexity and bits per byte of the validation documents."""
        return text_scores(self.model, self._valid)

    def validation_checksum(self, score: str) -> str:
        """Checksum of the data and settings behind a score."""
        return self._valid.checksum()


def packed_loss(
    model: DecoderOnly, batch: PackedBatch, smoothing: float = 0.0, r_drop: float = 0.0
) -> LossSums:
    """Cross-entropy of the predictions of a batch that count.

    model: a decoder.  smoothing: of labels, from 0 to 1.  r_drop: weight of the divergence of two
    passes; 0 for a single pass.
    """
    batch, head = batch.to(model.head.weight.device), model.head
    inputs = twice(batch.inputs) if r_drop else batch.inputs
    hidden = model.advance(inputs, model.start())
    count = batch.target_tokens
    return token_loss(head, hidden, batch.labels, batch.counted, count, smoothing, r_drop)


@torch.inference_mode()
def text_scores(model: DecoderOnly, batches: PackedBatches, stride: int = 0) -> dict[str, float]:
    """Loss in nats per token, perplexity, and bits per UTF-8 byte of the texts.

    model: a decoder.  batches: of the texts.  stride: passed to `in_order`.
    """
    nll, tokens = 0.0, 0
    for batch in batches.in_order(stride):
        sums = packed_loss(model, batch)
        nll += sums.nll.item()
        tokens += sums.tokens
    loss = nll / tokens
    perplexity = math.exp(loss) if loss < 700 else math.inf
    bits = nll / math.log(2) / batches.data.n_bytes
    return {"loss": loss, "perplexity": perplexity, "bits_per_byte": bits}


def prepare_decoder(
    build: Callable[[DecoderRecipe, Tokenizer], DocumentModel[Any]],
    recipe: DecoderRecipe,
    run: Path,
) -> LanguageModelTraining:
    """Data, model and loss of a recipe, for training into the directory `run`.

    build: makes the model, with first weights.
    """
    check_decoding(recipe.decoding)
    tokenizer = tokenizer_for(recipe.text, recipe.fine_tune, run, recipe.texts())
    generator = build(recipe, tokenizer)
    train, valid = (generator.encoded(split, cache_of(run)) for split in TRAINED_ON)
    warn_of_few(recipe.data, len(valid.tokens), "tokens", tokens=True)
    return LanguageModelTraining(generator, generator.batches(train), generator.batches(valid))


@dataclass(eq=False, kw_only=True, repr=False)
class DocumentModel(Generator, ABC, Generic[T]):
    """Generator with the recipe of its training, and so its data: documents, each a T."""

    recipe: DecoderRecipe

    @classmethod
    def new(cls, recipe: Any, tokenizer: Tokenizer) -> Self:
        """A model as a recipe describes it, with first weights."""
        vocabulary, window = tokenizer.size + len(recipe.marks), recipe.text.block
        model = build_decoder_only(recipe.model, vocabulary)
        forbidden = *FORBIDDEN, *range(tokenizer.size, vocabulary)
        return cls(
            options=recipe.decoding,
            backend=DecoderSearch(model, window, forbidden),
            model=model,
            tokenizer=tokenizer,
            window=window,
            recipe=recipe,
        )

    @property
    @abstractmethod
    def coding(self) -> Coding[T]:
        """Coding of documents as ids."""

    @abstractmethod
    def example(self, text: str, answer: str) -> T:
        """A document in two parts."""

    def nothing_in(self, split: Split) -> str:
        """Message for a split of the data without documents to learn from."""
        data = self.recipe.data
        if own_section(data, split) is not None or split == "train":
            return f"data.{split}: the documents contain no text"
        texts = map(self.recipe.text_of, self.recipe.documents("train"))
        remedy = remedy_for_nothing_held_out(data, split, texts)
        return (
            f"no validation data: holding out {data.hold_out:g} of the training documents leaves "
            f"none{remedy}"
        )

    @property
    def names(self) -> Names:
        """Names of ids, to display."""
        return token_names(self.tokenizer, [f"<{mark}>" for mark in self.recipe.marks])

    def adapt(self, name: str, theirs: Tensor) -> Tensor:
        """Weight of a base run without marks, with the rows of this model's."""
        size = self.tokenizer.size
        if len(theirs) != size or theirs.shape[1:] != weights_of(self.model)[name].shape[1:]:
            return theirs
        return torch.cat([theirs, weights_of(self.model)[name][size:].to(theirs)])

    def encoded(self, split: Split, cache: Path) -> EncodedDocuments:
        """Documents of a split, encoded in a directory.  Raises DataError if there are none."""
        recipe = self.recipe
        facts = [
            split_fingerprint(recipe.data, split),
            digest_of_tokenizer(self.tokenizer),
            *self.coding.facts,
        ]
        name = digest_of(facts)
        with ProgressCounter(f"encoding {split} documents") as count:
            try:
                return cached_documents(
                    functools.partial(recipe.documents, split),
                    self.coding,
                    cache / name[:16],
                    name,
                    count.to,
                    recipe.training.threads or available_cores(),
                )
            except NoDocumentsError as error:
                raise DataError(self.nothing_in(split)) from error

    def batches(self, data: EncodedDocuments) -> PackedBatches:
        """Batches of encoded documents, as the recipe has them."""
        recipe, vocabulary = self.recipe, self.coding.vocabulary
        shape = recipe.text.block, recipe.training.batch_tokens, recipe.seed
        return PackedBatches(data, *shape, vocabulary)

    def evaluate(
        self,
        split: Split,
        examples: Iterable[Example] | None = None,
        options: DecodingOptions | None = None,
    ) -> Evaluation:
        """Loss, perplexity and bits per byte of a split, or of examples.

        examples: documents in two parts, measured as a single document. options: only the
        recipe's, since nothing is decoded.
        """
        check_not_decoding(options, self.options)
        if examples is None:
            documents = list(self.recipe.documents(split))
        else:
            documents = [self.example(text, answer) for (text,), answer in examples]
        data = EncodedDocuments.of_rows(*self.coding.encode(documents))
        if not len(data):
            raise DataError("no texts to evaluate")
        if unknown := int((data.tokens == UNK).sum()):
            logger.warning(
                "%d of %d tokens are unknown; bits_per_byte excludes their text",
                unknown,
                len(data.tokens),
            )
        self.model.eval()
        scores = text_scores(self.model, self.batches(data), self.recipe.evaluation.stride)
        texts = map(self.recipe.text_of, documents)
        return Evaluation(scores, [" ".join(text.split()) for text in texts])


class TrainedLanguageModel(DocumentModel[str]):
    """Generator of continuations of texts."""

    @property
    def coding(self) -> Coding[str]:
        """Each text between BOS and EOS."""
        return coding_of_texts(Side(self.tokenizer.encode_batch, self.tokenizer.size))

    def example(self, text: str, answer: str) -> str:
        """A text and its continuation."""
        return text + answer
