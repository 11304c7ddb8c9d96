"""Contrastive training of text embeddings (Gao et al. 2021; Henderson et al. 2017)."""

from __future__ import annotations

import logging
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from transduce.errors import DataError
from transduce.tasks.common import find_device, prepare_training, with_weights
from transduce.tasks.held_out import remedy_for_nothing_held_out
from transduce.tasks.labels import new_head
from transduce.tasks.recipe import Split
from transduce.tasks.sequence_training import SequenceTraining
from transduce.tasks.text_encoder.embedding import (
    EmbeddingRecipe,
    TextEmbedder,
)
from transduce.tasks.text_encoder.embedding_data import (
    ContrastiveBatch,
    EncodedTextPairs,
    pairs_of,
    scored_pairs,
)
from transduce.tasks.text_inputs import tokenizer_for, tokenizer_of
from transduce.tasks.validation import checksum_of, warn_of_few
from transduce.text import Tokenizer
from transduce.training.display import ProgressCounter
from transduce.training.loss import LossSums
from transduce.training.trainer import Outcome, train

logger = logging.getLogger("transduce")


def contrastive_loss(first: Tensor, second: Tensor, texts: Tensor, temperature: float) -> LossSums:
    """Cross-entropy of the right partner among all texts of a batch, in both directions.

    With unit vectors u_i, v_i of pair i and s_ij = u_i · v_j / temperature, the loss of pair i is

        -½ (log softmax_j(s_ij) + log softmax_j(s_ji)) at j = i.

    first, second (b, m): vectors of the two texts.  texts (b, 2): their numbers; a text is no
    negative of an equal one, nor of the partner of an equal one.
    """
    u, v = F.normalize(first.float(), dim=-1), F.normalize(second.float(), dim=-1)
    scores = u @ v.t() / temperature
    a, b = texts.to(scores.device).unbind(1)
    alike = (a[:, None] == a) | (b[:, None] == b) | (a[:, None] == b) | (b[:, None] == a)
    positives = torch.arange(len(scores), device=scores.device)
    alike[positives, positives] = False
    scores = scores.masked_fill(alike, torch.finfo(scores.dtype).min)
    total = sum(F.cross_entropy(s, positives, reduction="sum") for s in (scores, scores.t())) / 2
    assert isinstance(total, Tensor)
    return LossSums(total, total.detach(), len(positives))


class EmbeddingTraining(SequenceTraining):
    """Pairs, model and loss for the training loop."""

    unit = "pairs"

    def __init__(
        self, embedder: TextEmbedder, training: EncodedTextPairs, validation: EncodedTextPairs
    ) -> None:
        self.embedder = embedder
        self.recipe = recipe = embedder.recipe
        self.model = embedder.model
        self.d_model = recipe.model.d_model
        segmented, tokens = recipe.model.segments, recipe.training.batch_tokens
        self.batches = training.batches(segmented, tokens, recipe.seed)
        self._valid = validation.batches(segmented, tokens, recipe.seed)
        self._scored = [] if recipe.data.valid is None else list(scored_pairs(recipe.data, "valid"))

    def loss(self, batch: ContrastiveBatch) -> LossSums:
        """Contrastive loss of the pairs, each text with dropout of its own."""
        device = self.embedder.device
        first, second = (self.model(side.to(device)) for side in (batch.first, batch.second))
        return contrastive_loss(first, second, batch.texts, self.recipe.contrastive.temperature)

    def validate(self) -> dict[str, float]:
        """Loss in nats per pair on the validation pairs; correlation with their scores, if any."""
        scores = {"loss": self.mean_loss(map(self.loss, self._valid.in_order()))}
        return scores | self.embedder.correlation(self._scored) if self._scored else scores

    def validation_checksum(self, score: str) -> str:
        """Checksum of the data and settings behind a score."""
        temperature = self.recipe.contrastive.temperature if score == "loss" else None
        return checksum_of(self._valid.checksum(), self._scored, temperature)


def train_embedding(recipe: EmbeddingRecipe, run: Path, resume: bool) -> Outcome:
    """Train a tokenizer, unless there is one to start from, and a model into `run`."""
    started = prepare_training(recipe.data, recipe.training, recipe.seed)
    texts = (text for pair in pairs_of(recipe.data, "train") for text in dict.fromkeys(pair))
    tokenizer = tokenizer_for(recipe.text, recipe.fine_tune, run, texts)
    training = _encoded(recipe, "train", tokenizer)
    validation = _encoded(recipe, "valid", tokenizer)
    warn_of_few(recipe.data, len(validation), "pairs")
    embedder = TextEmbedder(recipe, tokenizer)
    embedder.model.to(find_device(recipe.training.device))
    task = EmbeddingTraining(embedder, training, validation)
    reinit = new_head((), recipe.fine_tune)
    return train(
        task, recipe.training, run, resume, recipe.fine_tune, reinit=reinit, started=started
    )


def load_embedding(recipe: EmbeddingRecipe, run: Path, device: str) -> TextEmbedder:
    """Encoder of a run directory. Raises RunError if a file is missing or damaged."""
    tokenizer = tokenizer_of(run)
    return with_weights(lambda: TextEmbedder(recipe, tokenizer), run, device)


def _encoded(recipe: EmbeddingRecipe, split: Split, tokenizer: Tokenizer) -> EncodedTextPairs:
    """The pairs of a split.  Raises DataError if nothing is left of it."""
    with ProgressCounter(f"encoding {split} pairs") as count:
        pairs = count.each(pairs_of(recipe.data, split))
        data = EncodedTextPairs(pairs, tokenizer, recipe.text.max_length)
    if not len(data):
        remedy = ""
        if split != "train" and recipe.data.valid is None:
            keys = (first for first, _ in pairs_of(recipe.data, "train"))
            remedy = f"; {remedy_for_nothing_held_out(recipe.data, keys)}"
        raise DataError(f"there are no {split} pairs{remedy}")
    if data.n_blank:
        logger.warning("%d %s pairs have a blank text; they are skipped", data.n_blank, split)
    logger.info("%s: %d pairs, %d tokens", split, len(data), sum(map(sum, data.lengths)))
    return data
