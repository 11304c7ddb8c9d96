"""Encoders of texts in use, in PyTorch or in the engine: labels and embeddings. Imports no
torch."""

from __future__ import annotations

import functools
import logging
import math
from abc import abstractmethod
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from transduce.data.labelled import ScoredPair, as_score
from transduce.decoding.options import DecodingOptions
from transduce.engine.encoder import EngineEncoder
from transduce.engine.inference import check_biases, default_threads
from transduce.engine.pair_shape import EncoderHead, check_settings, encoder_shape
from transduce.errors import DataError, needing_torch, printable_name
from transduce.metrics.rankings import correlation_scores
from transduce.models.config import EncoderOnlyConfig
from transduce.nn.precision import Precision
from transduce.tasks.evaluation import Evaluation
from transduce.tasks.labels import LabelPrediction
from transduce.tasks.predictors import (
    EvaluationSet,
    Inputs,
    MeasuredPredictor,
    OnePassPredictor,
    one_line,
)
from transduce.tasks.recipe import Split
from transduce.tasks.task import Example
from transduce.tasks.text_encoder.recipes import (
    METRICS,
    ClassificationRecipe,
    EmbeddingRecipe,
    QuestionAnsweringRecipe,
    WindowsConfig,
    questions_of,
    read_examples,
    scored_pairs,
)
from transduce.tasks.text_inputs import (
    EncoderRecipe,
    Row,
    encode_counting_cuts,
    vocabulary_rows,
    warn_of_cuts,
    with_special_tokens,
)
from transduce.tasks.vocabularies import UnknownTokens
from transduce.text import Tokenizer
from transduce.text.offsets import tokens_with_spans
from transduce.training.weight_files import read_plain_weights

if TYPE_CHECKING:
    from torch import nn

    from transduce.models.encoder_only import EncoderOnly


logger = logging.getLogger("transduce")


@dataclass(frozen=True)
class NativeRun:
    """The engine for the encoder of a run.

    load: the model in PyTorch, for a call that needs it.  threads: of the engine and of PyTorch; by
    default PyTorch's choice.
    """

    path: Path
    precision: Precision
    threads: int | None
    load: Callable[[], nn.Module]

    def encoder(self, config: EncoderOnlyConfig, rows: int, head: EncoderHead) -> EngineEncoder:
        """The encoder, with an embedding of `rows`, under a head.

        Raises RunError for a run that is damaged or needs PyTorch, SettingError if the engine is
        unavailable.
        """
        check_settings(config, self.path)
        stored = read_plain_weights(self.path / "weights.safetensors")
        weights = {n: weight for n, weight in stored.items() if not n.startswith("next_sentence.")}
        embedding = weights.get("front_end.embedding.weight")
        if head.dense == "gelu-norm" and embedding is not None:  # tied; files have the first
            weights["head.vocabulary.weight"] = embedding
        check_biases(weights)
        shape = encoder_shape(config, rows, head, self.precision)
        return EngineEncoder(shape, weights, lambda: self.threads or default_threads())

    def network(self) -> nn.Module:
        """The model in PyTorch."""
        with needing_torch("this call"):
            import torch

        logger.info("loading PyTorch for this call")
        if self.threads is not None:
            torch.set_num_threads(self.threads)
        return self.load()


A = TypeVar("A")


class EncoderPredictor(OnePassPredictor[A]):
    """A trained encoder with its tokenizer.  batch_tokens: positions of a batch in PyTorch, padding
    included."""

    batch_tokens = 4096
    recipe: EncoderRecipe

    def __init__(
        self, recipe: EncoderRecipe, tokenizer: Tokenizer, natively: NativeRun | None = None
    ) -> None:
        """natively: the run in the engine; by default a new model in PyTorch."""
        self.recipe = recipe
        self.config = recipe.model
        self.tokenizer = tokenizer
        self.unknown = UnknownTokens(tokenizer)
        self.encoder: EngineEncoder | None = None
        self._network = self.build
        if natively is None:
            _ = self.model
        else:
            self.encoder = natively.encoder(self.config, vocabulary_rows(tokenizer), self.head)
            self._network = natively.network

    @functools.cached_property
    def model(self) -> Any:  # type: ignore[override]
        """The model in PyTorch."""
        return self._network()

    @property
    @abstractmethod
    def head(self) -> EncoderHead:
        """The head in the engine."""

    @abstractmethod
    def build(self) -> nn.Module:
        """The model in PyTorch, with any weights."""

    def rows(self, inputs: Inputs, numbers: Iterable[int]) -> list[Row]:
        """Inputs as the model reads them, with warnings about truncation and unknown tokens.

        numbers: of the inputs, from 0, in a longer sequence.
        """
        max_length = self.recipe.text.max_length
        rows, n_cut = encode_counting_cuts(self.tokenizer, inputs, max_length)
        warn_of_cuts(n_cut, len(rows), max_length)
        self.warn_of_unknown(inputs, (row.ids for row in rows), numbers)
        return rows

    def warn_of_unknown(
        self,
        inputs: Iterable[Sequence[str]],
        rows: Iterable[Container[int]],
        numbers: Iterable[int],
    ) -> None:
        """Warn once of unknown tokens among the ids of some inputs.

        rows: ids of each input.  numbers: of the inputs, from 0.
        """
        self.unknown.check(inputs, rows, (f"line {number + 1}" for number in numbers))

    def outputs(self, rows: Sequence[Row]) -> list[NDArray[np.float32]]:
        """The model's output for each row."""
        if self.encoder is not None:
            return self.encoder.outputs(rows)
        from transduce.tasks.training import encode_batches

        encoded = encode_batches(self.model, rows, self.batch_tokens, self.config.segments)
        return [output.float().numpy() for output in encoded]


