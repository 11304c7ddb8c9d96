"""Contrastive training of text embeddings (Gao et al. 2021; Henderson et al. 2017), with its
pairs."""

import functools
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from transduce.data.batches import Packed, RowBatch, TokenBatches, of_each
from transduce.data.labelled import LabelledConfig, read_scored, read_texts
from transduce.errors import DataError
from transduce.sequence import Padded
from transduce.support.work import chunks
from transduce.tasks.recipe import (
    Split,
    own_section,
    read_split,
    remedy_for_nothing_held_out,
    warn_of_few,
)
from transduce.tasks.text_encoder.predictor import TextEmbedder
from transduce.tasks.text_encoder.recipes import (
    EmbeddedTextConfig,
    EmbeddingData,
    EmbeddingRecipe,
    scored_pairs,
)
from transduce.tasks.text_inputs import encode_counting_cuts, warn_of_cuts
from transduce.tasks.training import EncodedTexts, SequenceTraining, new_head, tokenizer_for
from transduce.text import Tokenizer
from transduce.training.log import ProgressCounter
from transduce.training.loss import IGNORED, LossSums

logger = logging.getLogger("transduce")

CONTRASTIVE_READ_TOGETHER = 4096
"""Pairs that are read, and made tokens of, together."""

TextPair = tuple[str, str]


def pairs_of(config: EmbeddingData, split: Split) -> Iterator[TextPair]:
    """Stream the pairs of a split; equal first texts are in the same split."""
    if own_section(config, split) is not None:
        return (pair.texts for pair in scored_pairs(config, split))

    def read(section: LabelledConfig, root: Path) -> Iterator[TextPair]:
        if config.min_score is None:
            return ((texts[0], texts[-1]) for texts in read_texts(section, root))
        scored = read_scored(section, root)
        return (pair.texts for pair in scored if pair.score >= config.min_score)

    return read_split(config, split, read, lambda pair: pair[0])


@dataclass(frozen=True)
class ContrastiveBatch(RowBatch):
    """Some pairs as the model reads them; each half of a batch has its own negatives.

    first, second: (b, t), or (b, t, 2) with segments.  texts: (b, 2) numbers of the texts, equal
    for equal texts.
    """

    first: Padded
    second: Padded
    texts: Tensor


