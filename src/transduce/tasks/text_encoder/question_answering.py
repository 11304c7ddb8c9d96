"""Extractive question answering: training."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from transduce.data.questions import Question
from transduce.decoding.options import DecodingOptions
from transduce.errors import DataError
from transduce.explain.film_scenes import encoder_scene, nearest
from transduce.explain.recorded_pass import token_names
from transduce.metrics.measure import measure
from transduce.models.encoder_only import EncoderOnlyConfig
from transduce.models.single_stack_presets import ENCODER_PRESETS
from transduce.settings.sections import parse, section
from transduce.tasks.common import find_device, prepare_training, with_weights
from transduce.tasks.evaluation import Evaluation
from transduce.tasks.held_out import remedy_for_nothing_held_out
from transduce.tasks.labels import new_head
from transduce.tasks.recipe import Recipe, Split
from transduce.tasks.recipe_settings import (
    check_recompute,
    check_selection,
    rooted,
    with_base_model,
    with_preset,
)
from transduce.tasks.sequence_training import SequenceTraining
from transduce.tasks.splits import sampled
from transduce.tasks.task import Example
from transduce.tasks.text_encoder.answerer import Answerer, SpanConfig, WindowsConfig
from transduce.tasks.text_encoder.question_answering_data import (
    READ_TOGETHER,
    EncodedWindows,
    QuestionsData,
    SpanBatch,
    encoded_windows,
    questions_of,
    spans_of,
    split_key,
    texts_of,
)
from transduce.tasks.text_inputs import (
    ENCODERS,
    READ_AT_ONCE,
    check_room,
    one_line,
    rows_padded,
    tokenizer_for,
    tokenizer_of,
)
from transduce.tasks.validation import checksum_of, warn_of_few
from transduce.text import Tokenizer
from transduce.training.config import FineTuneConfig
from transduce.training.film import Scene
from transduce.training.loss import LossSums
from transduce.training.trainer import Outcome, train

logger = logging.getLogger("transduce")

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
class QuestionAnsweringRecipe(Recipe):
    """Recipe of extractive question answering."""

    task: Literal["question-answering"] = "question-answering"
    data: QuestionsData = QuestionsData()
    text: WindowsConfig = WindowsConfig()
    model: EncoderOnlyConfig = EncoderOnlyConfig()
    span: SpanConfig = SpanConfig()
    fine_tune: FineTuneConfig | None = None
    """Base run, whose weights and tokenizer are the start."""
    evaluation: AnswersEvaluation = AnswersEvaluation()

    def __post_init__(self) -> None:
        check_room(self.model, self.text)
        check_selection(self.training.select_by, ("loss", *METRICS))
        check_recompute(self.training, self.model.encoder)


def parse_question_answering(settings: Mapping[str, Any], where: str) -> QuestionAnsweringRecipe:
    """Parse settings as a recipe; with `fine_tune`, the model defaults to the base run's."""
    settings = with_preset(settings, ENCODER_PRESETS, where)
    filled = with_base_model(settings, ENCODERS, (*READ_AT_ONCE, *OF_WINDOWS))
    return rooted(parse(QuestionAnsweringRecipe, filled, where))


class QuestionAnsweringTraining(SequenceTraining):
    """Questions, model and loss for the training loop."""

    unit = "ends of answers"
    items = "training windows"

    def __init__(
        self,
        recipe: QuestionAnsweringRecipe,
        answerer: TrainedAnswerer,
        windows: EncodedWindows,
        valid: Sequence[Question],
    ) -> None:
        self.recipe = recipe
        self.answerer = answerer
        self.model = answerer.model
        self.d_model = recipe.model.d_model
        self.batches = windows.batches(
            recipe.model.segments, recipe.span.no_answer, recipe.training.batch_tokens, recipe.seed
        )
        self._references = [question.references for question in valid]
        self._encoded_passages = answerer.read([(q.question, q.context) for q in valid])
        self._spans = [
            spans_of(question, encoded_passage, recipe.span.no_answer)
            for question, encoded_passage in zip(valid, self._encoded_passages, strict=True)
        ]
        if not any(span for spans in self._spans for span in spans):
            raise DataError(
                f"none of the {len(valid)} validation questions has an answer in its passage"
            )

    def loss(self, batch: SpanBatch) -> LossSums:
        """Cross-entropy of the first and the last position of the answer."""
        device = self.answerer.device
        scores = self.model(batch.tokens.to(device)).float()
        smoothing = self.recipe.training.label_smoothing
        return span_loss(scores, batch.allowed.to(device), batch.spans.to(device), smoothing)

    def validate(self) -> dict[str, float]:
        """Loss in nats per end of a span, over the windows that have one; exact match and F1 of
        the answers."""
        nll, count = 0.0, 0
        answers = []
        scores = iter(self.answerer.scores([w for r in self._encoded_passages for w in r.windows]))
        for encoded_passage, spans in zip(self._encoded_passages, self._spans, strict=True):
            of_reading = [next(scores) for _ in encoded_passage.windows]
            answers.append(self.answerer.answer(encoded_passage, of_reading).text)
            for window, span, score in zip(encoded_passage.windows, spans, of_reading, strict=True):
                if span is not None:
                    allowed = torch.zeros(1, len(score), dtype=torch.bool)
                    allowed[:, window.first : -1] = True
                    allowed[:, 0] = self.recipe.span.no_answer
                    sums = span_loss(score[None], allowed, torch.tensor([span]))
                    nll += sums.nll.item()
                    count += sums.tokens
        language = self.recipe.evaluation.language
        measured = measure(METRICS, answers, self._references, language)
        return {"loss": nll / count} | {
            name: value for name, value in measured.items() if isinstance(value, float)
        }

    def scenes(self) -> list[Scene]:
        """Validation questions with their passages, for the film of learning."""
        rows = [w.row for passage in self._encoded_passages for w in passage.windows]
        chosen = [rows[i] for i in nearest(np.array([len(row.ids) for row in rows]))]
        padded = (rows_padded([row], self.recipe.model.segments) for row in chosen)
        names = token_names(self.answerer.tokenizer)
        return [encoder_scene(self.model, row, names) for row in padded]

    def validation_checksum(self, score: str) -> str:
        """Checksum of the data and settings behind a score."""
        lengths = [
            [len(window.row.ids) for window in encoded_passage.windows]
            for encoded_passage in self._encoded_passages
        ]
        return checksum_of(self._references, self._spans, lengths)


