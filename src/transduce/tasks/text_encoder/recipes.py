"""Recipes of encoders of text, readable without PyTorch."""

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from transduce.data.documents import DocumentsConfig, read_documents
from transduce.data.labelled import (
    LabelledConfig,
    LabelledText,
    Question,
    QuestionsConfig,
    ScoredPair,
    read_labelled,
    read_questions,
    read_scored,
)
from transduce.data.masking import MaskingConfig
from transduce.errors import DataError, SettingError
from transduce.metrics.measure import check_metric
from transduce.models.config import ENCODER_PRESETS
from transduce.settings.sections import section
from transduce.tasks.recipe import (
    Split,
    SplitsConfig,
    check_own_data,
    check_r_drop,
    check_selection,
    own_section,
    read_split,
)
from transduce.tasks.text_inputs import READ_AT_ONCE, EncoderRecipe, EncoderTextConfig
from transduce.text.subword import Alpha, check_sampling
from transduce.training.config import RDropTrainingConfig


@section
class LabelledData(SplitsConfig):
    """Labelled texts for training, validation and test."""

    train: LabelledConfig | None = None
    valid: LabelledConfig | None = None
    test: LabelledConfig | None = None
    hold_out: Annotated[float, Field(gt=0, le=0.25)] = 0.1
    """Share of the texts that is set aside where no file is given; equal texts stay together."""
    pairs: bool | None = None
    """Two texts per input; by default, if the data have the setting `second`."""

    def __post_init__(self) -> None:
        if len({self.pairs, *self._pairs_of_splits} - {None}) > 1:
            raise SettingError(
                "data: train, valid and test must all have a second text, or none of them; make "
                "`second` and `pairs` agree"
            )

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the texts that make an input."""
        return ("text", "second") if self.pairs or any(self._pairs_of_splits) else ("text",)

    @property
    def _pairs_of_splits(self) -> list[bool]:
        splits = [split for split in (self.train, self.valid, self.test) if split is not None]
        return [split.second is not None for split in splits]


Share = Annotated[float, Field(ge=0, lt=1)]


@section
class ClassifierTextConfig(EncoderTextConfig):
    """Tokenizer of texts, and subword sampling."""

    token_dropout: Share = 0.0
    """Share of tokens dropped at random in training; helps with little data."""
    sampling: Alpha = 0.0
    """Subword sampling in training: the dropout probability of merges for BPE, the exponent of
    probabilities for a unigram model."""


@section
class LabelHeadConfig:
    """Classification head, beyond `model.pooling` and `model.pooler`."""

    dropout: Share = 0.1
    """Dropout of the pooled text vector, before the label scores."""


@section
class ClassifierEvaluation:
    """Evaluation settings."""

    metrics: tuple[str, ...] = ("accuracy",)
    """Metrics of test and validation."""

    def __post_init__(self) -> None:
        for name in self.metrics:
            check_metric(name)


@section
class ClassificationRecipe(EncoderRecipe):
    """Recipe of a text classifier."""

    presets = ENCODER_PRESETS

    task: Literal["classification"] = "classification"
    data: LabelledData = LabelledData()
    text: ClassifierTextConfig = ClassifierTextConfig()
    head: LabelHeadConfig = LabelHeadConfig()
    training: RDropTrainingConfig = RDropTrainingConfig()
    evaluation: ClassifierEvaluation = ClassifierEvaluation()

    def __post_init__(self) -> None:
        if self.fine_tune is None:  # else the tokenizer is that of the other run
            check_sampling("text.sampling", self.text.sampling, self.text.tokenizer.kind)
        check_selection(self.training.select_by, ("loss", *self.evaluation.metrics))
        check_r_drop(self.training, self.model, self.head)
        super().__post_init__()


@section
class EmbeddingData(SplitsConfig):
    """Pairs of texts that belong together, and scored pairs to validate and to test with."""

    train: LabelledConfig | None = None
    """Pairs of texts that belong together.  Without `second`, a text is its own pair, and dropout
    alone makes its two vectors differ (SimCSE)."""
    min_score: Annotated[float, Field(allow_inf_nan=False)] | None = None
    """Minimum `label` of a training pair; pairs below it are not positive and are left out.
    By default all pairs are used, and their labels are not read."""
    valid: LabelledConfig | None = None
    """Pairs with their similarity as `label`; the vectors are measured by its rank correlation.
    By default, `hold_out` of the training pairs, measured by loss alone."""
    test: LabelledConfig | None = None

    def __post_init__(self) -> None:
        scored = {"valid": self.valid, "test": self.test}
        if self.min_score is not None:
            scored["train"] = self.train
        for name, split in scored.items():
            if split is not None and split.second is None:
                raise SettingError(
                    f"data.{name}: scored pairs need two texts; set `second` to the column of the "
                    "other text"
                )


@section
class ContrastiveConfig:
    """Contrastive loss."""

    temperature: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.05
    """Divisor of the cosines before the softmax; the lower, the more the nearest negatives
    count."""


@section
class EmbeddingEvaluation:
    """Processing of the encoder's vectors, beyond `model.pooling`."""

    normalize: bool = True
    """Scale every embedding to length 1, so that a dot product of two is their cosine."""


@section
class EmbeddedTextConfig(EncoderTextConfig):
    """Tokenizer of texts that are embedded, and what stands before them."""

    prefix: str = ""
    """Put before every text, such as `query: ` for models that were trained with it."""


