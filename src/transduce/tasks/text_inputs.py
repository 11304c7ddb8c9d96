"""Inputs of text models: special tokens, tokenizers of a run, batched forward passes.

Each input is a text or a pair between special tokens:

    [BOS] a [EOS]                    segments 0 … 0
    [BOS] a [EOS] b [EOS]            segments 0 … 0 1 … 1

(with `Tokenizer.marks_between` EOS between the two, all in segment 0) and have an embedding of
`vocabulary_rows(tokenizer)` rows, the last for MASK.
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from transduce.data.length_batches import in_batches
from transduce.errors import SettingError
from transduce.models.encoder_only import EncoderOnlyConfig
from transduce.nn.stack_configs import max_sequence_length
from transduce.sequence import Padded
from transduce.settings.sections import parse, section
from transduce.tasks.recipe import Recipe
from transduce.tasks.recipe_settings import base_settings, check_recompute
from transduce.tasks.unknown_tokens import UnknownTokens, tell_of_training_texts
from transduce.tasks.vocabularies import missing_tokenizers, saved_tokenizer
from transduce.text import (
    BOS,
    EOS,
    PAD,
    SubwordConfig,
    Tokenizer,
    TokenizerConfig,
    train_tokenizer,
)
from transduce.training.checkpoint_paths import checkpoints_of
from transduce.training.config import FineTuneConfig
from transduce.training.display import ProgressCounter

logger = logging.getLogger("transduce")

ENCODERS = ("classification", "embedding", "masked-language-model", "question-answering")
"""Tasks of encoder models, each of which can start from a run of any other."""
READ_AT_ONCE = ("text.tokenizer", "text.max_length")
"""Settings of the base run that a fine-tuned run keeps."""

Ids = Sequence[int] | NDArray[np.integer[Any]]


@section
class TextConfig:
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

    text: TextConfig = TextConfig()
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
    """True if `with_special_tokens` does not truncate."""
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


class InputTokenizer:
    """Encodes inputs of a text or a pair as rows, with warnings about truncation and unknown
    tokens."""

    def __init__(self, tokenizer: Tokenizer, max_length: int) -> None:
        self._tokenizer = tokenizer
        self._max_length = max_length
        self._unknown = UnknownTokens(tokenizer)

    def rows(self, inputs: Sequence[Sequence[str]], numbers: Iterable[int]) -> list[Row]:
        """Rows of inputs.  numbers: their numbers, from 0, in a longer sequence."""
        rows, n_cut = encode_counting_cuts(self._tokenizer, inputs, self._max_length)
        warn_of_cuts(n_cut, len(rows), self._max_length)
        names = (f"line {number + 1}" for number in numbers)
        self._unknown.check(inputs, (row.ids for row in rows), names)
        return rows


def encode_counting_cuts(
    tokenizer: Tokenizer, inputs: Sequence[Sequence[str]], max_length: int
) -> tuple[list[Row], int]:
    """Rows of inputs of a text or a pair, and the number of those truncated."""
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
    """Warn of the number of truncated inputs, if any."""
    if n_cut:
        message = "%d of %d inputs exceed %d tokens (text.max_length) and were truncated"
        logger.warning(message, n_cut, n, max_length)


def to_padded(
    rows: Sequence[Ids],
    segments: Sequence[Ids] | None = None,
    device: torch.device | str = "cpu",
) -> Padded:
    """Rows of ids padded on the right, (b, t); with segments (b, t, 2), ids before segments."""
    lengths = np.array([len(row) for row in rows])
    width = int(lengths.max())
    real = np.arange(width) < lengths[:, None]
    values = np.full(real.shape, PAD, dtype=np.int64)
    values[real] = np.concatenate(rows)
    if segments is not None:
        numbers = np.zeros_like(values)
        numbers[real] = np.concatenate(segments)
        values = np.stack([values, numbers], -1)
    padding = "none" if bool(real.all()) else "right"
    return Padded(torch.from_numpy(values), torch.from_numpy(real), padding).to(device)  # type: ignore[arg-type]


class EncodedTexts:
    """Rows in contiguous memory: 5 bytes per token."""

    def __init__(self) -> None:
        self._ids = array("i")
        self._segments = array("b")
        self._ends = array("q", [0])

    def __len__(self) -> int:
        return len(self._ends) - 1

    def add(self, rows: Iterable[Row]) -> None:
        """Append rows."""
        for row in rows:
            self._ids.extend(row.ids)
            self._segments.extend(row.segments)
            self._ends.append(len(self._ids))

    @property
    def lengths(self) -> NDArray[np.int64]:
        """(n,) tokens of each row."""
        ends = np.array(self._ends, np.int64)
        return ends[1:] - ends[:-1]

    def row(self, i: int) -> Row:
        """A row, by number."""
        inside = slice(self._ends[i], self._ends[i + 1])
        return Row(np.array(self._ids[inside]), np.array(self._segments[inside]))

    def padded(self, numbers: NDArray[np.integer[Any]], segmented: bool) -> Padded:
        """Some rows, padded on the right: (b, t), or (b, t, 2) with their segments."""
        return rows_padded([self.row(i) for i in numbers], segmented)


def rows_padded(rows: Sequence[Row], segmented: bool) -> Padded:
    """Rows padded on the right: (b, t), or (b, t, 2) with their segments."""
    segments = [row.segments for row in rows] if segmented else None
    return to_padded([row.ids for row in rows], segments)


def leave_out_tokens(tokens: Padded, share: float) -> Padded:
    """Drop tokens of rows at random, each with probability `share`.

    tokens: (b, t), or (b, t, 2) with segments.  BOS and EOS stay.  The random numbers are torch's.
    """
    values = tokens.values
    ids = values if values.dim() == 2 else values[..., 0]
    retained = (ids == BOS) | (ids == EOS) | (torch.rand(ids.shape, device=ids.device) >= share)
    retained &= tokens.real
    width = int(retained.sum(1).max())
    order = retained.logical_not().byte().argsort(dim=1, stable=True)[:, :width]
    rows = torch.arange(len(order), device=order.device)[:, None]
    real = retained[rows, order]
    return Padded(values[rows, order], real, "none" if bool(real.all()) else "right")


@torch.inference_mode()
def encode_batches(
    model: nn.Module, rows: Sequence[Row], batch_tokens: int, segmented: bool = False
) -> list[Tensor]:
    """Model output of each row, in order, on the CPU.

    model: maps `Padded` ids to a tensor (b, ...); batches have rows of similar length, so outputs
    by position are as wide as the longest row. batch_tokens: positions in a batch. segmented: the
    model uses segments.
    """
    model.eval()
    device = next(model.parameters()).device
    lengths = [len(row.ids) for row in rows]
    order = sorted(range(len(rows)), key=lengths.__getitem__, reverse=True)
    results: list[Tensor] = [torch.empty(0)] * len(rows)
    for chosen in in_batches(order, lengths, batch_tokens):
        segments = [rows[i].segments for i in chosen] if segmented else None
        outputs = model(to_padded([rows[i].ids for i in chosen], segments, device)).cpu()
        for i, output in zip(chosen, outputs, strict=True):
            results[i] = output
    return results


def tokenizer_for(
    config: Any,
    fine_tune: FineTuneConfig | None,
    run: Path,
    texts: Iterable[str],
    name: str = "tokenizer",
    name_in_base: str = "",
) -> Tokenizer:
    """Tokenizer of a run before training, saved in its directory under `name`.

    config: section `text` of a recipe, with a `TokenizerConfig` as `name`.  Taken from the
    directory, else from the base run, else learnt from `texts`, which are read only then.
    name_in_base: its name there, by default the same.  Raises RunError if a required tokenizer is
    missing.
    """
    saved = saved_tokenizer(run, name)
    if saved is not None:
        return saved
    if checkpoints_of(run):  # their weights are of that very tokenizer
        raise missing_tokenizers(run)
    section: TokenizerConfig = getattr(config, name)
    if fine_tune is not None:
        base, theirs_is = Path(fine_tune.run), name_in_base or name
        tokenizer = saved_tokenizer(base, theirs_is)
        if tokenizer is None:
            raise missing_tokenizers(base)
        theirs = base_settings(base).get("text", {}).get(theirs_is)
        if theirs and getattr(parse(type(config), {name: theirs}), name) != section:
            raise SettingError(
                f"text.{name} differs from {base}, but its weights need the same tokenizer; "
                "remove it"
            )
        with ProgressCounter("checking texts for unknown characters") as count:
            tell_of_training_texts(tokenizer, count.each(texts))
    else:
        with ProgressCounter("reading texts for the vocabulary") as count:
            counted = count.each(texts, "learning the vocabulary")
            tokenizer = train_tokenizer(section, counted)
    tokenizer.save(run / f"{name}{tokenizer.suffix}")
    return tokenizer


def tokenizer_of(run: Path, name: str = "tokenizer") -> Tokenizer:
    """Tokenizer of a trained run.  Raises RunError if there is none."""
    saved = saved_tokenizer(run, name)
    if saved is None:
        raise missing_tokenizers(run)
    return saved
