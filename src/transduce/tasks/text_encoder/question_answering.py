"""Extractive question answering: windows for training, and the loss."""

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from transduce.data.batches import Packed, RowBatch, TokenBatches, beside, of_each, parted
from transduce.data.labelled import Question
from transduce.errors import DataError
from transduce.metrics.measure import measure, numeric_scores
from transduce.sequence import Padded, apart
from transduce.support.work import chunks
from transduce.tasks.recipe import checksum_of, remedy_for_nothing_held_out, sampled, warn_of_few
from transduce.tasks.text_encoder.predictor import Answerer, EncodedPassage, PassageWindow
from transduce.tasks.text_encoder.recipes import (
    METRICS,
    QuestionAnsweringRecipe,
    QuestionsData,
    questions_of,
    split_key,
)
from transduce.tasks.training import (
    EncodedTexts,
    SequenceTraining,
    new_head,
    rows_padded,
    tokenizer_for,
)
from transduce.text import token_names
from transduce.training.film import Scene, encoder_scene, nearest_lengths
from transduce.training.log import ProgressCounter
from transduce.training.loss import IGNORED, LossSums

logger = logging.getLogger("transduce")

READ_TOGETHER = 512
"""Questions that are read, and answered, together."""


@dataclass(frozen=True)
class SpanBatch(RowBatch):
    """Some windows as the model reads them.

    tokens: (b, t), or (b, t, 2) with segments.  allowed: (b, t) positions of the passage, and
    the first where "no answer" is an option.  spans: (b, 2) first and last position of the
    answer.
    """

    tokens: Padded
    allowed: Tensor
    spans: Tensor

    @property
    def target_tokens(self) -> int:
        """Ends of spans to predict: two for each window."""
        return 2 * len(self.rows)


class EncodedWindows:
    """Training windows as token ids in memory, concatenated."""

    def __init__(self, windows: Iterable[tuple[PassageWindow, tuple[int, int]]]) -> None:
        """windows: each with the first and last position of its answer."""
        self.texts = EncodedTexts()
        spans: list[tuple[int, int, int]] = []
        for window, span in windows:
            self.texts.add([window.row])
            spans.append((window.first, *span))
        table = np.array(spans, np.int64).reshape(-1, 3)
        self.firsts, self.spans = table[:, 0], table[:, 1:]

    def __len__(self) -> int:
        return len(self.texts)

    def batches(
        self, segmented: bool, no_answer: bool, tokens: int, seed: int
    ) -> TokenBatches[SpanBatch]:
        """All windows, in batches of at most `tokens` positions; optionally with segments.

        segmented: with segments.  no_answer: allow an empty answer.  seed: of the order.
        """

        lengths = self.texts.lengths

        def assemble(numbers: NDArray[np.int64]) -> SpanBatch:
            padded = self.texts.padded(numbers, segmented)
            columns = np.arange(padded.real.shape[1])
            ends = lengths[numbers, None] - 1
            allowed = (columns >= self.firsts[numbers, None]) & (columns < ends)
            allowed[:, 0] = no_answer
            spans = torch.from_numpy(self.spans[numbers])
            return SpanBatch(numbers, padded, torch.from_numpy(allowed), spans)

        return TokenBatches((lengths, lengths), assemble, tokens, seed)


def encoded_windows(config: QuestionsData, answerer: Answerer) -> EncodedWindows:
    """Training questions as windows with their answers; logs the number skipped.

    Raises DataError if none is left.
    """
    n_questions, n_unanswered, n_lost = 0, 0, 0
    no_answer = answerer.recipe.span.no_answer

    def windows() -> Iterator[tuple[PassageWindow, tuple[int, int]]]:
        nonlocal n_questions, n_unanswered, n_lost
        with ProgressCounter("encoding train questions") as count:
            questions = count.each(questions_of(config, "train"))
            for chunk in chunks(questions, READ_TOGETHER):
                n_questions += len(chunk)
                encoded_passages = answerer.read([(q.question, q.context) for q in chunk])
                for question, encoded_passage in zip(chunk, encoded_passages, strict=True):
                    answer = tokens_of_answer(question, encoded_passage)
                    if answer is None and question.answers:
                        n_lost += 1
                        continue
                    n_unanswered += answer is None
                    for window in encoded_passage.windows:
                        span = span_in(window, answer, no_answer)
                        if span is not None:
                            yield window, span

    data = EncodedWindows(windows())
    if n_lost:
        message = "skipping %d of %d training questions: their answers are not in the passage"
        logger.warning(message, n_lost, n_questions)
    if n_unanswered and not no_answer:
        message = "skipping %d of %d training questions without an answer (span.no_answer)"
        logger.warning(message, n_unanswered, n_questions)
    if not len(data):
        raise DataError("no training question has an answer in its passage")
    message = "train: %d questions in %d windows, %d tokens"
    logger.info(message, n_questions - n_lost, len(data), data.texts.lengths.sum())
    return data


def span_in(
    window: PassageWindow, answer: tuple[int, int] | None, no_answer: bool
) -> tuple[int, int] | None:
    """The positions in a window of the first and last token of an answer, given in the passage.

    Where the window does not hold it whole: the first position twice if there may be no answer,
    else None.
    """
    if answer is not None and window.begin <= answer[0] and answer[1] < window.end:
        shift = window.first - window.begin
        return answer[0] + shift, answer[1] + shift
    return (0, 0) if no_answer else None


def spans_of(
    question: Question, encoded_passage: EncodedPassage, no_answer: bool
) -> list[tuple[int, int] | None]:
    """Answer span in each window of a passage, by `span_in`; None if the answer was not found.

    question: with its answers.  encoded_passage: in windows.  no_answer: passed to `span_in`.
    """
    answer = tokens_of_answer(question, encoded_passage)
    if answer is None and question.answers:
        return [None] * len(encoded_passage.windows)
    return [span_in(window, answer, no_answer) for window in encoded_passage.windows]


def tokens_of_answer(question: Question, encoded_passage: EncodedPassage) -> tuple[int, int] | None:
    """The first and the last token of the answer for training."""
    span = question.span()
    return None if span is None else encoded_passage.tokens_of(*span)


def texts_of(data: QuestionsData) -> Iterator[str]:
    """Texts for training a vocabulary: each question, and each passage once per run of
    equals."""
    before = ""
    for question in questions_of(data, "train"):
        yield question.question
        if question.context != before:
            yield from question.context.splitlines()
            before = question.context


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
        chosen = [rows[i] for i in nearest_lengths(np.array([len(row.ids) for row in rows]))]
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
