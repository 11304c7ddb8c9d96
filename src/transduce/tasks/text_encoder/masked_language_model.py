"""Masked language modelling (Devlin et al. 2019).

[BOS] the cat [MASK] on the mat [EOS]      encoder -> head at [MASK] -> sat
[BOS] a line  [EOS] the next?   [EOS]      first vector -> next_sentence -> yes or no
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from transduce.data.batches import TokenBatches, batches_checksum, in_halves
from transduce.data.documents import EncodedLines, lengths_of
from transduce.data.token_masking import Masked, Masking, PackedMasks, pack_masks
from transduce.errors import DataError
from transduce.models.config import EncoderOnlyConfig
from transduce.models.encoder_only import EncoderOnly, build_text_encoder
from transduce.nn.heads.label import LabelHead, pool
from transduce.nn.heads.vocabulary import MaskedTokenHead
from transduce.nn.initialise import initialise
from transduce.nn.stack_configs import norm_epsilon
from transduce.tasks.recipe import Split, remedy_for_nothing_held_out
from transduce.tasks.text_encoder.recipes import MaskedLanguageModelRecipe, recipe_documents
from transduce.tasks.text_inputs import Row, with_special_tokens
from transduce.tasks.training import (
    SequenceTraining,
    describe_batch,
    label_loss,
    rows_padded,
    to_padded,
)
from transduce.text import Tokenizer, token_names
from transduce.training.film import Scene, encoder_scene, nearest_lengths
from transduce.training.log import ProgressCounter
from transduce.training.loss import LossSums, cross_entropy

logger = logging.getLogger("transduce")

FIXED_MASKING_SEED = 20181011
"""Random seed of masking in validation, so that each masks the same tokens."""
MEASURED_TOKENS = 2048
"""Positions of a validation batch; fixed, since masking depends on it."""
NEXT_SENTENCE_DROPOUT = 0.1


class MaskedLanguageModel(EncoderOnly):
    """An encoder under a head of the vocabulary, and perhaps a head for the next sentence."""

    head: MaskedTokenHead

    def __init__(self, config: EncoderOnlyConfig, vocabulary: int, next_sentence: bool) -> None:
        head = MaskedTokenHead(config.d_model, vocabulary, norm_epsilon(config.encoder))
        parts = build_text_encoder(config, vocabulary, head)
        super().__init__(parts.front_end, parts.encoder, head)
        self.next_sentence: LabelHead | None = None
        if next_sentence:
            d_model = config.d_model
            self.next_sentence = LabelHead(d_model, 2, "first", True, NEXT_SENTENCE_DROPOUT)
            initialise(self.next_sentence, d_model)


class TextBatch(NamedTuple):
    """Some rows of text, as yet unmasked.

    rows: ids and segments.  numbers: (b,) which rows of the data they are.  target_tokens: how
    many tokens masking aims at.
    """

    rows: list[Row]
    numbers: NDArray[np.int64]
    target_tokens: int

    def halves(self) -> tuple[TextBatch, TextBatch] | None:
        """The first and the other half of its rows; None for a single row."""
        parts = in_halves(len(self.rows), lambda rows: (self.rows[rows], self.numbers[rows]))
        if parts is None:
            return None
        (first, first_numbers), (rest, rest_numbers) = parts
        share = sum(len(row.ids) for row in first) / sum(len(row.ids) for row in self.rows)
        aim = round(share * self.target_tokens)
        return (
            TextBatch(first, first_numbers, aim),
            TextBatch(rest, rest_numbers, self.target_tokens - aim),
        )


class MaskedPredictions(NamedTuple):
    """Sums over a batch: of masked tokens, and of pairs of lines, if any.

    right: guesses that are right, where they were counted.
    """

    tokens: LossSums
    right: int
    pairs: LossSums | None = None
    pairs_right: int = 0


class TextRows:
    """The rows of a split, and the batches of them."""

    def __init__(
        self,
        recipe: MaskedLanguageModelRecipe,
        documents: Iterable[str],
        tokenizer: Tokenizer,
        masking: Masking,
    ) -> None:
        self.max_length = recipe.text.max_length
        self.in_pairs = recipe.next_sentence
        room = self.max_length - 2
        self._between = tokenizer.marks_between
        # Two lines and their marks must fit.
        max_length = (room - self._between) // 2 if self.in_pairs else room
        self.lines = EncodedLines(documents, tokenizer.encode_batch, max_length)
        if self.in_pairs:
            first = self.lines.pairs()
            self.places = np.stack([first, first + 2], 1)
            marks = 2 + self._between
        else:
            self.places = self.lines.packed(room)
            marks = 2
        self.lengths = lengths_of(self.lines, self.places) + marks
        self._masking = masking

    def __len__(self) -> int:
        return len(self.places)

    def row(self, i: int, second: int | None = None) -> Row:
        """A row; where it is a pair, perhaps with another `second` line."""
        start, end = self.places[i].tolist()
        if not self.in_pairs:
            tokens = self.lines.tokens[self.lines.offsets[start] : self.lines.offsets[end]]
            return with_special_tokens(tokens.tolist(), None, self.max_length)
        b = self.lines.line(start + 1 if second is None else second)
        a = self.lines.line(start)
        return with_special_tokens(a.tolist(), b.tolist(), self.max_length, self._between)

    def with_others(
        self, batch: TextBatch, generator: torch.Generator | None
    ) -> tuple[list[Row], Tensor]:
        """The rows with the second line of about half of them from another document; and (b,) 1
        where it does follow."""
        chance = torch.rand(len(batch.numbers), 2, generator=generator, dtype=torch.float64)
        rows = list(batch.rows)
        follows = (chance[:, 0] < 0.5).long()
        for k, number in enumerate(batch.numbers):
            if not follows[k]:
                position = float(chance[k, 1])
                other = self.lines.elsewhere(int(self.places[number, 0]), position)
                rows[k] = self.row(int(number), other)
        return rows, follows

    def batches(self, tokens: int, seed: int) -> TokenBatches[TextBatch]:
        """All rows, in batches of at most `tokens` positions."""
        return TokenBatches((self.lengths, self.lengths), self._assemble, tokens, seed)

    def _assemble(self, numbers: NDArray[np.int64]) -> TextBatch:
        rows = [self.row(int(i)) for i in numbers]
        aim = sum(self._masking.aim(row.ids) for row in rows)
        return TextBatch(rows, numbers, max(1, aim))


class MaskedLanguageModelling:
    """Prediction of masked tokens, shared by training and evaluation."""

    def __init__(
        self,
        model: MaskedLanguageModel,
        recipe: MaskedLanguageModelRecipe,
        masking: Masking,
    ) -> None:
        self.model = model
        self.recipe = recipe
        self.masking = masking

    def masked(self, rows: Sequence[Row], generator: torch.Generator | None = None) -> Masked:
        """Rows with some tokens masked, on the CPU."""
        segments = [row.segments for row in rows] if self.recipe.model.segments else None
        return self.masking(to_padded([row.ids for row in rows], segments), generator)

    def guess(
        self,
        data: TextRows,
        batch: TextBatch,
        smoothing: float,
        generator: torch.Generator | None = None,
        count_right: bool = False,
    ) -> MaskedPredictions:
        """Mask some tokens of a batch and predict them.

        data: rows of the split.  smoothing: of labels, from 0 to 1.  count_right: count the correct
        predictions too.  generator: for random numbers, drawn on the CPU; by default torch's.
        """
        device = next(self.model.parameters()).device
        rows, follows = batch.rows, None
        if data.in_pairs:
            rows, follows = data.with_others(batch, generator)
        masked = self.masked(rows, generator)
        encoded = self.model.encode(masked.tokens.to(device))
        hidden = self.model.head.hidden(encoded.values[masked.at.to(device)])  # (k, m)
        targets = masked.targets.to(device)
        head = self.model.head.vocabulary
        sums = cross_entropy(hidden, head.weight, targets, smoothing, head.bias)
        right = int((head(hidden).argmax(-1) == targets).sum()) if count_right else 0
        if follows is None or self.model.next_sentence is None:
            return MaskedPredictions(sums, right)
        scores = self.model.next_sentence(encoded).float()
        follows = follows.to(device)
        nll = F.cross_entropy(scores, follows, reduction="sum")
        pairs = LossSums(nll, nll.detach(), len(follows))
        return MaskedPredictions(sums, right, pairs, int((scores.argmax(1) == follows).sum()))

    @torch.inference_mode()
    def vectors_and_logits(
        self, rows: Sequence[Sequence[int]], at: Sequence[int]
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Pooled vectors (n, m), and logits (k, v) at the places `at`, counted over all rows."""
        self.model.eval()
        segments = [[0] * len(row) for row in rows] if self.recipe.model.segments else None
        device = next(self.model.parameters()).device
        encoded = self.model.encode(to_padded(rows, segments, device))
        logits = self.model.head(encoded.values[encoded.real][list(at)])
        vectors = pool(encoded, self.recipe.model.pooling)
        return vectors.float().cpu().numpy(), logits.float().cpu().numpy()

    @torch.inference_mode()
    def measure(self, data: TextRows) -> dict[str, float]:
        """Scores of guessing tokens that are hidden the same way each time.

        Loss in nats per hidden token, perplexity, and accuracy in percent.
        """
        self.model.eval()
        generator = torch.Generator().manual_seed(FIXED_MASKING_SEED)
        nll, n, right, n_pairs, pairs_right = 0.0, 0, 0, 0, 0
        for batch in data.batches(MEASURED_TOKENS, 0).in_order():
            guessed = self.guess(data, batch, 0.0, generator, count_right=True)
            nll += guessed.tokens.nll.item()
            n, right = n + guessed.tokens.tokens, right + guessed.right
            n_pairs += guessed.pairs.tokens if guessed.pairs else 0
            pairs_right += guessed.pairs_right
        if not n:
            raise DataError("no tokens to mask: the texts are empty")
        loss = nll / n
        perplexity = math.exp(min(loss, 700.0))
        scores = {"loss": loss, "perplexity": perplexity, "accuracy": 100 * right / n}
        if data.in_pairs:
            scores["next_sentence_accuracy"] = 100 * pairs_right / max(1, n_pairs)
        return scores


