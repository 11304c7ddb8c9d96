"""Embedding of texts, by an encoder and pooling."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from transduce.data.labelled import ScoredPair, as_score
from transduce.decoding.options import DecodingOptions
from transduce.errors import DataError
from transduce.metrics.correlation import correlation_scores
from transduce.models.encoder_only import EncoderOnlyConfig, text_encoder
from transduce.nn.heads.label import pool
from transduce.nn.initialise import initialise
from transduce.sequence import Padded
from transduce.settings.sections import section
from transduce.tasks.evaluation import Evaluation
from transduce.tasks.predictors import Inputs, OnePassPredictor, one_line
from transduce.tasks.recipe import Split
from transduce.tasks.recipe_settings import (
    check_selection,
)
from transduce.tasks.task import Example
from transduce.tasks.text_encoder.embedding_data import EmbeddingData, scored_pairs
from transduce.tasks.text_inputs import (
    EncoderRecipe,
    InputTokenizer,
    encode_batches,
    encode_counting_cuts,
    vocabulary_rows,
)
from transduce.text import Tokenizer

BATCH_TOKENS = 4096
"""Positions, padding included, in a batch of texts."""


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
class EmbeddingRecipe(EncoderRecipe):
    """Recipe of a text encoder, trained on pairs or imported."""

    task: Literal["embedding"] = "embedding"
    data: EmbeddingData = EmbeddingData()
    contrastive: ContrastiveConfig = ContrastiveConfig()
    evaluation: EmbeddingEvaluation = EmbeddingEvaluation()

    def __post_init__(self) -> None:
        measured = ("loss",) if self.data.valid is None else ("loss", "spearman", "pearson")
        check_selection(self.training.select_by, measured)
        super().__post_init__()


class TextEmbedding(nn.Module):
    """An encoder with nothing on it but pooling; weights are named as in `EncoderOnly`."""

    def __init__(self, config: EncoderOnlyConfig, vocabulary_size: int, normalize: bool) -> None:
        super().__init__()
        self.front_end, self.encoder = text_encoder(config, vocabulary_size)
        self.pooling = config.pooling
        self.normalize = normalize
        initialise(self, config.d_model)

    def forward(self, x: Padded) -> Tensor:
        """Ids (b, t), or with segments (b, t, 2) -> vectors (b, m)."""
        vectors = pool(self.encoder(self.front_end(x)), self.pooling)
        return F.normalize(vectors, dim=-1) if self.normalize else vectors


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


class TextEmbedder(OnePassPredictor[EmbeddingPrediction]):
    """A trained encoder with its tokenizer: texts in, vectors out."""

    prediction = EmbeddingPrediction

    def __init__(self, recipe: EmbeddingRecipe, tokenizer: Tokenizer) -> None:
        self.recipe = recipe
        self.tokenizer = tokenizer
        self.input_tokenizer = InputTokenizer(tokenizer, recipe.text.max_length)
        self.model: TextEmbedding = TextEmbedding(
            recipe.model, vocabulary_rows(tokenizer), recipe.evaluation.normalize
        )

    def answers(self, inputs: Inputs, numbers: Sequence[int]) -> Iterator[EmbeddingPrediction]:
        """Embeddings of texts that are not blank."""
        rows = self.input_tokenizer.rows(inputs, numbers)
        vectors = encode_batches(self.model, rows, BATCH_TOKENS, self.recipe.model.segments)
        return (EmbeddingPrediction(tuple(vector.float().tolist())) for vector in vectors)

    def evaluate(
        self,
        split: Split,
        examples: Iterable[Example] | None = None,
        options: DecodingOptions | None = None,
    ) -> Evaluation:
        """Correlation of the cosines of pairs of texts with their scores, in percent.

        An example is a text, two with a tab between, and a number.
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
        max_length, segmented = self.recipe.text.max_length, self.recipe.model.segments
        rows, _ = encode_counting_cuts(self.tokenizer, [(text,) for text in texts], max_length)
        vectors = torch.stack(encode_batches(self.model, rows, BATCH_TOKENS, segmented)).float()
        vectors = F.normalize(vectors, dim=-1)
        places = {text: i for i, text in enumerate(texts)}
        first, second = (vectors[[places[pair.texts[i]] for pair in pairs]] for i in range(2))
        cosines = (first * second).sum(1).double().numpy()
        return correlation_scores(cosines, np.array([pair.score for pair in pairs]))

    def facts(self) -> dict[str, Any]:
        """Dimension of the vectors, and size of the vocabulary."""
        return {"dimensions": self.recipe.model.d_model, "vocabulary": self.tokenizer.size}


def _as_pair(text: str, right: str, number: int) -> ScoredPair:
    first, _, second = text.partition("\t")
    if not (first.strip() and second.strip()):
        raise DataError(f'line {number} is not "TEXT<tab>TEXT", two texts to compare')
    return ScoredPair((first, second), as_score(right, f"line {number} of the references"))
