"""Sequential recommendation: prediction of a user's next item.

The items of a user, oldest first, form a text with a token per item, and a decoder learns to
predict the next item (SASRec: Kang and McAuley 2018; here with a softmax loss over all items).
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from transduce.data.batches import batches_checksum
from transduce.data.documents import EncodedDocuments
from transduce.data.interactions import (
    Histories,
    InteractionsConfig,
    leave_one_out,
    read_histories,
    training_parts,
)
from transduce.data.packing import PackedBatches
from transduce.decoding.options import DecodingOptions
from transduce.decoding.strategies import topk
from transduce.errors import DataError
from transduce.metrics.metric import few_items
from transduce.metrics.rankings import UNRANKED, ranking_scores, ranks_of
from transduce.models.decoder_only import (
    DECODER_PRESETS,
    DecoderOnly,
    DecoderOnlyConfig,
    build_decoder_only,
)
from transduce.settings.sections import section
from transduce.support.work import chunks
from transduce.tasks.evaluation import Evaluation
from transduce.tasks.language_model.task import PackedTraining, check_block
from transduce.tasks.recipe import Recipe, Split, TrainingData, check_selection, check_trainable
from transduce.tasks.task import Example
from transduce.tasks.text_batches import to_padded, tokenizer_for
from transduce.tasks.text_inputs import EncoderTextConfig as TokenizerSection
from transduce.text import BOS, SPECIAL_TOKENS, SymbolsConfig, Tokenizer
from transduce.text.tokenizer import UNK
from transduce.training.config import FineTuneConfig

logger = logging.getLogger("transduce")

BATCH = 128
"""Histories that are scored together."""
WITH_SEEN = "_with_seen"
"""Suffix of scores with items of the history among the candidates."""


@section
class RecommendationDataConfig(TrainingData):
    """Interactions for training, validation and test.

    The last item of each user is for the test, the item before it for validation, the rest for
    training.
    """

    train: InteractionsConfig | None = None
    """All interactions, including validation and test."""
    min_interactions: Annotated[int, Field(ge=3)] = 5
    """Minimum interactions of a user; users with fewer are skipped."""
    block: Annotated[int, Field(ge=2)] = 200
    """Context in items: ranking uses the last items of a user; training cuts longer histories into
    pieces, at other places in every epoch."""


@section
class RankingEvaluationConfig:
    """Evaluation settings."""

    at: Annotated[int, Field(ge=1)] = 10
    """Number of recommended items, the cut-off of the scores."""

    def measured(self) -> list[str]:
        """Names of all scores."""
        names = list(ranking_scores(np.ones(1), self.at))
        return ["loss", *names, *(name + WITH_SEEN for name in names)]


@section
class RecommendationRecipe(Recipe):
    """Recipe of a sequential recommender."""

    presets = DECODER_PRESETS
    bases = ("recommendation",)
    inherited = ("data.block",)

    task: Literal["recommendation"] = "recommendation"
    data: RecommendationDataConfig
    model: DecoderOnlyConfig = DecoderOnlyConfig()
    fine_tune: FineTuneConfig | None = None
    """Base run with the same items."""
    evaluation: RankingEvaluationConfig = RankingEvaluationConfig()

    def __post_init__(self) -> None:
        check_block("data.block", self.data.block, self.model, self.training)
        check_selection(self.training.select_by, self.evaluation.measured())


@dataclass(frozen=True)
class Recommendation:
    """The items that come next most probably, best first, and how probable they are."""

    items: tuple[tuple[str, float], ...]
    """Probabilities are among all items that are not in the history."""

    @property
    def text(self) -> str:
        """The items with spaces between."""
        return " ".join(item for item, _ in self.items)

    def fields(self) -> dict[str, Any]:
        """Fields of a JSON record."""
        return {"items": [{"item": item, "probability": p} for item, p in self.items]}


class RankingExample(NamedTuple):
    """Held-out item after a history, by id; UNK for an unknown item."""

    history: list[int]
    answer: int = UNK


Scored = Iterable[tuple[Sequence[int], Tensor]]
"""Batches of question numbers with log-probabilities (b, v) of the next item."""


@torch.inference_mode()
def by_model(model: DecoderOnly, histories: Sequence[Sequence[int]], block: int) -> Scored:
    """Model predictions for histories, of which the last `block` ids are read."""
    model.eval()
    device = model.head.weight.device
    rows = [[BOS, *history][-block:] for history in histories]
    order = sorted(range(len(rows)), key=lambda i: len(rows[i]), reverse=True)
    for chosen in chunks(order, BATCH):
        padded = to_padded([rows[i] for i in chosen], device=device)
        hidden = model.advance(padded, model.start()).values
        logits = model.head(hidden[torch.arange(len(chosen)), padded.lengths - 1]).float().cpu()
        logits[:, : len(SPECIAL_TOKENS)] = -torch.inf  # which are no items
        yield chosen, logits.log_softmax(1)


def by_popularity(counts: Tensor, n: int) -> Scored:
    """Popularity baseline for n histories, by training counts (v,) of ids."""
    log_probs = (counts / counts.sum()).log()
    for chosen in chunks(range(n), BATCH):
        yield chosen, log_probs.repeat(len(chosen), 1)


@torch.inference_mode()
def recommend(
    scored: Scored, histories: Sequence[Sequence[int]], at: int
) -> list[list[tuple[int, float]]]:
    """The `at` best ids that are not in each history, best first, with probabilities.

    scored: log-probabilities (rows, items) of some rows at a time; changed in place.  histories:
    ids of each row.
    """
    ranked: list[list[tuple[int, float]]] = [[] for _ in histories]
    for chosen, log_probs in scored:
        for row, i in enumerate(chosen):
            log_probs[row, histories[i]] = -torch.inf
        best, ids = topk(log_probs.log_softmax(1), min(at, log_probs.shape[1]))
        for i, row, values in zip(chosen, ids.tolist(), best.exp().tolist(), strict=True):
            ranked[i] = [(item, p) for item, p in zip(row, values, strict=True) if p > 0]
    return ranked


@torch.inference_mode()
def measure_rankings(
    scored: Scored, questions: Sequence[RankingExample], at: int
) -> dict[str, float]:
    """Loss in nats, and ranking metrics of the correct items.

    Ranks exclude items of the history; `..._with_seen` ranks all items. Items unseen in training
    have no rank and do not count in the loss.

    scored: log-probabilities (rows, items) of some rows at a time; changed in place.  questions:
    histories with correct items.  at: cut-off of the metrics.
    """
    losses: list[float] = []
    ranks, with_seen = (np.full(len(questions), UNRANKED) for _ in range(2))
    for chosen, log_probs in scored:
        answers = np.array([questions[i].answer for i in chosen])
        with_seen[chosen] = ranks_of(log_probs.numpy(), answers)
        answer_log_probs = log_probs[torch.arange(len(chosen)), answers]
        losses += (-answer_log_probs[answer_log_probs.isfinite()]).tolist()
        for row, i in enumerate(chosen):
            log_probs[row, questions[i].history] = -torch.inf
            log_probs[row, questions[i].answer] = answer_log_probs[row]  # seen or not, it is right
        ranks[chosen] = ranks_of(log_probs.numpy(), answers)
    loss = {"loss": sum(losses) / len(losses)} if losses else {}
    others = {k + WITH_SEEN: v for k, v in ranking_scores(with_seen, at).items()}
    return {**loss, **ranking_scores(ranks, at), **others}


class RecommendationTraining(PackedTraining["Recommender"]):
    """Histories, model and loss for the training loop."""

    unit = "items"

    def __init__(
        self, recommender: Recommender, train: PackedBatches, questions: Sequence[RankingExample]
    ) -> None:
        """questions: of the validation."""
        super().__init__(recommender, train)
        self._questions = questions

    def validate(self) -> dict[str, float]:
        """Loss in nats and ranking metrics of the held-out items."""
        return self.predictor.measure(self._questions)

    def validation_checksum(self, score: str) -> str:
        """Checksum of the data and settings behind a score."""
        lengths = [len(example.history) for example in self._questions]
        answers = [example.answer for example in self._questions]
        return batches_checksum(np.array(lengths), np.array(answers))


def prepare_recommendation(recipe: RecommendationRecipe, run: Path) -> RecommendationTraining:
    """Data, model and loss of a recipe, for training into the directory `run`."""
    histories = histories_of(recipe.data)
    lines = (" ".join(items) for items in training_parts(histories))
    section = TokenizerSection(tokenizer=SymbolsConfig())
    tokenizer = tokenizer_for(section, recipe.fine_tune, run, lines)
    recommender = Recommender(recipe, tokenizer)
    parts = packed(training_parts(histories), tokenizer)
    batches = PackedBatches(parts, recipe.data.block, recipe.training.batch_tokens, recipe.seed)
    questions = ranking_examples(histories, "valid", tokenizer)
    if all(example.answer == UNK for example in questions):
        raise DataError(
            "no item held out for validation occurs in the training data; recommendation needs "
            "more data"
        )
    if few := few_items(len(questions), "users"):
        logger.warning("validation: %s", few)
    return RecommendationTraining(recommender, batches, questions)


class Recommender:
    """Trained recommender: histories in, items out."""

    inputs: tuple[str, ...] = ("history",)
    options: DecodingOptions | None = None

    def __init__(self, recipe: RecommendationRecipe, tokenizer: Tokenizer) -> None:
        self.recipe = recipe
        self.tokenizer = tokenizer
        self.model = build_decoder_only(recipe.model, tokenizer.size)

    def predict(
        self,
        inputs: Sequence[tuple[str, ...]],
        options: DecodingOptions | None = None,
        first: int = 0,
    ) -> list[Recommendation]:
        """Recommend items for each history, given as items separated by spaces, oldest first.

        Items of the history are not recommended. Unknown items are ignored, with a warning.

        inputs: tuples of a single text.  options: unused.  first: number of the first input in a
        longer sequence.
        """
        histories = self.tokenizer.encode_batch([text for (text,) in inputs])
        unknown = sum(ids.count(UNK) for ids in histories)
        if unknown:
            message = "ignoring %d unknown items in histories %d to %d"
            logger.warning(message, unknown, first + 1, first + len(inputs))
        histories = [[token for token in ids if token != UNK] for ids in histories]
        scored = by_model(self.model, histories, self.recipe.data.block)
        recommended = recommend(scored, histories, self.recipe.evaluation.at)
        return [
            Recommendation(tuple((self.tokenizer.decode([token]), p) for token, p in best))
            for best in recommended
        ]

    def evaluate(
        self,
        split: Split,
        examples: Iterable[Example] | None = None,
        options: DecodingOptions | None = None,
    ) -> Evaluation:
        """Ranking metrics of held-out items, with a popularity baseline.

        split: of the recipe's data.  options: unused.  examples: histories with their next items,
        to use instead; without the baseline, which needs the recipe's data.
        """
        baseline: dict[str, float] = {}
        if examples is not None:
            questions = [ranking_example(self.tokenizer, text, item) for (text,), item in examples]
        else:
            histories = histories_of(self.recipe.data)
            questions = ranking_examples(histories, split, self.tokenizer)
            popular = by_popularity(item_counts(histories, self.tokenizer), len(questions))
            popularity_scores = measure_rankings(popular, questions, self.recipe.evaluation.at)
            baseline = {f"popularity_{k}": v for k, v in popularity_scores.items() if k != "loss"}
        scores = self.measure(questions)
        sources = [self.tokenizer.decode(history) for history, _ in questions]
        return Evaluation({**scores, **baseline}, sources)

    def measure(self, questions: Sequence[RankingExample]) -> dict[str, float]:
        """Metrics of the model's predictions."""
        scored = by_model(self.model, [q.history for q in questions], self.recipe.data.block)
        return measure_rankings(scored, questions, self.recipe.evaluation.at)

    def facts(self) -> dict[str, Any]:
        """Number of items."""
        return {"items": self.tokenizer.size - len(SPECIAL_TOKENS)}