@section
class EmbeddingRecipe(EncoderRecipe):
    """Recipe of a text encoder, trained on pairs or imported."""

    inherited = (*READ_AT_ONCE, "text.prefix")

    task: Literal["embedding"] = "embedding"
    data: EmbeddingData = EmbeddingData()
    text: EmbeddedTextConfig = EmbeddedTextConfig()
    contrastive: ContrastiveConfig = ContrastiveConfig()
    evaluation: EmbeddingEvaluation = EmbeddingEvaluation()

    def __post_init__(self) -> None:
        measured = ("loss",) if self.data.valid is None else ("loss", "spearman", "pearson")
        check_selection(self.training.select_by, measured)
        super().__post_init__()


@section
class QuestionsData(SplitsConfig):
    """Questions for training, validation and test."""

    train: QuestionsConfig | None = None
    valid: QuestionsConfig | None = None
    test: QuestionsConfig | None = None
    hold_out: Annotated[float, Field(gt=0, le=0.25)] = 0.1
    """Share that is set aside where no file is given, of the articles or passages: where these
    are few, the share of the questions may be another."""
    split_by: Literal["title", "context"] = "title"
    """Keep together all questions of an article, where its title is known, or of a passage."""


Count = Annotated[int, Field(ge=1)]


@section
class WindowsConfig(EncoderTextConfig):
    """Tokenizer and windows of questions and passages; `max_length` is the width of a window."""

    stride: Count = 64
    """Passage tokens shared by adjacent windows; no answer of at most this length is cut in two."""
    max_question: Count = 64
    """Maximum tokens of a question; more are truncated at the end."""

    def __post_init__(self) -> None:
        room = self.max_length - 3 - self.max_question
        if room <= self.stride:
            raise SettingError(
                f"text.max_length = {self.max_length} with text.max_question = "
                f"{self.max_question} leaves {max(room, 0)} tokens for the passage; text.stride = "
                f"{self.stride} must be smaller"
            )


@section
class SpanConfig:
    """Restrictions on answer spans."""

    max_length: Count = 30
    """Maximum tokens of an answer."""
    no_answer: bool = False
    """Allow "no answer", as in SQuAD 2.0."""
    threshold: Annotated[float, Field(allow_inf_nan=False)] = 0.0
    """Minimum margin of the "no answer" score over the best span."""


OF_WINDOWS = ("text.stride", "text.max_question")
"""Window settings of a base run, in addition to `READ_AT_ONCE`."""

METRICS = ("exact_match", "f1")


@section
class AnswersEvaluation:
    """Evaluation settings."""

    language: str = ""
    """Code of the language of the answers, such as "en" or "zh"; Chinese is measured by
    characters."""
    validation_questions: Annotated[int, Field(ge=1)] = 1000
    """Questions read at each validation."""


@section
class QuestionAnsweringRecipe(EncoderRecipe):
    """Recipe of extractive question answering."""

    presets = ENCODER_PRESETS
    inherited = (*READ_AT_ONCE, *OF_WINDOWS)

    task: Literal["question-answering"] = "question-answering"
    data: QuestionsData = QuestionsData()
    text: WindowsConfig = WindowsConfig()
    span: SpanConfig = SpanConfig()
    evaluation: AnswersEvaluation = AnswersEvaluation()

    def __post_init__(self) -> None:
        check_selection(self.training.select_by, ("loss", *METRICS))
        super().__post_init__()


@section
class TextsData(SplitsConfig):
    """Texts for training, validation and test."""

    train: DocumentsConfig | None = None
    valid: DocumentsConfig | None = None
    test: DocumentsConfig | None = None


@section
class MaskedLanguageModelRecipe(EncoderRecipe):
    """Recipe of a masked language model."""

    presets = ENCODER_PRESETS

    task: Literal["masked-language-model"] = "masked-language-model"
    data: TextsData = TextsData()
    masking: MaskingConfig = MaskingConfig()
    next_sentence: bool = False
    """Next-sentence prediction: read two lines, the second from another document half of the time;
    without it, as many lines of a document as fit."""

    def __post_init__(self) -> None:
        measured = ["loss", "perplexity", "accuracy"]
        measured += ["next_sentence_accuracy"] * self.next_sentence
        check_selection(self.training.select_by, measured)
        super().__post_init__()


def read_examples(config: LabelledData, split: Split) -> Iterator[LabelledText]:
    """Stream the labelled texts of a split; equal first texts are in the same split.

    Raises DataError if reading fails.
    """
    return read_split(config, split, read_labelled, lambda example: example.texts[0])


def scored_pairs(config: EmbeddingData, split: Split) -> Iterator[ScoredPair]:
    """Stream the scored pairs of a split.  Raises DataError if it has none."""
    section = own_section(config, split)
    if section is None:
        check_own_data(config, split)
        raise DataError(
            f"the {split} pairs have no scores; set data.{split} to scored pairs, or give --source "
            'with lines "TEXT<tab>TEXT" and --reference with numbers'
        )
    return read_scored(section, Path(config.root))


def questions_of(config: QuestionsData, split: Split) -> Iterator[Question]:
    """Stream the questions of a split. Raises DataError if reading fails."""

    return read_split(config, split, read_questions, functools.partial(split_key, config))


def split_key(config: QuestionsData, question: Question) -> str:
    """The text that decides in which split a question is."""
    by_title = config.split_by == "title" and question.title
    return question.title if by_title else question.context


def recipe_documents(config: TextsData, split: Split) -> Iterator[str]:
    """Stream the documents of a split. Raises DataError if reading fails."""
    return read_split(config, split, read_documents, lambda text: text)