class TextClassifier(EncoderPredictor[LabelPrediction], MeasuredPredictor):
    """A trained model with its tokenizer and labels: texts in, labels out."""

    prediction = LabelPrediction
    items = "examples"
    recipe: ClassificationRecipe

    def __init__(
        self,
        recipe: ClassificationRecipe,
        tokenizer: Tokenizer,
        labels: tuple[str, ...],
        natively: NativeRun | None = None,
    ) -> None:
        self.labels = labels
        self.inputs = recipe.data.inputs
        super().__init__(recipe, tokenizer, natively)

    @property
    def head(self) -> EncoderHead:
        """The head in the engine."""
        config = self.config
        dense = config.pooler_activation if config.pooler else "none"
        return EncoderHead(config.pooling, dense, len(self.labels))

    def build(self) -> EncoderOnly:
        """The model in PyTorch."""
        from transduce.models.encoder_only import build_text_encoder
        from transduce.nn.heads.label import LabelHead

        config = self.config
        head = LabelHead(
            config.d_model,
            len(self.labels),
            config.pooling,
            config.pooler,
            self.recipe.head.dropout,
            config.pooler_activation,
        )
        return build_text_encoder(config, vocabulary_rows(self.tokenizer), head)

    def answers(self, inputs: Inputs, numbers: Sequence[int]) -> Iterator[LabelPrediction]:
        """Labels of inputs that are not blank."""
        outputs = self.outputs(self.rows(inputs, numbers))
        return (LabelPrediction.of(self.labels, scores) for scores in outputs)

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


@dataclass(frozen=True)
class EmbeddingPrediction:
    """Embedding of a text or image; empty if blank."""

    embedding: tuple[float, ...] = ()

    def __repr__(self) -> str:
        return f"<EmbeddingPrediction of {len(self.embedding):,} numbers>"

    @property
    def text(self) -> str:
        """The numbers, with spaces between."""
        return " ".join(f"{number:.8g}" for number in self.embedding)

    def fields(self) -> dict[str, Any]:
        """Fields of a JSON record."""
        return {"embedding": list(self.embedding)}


class TextEmbedder(EncoderPredictor[EmbeddingPrediction]):
    """A trained encoder with its tokenizer: texts in, vectors out."""

    prediction = EmbeddingPrediction
    recipe: EmbeddingRecipe

    @property
    def head(self) -> EncoderHead:
        """The head in the engine."""
        return EncoderHead(self.config.pooling)

    def build(self) -> EncoderOnly:
        """The model in PyTorch."""
        from transduce.models.encoder_only import build_text_encoder
        from transduce.nn.heads.label import PoolingHead

        head = PoolingHead(self.config.pooling, self.recipe.evaluation.normalize)
        return build_text_encoder(self.config, vocabulary_rows(self.tokenizer), head)

    def outputs(self, rows: Sequence[Row]) -> list[NDArray[np.float32]]:
        """The vector of each row."""
        vectors = super().outputs(rows)
        if self.encoder is not None and self.recipe.evaluation.normalize:
            return _normalised(vectors)
        return vectors

    def answers(self, inputs: Inputs, numbers: Sequence[int]) -> Iterator[EmbeddingPrediction]:
        """Embeddings of texts that are not blank."""
        prefix = self.recipe.text.prefix
        rows = self.rows([(prefix + text,) for (text,) in inputs], numbers)
        return (EmbeddingPrediction(tuple(vector.tolist())) for vector in self.outputs(rows))

    def evaluate(
        self,
        split: Split,
        examples: Iterable[Example] | None = None,
        options: DecodingOptions | None = None,
    ) -> Evaluation:
        """Correlation of the cosines of pairs of texts with their scores, in percent.

        An example is a text, two with a tab between, and a number.

        split: of the recipe's data.  examples: to use instead of it.  options: unused.
        """
        if examples is None:
            pairs = list(scored_pairs(self.recipe.data, split))
        else:
            pairs = [_as_pair(text, right, i) for i, ((text,), right) in enumerate(examples, 1)]
        if not pairs:
            raise DataError("no pairs to evaluate")
        return Evaluation(self.correlation(pairs), [one_line(pair.texts) for pair in pairs])

    def correlation(self, pairs: Sequence[ScoredPair]) -> dict[str, float]:
        """Spearman's and Pearson's coefficients, times 100, of cosines and scores of pairs."""
        texts = list(dict.fromkeys(text for pair in pairs for text in pair.texts))
        settings = self.recipe.text
        prefixed = [(settings.prefix + text,) for text in texts]
        rows, _ = encode_counting_cuts(self.tokenizer, prefixed, settings.max_length)
        vectors = np.stack(_normalised(self.outputs(rows)))
        places = {text: i for i, text in enumerate(texts)}
        first, second = (vectors[[places[pair.texts[i]] for pair in pairs]] for i in range(2))
        cosines = (first * second).sum(1).astype(np.float64)
        return correlation_scores(cosines, np.array([pair.score for pair in pairs]))

    def facts(self) -> dict[str, Any]:
        """Dimension of the vectors, and size of the vocabulary."""
        return {"dimensions": self.recipe.model.d_model, "vocabulary": self.tokenizer.size}


def _normalised(vectors: Iterable[NDArray[np.float32]]) -> list[NDArray[np.float32]]:
    """Vectors of length 1; zero stays zero."""
    return [v / max(float(np.linalg.norm(v)), 1e-12) for v in vectors]


def _as_pair(text: str, right: str, number: int) -> ScoredPair:
    first, _, second = text.partition("\t")
    if not (first.strip() and second.strip()):
        raise DataError(f'line {number} is not "TEXT<tab>TEXT", two texts to compare')
    return ScoredPair((first, second), as_score(right, f"line {number} of the references"))


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
