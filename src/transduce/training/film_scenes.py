"""Scenes of the film of learning, from held-out data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from transduce.models.encoder_decoder import EncoderDecoder
from transduce.models.encoder_only import EncoderOnly
from transduce.sequence import Padded
from transduce.text import PAD
from transduce.training.film import Scene

SCENES = 3
"""Inputs in a film."""
LENGTH = 10
"""Tokens of a sequence that these are nearest to."""
MAX_LENGTH = 32
"""Maximum tokens of a sequence in a film; the rest is left out."""

Names = Callable[[Sequence[int]], list[str]]


def nearest(*lengths: NDArray[np.integer[Any]]) -> list[int]:
    """Numbers of the items whose sequences have about `LENGTH` tokens, in the order of the data.

    lengths: (n,) of each sequence of an item.
    """
    apart = np.sum([np.abs(sizes.astype(np.int64) - LENGTH) for sizes in lengths], 0)
    return sorted(np.argsort(apart, kind="stable")[:SCENES].tolist())


def pair_scene(
    model: EncoderDecoder, source: Padded, target: Padded, names: tuple[Names, Names], text: str
) -> Scene:
    """A source and its reference, which the decoder reads.

    source: (1, s) with its end.  target: (1, t) between BOS and EOS.  names: of source and target.
    """
    device = next(model.parameters()).device
    ids, written = source.values[0, :MAX_LENGTH].tolist(), target.values[0].tolist()
    written = written[: MAX_LENGTH + 1]
    rows = [Padded.from_rows([sequence], PAD).to(device) for sequence in (ids, written[:-1])]
    tokens = {
        "source": names[0](ids),
        "read": names[1](written[:-1]),
        "written": names[1](written[1:]),
    }
    sequences = {
        "encoder": ("source", "source"),
        "decoder": ("read", "read"),
        "cross": ("written", "source"),
    }
    return Scene(text, tokens, sequences, lambda: model(*rows))


def encoder_scene(model: EncoderOnly, row: Padded, names: Names) -> Scene:
    """A row (1, t) of ids, or (1, t, 2) with segments, that an encoder reads."""
    cut = Padded.unpadded(row.values[:, :MAX_LENGTH]).to(next(model.parameters()).device)
    ids = cut.values[0] if cut.values.dim() == 2 else cut.values[0, :, 0]
    tokens = names(ids.tolist())
    sequences = {"encoder": ("text", "text")}
    return Scene(joined(tokens[1:-1]), {"text": tokens}, sequences, lambda: model.encode(cut))


def decoder_scene(model: nn.Module, ids: Sequence[int], names: Names) -> Scene:
    """Input ids of a decoder-only model."""
    row = Padded.from_rows([list(ids[:MAX_LENGTH])], PAD).to(next(model.parameters()).device)
    tokens = names(row.values[0].tolist())
    sequences = {"decoder": ("read", "read")}
    return Scene(joined(tokens[1:]), {"read": tokens}, sequences, lambda: model(row))


def joined(tokens: Sequence[str]) -> str:
    """Tokens as a line to choose a scene by."""
    spaced = any("▁" in token for token in tokens)
    line = "".join(tokens).replace("▁", " ") if spaced else " ".join(tokens)
    return line.strip()
