"""Classification of a text or of a pair of texts."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field

from transduce.data.one_shape import Packed, of_each
from transduce.errors import DataError, printable_name
from transduce.explain.film_scenes import encoder_scene, nearest
from transduce.explain.recorded_pass import token_names
from transduce.metrics.measure import check_metric, measure, numeric_scores
from transduce.models.encoder_only import EncoderOnly, build_text_encoder
from transduce.models.single_stack_presets import ENCODER_PRESETS
from transduce.nn.heads.label import LabelHead
from transduce.sequence import Padded
from transduce.settings.sections import section
from transduce.tasks.held_out import remedy_for_nothing_held_out
from transduce.tasks.labels import (
    LabelPrediction,
    label_loss,
    labels_for,
    new_head,
)
from transduce.tasks.predictors import EvaluationSet, Inputs, MeasuredPredictor, OnePassPredictor
from transduce.tasks.recipe import Split
from transduce.tasks.recipe_settings import (
    check_r_drop,
    check_selection,
)
from transduce.tasks.sequence_training import SequenceTraining
from transduce.tasks.text_encoder.classification_data import (
    EncodedExamples,
    LabelBatch,
    LabelledData,
    read_examples,
)
from transduce.tasks.text_encoder.sampled_texts import sampled_batches
from transduce.tasks.text_inputs import (
    EncoderRecipe,
    InputTokenizer,
    TextConfig,
    encode_batches,
    leave_out_tokens,
    tokenizer_for,
    vocabulary_rows,
)
from transduce.tasks.validation import warn_of_few
from transduce.text import Tokenizer
from transduce.text.sampling import Alpha, check_sampling, sampler_for
from transduce.training.config import RDropTrainingConfig
from transduce.training.display import ProgressCounter
from transduce.training.film import Scene
from transduce.training.loss import LossSums
from transduce.training.r_drop import r_drop_of_scores, twice

logger = logging.getLogger("transduce")

BATCH_TOKENS = 4096
"""Positions, padding included, in a batch of texts to label."""
Share = Annotated[float, Field(ge=0, lt=1)]


@section
class ClassifierTextConfig(TextConfig):
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


class ClassificationTraining(SequenceTraining["TextClassifier"]):
    """Examples, model and loss for the training loop."""

    unit = "texts"
    items = "training examples"

    def __init__(
        self,
        classifier: TextClassifier,
        training: EncodedExamples,
        validation: EncodedExamples,
    ) -> None:
        super().__init__(classifier)
        self.recipe = recipe = classifier.recipe
        segmented, tokens = recipe.model.segments, recipe.training.batch_tokens
        train = training.batches(segmented, tokens, recipe.seed)
        sampler = sampler_for("text.sampling", recipe.text.sampling, classifier.tokenizer)
        self.batches = sampled_batches(
            train,
            training.texts,
            sampler,
            recipe.text.max_length,
            segmented,
            lambda batch, tokens: replace(batch, tokens=tokens),
        )
        self._valid = validation.batches(segmented, tokens, recipe.seed)
        self._valid_labels = validation.labels
        self._unseen, self._of_blanks = validation.unseen, validation.of_blanks

    def loss(self, batch: LabelBatch) -> LossSums:
        """Cross-entropy of the right labels."""
        sides, parts = (self._retained(batch),), (batch.labels,)
        return self.packed_loss(Packed(sides, parts, batch.target_tokens).to(self.device))

    def pack(self, batch: LabelBatch) -> Packed:
        """The texts in one row of one shape."""
        (row,) = self.shape.pack(self._retained(batch))
        return Packed((row,), (of_each(row, batch.labels),), batch.target_tokens)

    def packed_loss(self, packed: Packed) -> LossSums:
        """As `loss`, of a packed batch."""
        (tokens,), (labels,), config = packed.sides, packed.parts, self.recipe.training
        if config.r_drop:
            scores = self.model(twice(tokens))
            return r_drop_of_scores(scores, labels, config.r_drop, config.label_smoothing)
        return label_loss(self.model(tokens), labels, config.label_smoothing)

    def _retained(self, batch: LabelBatch) -> Padded:
        share = self.recipe.text.token_dropout
        return leave_out_tokens(batch.tokens, share) if share else batch.tokens

    def validate(self) -> dict[str, float]:
        """Loss in nats per example on the validation examples, and the recipe's metrics.

        Labels missing from the training data and blank texts count as wrong, not for the loss.
        """
        nll, count = 0.0, 0
        names = (*self.predictor.labels, *reversed(self._unseen))  # those are at -1, -2, …
        answers = [""] * len(self._of_blanks)
        right = [[label] for label in self._of_blanks]
        with torch.inference_mode():
            for batch in self._valid.in_order():
                scores = self.model(batch.tokens.to(self.device)).float().cpu()
                known = batch.labels >= 0
                nll += F.cross_entropy(scores[known], batch.labels[known], reduction="sum").item()
                count += int(known.sum())
                answers += (names[i] for i in scores.argmax(1).tolist())
                right += ([names[i]] for i in batch.labels.tolist())
        measured = measure(self.recipe.evaluation.metrics, answers, right)
        return {"loss": nll / count, **numeric_scores(measured)}

    def scenes(self) -> list[Scene]:
        """Validation texts for the film of learning."""
        rows = (self._valid.assemble(np.array([i])) for i in nearest(self._valid.widths[0]))
        names = token_names(self.predictor.tokenizer)
        return [encoder_scene(self.model, row.tokens, names) for row in rows]

    def behind(self, score: str) -> Sequence[Any]:
        """Labels of the validation texts."""
        return ([self._valid_labels.tolist(), self._unseen, len(self._of_blanks)],)


class TextClassifier(OnePassPredictor[LabelPrediction], MeasuredPredictor):
    """A trained model with its tokenizer and labels: texts in, labels out."""

    prediction = LabelPrediction
    items = "examples"

    def __init__(
        self, recipe: ClassificationRecipe, tokenizer: Tokenizer, labels: tuple[str, ...]
    ) -> None:
        config = recipe.model
        head = LabelHead(
            config.d_model,
            len(labels),
            config.pooling,
            config.pooler,
            recipe.head.dropout,
            config.pooler_activation,
        )
        self.recipe = recipe
        self.tokenizer = tokenizer
        self.input_tokenizer = InputTokenizer(tokenizer, recipe.text.max_length)
        self.labels = labels
        self.model: EncoderOnly = build_text_encoder(config, vocabulary_rows(tokenizer), head)
        self.inputs = recipe.data.inputs

    def answers(self, inputs: Inputs, numbers: Sequence[int]) -> Iterator[LabelPrediction]:
        """Labels of inputs that are not blank."""
        rows = self.input_tokenizer.rows(inputs, numbers)
        scores = encode_batches(self.model, rows, BATCH_TOKENS, self.recipe.model.segments)
        return (LabelPrediction.of(self.labels, score.float().log_softmax(0)) for score in scores)

    @property
    def metrics(self) -> Sequence[str]:
        """Metrics of the recipe."""
        return self.recipe.evaluation.metrics

    def held_out(self, split: Split) -> EvaluationSet:
        """The labelled texts of a split."""
        return self.examples(read_examples(self.recipe.data, split))

    def reference(self, answer: str) -> str:
        """The name of a label."""
        return printable_name(answer)

    def facts(self) -> dict[str, Any]:
        """The labels, and the size of the vocabulary."""
        return {"labels": list(self.labels), "vocabulary": self.tokenizer.size}


def prepare_classification(recipe: ClassificationRecipe, run: Path) -> ClassificationTraining:
    """Data, model and loss of a recipe, for training into the directory `run`."""
    train_labels = (example.label for example in read_examples(recipe.data, "train"))
    labels = labels_for(run, train_labels, fine_tune=recipe.fine_tune)
    texts = (text for example in read_examples(recipe.data, "train") for text in example.texts)
    tokenizer = tokenizer_for(recipe.text, recipe.fine_tune, run, texts)
    training = _encoded(recipe, "train", tokenizer, labels)
    validation = _encoded(recipe, "valid", tokenizer, labels)
    warn_of_few(recipe.data, len(validation), "texts")
    classifier = TextClassifier(recipe, tokenizer, labels)
    task = ClassificationTraining(classifier, training, validation)
    task.reinit = new_head(labels, recipe.fine_tune)
    return task


def _encoded(
    recipe: ClassificationRecipe, split: Split, tokenizer: Tokenizer, labels: Sequence[str]
) -> EncodedExamples:
    with ProgressCounter(f"encoding {split} texts") as count:
        examples = count.each(read_examples(recipe.data, split))
        data = EncodedExamples(examples, tokenizer, labels, recipe.text.max_length)
    unseen = int((data.labels < 0).sum())
    if unseen and split == "train":
        raise DataError("the labels of the training texts have changed; start a new run")
    if unseen == len(data):
        if len(data):
            raise DataError(f"no {split} text has a label of the training texts ({labels[0]!r}, …)")
        keys = (example.texts[0] for example in read_examples(recipe.data, "train"))
        remedy = remedy_for_nothing_held_out(recipe.data, split, keys)
        raise DataError(f"there are no {split} texts{remedy}")
    if unseen:
        message = "%d of %d %s texts have labels that no training text has; they count as wrong"
        logger.warning(message, unseen, len(data), split)
    if data.of_blanks:
        what = "are skipped" if split == "train" else "count as wrong"
        logger.warning("%d %s texts are blank; they %s", len(data.of_blanks), split, what)
    logger.info("%s: %d texts, %d tokens", split, len(data), data.texts.lengths.sum())
    return data
