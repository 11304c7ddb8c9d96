"""Inputs of text models: special tokens, tokenizers of a run, batched forward passes.

Each input is a text or a pair between special tokens:

    [BOS] a [EOS]                    segments 0 … 0
    [BOS] a [EOS] b [EOS]            segments 0 … 0 1 … 1

(with `Tokenizer.marks_between` EOS between the two, all in segment 0) and have an embedding of
`vocabulary_rows(tokenizer)` rows, the last for MASK.
"""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from transduce.errors import SettingError
from transduce.models.config import EncoderOnlyConfig
from transduce.nn.stack_configs import max_sequence_length
from transduce.settings.sections import section
from transduce.tasks.recipe import Recipe, check_recompute
from transduce.tasks.vocabularies import missing_tokenizers, saved_tokenizer
from transduce.text import BOS, EOS, SubwordConfig, Tokenizer, TokenizerConfig
from transduce.training.config import FineTuneConfig

logger = logging.getLogger("transduce")

ENCODERS = ("classification", "embedding", "masked-language-model", "question-answering")
"""Tasks of encoder models, each of which can start from a run of any other."""
READ_AT_ONCE = ("text.tokenizer", "text.max_length")
"""Settings of the base run that a fine-tuned run keeps."""

Ids = Sequence[int] | NDArray[np.integer[Any]]


@section
class EncoderTextConfig:
    """Tokenizer and maximum length of texts."""

    tokenizer: TokenizerConfig = SubwordConfig()
    """By default, the tokenizer of the base run in fine-tuning."""
    max_length: Annotated[int, Field(ge=8)] = 256
    """Maximum tokens, special tokens included; longer inputs are truncated at the end."""


@section
class EncoderRecipe(Recipe):
    """Base of the recipes of text encoders."""

    bases: ClassVar[tuple[str, ...]] = ENCODERS
    inherited: ClassVar[tuple[str, ...]] = READ_AT_ONCE

    text: EncoderTextConfig = EncoderTextConfig()
    model: EncoderOnlyConfig = EncoderOnlyConfig()
    fine_tune: FineTuneConfig | None = None
    """Base run, whose weights and tokenizer are the start."""

    def __post_init__(self) -> None:
        """Raises SettingError for texts without room, and for settings without effect."""
        room = max_sequence_length(self.model.encoder)
        if room is not None and room < self.text.max_length:
            raise SettingError(
                f"text.max_length = {self.text.max_length} exceeds the {room} learned positions; "
                "lower it, or raise model.encoder.max_positions"
            )
        check_recompute(self.training, self.model.encoder)


class Row(NamedTuple):
    """Input of a model: token ids, and the segment number of each."""

    ids: Ids
    segments: Ids


def mask_id(tokenizer: Tokenizer) -> int:
    """Id of MASK: the number after the ids of the tokenizer."""
    return tokenizer.size


def vocabulary_rows(tokenizer: Tokenizer) -> int:
    """Number of embedding rows of an encoder-only model: the tokenizer's ids, and MASK."""
    return tokenizer.size + 1


def fits(
    a: Sequence[int], b: Sequence[int] | None, max_length: int, marks_between: int = 1
) -> bool:
    """True if `with_special_tokens` does not truncate.

    a, b: ids of both texts; b is None for a single text.  max_length: in tokens, special ones
    included.  marks_between: number of special tokens between the texts.
    """
    return len(a) + 2 + (0 if b is None else len(b) + marks_between) <= max_length


def with_special_tokens(
    a: Sequence[int], b: Sequence[int] | None, max_length: int, marks_between: int = 1
) -> Row:
    """A text or a pair with special tokens.

    Inputs longer than `max_length` are truncated at the end, the longer of two texts first.
    marks_between: see `Tokenizer`.
    """
    if b is None:
        ids = [BOS, *a[: max_length - 2], EOS]
        return Row(ids, [0] * len(ids))
    room = max_length - 2 - marks_between
    if len(a) + len(b) > room:
        half = room // 2
        keep_b = min(len(b), max(half, room - len(a)))
        a, b = a[: room - keep_b], b[:keep_b]
    first, second = [BOS, *a, *[EOS] * marks_between], [*b, EOS]
    return Row([*first, *second], [0] * len(first) + [1] * len(second))


def encode_counting_cuts(
    tokenizer: Tokenizer, inputs: Sequence[Sequence[str]], max_length: int
) -> tuple[list[Row], int]:
    """Rows of inputs of a text or a pair, and the number of those truncated.

    tokenizer: of the texts.  max_length: in tokens, special ones included.
    """
    encoded = tokenizer.encode_batch([text for texts in inputs for text in texts])
    between = tokenizer.marks_between
    rows, at, n_cut = [], 0, 0
    for texts in inputs:
        a, b = encoded[at], encoded[at + 1] if len(texts) == 2 else None
        at += len(texts)
        rows.append(with_special_tokens(a, b, max_length, between))
        n_cut += not fits(a, b, max_length, between)
    return rows, n_cut


def warn_of_cuts(n_cut: int, n: int, max_length: int) -> None:
    """Warn of the number of truncated inputs, if any.

    n_cut: number of truncated inputs.  n: number of all.  max_length: in tokens.
    """
    if n_cut:
        message = "%d of %d inputs exceed %d tokens (text.max_length) and were truncated"
        logger.warning(message, n_cut, n, max_length)


def tokenizer_of(run: Path, name: str = "tokenizer") -> Tokenizer:
    """Tokenizer of a trained run.  Raises RunError if there is none."""
    saved = saved_tokenizer(run, name)
    if saved is None:
        raise missing_tokenizers(run)
    return saved
