"""Masked language model in use: tokens for `<mask>`, and a vector for each text.

Imports no torch.
"""

from __future__ import annotations

import functools
import itertools
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from transduce.data.masking import continues_word, hold_spaces
from transduce.decoding.options import DecodingOptions
from transduce.engine.pair_shape import EncoderHead
from transduce.errors import DataError
from transduce.metrics.measure import measure
from transduce.support.work import in_batches
from transduce.tasks.evaluation import Evaluation
from transduce.tasks.predictors import Inputs, one_line
from transduce.tasks.recipe import Split, warn_of_few
from transduce.tasks.task import Example
from transduce.tasks.text_encoder.predictor import EncoderPredictor, NativeRun
from transduce.tasks.text_encoder.recipes import MaskedLanguageModelRecipe, recipe_documents
from transduce.tasks.text_inputs import Row, fits, mask_id, vocabulary_rows, with_special_tokens
from transduce.text import SPECIAL_TOKENS, Tokenizer
from transduce.text.offsets import within_word

if TYPE_CHECKING:
    from transduce.tasks.text_encoder.masked_language_model import (
        MaskedLanguageModel,
        MaskedLanguageModelling,
        MaskedLanguageModelTraining,
    )


logger = logging.getLogger("transduce")

MASK = "<mask>"
"""Mask in a line of input."""
N_CANDIDATES = 5


class TokenCandidate(NamedTuple):
    """Candidate token for a mask, as written by the tokenizer: "▁cat", "##ing"."""

    id: int
    token: str
    probability: float


@dataclass(frozen=True)
class FilledText:
    """Text with its masks filled in; empty for blank texts.

    candidates: likeliest tokens of each mask, best first. embedding: the encoder's vectors, pooled
    by `model.pooling`.
    """

    filled: str
    candidates: tuple[tuple[TokenCandidate, ...], ...] = field(default=(), repr=False)
    embedding: tuple[float, ...] = field(default=(), repr=False)

    @property
    def text(self) -> str:
        """The filled text on a single line."""
        return " ".join(self.filled.splitlines())

    def fields(self) -> dict[str, Any]:
        """Fields of a JSON record."""
        return {
            "filled": self.filled,
            "candidates": [
                [{"token": c.token, "probability": c.probability} for c in of_mask]
                for of_mask in self.candidates
            ],
            "embedding": list(self.embedding),
        }


