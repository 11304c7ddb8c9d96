"""Extractive question answering: training."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from transduce.data.one_shape import Packed, beside, of_each, parted
from transduce.data.questions import Question
from transduce.errors import DataError
from transduce.metrics.measure import measure, numeric_scores
from transduce.sequence import apart
from transduce.tasks.label_training import new_head
from transduce.tasks.sequence_training import SequenceTraining
from transduce.tasks.splits import remedy_for_nothing_held_out, sampled
from transduce.tasks.text_batches import rows_padded, tokenizer_for
from transduce.tasks.text_encoder.answerer import Answerer
from transduce.tasks.text_encoder.question_answering_data import (
    EncodedWindows,
    SpanBatch,
    encoded_windows,
    spans_of,
    texts_of,
)
from transduce.tasks.text_encoder.recipes import (
    METRICS,
    QuestionAnsweringRecipe,
    questions_of,
    split_key,
)
from transduce.tasks.validation import checksum_of, warn_of_few
from transduce.text import token_names
from transduce.training.film import Scene
from transduce.training.film_scenes import encoder_scene, nearest
from transduce.training.loss import IGNORED, LossSums

logger = logging.getLogger("transduce")


class QuestionAnsweringTraining(SequenceTraining["Answerer"]):
    """Questions, model and loss for the training loop."""

    unit = "ends of answers"
    items = "training windows"

    def __init__(
        self, answerer: Answerer, windows: EncodedWindows, valid: Sequence[Question]
    ) -> None:
        super().__init__(answerer)
        self.recipe = recipe = answerer.recipe
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
        parts = batch.allowed, batch.spans
        return self.packed_loss(Packed((batch.tokens,), parts, batch.target_tokens).to(self.device))

    def pack(self, batch: SpanBatch) -> Packed:
        """The windows in one row of one shape."""
        row, allowed = parted(*self.shape.pack(beside(batch.tokens, batch.allowed)))
        return Packed((row,), (allowed, of_each(row, batch.spans)), batch.target_tokens)

    def packed_loss(self, packed: Packed) -> LossSums:
        """As `loss`, of a packed batch."""
        (tokens,), (allowed, spans) = packed.sides, packed.parts
        scores = apart(tokens.with_values(self.model(tokens).float()))
        rows = apart(tokens.with_values(allowed))
        allowed = rows.values.bool() & rows.real
        return span_loss(scores.values, allowed, spans, self.recipe.training.label_smoothing)

    def validate(self) -> dict[str, float]:
        """Loss in nats per end of a span, over the windows with a span; exact match and F1 of
        the answers."""
        nll, count = 0.0, 0
        answers = []
        scores = iter(self.predictor.scores([w for r in self._encoded_passages for w in r.windows]))
        for encoded_passage, spans in zip(self._encoded_passages, self._spans, strict=True):
            of_reading = [next(scores) for _ in encoded_passage.windows]
            answers.append(self.predictor.answer(encoded_passage, of_reading).text)
            for window, span, score in zip(encoded_passage.windows, spans, of_reading, strict=True):
                if span is not None:
                    allowed = torch.zeros(1, len(score), dtype=torch.bool)
                    allowed[:, window.first : -1] = True
                    allowed[:, 0] = self.recipe.span.no_answer
                    sums = span_loss(torch.from_numpy(score)[None], allowed, torch.tensor([span]))
                    nll += sums.nll.item()
                    count += sums.tokens
        language = self.recipe.evaluation.language
        measured = measure(METRICS, answers, self._references, language)
        return {"loss": nll / count, **numeric_scores(measured)}

    def scenes(self) -> list[Scene]:
        """Validation questions with their passages, for the film of learning."""
        rows = [w.row for passage in self._encoded_passages for w in passage.windows]
        chosen = [rows[i] for i in nearest(np.array([len(row.ids) for row in rows]))]
        padded = (rows_padded([row], self.recipe.model.segments) for row in chosen)
        names = token_names(self.predictor.tokenizer)
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

    scores (b, t, 2), allowed (b, t), spans (b, 2), perhaps IGNORED.  Smoothing spreads over allowed
    positions.
    """
    barred, counted = ~allowed[..., None], spans != IGNORED
    log_probs = scores.masked_fill(barred, torch.finfo(scores.dtype).min).log_softmax(1)
    at_ends = log_probs.gather(1, spans.clamp(min=0)[:, None, :])[:, 0]
    nll = -at_ends.masked_fill(~counted, 0.0).sum()
    choices = allowed.sum(1, keepdim=True).clamp(min=1)
    spread = -(log_probs.masked_fill(barred, 0.0).sum(1) / choices).sum()
    return LossSums((1 - smoothing) * nll + smoothing * spread, nll.detach(), spans.numel())


def prepare_question_answering(
    recipe: QuestionAnsweringRecipe, run: Path
) -> QuestionAnsweringTraining:
    """Data, model and loss of a recipe, for training into the directory `run`."""
    tokenizer = tokenizer_for(recipe.text, recipe.fine_tune, run, texts_of(recipe.data))
    answerer = Answerer(recipe, tokenizer)
    windows = encoded_windows(recipe.data, answerer)
    limit = recipe.evaluation.validation_questions
    valid = sampled(
        questions_of(recipe.data, "valid"), limit, lambda q: f"{q.question} {q.context}"
    )
    if not valid:
        keys = (split_key(recipe.data, q) for q in questions_of(recipe.data, "train"))
        remedy = remedy_for_nothing_held_out(recipe.data, "valid", keys)
        raise DataError(f"there are no validation questions{remedy}")
    warn_of_few(recipe.data, len(valid), "questions")
    task = QuestionAnsweringTraining(answerer, windows, valid)
    task.reinit = new_head((), recipe.fine_tune)
    return task