def span_loss(scores: Tensor, allowed: Tensor, spans: Tensor, smoothing: float = 0.0) -> LossSums:
    """Cross-entropy of the two ends of each span, among the allowed positions.

    scores (b, t, 2), allowed (b, t), spans (b, 2).  Smoothing spreads over allowed positions.
    """
    barred = ~allowed[..., None]
    log_probs = scores.masked_fill(barred, torch.finfo(scores.dtype).min).log_softmax(1)
    nll = -log_probs.gather(1, spans[:, None, :]).sum()
    spread = -(log_probs.masked_fill(barred, 0.0).sum(1) / allowed.sum(1, keepdim=True)).sum()
    return LossSums((1 - smoothing) * nll + smoothing * spread, nll.detach(), spans.numel())


class TrainedAnswerer(Answerer):
    """Answerer with the recipe of its training, and so its data."""

    def __init__(self, recipe: QuestionAnsweringRecipe, tokenizer: Tokenizer) -> None:
        super().__init__(recipe.model, recipe.text, recipe.span, tokenizer)
        self.recipe = recipe

    def evaluate(
        self,
        split: Split,
        examples: Iterable[Example] | None = None,
        options: DecodingOptions | None = None,
    ) -> Evaluation:
        """Answer held-out questions and compare with the references.

        Questions without an answer count, also for a model that cannot leave one unanswered.
        """
        if examples is None:
            questions = questions_of(self.recipe.data, split)
            items = (((q.question, q.context), q.references) for q in questions)
        else:
            items = (((question, context), [answer]) for (question, context), answer in examples)
        listed = list(items)
        if not listed:
            raise DataError("no questions to evaluate")
        inputs = [texts for texts, _ in listed]
        references = [right for _, right in listed]
        hypotheses = [
            prediction.text
            for first in range(0, len(inputs), READ_TOGETHER)
            for prediction in self.predict(inputs[first : first + READ_TOGETHER])
        ]
        language = self.recipe.evaluation.language
        scores = measure(METRICS, hypotheses, references, language)
        sources = [one_line(texts) for texts in inputs]
        return Evaluation(scores, sources, hypotheses, references, language, inputs=inputs)

    def facts(self) -> dict[str, Any]:
        """The size of the vocabulary."""
        return {"vocabulary": self.tokenizer.size}


def train_question_answering(recipe: QuestionAnsweringRecipe, run: Path, resume: bool) -> Outcome:
    """Train a tokenizer, unless there is one to start from, and a model into `run`."""
    started = prepare_training(recipe.data, recipe.training, recipe.seed)
    tokenizer = tokenizer_for(recipe.text, recipe.fine_tune, run, texts_of(recipe.data))
    answerer = TrainedAnswerer(recipe, tokenizer)
    answerer.model.to(find_device(recipe.training.device))
    windows = encoded_windows(recipe.data, answerer)
    limit = recipe.evaluation.validation_questions
    valid = sampled(
        questions_of(recipe.data, "valid"), limit, lambda q: f"{q.question} {q.context}"
    )
    if not valid:
        remedy = ""
        if recipe.data.valid is None:
            keys = (split_key(recipe.data, q) for q in questions_of(recipe.data, "train"))
            remedy = f"; {remedy_for_nothing_held_out(recipe.data, keys)}"
        raise DataError(f"there are no validation questions{remedy}")
    warn_of_few(recipe.data, len(valid), "questions")
    task = QuestionAnsweringTraining(recipe, answerer, windows, valid)
    reinit = new_head((), recipe.fine_tune)
    return train(
        task, recipe.training, run, resume, recipe.fine_tune, reinit=reinit, started=started
    )


def load_question_answering(
    recipe: QuestionAnsweringRecipe, run: Path, device: str
) -> TrainedAnswerer:
    """Trained model of a run directory. Raises RunError if a file is missing or damaged."""
    tokenizer = tokenizer_of(run)
    return with_weights(lambda: TrainedAnswerer(recipe, tokenizer), run, device)
