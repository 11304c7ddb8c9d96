"""Contexts of a recurrent decoder: a vector for the source, or attention by a scoring function.

    fixed      a vector for the whole source    Sutskever et al. 2014, Cho et al. 2014
    dot        attention by the score h · z                          Luong et al. 2015
    general    attention by the score h · W z                        Luong et al. 2015
    additive   attention by the score v · tanh(W_h h + W_z z)        Bahdanau et al. 2015

h is a vector of the memory, z of the decoder.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from transduce.nn.attention import RecordedAttention
from transduce.nn.masks import Mask
from transduce.nn.stack_configs import AdditiveContext, DotContext, GeneralContext, Summary
from transduce.nn.state import KeyValue
from transduce.nn.unpadding import padded_right
from transduce.sequence import Padded


class DotScore(nn.Module):
    """h · z."""

    def keys(self, memory: Tensor) -> Tensor:
        """Keys computed once from the memory (…, s, m): (…, s, key width)."""
        return memory

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        """Scores (…, q, s) of the memory's keys for queries z (…, q, m)."""
        return query @ keys.transpose(-2, -1)


class GeneralScore(DotScore):
    """h · W z: the keys are h W."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.key = nn.Linear(d_model, d_model, bias=False)

    def keys(self, memory: Tensor) -> Tensor:
        """(…, s, m) -> (…, s, m)."""
        return self.key(memory)  # type: ignore[no-any-return]


class AdditiveScore(nn.Module):
    """v · tanh(W_h h + W_z z): costs a vector of `width` for each pair of positions."""

    def __init__(self, d_model: int, width: int) -> None:
        super().__init__()
        self.key = nn.Linear(d_model, width, bias=False)
        self.query = nn.Linear(d_model, width, bias=False)
        self.score = nn.Linear(width, 1, bias=False)

    def keys(self, memory: Tensor) -> Tensor:
        """(…, s, m) -> (…, s, width)."""
        return self.key(memory)  # type: ignore[no-any-return]

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        """(…, q, m) and (…, s, width) -> (…, q, s)."""
        pairs = self.query(query)[..., :, None, :] + keys[..., None, :, :]  # (…, q, s, width)
        return self.score(pairs.tanh_())[..., 0]  # type: ignore[no-any-return]


Score = DotScore | AdditiveScore


class ContextAttention(RecordedAttention):
    """Mean of the memory's vectors, weighted by the softmax of their scores, as a single head."""

    def __init__(self, score: Score) -> None:
        super().__init__()
        self.score = score

    def project(self, memory: Tensor) -> KeyValue:
        """Keys and values of the memory (n, s, m), to be made once per sentence."""
        return KeyValue(self.score.keys(memory)[:, None], memory[:, None])

    def forward(self, query: Tensor, memory: KeyValue, mask: Mask) -> Tensor:
        """Queries (n·k, t, m) over a memory of n rows -> contexts (n·k, t, m)."""
        context, weights = self.attend(query, memory, mask)
        self.record(weights)
        return context

    def attend(self, query: Tensor, memory: KeyValue, mask: Mask) -> tuple[Tensor, Tensor]:
        """Contexts as of `forward`, and the weights (n, 1, k·t, s), not recorded.  Row i attends to
        memory row i // k; its k hypotheses become k·t queries of a row."""
        rows, t, m = query.shape
        n = memory.key.shape[0]
        folded = query.reshape(n, 1, rows // n * t, m)
        scores: Tensor = self.score(folded, memory.key)  # (n, 1, k·t, s)
        if mask.allowed is not None:
            scores = scores.masked_fill(~mask.allowed, float("-inf"))
        weights = scores.softmax(-1)
        if mask.allowed is not None:  # over a source of nothing softmax is not a number
            weights = weights.masked_fill(~mask.allowed, 0.0)
        return (weights @ memory.value).view(rows, t, m), weights

    def record_steps(self, weights: Sequence[Tensor]) -> None:
        """Record the weights (n, 1, k, s) of t single steps, as a call of `forward` would."""
        self.record(torch.stack(list(weights), 3).flatten(2, 3))


def build_score(config: DotContext | GeneralContext | AdditiveContext, d_model: int) -> Score:
    """The scoring function of that kind."""
    match config:
        case DotContext():
            return DotScore()
        case GeneralContext():
            return GeneralScore(d_model)
        case AdditiveContext():
            return AdditiveScore(d_model, config.width or d_model)


def summarise(memory: Padded, kind: Summary) -> Tensor:
    """The source as a vector (n, m); zero if a row has no real position."""
    if kind == "mean":
        total = memory.values.masked_fill(~memory.real[:, :, None], 0.0).sum(1)
        return total / memory.lengths.clamp(min=1)[:, None]
    rows, _ = padded_right(memory)
    lengths, values = rows.lengths, rows.values
    summary = values[torch.arange(len(values), device=values.device), (lengths - 1).clamp(min=0)]
    if kind == "both-ends":
        half = values.shape[2] // 2
        summary = torch.cat([summary[:, :half], values[:, 0, half:]], 1)
    return summary.masked_fill((lengths == 0)[:, None], 0.0)