def histories_of(config: RecommendationDataConfig) -> Histories:
    """The histories of a recipe's data."""
    check_trainable(config)
    assert config.train is not None
    return read_histories(config.train, Path(config.root), config.min_interactions)


def ranking_example(tokenizer: Tokenizer, history: str, item: str) -> RankingExample:
    """Example from items separated by spaces; unknown items of the history are dropped.

    tokenizer: has a token for each item.  item: follows the history.  Raises DataError unless it is
    a single item.
    """
    known = [token for token in tokenizer.encode(history) if token != UNK]
    answer = tokenizer.encode(item)
    if len(answer) != 1:
        raise DataError(f"expected one item to follow a history, not {item[:40]!r}")
    return RankingExample(known, answer[0])


def ranking_examples(
    histories: Histories, split: Split, tokenizer: Tokenizer
) -> list[RankingExample]:
    """The held-out items of a split.

    histories: of all users.  tokenizer: has a token for each item.  Raises DataError for the split
    "train".
    """
    if split == "train":
        raise DataError("items are held out only for validation and test; use another split")
    left_out = leave_one_out(histories, split)
    return [
        ranking_example(tokenizer, " ".join(question.history), question.item)
        for question in left_out
    ]


def packed(parts: Iterable[Sequence[str]], tokenizer: Tokenizer) -> EncodedDocuments:
    """Histories as ids, each after BOS."""
    ids, ends = array("i"), array("q", [0])
    for items in parts:
        ids.append(BOS)
        ids.extend(tokenizer.encode(" ".join(items)))
        ends.append(len(ids))
    return EncodedDocuments(np.array(ids), np.array(ends, np.int64), 0)


def item_counts(histories: Histories, tokenizer: Tokenizer) -> Tensor:
    """(v,) training counts of each id; zero for ids that are not items."""
    ids = packed(training_parts(histories), tokenizer).tokens
    counts = torch.from_numpy(np.bincount(ids, minlength=tokenizer.size))
    counts[: len(SPECIAL_TOKENS)] = 0
    return counts
