"""Batches of rows of text for PyTorch, and the tokenizer of a run in training."""

from array import array
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from transduce.errors import SettingError
from transduce.sequence import Padded
from transduce.settings.sections import parse
from transduce.support.work import in_batches
from transduce.tasks.recipe import base_settings
from transduce.tasks.text_inputs import Ids, Row
from transduce.tasks.vocabularies import missing_tokenizers, saved_tokenizer, tell_of_training_texts
from transduce.text import BOS, EOS, PAD, Tokenizer, TokenizerConfig, train_tokenizer
from transduce.training.config import FineTuneConfig
from transduce.training.log import ProgressCounter
from transduce.training.run_files import checkpoints_of


def to_padded(
    rows: Sequence[Ids],
    segments: Sequence[Ids] | None = None,
    device: torch.device | str = "cpu",
) -> Padded:
    """Rows of ids padded on the right, (b, t); with segments (b, t, 2), ids before segments.

    rows: ids of each row.  device: of the result.
    """
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
    results: list[Tensor] = [torch.empty(0)] * len(rows)
    for chosen in in_batches(range(len(rows)), lengths, batch_tokens):
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
