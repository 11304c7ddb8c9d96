"""Where a token stands: five ways to tell a stack of attention, which by itself cannot know.

Each is a `Positions` with three hooks, of which it uses one (or none):

    embed    adds something to the vectors at the bottom of the stack    sinusoidal (two
                                                                         layouts), learned
    rotate   turns queries and keys before each self-attention           rotary
    bias     adds something to the scores of each self-attention         ALiBi

Positions count from 0 at the first real token of a row.
"""

from __future__ import annotations

import functools
import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transduce.errors import DataError

PositionKind = Literal["sinusoidal", "sinusoidal-halves", "learned", "rotary", "alibi", "none"]


def position_ids(real: Tensor, padding: str, packed: Tensor | None = None) -> Tensor:
    """Positions of each column, (s,), or of each place, (b, s), where rows differ.

    packed: as in `Padded`; each sequence of a row counts from 0.
    """
    if packed is not None:
        columns = torch.arange(real.shape[1], device=real.device)
        begins = torch.ones_like(packed, dtype=torch.bool)
        begins[:, 1:] = packed[:, 1:] != packed[:, :-1]
        return columns - torch.where(begins, columns, 0).cummax(1).values
    if padding != "any":
        return torch.arange(real.shape[1], device=real.device)
    return (real.cumsum(1) - 1).clamp(min=0)


class Positions(nn.Module):
    """No positions at all, and the base of every other kind."""

    def embed(self, x: Tensor, at: Tensor) -> Tensor:
        """x (b, t, m) at positions (t,) or (b, t) -> (b, t, m)."""
        return x

    def rotate(self, x: Tensor, at: Tensor) -> Tensor:
        """Queries or keys x (b, h, t, d) at positions (t,) or (b, t) -> (b, h, t, d)."""
        return x

    def bias(self, queries: Tensor, keys: Tensor) -> Tensor | None:
        """Score bias (h, t, s) or (b, h, t, s) for queries and keys at these positions."""
        return None


@functools.lru_cache(maxsize=8)
def _sinusoids(
    length: int, d_model: int, halves: bool, dtype: torch.dtype, device: torch.device
) -> Tensor:
    position = torch.arange(length, dtype=torch.float64)[:, None]
    i = torch.arange(0, d_model, 2, dtype=torch.float64)
    angle = position / 10000 ** (i / d_model)  # (length, m / 2)
    if halves:
        table = torch.cat([angle.sin(), angle.cos()[:, : d_model // 2]], 1)
    else:
        table = torch.stack([angle.sin(), angle.cos()], -1).flatten(1)[:, :d_model]
    return table.to(device, dtype)


class SinusoidalPositions(Positions):
    """PE(pos, 2i) = sin(pos / 10000^(2i/m)), PE(pos, 2i+1) = cos of the same (section 3.5).

    They need no training and reach any length.  `halves`: all sines first, then all cosines, as
    tensor2tensor, fairseq and Marian lay them out; the dimensions are the same, in another order.
    """

    def __init__(self, halves: bool = False) -> None:
        super().__init__()
        self.halves = halves

    def embed(self, x: Tensor, at: Tensor) -> Tensor:
        """Adds the sinusoids to x."""
        longest = int(at.max()) + 1 if at.numel() else 1
        room = 1 << max(longest - 1, 63).bit_length()  # few table sizes, so that few are made
        table = _sinusoids(room, x.shape[-1], self.halves, x.dtype, x.device)
        return x + F.embedding(at, table)


class LearnedPositions(Positions):
    """One trained vector per position, up to `max_positions` (section 3.5, the alternative)."""

    def __init__(self, d_model: int, max_positions: int) -> None:
        super().__init__()
        self.table = nn.Embedding(max_positions, d_model)

    def embed(self, x: Tensor, at: Tensor) -> Tensor:
        """Adds the learned vectors to x.  Raises DataError beyond `max_positions`."""
        room = self.table.num_embeddings
        if at.numel() and int(at.max()) >= room:
            raise DataError(
                f"a sequence has more than {room} tokens, the most that this model's learned "
                "positions allow; shorten it or train with a larger max_positions"
            )
        return x + self.table(at)  # type: ignore[no-any-return]


class RotaryPositions(Positions):
    """Queries and keys turn by an angle proportional to their position (Su et al. 2021, RoFormer).

    Dimension i turns together with dimension i + d/2, so that a query and a key see only how
    far they are apart.
    """

    def rotate(self, x: Tensor, at: Tensor) -> Tensor:
        """x (b, h, t, d), turned."""
        half = x.shape[-1] // 2
        # Eight bits of bfloat16 cannot tell angle 1000 from 1003: only cosine and sine may round.
        wide = torch.promote_types(x.dtype, torch.float32)
        rate = 10000 ** (-torch.arange(half, device=x.device, dtype=wide) / half)
        angle = at[..., None] * rate  # (t, d/2) or (b, t, d/2)
        if angle.dim() == 3:
            angle = angle[:, None]  # (b, 1, t, d/2), the same for all heads
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        first, second = x[..., :half], x[..., half:]
        return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


class AlibiPositions(Positions):
    """Scores fall linearly with distance, each head at its own rate (Press et al. 2022, ALiBi).

    Head i of h has slope 2^(-8 i / h), i from 1.  In an encoder distance counts both ways.
    """

    def __init__(self, n_heads: int) -> None:
        super().__init__()
        slopes = [2 ** (-8 * (i + 1) / n_heads) for i in range(n_heads)]
        self.slopes: Tensor
        self.register_buffer("slopes", torch.tensor(slopes), persistent=False)

    def bias(self, queries: Tensor, keys: Tensor) -> Tensor:
        """-slope · |i - j|, (h, t, s) or (b, h, t, s)."""
        distance = (queries[..., :, None] - keys[..., None, :]).abs()  # (t, s) or (b, t, s)
        return -self.slopes[:, None, None] * distance.unsqueeze(-3)


def build_positions(
    kind: PositionKind, d_model: int, n_heads: int, max_positions: int
) -> Positions:
    """The positions of that kind; `max_positions` bounds learned ones only."""
    match kind:
        case "sinusoidal":
            return SinusoidalPositions()
        case "sinusoidal-halves":
            return SinusoidalPositions(halves=True)
        case "learned":
            return LearnedPositions(d_model, max_positions)
        case "rotary":
            assert math.remainder(d_model // n_heads, 2) == 0
            return RotaryPositions()
        case "alibi":
            return AlibiPositions(n_heads)
        case "none":
            return Positions()
