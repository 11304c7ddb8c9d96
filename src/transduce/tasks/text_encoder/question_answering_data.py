"""Questions of a recipe, as windows for training."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from transduce.data.batches import RowBatch, TokenBatches
from transduce.data.questions import Question
from transduce.errors import DataError
from transduce.sequence import Padded
from transduce.support.work import chunks
from transduce.tasks.text_batches import EncodedTexts
from transduce.tasks.text_encoder.answerer import Answerer, EncodedPassage, Window
from transduce.tasks.text_encoder.recipes import QuestionsData, questions_of
from transduce.training.display import ProgressCounter

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

    def __init__(self, windows: Iterable[tuple[Window, tuple[int, int]]]) -> None:
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
        """All windows, in batches of at most `tokens` positions; optionally with segments."""

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

    def windows() -> Iterator[tuple[Window, tuple[int, int]]]:
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
    window: Window, answer: tuple[int, int] | None, no_answer: bool
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
    """Answer span in each window of a passage, by `span_in`; None if the answer was not found."""
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