class EncodedTextPairs:
    """Pairs of a split as token ids, in memory; pairs with a blank text are left out."""

    def __init__(
        self, pairs: Iterable[TextPair], tokenizer: Tokenizer, text: EmbeddedTextConfig
    ) -> None:
        self._rows = EncodedTexts()
        numbers: dict[str, int] = {}
        index_pairs: list[tuple[int, int]] = []
        self.n_blank = n_cut = 0
        for read in chunks(pairs, CONTRASTIVE_READ_TOGETHER):
            chunk = [pair for pair in read if all(side.strip() for side in pair)]
            self.n_blank += len(read) - len(chunk)
            new = list(dict.fromkeys(t for pair in chunk for t in pair if t not in numbers))
            numbers.update(zip(new, range(len(numbers), len(numbers) + len(new)), strict=True))
            prefixed = [(text.prefix + content,) for content in new]
            rows, cut = encode_counting_cuts(tokenizer, prefixed, text.max_length)
            self._rows.add(rows)
            n_cut += cut
            index_pairs += ((numbers[a], numbers[b]) for a, b in chunk)
        warn_of_cuts(n_cut, len(numbers), text.max_length)
        self.texts = np.array(index_pairs, np.int64).reshape(-1, 2)

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def lengths(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Tokens (n,) of the first and of the second texts."""
        lengths = self._rows.lengths[self.texts]
        return lengths[:, 0], lengths[:, 1]

    def batches(self, segmented: bool, tokens: int, seed: int) -> TokenBatches[ContrastiveBatch]:
        """All pairs, in batches of at most `tokens` positions a side.

        segmented: with segments.  seed: of the order.
        """

        def assemble(rows: NDArray[np.int64]) -> ContrastiveBatch:
            texts = self.texts[rows]
            first, second = (self._rows.padded(texts[:, i], segmented) for i in range(2))
            return ContrastiveBatch(rows, first, second, torch.from_numpy(texts))

        return TokenBatches(self.lengths, assemble, tokens, seed)


def contrastive_loss(first: Tensor, second: Tensor, texts: Tensor, temperature: float) -> LossSums:
    """Cross-entropy of the right partner among all texts of a batch, in both directions.

    With unit vectors u_i, v_i of pair i and s_ij = u_i · v_j / temperature, the loss of pair i is

        -½ (log softmax_j(s_ij) + log softmax_j(s_ji)) at j = i.

    first, second (b, m): vectors of the two texts.  texts (b, 2): their numbers; a text is no
    negative of an equal text, nor of its partner.  Pairs that are IGNORED count nowhere.
    """
    u, v = F.normalize(first.float(), dim=-1), F.normalize(second.float(), dim=-1)
    scores = u @ v.t() / temperature
    a, b = texts.to(scores.device).unbind(1)
    counted = a != IGNORED
    alike = (a[:, None] == a) | (b[:, None] == b) | (a[:, None] == b) | (b[:, None] == a)
    alike = (alike | ~(counted[:, None] & counted)).fill_diagonal_(False)
    scores = scores.masked_fill(alike, torch.finfo(scores.dtype).min)
    numbers = torch.arange(len(scores), device=scores.device)
    positives = numbers.masked_fill(~counted, IGNORED)
    cross_entropy = functools.partial(F.cross_entropy, ignore_index=IGNORED, reduction="sum")
    total = (cross_entropy(scores, positives) + cross_entropy(scores.t(), positives)) / 2
    return LossSums(total, total.detach(), len(positives))


class EmbeddingTraining(SequenceTraining[TextEmbedder]):
    """Pairs, model and loss for the training loop."""

    unit = "pairs"

    def __init__(
        self, embedder: TextEmbedder, training: EncodedTextPairs, validation: EncodedTextPairs
    ) -> None:
        super().__init__(embedder)
        self.recipe = recipe = embedder.recipe
        segmented, tokens = recipe.model.segments, recipe.training.batch_tokens
        self.batches = training.batches(segmented, tokens, recipe.seed)
        self._valid = validation.batches(segmented, tokens, recipe.seed)
        self._scored = [] if recipe.data.valid is None else list(scored_pairs(recipe.data, "valid"))

    def loss(self, batch: ContrastiveBatch) -> LossSums:
        """Contrastive loss of the pairs, each text with dropout of its own."""
        sides = batch.first.to(self.device), batch.second.to(self.device)
        return self.packed_loss(Packed(sides, (batch.texts,), batch.target_tokens))

    def pack(self, batch: ContrastiveBatch) -> Packed:
        """The texts in a row of one shape for each side."""
        first, second = self.shape.pack(batch.first, batch.second)
        return Packed((first, second), (of_each(first, batch.texts),), batch.target_tokens)

    def packed_loss(self, packed: Packed) -> LossSums:
        """As `loss`, of a packed batch."""
        first, second = map(self.model, packed.sides)
        temperature = self.recipe.contrastive.temperature
        return contrastive_loss(first, second, packed.parts[0], temperature)

    def validate(self) -> dict[str, float]:
        """Loss in nats per pair on the validation pairs; correlation with their scores, if any."""
        scores = {"loss": self.mean_loss(map(self.loss, self._valid.in_order()))}
        return scores | self.predictor.correlation(self._scored) if self._scored else scores

    def behind(self, score: str) -> Sequence[Any]:
        """Scored pairs, and the temperature of the loss."""
        temperature = self.recipe.contrastive.temperature if score == "loss" else None
        return self._scored, temperature


def prepare_embedding(recipe: EmbeddingRecipe, run: Path) -> EmbeddingTraining:
    """Data, model and loss of a recipe, for training into the directory `run`."""
    texts = (text for pair in pairs_of(recipe.data, "train") for text in dict.fromkeys(pair))
    tokenizer = tokenizer_for(recipe.text, recipe.fine_tune, run, texts)
    training = _contrastive_encoded(recipe, "train", tokenizer)
    validation = _contrastive_encoded(recipe, "valid", tokenizer)
    warn_of_few(recipe.data, len(validation), "pairs")
    embedder = TextEmbedder(recipe, tokenizer)
    task = EmbeddingTraining(embedder, training, validation)
    task.reinit = new_head((), recipe.fine_tune)
    return task


def _contrastive_encoded(
    recipe: EmbeddingRecipe, split: Split, tokenizer: Tokenizer
) -> EncodedTextPairs:
    with ProgressCounter(f"encoding {split} pairs") as count:
        pairs = count.each(pairs_of(recipe.data, split))
        data = EncodedTextPairs(pairs, tokenizer, recipe.text)
    if not len(data):
        keys = (first for first, _ in pairs_of(recipe.data, "train"))
        remedy = remedy_for_nothing_held_out(recipe.data, split, keys)
        raise DataError(f"there are no {split} pairs{remedy}")
    if data.n_blank:
        logger.warning("%d %s pairs have a blank text; they are skipped", data.n_blank, split)
    logger.info("%s: %d pairs, %d tokens", split, len(data), sum(map(sum, data.lengths)))
    return data
