"""Heads for a vector or labels of a whole sequence, and for spans of positions in it."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transduce.nn.residual import Dropout
from transduce.nn.stack_configs import PoolerActivation, Pooling
from transduce.sequence import Padded


def pool(x: Padded, how: Pooling) -> Tensor:
    """Vectors (b, m) of the rows of x (b, t, m), or of each of packed sequences: the first, or mean
    or maximum without padding."""
    if x.borders is not None:
        return _pool_packed(x.values.flatten(0, 1), x.borders.starts, how)
    if how == "first":  # padding may stand before it
        at = x.real.int().argmax(1) if x.padding == "any" else torch.zeros_like(x.real[:, 0]).long()
        return x.values[torch.arange(len(at), device=at.device), at]
    real = x.real[..., None]
    if how == "mean":
        summed = x.values.masked_fill(~real, 0.0).sum(1)
        return summed / real.sum(1).clamp(min=1)
    return x.values.masked_fill(~real, torch.finfo(x.values.dtype).min).amax(1)


def _pool_packed(vectors: Tensor, starts: Tensor, how: Pooling) -> Tensor:
    """(n, m) of sequences from `starts` on -> (sequences, m), of an empty one any finite vector."""
    if how == "first":
        return vectors.index_select(0, starts[:-1].clamp(max=len(vectors) - 1))
    wide = vectors.to(torch.promote_types(vectors.dtype, torch.float32))
    pooled = torch.segment_reduce(wide, how, offsets=starts.long(), unsafe=True)
    return pooled.masked_fill((starts.diff() == 0)[:, None], 0.0)


class PoolingHead(nn.Module):
    """Pool, and scale to length 1 if `normalize`: no weights."""

    def __init__(self, pooling: Pooling, normalize: bool) -> None:
        super().__init__()
        self.pooling = pooling
        self.normalize = normalize

    def forward(self, x: Padded) -> Tensor:
        """(b, t, m) -> vectors (b, m)."""
        vectors = pool(x, self.pooling)
        return F.normalize(vectors, dim=-1) if self.normalize else vectors


class LabelHead(nn.Module):
    """Pool, a dense layer and an activation if `hidden`, a linear layer to scores of labels."""

    def __init__(
        self,
        d_model: int,
        n_labels: int,
        pooling: Pooling,
        hidden: bool,
        dropout: float,
        activation: PoolerActivation = "tanh",
    ) -> None:
        super().__init__()
        self.pooling = pooling
        self.hidden = nn.Linear(d_model, d_model) if hidden else None
        self.activation = torch.tanh if activation == "tanh" else torch.relu
        self.dropout = Dropout(dropout)
        self.output = nn.Linear(d_model, n_labels)

    def forward(self, x: Padded) -> Tensor:
        """(b, t, m) -> scores (b, n_labels), to go into a softmax."""
        pooled = pool(x, self.pooling)
        if self.hidden is not None:
            pooled = self.activation(self.hidden(pooled))
        return self.output(self.dropout(pooled))  # type: ignore[no-any-return]


class SpanHead(nn.Module):
    """Scores of each position as the first and as the last of a span (BERT, section 4.2)."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.output = nn.Linear(d_model, 2)

    def forward(self, x: Padded) -> Tensor:
        """(b, t, m) -> (b, t, 2); padding has the lowest score there is."""
        scores = self.output(x.values)
        return scores.masked_fill(~x.real[..., None], torch.finfo(scores.dtype).min)  # type: ignore[no-any-return]
