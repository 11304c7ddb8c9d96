"""Sequential recommendation: prediction of a user's next item.

The items of a user, oldest first, form a text with a token per item, and a decoder learns to
predict the next item (SASRec: Kang and McAuley 2018; here with a softmax loss over all items).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

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
from transduce.metrics.rankings import (
    TOGETHER,
    Floats,
    RankingExample,
    Scorer,
    by_popularity,
    measure_rankings,
    ranking_names,
    without_seen,
)
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
from transduce.tasks.task import Example, OnDevice
from transduce.tasks.text_inputs import EncoderTextConfig as TokenizerSection
from transduce.tasks.training import to_padded, tokenizer_for
from transduce.text import BOS, SPECIAL_TOKENS, SymbolsConfig, Tokenizer
from transduce.text.tokenizer import UNK
from transduce.training.config import FineTuneConfig

logger = logging.getLogger("transduce")


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
        check_selection(self.training.select_by, ranking_names(self.evaluation.at))


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


def recommend(
    score: Scorer, histories: Sequence[Sequence[int]], at: int
) -> Iterator[list[tuple[int, float]]]:
    """The `at` best ids that are not in each history, best first, with probabilities.

    score: of the next items.  histories: ids of each.
    """
    for chunk in chunks(histories, TOGETHER):
        log_probs = torch.from_numpy(without_seen(score(chunk), chunk)).log_softmax(1)
        best, ids = topk(log_probs, min(at, log_probs.shape[1]))
        for row, values in zip(ids.tolist(), best.exp().tolist(), strict=True):
            yield [(item, p) for item, p in zip(row, values, strict=True) if p > 0]


class RecommendationTraining(PackedTraining["Recommender"]):
    """Histories, model and loss for the training loop.

    examples: of the validation.
    """

    unit = "items"

    def __init__(
        self, recommender: Recommender, train: PackedBatches, examples: Sequence[RankingExample]
    ) -> None:
        super().__init__(recommender, train)
        self._examples = examples

    def validate(self) -> dict[str, float]:
        """Loss in nats and ranking metrics of the held-out items."""
        return self.predictor.measure(self._examples)

    def validation_checksum(self, score: str) -> str:
        """Checksum of the data and settings behind a score."""
        lengths = [len(example.history) for example in self._examples]
        return batches_checksum(np.array(lengths), np.array([e.answer for e in self._examples]))


def prepare_recommendation(recipe: RecommendationRecipe, run: Path) -> RecommendationTraining:
    """Data, model and loss of a recipe, for training into the directory `run`."""
    histories = histories_of(recipe.data)
    lines = (" ".join(items) for items in training_parts(histories))
    section = TokenizerSection(tokenizer=SymbolsConfig())
    tokenizer = tokenizer_for(section, recipe.fine_tune, run, lines)
    recommender = Recommender(recipe, tokenizer)
    documents = training_documents(histories, tokenizer)
    batches = PackedBatches(documents, recipe.data.block, recipe.training.batch_tokens, recipe.seed)
    examples = ranking_examples(tokenizer, held_out_items(histories, "valid"))
    if all(example.answer == UNK for example in examples):
        raise DataError(
            "no item held out for validation occurs in the training data; recommendation needs "
            "more data"
        )
    if few := few_items(len(examples), "users"):
        logger.warning("validation: %s", few)
    return RecommendationTraining(recommender, batches, examples)


class Recommender(OnDevice):
    """Trained recommender: histories in, items out."""

    inputs: tuple[str, ...] = ("history",)
    options: DecodingOptions | None = None

    def __init__(self, recipe: RecommendationRecipe, tokenizer: Tokenizer) -> None:
        self.recipe = recipe
        self.tokenizer = tokenizer
        self.model: DecoderOnly = build_decoder_only(recipe.model, tokenizer.size)

    @torch.inference_mode()
    def next_items(self, histories: Sequence[Sequence[int]]) -> Floats:
        """Log-probabilities (b, v) of the items after the last `block` ids of histories."""
        rows = [[BOS, *history][-self.recipe.data.block :] for history in histories]
        padded = to_padded(rows, device=self.device)
        hidden = self.model.eval().advance(padded, self.model.start()).values
        last = hidden[torch.arange(len(rows)), padded.lengths - 1]
        logits: Tensor = self.model.head(last).float().cpu()
        logits[:, : len(SPECIAL_TOKENS)] = -torch.inf  # which are no items
        scores: Floats = logits.log_softmax(1).numpy()
        return scores

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
        return [
            Recommendation(tuple((self.tokenizer.decode([token]), p) for token, p in best))
            for best in recommend(self.next_items, histories, self.recipe.evaluation.at)
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
        histories = histories_of(self.recipe.data) if examples is None else None
        chosen = held_out_items(histories, split) if histories is not None else examples
        ranked = ranking_examples(self.tokenizer, chosen or ())
        scores = self.measure(ranked)
        if histories is not None:
            ids = training_documents(histories, self.tokenizer).tokens
            counts = np.bincount(ids, minlength=self.tokenizer.size)
            counts[: len(SPECIAL_TOKENS)] = 0
            popular = self.measure(ranked, by_popularity(counts))
            scores |= {f"popularity_{k}": v for k, v in popular.items() if k != "loss"}
        return Evaluation(scores, [self.tokenizer.decode(history) for history, _ in ranked])

    def measure(
        self, examples: Sequence[RankingExample], score: Scorer | None = None
    ) -> dict[str, float]:
        """Metrics of the model's predictions, or those of another scorer."""
        return measure_rankings(score or self.next_items, examples, self.recipe.evaluation.at)

    def facts(self) -> dict[str, Any]:
        """Number of items."""
        return {"items": self.tokenizer.size - len(SPECIAL_TOKENS)}


def histories_of(config: RecommendationDataConfig) -> Histories:
    """The histories of a recipe's data."""
    check_trainable(config)
    assert config.train is not None
    return read_histories(config.train, Path(config.root), config.min_interactions)


def training_documents(histories: Histories, tokenizer: Tokenizer) -> EncodedDocuments:
    """Training parts of histories as ids, each after BOS."""
    rows = ([BOS, *tokenizer.encode(" ".join(part))] for part in training_parts(histories))
    return EncodedDocuments.of_rows(rows)


def held_out_items(histories: Histories, split: Split) -> Iterator[Example]:
    """The items of a split, with the histories before.  Raises DataError for the split "train"."""
    if split == "train":
        raise DataError("items are held out only for validation and test; use another split")
    return (((" ".join(items),), item) for items, item in leave_one_out(histories, split))


def ranking_examples(tokenizer: Tokenizer, examples: Iterable[Example]) -> list[RankingExample]:
    """Histories of items separated by spaces, without unknown ones, and the item after each.

    tokenizer: has a token for each item.  Raises DataError unless a single item follows.
    """
    ranked = []
    for (history,), item in examples:
        known = [token for token in tokenizer.encode(history) if token != UNK]
        answer = tokenizer.encode(item)
        if len(answer) != 1:
            raise DataError(f"expected one item to follow a history, not {item[:40]!r}")
        ranked.append(RankingExample(known, answer[0]))
    return ranked