class MaskFiller(EncoderPredictor[FilledText]):
    """A model with its tokenizer: texts in, texts without masks out."""

    recipe: MaskedLanguageModelRecipe

    def __init__(
        self,
        recipe: MaskedLanguageModelRecipe,
        tokenizer: Tokenizer,
        natively: NativeRun | None = None,
    ) -> None:
        shown = tokenizer.tokens(range(tokenizer.size))
        self._goes_on = continues_word(shown)
        self._hold_spaces = hold_spaces(shown)
        # SentencePiece adds a space before every text; characters are unchanged.
        self._implies_space = any(
            t.startswith("▁") for t in tokenizer.tokens(tokenizer.encode("a"))
        )
        super().__init__(recipe, tokenizer, natively)

    @property
    def head(self) -> EncoderHead:
        """The head in the engine."""
        return EncoderHead(self.config.pooling, "gelu-norm", vocabulary_rows(self.tokenizer))

    def build(self) -> MaskedLanguageModel:
        """The model in PyTorch."""
        from transduce.tasks.text_encoder.masked_language_model import MaskedLanguageModel

        rows = vocabulary_rows(self.tokenizer)
        return MaskedLanguageModel(self.config, rows, self.recipe.next_sentence)

    @functools.cached_property
    def modelling(self) -> MaskedLanguageModelling:
        """Prediction of tokens that are masked at random, in PyTorch."""
        from transduce.data.token_masking import Masking
        from transduce.tasks.text_encoder.masked_language_model import MaskedLanguageModelling

        shown = self.tokenizer.tokens(range(self.tokenizer.size))
        masking = Masking(self.recipe.masking, shown)
        return MaskedLanguageModelling(self.model, self.recipe, masking)

    def blank(self, texts: tuple[str, ...]) -> FilledText:
        """A blank text, unchanged."""
        return FilledText(texts[0])

    def answers(self, inputs: Inputs, numbers: Sequence[int]) -> list[FilledText]:
        """Texts with their masks filled in.

        Masks beyond the recipe's `text.max_length` stay, with a warning.
        """
        max_length = self.recipe.text.max_length
        rows: list[list[int]] = []
        for (text,), number in zip(inputs, numbers, strict=True):
            ids = self.ids(text)
            if not fits(ids, None, max_length):
                message = "input %d has %d tokens; only %d are used (text.max_length)"
                logger.warning(message, number + 1, len(ids), max_length - 2)
            rows.append(list(with_special_tokens(ids, None, max_length).ids))
        texts = (text.split(MASK) for (text,) in inputs)
        self.warn_of_unknown(texts, rows, numbers)
        lengths = [len(row) for row in rows]
        answers: dict[int, FilledText] = {}
        for chosen in in_batches(range(len(rows)), lengths, self.batch_tokens):
            read = self._read([rows[i] for i in chosen])
            for i, (candidates, vector) in zip(chosen, read, strict=True):
                filled = self._filled(inputs[i][0], [of_mask[0] for of_mask in candidates])
                answers[i] = FilledText(filled, candidates, vector)
        return [answers[i] for i in range(len(rows))]

    def evaluate(
        self,
        split: Split,
        examples: Iterable[Example] | None = None,
        options: DecodingOptions | None = None,
    ) -> Evaluation:
        """Evaluate the prediction of masked tokens in held-out texts; loss in nats per token.

        split: of the recipe's data.  options: unused.  examples: masked texts with their solutions,
        to measure the share of correctly filled texts instead.
        """
        if examples is not None:
            items = list(examples)
            if not items:
                raise DataError("no texts to evaluate")
            hypotheses = [filled.text for filled in self.predict([texts for texts, _ in items])]
            references = [[answer] for _, answer in items]
            sources = [one_line(texts) for texts, _ in items]
            scores = measure(["accuracy"], hypotheses, references)
            return Evaluation(scores, sources, hypotheses, references)
        from transduce.tasks.text_encoder.masked_language_model import rows_of

        data = rows_of(self.recipe, split, self.tokenizer, self.modelling.masking)
        measured = self.modelling.measure(data)
        lines = (
            line for text in recipe_documents(self.recipe.data, split) for line in text.split("\n")
        )
        return Evaluation(measured, [one_line([line]) for line in lines if line.strip()])

    def facts(self) -> dict[str, Any]:
        """The size of the vocabulary, and of the embeddings."""
        return {"vocabulary": self.tokenizer.size, "dimensions": self.recipe.model.d_model}

    def ids(self, text: str) -> list[int]:
        """Tokens of a text, with the id of MASK for each `<mask>`.

        A mask includes the space before it if the tokenizer has tokens with spaces.
        """
        before, *rest = text.split(MASK)
        if rest and self._hold_spaces:
            before = before.removesuffix(" ")
        ids = self.tokenizer.encode(before) if before else []
        for i, part in enumerate(rest):
            ids.append(mask_id(self.tokenizer))
            if self._hold_spaces:
                ids += self._behind_mask(part, i + 1 < len(rest))
            else:
                ids += self.tokenizer.encode(part)
        return ids

    def _behind_mask(self, part: str, mask_follows: bool) -> list[int]:
        """Tokens of the text after a mask, if tokens include the space before them."""
        if mask_follows:
            part = part.removesuffix(" ")
        within = not part.startswith(" ")
        if self._implies_space:
            part = part.removeprefix(" ")
        if not part:
            return []
        if self._implies_space and within:
            return within_word(self.tokenizer, part)
        return self.tokenizer.encode(part)

    def _read(
        self, rows: list[list[int]]
    ) -> list[tuple[tuple[tuple[TokenCandidate, ...], ...], tuple[float, ...]]]:
        """For each row the candidates at its masks, and its vector."""
        mask = mask_id(self.tokenizer)
        at = [i for i, id in enumerate(itertools.chain.from_iterable(rows)) if id == mask]
        if self.encoder is not None:
            inputs = [Row(row, [0] * len(row)) for row in rows]
            vectors, logits = self.encoder.run(inputs, at, vectors=True)
        else:
            vectors, logits = self.modelling.vectors_and_logits(rows, at)
        candidates = iter(self._candidates(logits))
        masks = ([next(candidates) for id in row if id == mask] for row in rows)
        return [
            (tuple(of_row), tuple(vector))
            for of_row, vector in zip(masks, vectors.tolist(), strict=True)
        ]

    def _candidates(self, logits: NDArray[np.float32]) -> list[tuple[TokenCandidate, ...]]:
        """The likeliest tokens by logits (k, v); neither special tokens nor MASK is among them."""
        exponentials = np.exp(logits - logits.max(1, keepdims=True))
        probabilities = exponentials / exponentials.sum(1, keepdims=True)
        candidates = []
        for row in probabilities[:, len(SPECIAL_TOKENS) : self.tokenizer.size]:
            places = np.argsort(-row, kind="stable")[:N_CANDIDATES]
            ids = (places + len(SPECIAL_TOKENS)).tolist()
            named = zip(ids, self.tokenizer.tokens(ids), row[places].tolist(), strict=True)
            candidates.append(tuple(TokenCandidate(*candidate) for candidate in named))
        return candidates

    def _filled(self, text: str, chosen: Sequence[TokenCandidate]) -> str:
        """The text with its first masks replaced; the rest of it stays to the letter."""
        before, *rest = text.split(MASK)
        for i, part in enumerate(rest):
            before = self._joined(before, chosen[i]) if i < len(chosen) else before + MASK
            before += part
        return before

    def _joined(self, before: str, candidate: TokenCandidate) -> str:
        """A token behind a text, joined to its last word if that is how the token is meant."""
        word = self.tokenizer.decode([candidate.id])
        if self._goes_on[candidate.id]:
            return before.removesuffix(" ") + word.removeprefix("##")
        if word.startswith(" "):
            return before.removesuffix(" ") + word if before else word.removeprefix(" ")
        if self._implies_space and before and not before[-1].isspace():
            return f"{before} {word}"
        return before + word


def prepare_masked_language_model(
    recipe: MaskedLanguageModelRecipe, run: Path
) -> MaskedLanguageModelTraining:
    """Data, model and loss of a recipe, for training into the directory `run`."""
    from transduce.tasks.text_encoder.masked_language_model import (
        MaskedLanguageModelTraining,
        rows_of,
    )
    from transduce.tasks.training import tokenizer_for

    lines = (line for text in recipe_documents(recipe.data, "train") for line in text.split("\n"))
    tokenizer = tokenizer_for(recipe.text, recipe.fine_tune, run, lines)
    filler = MaskFiller(recipe, tokenizer)
    masking = filler.modelling.masking
    splits: tuple[Split, ...] = ("train", "valid")
    data = {split: rows_of(recipe, split, tokenizer, masking) for split in splits}
    hidden = round(recipe.masking.share * len(data["valid"].lines.tokens))
    warn_of_few(recipe.data, hidden, "hidden tokens", tokens=True)
    return MaskedLanguageModelTraining(filler.modelling, data, filler.tokenizer)
