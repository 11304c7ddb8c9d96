"""Embedding of texts, by the encoder of an imported model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NoReturn

import torch.nn.functional as F
from torch import Tensor, nn

from transduce.config import parse, section
from transduce.decoding.options import DecodingOptions
from transduce.errors import DataError, SettingError
from transduce.models.encoder_only import EncoderOnlyConfig, text_encoder
from transduce.nn.heads.label import pool
from transduce.nn.initialise import initialise
from transduce.sequence import Padded
from transduce.tasks.common import rooted, with_weights
from transduce.tasks.sections import RootedData
from transduce.tasks.task import Evaluation, Example, Recipe, Split, Task
from transduce.tasks.text_inputs import (
    InputTokenizer,
    TextConfig,
    check_room,
    encode_batches,
    tokenizer_of,
    vocabulary_rows,
)
from transduce.text import Tokenizer

BATCH_TOKENS = 4096
"""Positions, padding included, in a batch of texts."""


@section
class EmbeddingEvaluation:
    """Processing of the encoder's vectors, beyond `model.pooling`."""

    normalize: bool = True
    """Scale every embedding to length 1, so that a dot product of two is their cosine."""


@section
class EmbeddingRecipe(Recipe):
    """Recipe of an imported text encoder."""

    task: Literal["embedding"] = "embedding"
    data: RootedData = RootedData()
    text: TextConfig = TextConfig()
    model: EncoderOnlyConfig = EncoderOnlyConfig()
    evaluation: EmbeddingEvaluation = EmbeddingEvaluation()

    def __post_init__(self) -> None:
        check_room(self.model, self.text)


def parse_embedding(settings: Mapping[str, Any], where: str) -> EmbeddingRecipe:
    """Settings of a file as a recipe."""
    return rooted(parse(EmbeddingRecipe, settings, where))


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
    """The embedding of one text or image; nothing for a blank one."""

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


def nothing_to_measure() -> DataError:
    """Error for evaluating embeddings."""
    return DataError(
        "embeddings have no references to evaluate against; fine-tune a classifier on them and "
        "evaluate it"
    )


class TextEmbedder:
    """A trained encoder with its tokenizer: texts in, vectors out."""

    inputs = ("text",)
    options: DecodingOptions | None = None

    def __init__(self, recipe: EmbeddingRecipe, tokenizer: Tokenizer) -> None:
        self.recipe = recipe
        self.tokenizer = tokenizer
        self.input_tokenizer = InputTokenizer(tokenizer, recipe.text.max_length)
        self.model = TextEmbedding(
            recipe.model, vocabulary_rows(tokenizer), recipe.evaluation.normalize
        )

    def predict(
        self,
        inputs: Sequence[tuple[str, ...]],
        options: DecodingOptions | None = None,
        first: int = 0,
    ) -> list[EmbeddingPrediction]:
        """Embed each text, in order; blank texts get none.

        `options` has no effect, as nothing is decoded.
        """
        found = [EmbeddingPrediction()] * len(inputs)
        filled = [i for i, (text,) in enumerate(inputs) if text.strip()]
        rows = self.input_tokenizer.rows([inputs[i] for i in filled], (first + i for i in filled))
        vectors = encode_batches(self.model, rows, BATCH_TOKENS, self.recipe.model.segments)
        for i, vector in zip(filled, vectors, strict=True):
            found[i] = EmbeddingPrediction(tuple(vector.float().tolist()))
        return found

    def evaluate(
        self,
        split: Split,
        examples: Iterable[Example] | None = None,
        options: DecodingOptions | None = None,
    ) -> Evaluation:
        """Raises DataError: no embedding is right or wrong by itself."""
        raise nothing_to_measure()

    def facts(self) -> dict[str, Any]:
        """Dimension of the vectors, and size of the vocabulary."""
        return {"dimensions": self.recipe.model.d_model, "vocabulary": self.tokenizer.size}


def train_embedding(recipe: EmbeddingRecipe, run: Path, resume: bool) -> NoReturn:
    """Raises SettingError: there is no such training."""
    raise SettingError(
        "embedding models are imported (transduce import), not trained; to train on text, set "
        'task = "classification" or "masked-language-model"'
    )


def load_embedding(recipe: EmbeddingRecipe, run: Path, device: str) -> TextEmbedder:
    """Encoder of a run directory. Raises RunError if a file is missing or damaged."""
    tokenizer = tokenizer_of(run)
    return with_weights(lambda: TextEmbedder(recipe, tokenizer), run, device)


EMBEDDING = Task(
    EmbeddingRecipe,
    parse_embedding,
    train_embedding,
    load_embedding,
    pipeline_tag="feature-extraction",
)
