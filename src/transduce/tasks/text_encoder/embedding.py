"""Embedding of texts, by an encoder and pooling.  Imports no torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from transduce.data.labelled import ScoredPair, as_score
from transduce.decoding.options import DecodingOptions
from transduce.engine.pair_shape import EncoderHead
from transduce.errors import DataError
from transduce.metrics.correlation import correlation_scores
from transduce.tasks.evaluation import Evaluation
from transduce.tasks.predictors import Inputs, one_line
from transduce.tasks.recipe import Split
from transduce.tasks.task import Example
from transduce.tasks.text_encoder.predictor import EncoderPredictor
from transduce.tasks.text_encoder.recipes import EmbeddingRecipe, scored_pairs
from transduce.tasks.text_inputs import Row, encode_counting_cuts, vocabulary_rows

if TYPE_CHECKING:
    from transduce.models.encoder_only import EncoderOnly


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
