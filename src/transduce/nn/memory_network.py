"""End-to-end memory network (Sukhbaatar et al. 2015): hops of attention over memories of a text.

A memory is a window of tokens (Hill et al. 2016): from each position on, where a text is read, so
that a sentence is a memory without a mark of its boundaries; up to each position, where it is
continued.  A position's window is also its query; a label is read at the first, the question.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transduce.nn.attention import RecordedAttention, attention_with_weights
from transduce.nn.convolution import ConvolutionState, behind_past, zero_at_padding
from transduce.nn.masks import Mask, key_mask
from transduce.nn.positions import padded_right, restore_places
from transduce.nn.residual import Dropout
from transduce.nn.stack_configs import MemoryConfig
from transduce.sequence import Padded


class MemoryWindow(nn.Module):
    """Weighted sum of the tokens of a window, with a matrix: an embedding of a memory.
    The weights begin as the position encoding of the paper, section 4.1, and are trained."""

    def __init__(self, d_model: int, width: int) -> None:
        super().__init__()
        j = torch.arange(1, width + 1)[None] / width  # of tokens
        k = torch.arange(1, d_model + 1)[:, None] / d_model  # of dimensions
        self.weight = nn.Parameter(1 - j - k * (1 - 2 * j))  # (m, width)
        self.output = nn.Linear(d_model, d_model, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Windows of (b, t + width - 1, m), zero at padding -> (b, t, m)."""
        d_model, width = self.weight.shape
        sums = F.conv1d(x.transpose(1, 2), self.weight[:, None], groups=d_model).transpose(1, 2)
        return self.output(sums / math.sqrt(width))  # type: ignore[no-any-return]


class MemoryHop(RecordedAttention):
    """A hop: attention of each query over all memories."""

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Mask) -> Tensor:
        """(b, t, m) over (b, s, m) -> (b, t, m).

        query: (b, t, m).  key, value: (b, s, m).  mask: keys to hide.
        """
        answer, weights = attention_with_weights(query[:, None], key[:, None], value[:, None], mask)
        self.record(weights)
        return answer[:, 0]


class _MemoryStack(nn.Module):
    """u ← norm(H u + o), o = Σ softmax(u · m) c, for each hop; m and c are two embeddings of each
    memory, and of its age."""

    def __init__(self, config: MemoryConfig, d_model: int, hop: type[RecordedAttention]) -> None:
        super().__init__()
        self.dropout = Dropout(config.dropout)
        self.query, self.key, self.value = (MemoryWindow(d_model, config.window) for _ in range(3))
        self.key_age, self.value_age = (nn.Embedding(config.max_age, d_model) for _ in range(2))
        self.between = nn.Linear(d_model, d_model)
        self.norm = nn.LayerNorm(d_model)
        self.layers = nn.ModuleList(hop() for _ in range(config.hops))
        self.further = config.window - 1


class MemoryEncoder(_MemoryStack):
    """Answers to every position; age is the distance from the end of the text."""

    def __init__(self, config: MemoryConfig, d_model: int) -> None:
        super().__init__(config, d_model, MemoryHop)

    def forward(self, source: Padded) -> Padded:
        """Vectors (b, t, m) -> answers (b, t, m)."""
        assert source.packed is None, "a story stands in a row of its own"
        rows, places = padded_right(source)
        x = F.pad(zero_at_padding(self.dropout(rows.values), rows), (0, 0, 0, self.further))
        query, key, value = (
            restore_places(window(x), places) for window in (self.query, self.key, self.value)
        )
        age = source.real.flip(1).cumsum(1).flip(1) - 1  # real positions behind each
        age = age.clamp(0, self.key_age.num_embeddings - 1)
        key, value = key + self.key_age(age), value + self.value_age(age)
        mask = key_mask(source)
        for hop in self.layers:
            query = self.norm(self.between(query) + hop(query, key, value, mask))
        return source.with_values(query)


class RecentHop(RecordedAttention):
    """A hop over the latest memories, each with the vectors of its age."""

    def forward(
        self,
        query: Tensor,
        memory: tuple[Tensor, Tensor],
        ages: tuple[Tensor, Tensor],
        known: Tensor,
        places: Tensor | None,
    ) -> Tensor:
        """(r, t, m) over keys and values (r, span + t, m), by the vectors (span + 1, m) of ages 0
        to span; known (r, t, span + 1): ages of memories that exist; places: see `padded_right`.

        query: (r, t, m).  memory: keys and values, each (r, span + t, m).
        """
        t, s = query.shape[1], memory[0].shape[1]
        at = torch.arange(t, device=query.device)[:, None] + s - t  # of the queries among keys
        at = (at - torch.arange(known.shape[2], device=query.device)).expand(len(query), -1, -1)
        scores = (query @ memory[0].transpose(1, 2)).gather(2, at) + query @ ages[0].T
        scores = scores / math.sqrt(query.shape[2])
        by_age = scores.masked_fill(~known, float("-inf")).softmax(2)
        weights = by_age.new_zeros(len(query), t, s).scatter(2, at, by_age)
        if self.weights is not None:
            self.record(as_laid(weights[..., s - t :], places)[:, None])
        return weights @ memory[1] + by_age @ ages[1]


def as_laid(weights: Tensor, places: Tensor | None) -> Tensor:
    """Weights (r, t, t) between positions that `padded_right` moved, where they stood before."""
    if places is None:
        return weights
    t = weights.shape[2]
    column, row = places % t, places // t
    laid = restore_places(weights, places).gather(2, column[:, None].expand(-1, row.shape[1], -1))
    return laid.masked_fill(row[:, :, None] != row[:, None], 0.0)


class MemoryDecoder(_MemoryStack):
    """Language model over the latest `max_age` memories; age is the distance from the query."""

    def __init__(self, config: MemoryConfig, d_model: int, cross_attention: bool = False) -> None:
        assert not cross_attention, "its memories are its own past"
        super().__init__(config, d_model, RecentHop)

    def start(self, memory: Padded | None = None) -> ConvolutionState:
        """A fresh state: no past."""
        return ConvolutionState(1, memory)

    def forward(self, target: Padded, state: ConvolutionState) -> Padded:
        """Vectors (r, t, m) after the positions in `state` -> (r, t, m); `state` advances by t."""
        if not target.real.shape[1]:
            return target
        rows, places = padded_right(target.with_values(self.dropout(target.values)))
        at = state.extend(rows)
        span = self.key_age.num_embeddings - 1
        x, state.pasts[0] = behind_past(rows, state.pasts[0], span + self.further)
        query, memory = self.query(x[:, span:]), (self.key(x), self.value(x))
        known = torch.arange(span + 1, device=at.device) <= at[:, :, None]
        ages = self.key_age.weight, self.value_age.weight
        for hop in self.layers:
            query = self.norm(self.between(query) + hop(query, memory, ages, known, places))
        return target.with_values(restore_places(query, places))
