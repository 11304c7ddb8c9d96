"""End-to-end memory network (Sukhbaatar et al. 2015): hops of attention over memories of a text.

A memory is a window of tokens (Hill et al. 2016), here from each position on, so that a sentence is
a memory without a mark of its boundaries.  A position's window is also its query; a label is read
at the first position, the question.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transduce.nn.attention import RecordedAttention, attention_with_weights
from transduce.nn.convolution import zero_at_padding
from transduce.nn.dropout import Dropout
from transduce.nn.masks import Mask, key_mask
from transduce.nn.stack_configs import MemoryEncoderConfig
from transduce.nn.unpadding import padded_right, restore_places
from transduce.sequence import Padded


class Window(nn.Module):
    """Weighted sum of the tokens from each position on, with a matrix: an embedding of a memory.
    The weights begin as the position encoding of the paper, section 4.1, and are trained."""

    def __init__(self, d_model: int, width: int) -> None:
        super().__init__()
        j = torch.arange(1, width + 1)[None] / width  # of tokens
        k = torch.arange(1, d_model + 1)[:, None] / d_model  # of dimensions
        self.weight = nn.Parameter(1 - j - k * (1 - 2 * j))  # (m, width)
        self.output = nn.Linear(d_model, d_model, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(b, t, m), zero at padding -> (b, t, m)."""
        d_model, width = self.weight.shape
        behind = F.pad(x.transpose(1, 2), (0, width - 1))
        sums = F.conv1d(behind, self.weight[:, None], groups=d_model).transpose(1, 2)
        return self.output(sums / math.sqrt(width))  # type: ignore[no-any-return]


class Hop(RecordedAttention):
    """A hop: attention of each query over all memories."""

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Mask) -> Tensor:
        """(b, t, m) over (b, s, m) -> (b, t, m)."""
        answer, weights = attention_with_weights(query[:, None], key[:, None], value[:, None], mask)
        self.record(weights)
        return answer[:, 0]


class MemoryEncoder(nn.Module):
    """Every position: u ← norm(H u + o), o = Σ softmax(u · m) c, for each hop; m and c are two
    embeddings of each memory, and of its distance from the end of the text."""

    def __init__(self, config: MemoryEncoderConfig, d_model: int) -> None:
        super().__init__()
        self.dropout = Dropout(config.dropout)
        self.query, self.key, self.value = (Window(d_model, config.window) for _ in range(3))
        self.key_age, self.value_age = (nn.Embedding(config.max_age, d_model) for _ in range(2))
        self.between = nn.Linear(d_model, d_model)
        self.norm = nn.LayerNorm(d_model)
        self.layers = nn.ModuleList(Hop() for _ in range(config.hops))

    def forward(self, source: Padded) -> Padded:
        """Vectors (b, t, m) -> answers (b, t, m)."""
        assert source.packed is None, "a story stands in a row of its own"
        rows, places = padded_right(source)
        x = zero_at_padding(self.dropout(rows.values), rows)
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
