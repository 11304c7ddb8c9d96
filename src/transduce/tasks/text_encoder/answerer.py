"""Question answering in use: windows over a passage, and the best span.

    [BOS] question [EOS] window of the passage [EOS]        positions 0 … t - 1
      |                    |-- allowed starts and ends --|
      "no answer", if allowed

A long passage is split into windows that overlap by `stride` tokens. The score of a span is the
start score of its first token plus the end score of its last (Devlin et al. 2019, section 4.2); the
best span of all windows is the answer.  Imports no torch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from transduce.engine.pair_shape import EncoderHead
from transduce.tasks.predictors import EvaluationSet, Inputs, MeasuredPredictor, one_line
from transduce.tasks.recipe import Split
from transduce.tasks.text_encoder.predictor import EncoderPredictor
from transduce.tasks.text_encoder.recipes import (
    METRICS,
    QuestionAnsweringRecipe,
    WindowsConfig,
    questions_of,
)
from transduce.tasks.text_inputs import Row, vocabulary_rows, with_special_tokens
from transduce.text.offsets import tokens_with_spans

if TYPE_CHECKING:
    from transduce.models.encoder_only import EncoderOnly


Scores = NDArray[np.float32]


class PassageWindow(NamedTuple):
    """A part of a passage, behind the question.

    first: position in the row of the first token of the passage, which is its token `begin`.
    """

    row: Row
    first: int
    begin: int

    @property
    def end(self) -> int:
        """The token of the passage after the last in this window."""
        return self.begin + len(self.row.ids) - 1 - self.first


@dataclass(frozen=True)
class EncodedPassage:
    """A question about a passage, as the model reads it; without windows if either is blank.

    spans: characters of the passage [start, end) of each of its tokens.
    """

    context: str
    spans: Sequence[tuple[int, int]]
    windows: Sequence[PassageWindow]

    def tokens_of(self, start: int, end: int) -> tuple[int, int] | None:
        """First and last token that cover any of the characters [start, end)."""
        inside = [i for i, (a, b) in enumerate(self.spans) if a < end and b > start and a < b]
        return (inside[0], inside[-1]) if inside else None


@dataclass(frozen=True)
class SpanPrediction:
    """The answer to a question.

    answer: text of the passage, or empty. start, end: its characters in the passage, [start, end);
    None for no answer. score: sum of start and end score. probability: share among all possible
    answers.
    """

    answer: str = ""
    start: int | None = None
    end: int | None = None
    score: float = 0.0
    probability: float = 0.0

    @property
    def text(self) -> str:
        """The answer on a single line."""
        return one_line([self.answer])

    def fields(self) -> dict[str, Any]:
        """Fields of a JSON record."""
        return {
            "answer": self.answer,
            "start": self.start,
            "end": self.end,
            "score": self.score,
            "probability": self.probability,
        }


class Answerer(EncoderPredictor[SpanPrediction], MeasuredPredictor):
    """A model with its tokenizer: questions and passages in, answers out.

    In evaluation, questions without an answer count, also for a model that cannot refuse to
    answer.
    """

    inputs = ("question", "context")
    prediction = SpanPrediction
    batch_tokens = 8192
    items = "questions"
    metrics = METRICS
    recipe: QuestionAnsweringRecipe

    @property
    def head(self) -> EncoderHead:
        """The head in the engine."""
        return EncoderHead(scores=2)

    def build(self) -> EncoderOnly:
        """The model in PyTorch."""
        from transduce.models.encoder_only import build_text_encoder
        from transduce.nn.heads.label import SpanHead

        head = SpanHead(self.config.d_model)
        return build_text_encoder(self.config, vocabulary_rows(self.tokenizer), head)

    def read(self, inputs: Sequence[tuple[str, ...]]) -> list[EncodedPassage]:
        """Questions and passages as windows of tokens; a passage is made tokens of once."""
        contexts = list(dict.fromkeys(context for _, context in inputs))
        encoded = zip(contexts, self.tokenizer.encode_batch(contexts), strict=True)
        passages = {c: tokens_with_spans(self.tokenizer, c, ids) for c, ids in encoded}
        questions = self.tokenizer.encode_batch([question for question, _ in inputs])
        between = self.tokenizer.marks_between
        encoded_passages = []
        for (question, context), asked in zip(inputs, questions, strict=True):
            blank = not question.strip() or not context.strip()
            ids, spans = passages[context]
            windows = () if blank else list(cut_windows(asked, ids, self.recipe.text, between))
            encoded_passages.append(EncodedPassage(context, spans, windows))
        return encoded_passages

    def answers(self, inputs: Inputs, numbers: Sequence[int]) -> list[SpanPrediction]:
        """Answers to pairs of question and passage."""
        passages = self.read(inputs)
        rows = ([id for window in p.windows for id in window.row.ids] for p in passages)
        self.warn_of_unknown(inputs, rows, numbers)
        scores = iter(self.scores([window for p in passages for window in p.windows]))
        return [self.answer(p, [next(scores) for _ in p.windows]) for p in passages]

    def scores(self, windows: Sequence[PassageWindow]) -> list[Scores]:
        """For each window the scores (t, 2) of its positions as the start and as the end."""
        rows = [window.row for window in windows]
        return [s[: len(row.ids)] for s, row in zip(self.outputs(rows), rows, strict=True)]

    def answer(self, encoded_passage: EncodedPassage, scores: Sequence[Scores]) -> SpanPrediction:
        """The best answer by the scores (t, 2) of each window."""
        config = self.recipe.span
        best: tuple[float, int, int] | None = None
        totals = []
        nothing = math.inf  # the window that is surest of an answer decides (BERT, section 4.3)
        for window, of_window in zip(encoded_passage.windows, scores, strict=True):
            nothing = min(nothing, float(of_window[0].sum()))
            inside = encoded_passage.spans[window.begin : window.end]
            real = np.array([a < b for a, b in inside], bool)
            if not real.any():
                continue
            sums = span_scores(of_window[window.first : -1], real, config.max_length)
            totals.append(float(np.logaddexp.reduce(sums, axis=None)))
            start, extra = divmod(int(sums.argmax()), sums.shape[1])
            score = float(sums[start, extra])
            if best is None or score > best[0]:
                best = score, window.begin + start, window.begin + start + extra
        if config.no_answer and encoded_passage.windows:
            totals.append(nothing)
            if best is None or nothing > best[0] + config.threshold:
                return SpanPrediction("", score=nothing, probability=_share(nothing, totals))
        if best is None:
            return SpanPrediction("")
        score, start, end = best
        begin, stop = encoded_passage.spans[start][0], encoded_passage.spans[end][1]
        text = encoded_passage.context[begin:stop]
        return SpanPrediction(text, begin, stop, score, _share(score, totals))

    @property
    def language(self) -> str:
        """Language code of the answers."""
        return self.recipe.evaluation.language

    def held_out(self, split: Split) -> EvaluationSet:
        """The questions of a split, with all their references."""
        questions = list(questions_of(self.recipe.data, split))
        texts = [(question.question, question.context) for question in questions]
        references = [question.references for question in questions]
        return EvaluationSet([one_line(parts) for parts in texts], references, texts)

    def facts(self) -> dict[str, Any]:
        """The size of the vocabulary."""
        return {"vocabulary": self.tokenizer.size}


def cut_windows(
    question: Sequence[int],
    passage: Sequence[int],
    config: WindowsConfig,
    marks_between: int = 1,
) -> Iterator[PassageWindow]:
    """The windows of a passage behind its question, each of at most `config.max_length`.

    marks_between: as `Tokenizer` has it.
    """
    question = question[: config.max_question]
    first = len(question) + 1 + marks_between
    room = config.max_length - 1 - first
    shared = min(config.stride, room - 1)  # config has reckoned with one mark between
    for begin in range(0, max(1, len(passage) - shared), room - shared):
        part = passage[begin : begin + room]
        yield PassageWindow(
            with_special_tokens(question, part, config.max_length, marks_between), first, begin
        )


def span_scores(scores: Scores, real: NDArray[np.bool_], max_length: int) -> NDArray[np.float64]:
    """The score of each span of tokens: (n, longest), by its first token and its length - 1.

    scores (n, 2) of each token as start and as end; real (n,) False where a token can be neither.
    Spans that reach beyond the last token, or begin or end at such a token, have -inf.
    """
    starts, ends = np.where(real[:, None], scores, -np.inf).astype(np.float64).T
    max_length = min(max_length, len(real))
    padded = np.append(ends, [-np.inf] * (max_length - 1))
    spans: NDArray[np.float64] = np.lib.stride_tricks.sliding_window_view(padded, max_length)
    sums: NDArray[np.float64] = starts[:, None] + spans
    return sums


def _share(score: float, totals: Sequence[float]) -> float:
    return math.exp(score - float(np.logaddexp.reduce(totals)))