class MaskedLanguageModelTraining(SequenceTraining[MaskedLanguageModelling]):
    """Texts, model and loss for the training loop."""

    unit = "hidden tokens"

    def __init__(
        self,
        modelling: MaskedLanguageModelling,
        data: Mapping[Split, TextRows],
        tokenizer: Tokenizer,
    ) -> None:
        super().__init__(modelling)
        self.tokenizer = tokenizer
        self.recipe = modelling.recipe
        self._data = data
        tokens = self.recipe.training.batch_tokens
        self._most_hidden = round(1.1 * modelling.masking.config.share * tokens)  # grows if need be
        self.batches = data["train"].batches(tokens, self.recipe.seed)

    def pack(self, batch: TextBatch) -> PackedMasks:
        """The rows, masked, in one row of one shape."""
        train, modelling, rows, follows = self._data["train"], self.predictor, batch.rows, None
        if train.in_pairs:
            rows, follows = train.with_others(batch, None)
        masked, aim = modelling.masked(rows), batch.target_tokens
        packed = pack_masks(masked, aim, self.shape, self._most_hidden, follows)
        self._most_hidden = len(packed.places)
        return packed

    def packed_loss(self, packed: PackedMasks) -> LossSums:
        """As `loss`, of a packed batch."""
        encoded = self.model.encode(packed.tokens)
        hidden = self.model.head.hidden(encoded.values[0].index_select(0, packed.places))
        head, smoothing = self.model.head.vocabulary, self.recipe.training.label_smoothing
        sums = cross_entropy(hidden, head.weight, packed.targets, smoothing, head.bias, 0)
        total, nll = sums.total * packed.share, sums.nll * packed.share
        if self.model.next_sentence is not None:
            pairs = label_loss(self.model.next_sentence(encoded), packed.follows, 0.0)
            total, nll = (
                total + pairs.total * packed.pair_share,
                nll + pairs.nll * packed.pair_share,
            )
        return LossSums(total, nll, packed.target_tokens)

    def loss(self, batch: TextBatch) -> LossSums:
        """Mean cross-entropy of masked tokens, plus next-sentence loss if enabled, times the number
        of tokens targeted by masking."""
        smoothing = self.recipe.training.label_smoothing
        guessed = self.predictor.guess(self._data["train"], batch, smoothing)
        # How many tokens whole words come to is known only now; the loop counts with the aim.
        share = batch.target_tokens / max(1, guessed.tokens.tokens)
        total, nll = guessed.tokens.total * share, guessed.tokens.nll * share
        if guessed.pairs is not None:
            share = batch.target_tokens / max(1, guessed.pairs.tokens)
            total, nll = total + guessed.pairs.total * share, nll + guessed.pairs.nll * share
        return LossSums(total, nll, batch.target_tokens)

    def describe(self, batch: TextBatch) -> str:
        """Describe a batch by the numbers of its rows."""
        return describe_batch("training rows", batch.numbers)

    def validate(self) -> dict[str, float]:
        """Scores of guessing tokens of the validation texts, hidden the same way each time."""
        return self.predictor.measure(self._data["valid"])

    def scenes(self) -> list[Scene]:
        """Validation texts for the film of learning, without masks."""
        valid = self._data["valid"]
        rows = (
            rows_padded([valid.row(i)], self.recipe.model.segments)
            for i in nearest_lengths(valid.lengths)
        )
        return [encoder_scene(self.model, row, token_names(self.tokenizer)) for row in rows]

    def validation_checksum(self, score: str) -> str:
        """Checksum of the data and settings behind a score."""
        lines = self._data["valid"].lines
        return batches_checksum(lines.offsets, lines.tokens)


def rows_of(
    recipe: MaskedLanguageModelRecipe, split: Split, tokenizer: Tokenizer, masking: Masking
) -> TextRows:
    """The rows of a split.  Raises DataError if there are none.

    recipe: with the data.  tokenizer: of the texts.  masking: of their tokens.
    """
    with ProgressCounter(f"encoding {split} texts") as count:
        documents = count.each(recipe_documents(recipe.data, split))
        data = TextRows(recipe, documents, tokenizer, masking)
    if not len(data):
        if len(data.lines):
            raise DataError(
                f"next_sentence needs documents of two or more lines, but no {split} document has "
                "them; set next_sentence = false, or separate documents differently"
            )
        texts = recipe_documents(recipe.data, "train")
        remedy = remedy_for_nothing_held_out(recipe.data, split, texts)
        raise DataError(f"there are no {split} texts{remedy}")
    if data.in_pairs and data.lines.n_documents < 2:
        raise DataError(
            f"next_sentence needs two or more {split} documents, but there is only one; separate "
            "documents differently"
        )
    message = "%s: %d lines in %d rows, %d tokens"
    logger.info(message, split, len(data.lines), len(data), len(data.lines.tokens))
    return data
