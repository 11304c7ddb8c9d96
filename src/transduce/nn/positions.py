"""Positions, from 0 at the first real token of a row, and padding removed or moved to the right.

Each kind is a `Positions` and uses at most a hook of three: `embed` adds vectors at the bottom of
the stack (sinusoidal in three layouts, learned), `angles` turns queries and keys (rotary), `bias`
changes the scores of self-attention (ALiBi, relative).
"""

from __future__ import annotations

import functools
import math
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transduce.nn.stack_configs import PositionKind, beyond_positions
from transduce.sequence import Padded


def position_ids(real: Tensor, padding: str, packed: Tensor | None = None) -> Tensor:
    """Positions of columns, (s,), or of places, (b, s), where rows differ; packed from 0 each.

    real: (b, s), False for padding.  padding: "none", "right" or "any", as in `Padded`.
    """
    if packed is not None:
        columns = torch.arange(real.shape[1], device=real.device)
        return columns - torch.where(sequence_begins(packed), columns, 0).cummax(1).values
    if padding != "any":
        return torch.arange(real.shape[1], device=real.device)
    return (real.cumsum(1) - 1).clamp(min=0)


def positions_after(before: Tensor, real: Tensor) -> Tensor:
    """Positions (r, t) of columns that follow `before` (r,) real ones."""
    return (before[:, None] + real.cumsum(1) - 1).clamp(min=0)


def sequence_begins(packed: Tensor) -> Tensor:
    """(b, s) bool: True at the first position of each sequence of a row (see `Padded`)."""
    begins = torch.ones_like(packed, dtype=torch.bool)
    begins[:, 1:] = packed[:, 1:] != packed[:, :-1]
    return begins


class RotaryAngles(NamedTuple):
    """Angles of each pair of dimensions i and i + d/2."""

    cos: Tensor  # (t, d) or (b, 1, t, d), each half of it the same
    sin: Tensor  # (t, d/2) or (b, 1, t, d/2)


class _Rotation(torch.autograd.Function):
    """Custom gradient of the rotation: with plain operations, the backward pass would be slow."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        half = sin.shape[-1]
        turned = x * cos
        turned[..., :half].addcmul_(x[..., half:], sin, value=-1)
        turned[..., half:].addcmul_(x[..., :half], sin)
        return turned

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        cos, sin = ctx.saved_tensors
        return rotate(gradient, RotaryAngles(cos, -sin)), None, None  # the other way round


def rotate(x: Tensor, angles: RotaryAngles) -> Tensor:
    """Queries or keys x (b, h, t, d), turned."""
    # Eight bits of bfloat16 cannot tell angle 1000 from 1003: only the result may round.
    turned = _Rotation.apply(x.to(angles.cos.dtype), *angles)  # type: ignore[no-untyped-call]
    return turned.to(x.dtype)  # type: ignore[no-any-return]


class Positions(nn.Module):
    """No position encoding, and the base class of all kinds."""

    def embed(self, x: Tensor, at: Tensor, bound: int | None = None) -> Tensor:
        """x (b, t, m) at positions (t,) or (b, t), below `bound` if known, -> (b, t, m)."""
        return x

    def angles(self, at: Tensor, dtype: torch.dtype) -> RotaryAngles | None:
        """Rotary angles of queries and keys at positions (t,) or (b, t); None for no rotation."""
        return None

    def bias(self, queries: Tensor, keys: Tensor) -> Tensor | None:
        """Score bias (h, t, s) or (b, h, t, s) for queries and keys at these positions."""
        return None


Sinusoids = Literal["sinusoidal", "sinusoidal-halves", "sinusoidal-marian"]


@functools.cache  # a CUDA graph reads its table by address, so that none may be freed
def _sinusoids(
    length: int, d_model: int, layout: Sinusoids, dtype: torch.dtype, device: torch.device
) -> Tensor:
    # On a GPU at once: a copy from the CPU could not be part of a recorded or compiled step.
    made_on = device if device.type == "cuda" else torch.device("cpu")
    position = torch.arange(length, dtype=torch.float64, device=made_on)[:, None]
    i = torch.arange(0, d_model, 2, dtype=torch.float64, device=made_on)
    # Marian's slowest rate is 1/10000; the paper's is a step faster.
    steps = max(d_model - 2, 1) if layout == "sinusoidal-marian" else d_model
    angle = position / 10000 ** (i / steps)  # (length, m / 2)
    if layout != "sinusoidal":
        table = torch.cat([angle.sin(), angle.cos()[:, : d_model // 2]], 1)
    else:
        table = torch.stack([angle.sin(), angle.cos()], -1).flatten(1)[:, :d_model]
    return table.to(device, dtype)


def _longest(at: Tensor) -> int:
    return int(at.max()) + 1 if at.numel() else 1


class SinusoidalPositions(Positions):
    """PE(pos, 2i) = sin(pos / 10000^(2i/m)), PE(pos, 2i+1) = cos of the same (section 3.5).
    The other layouts have all sines, then all cosines; Marian's, tensor2tensor's too, with pos /
    10000^(2i/(m - 2))."""

    def __init__(self, layout: Sinusoids = "sinusoidal") -> None:
        super().__init__()
        self.layout = layout

    def embed(self, x: Tensor, at: Tensor, bound: int | None = None) -> Tensor:
        """Adds the sinusoids to x.

        at: positions (b, t) or (t,).  bound: number that all positions are below; by default it is
        read from `at`.
        """
        bound = _longest(at) if bound is None else bound
        room = 1 << max(bound - 1, 63).bit_length()  # few table sizes, so that few are made
        table = _sinusoids(room, x.shape[-1], self.layout, x.dtype, x.device)
        return x + F.embedding(at, table)


class LearnedPositions(Positions):
    """A trained vector per position, up to `max_positions` (section 3.5, the alternative)."""

    def __init__(self, d_model: int, max_positions: int) -> None:
        super().__init__()
        self.table = nn.Embedding(max_positions, d_model)

    def embed(self, x: Tensor, at: Tensor, bound: int | None = None) -> Tensor:
        """Adds the learned vectors to x.  Raises DataError beyond `max_positions`.

        at: positions (b, t) or (t,).  bound: number that all positions are below; by default it is
        read from `at`.
        """
        room = self.table.num_embeddings
        if (bound is None or bound > room) and _longest(at) > room:
            raise beyond_positions(room)
        return x + self.table(at)  # type: ignore[no-any-return]


class RotaryPositions(Positions):
    """Queries and keys turn by an angle proportional to their position (Su et al. 2021, RoFormer),
    dimension i with dimension i + d/2, so that their product depends on the distance alone."""

    def __init__(self, d_head: int) -> None:
        super().__init__()
        self.d_head = d_head

    def angles(self, at: Tensor, dtype: torch.dtype) -> RotaryAngles:
        """Position times 10000^(-2i/d) for the pair i."""
        wide = torch.promote_types(dtype, torch.float32)
        even = torch.arange(0, self.d_head, 2, device=at.device, dtype=wide)
        rate = 10000 ** (-even / self.d_head)
        angle = at[..., None] * rate  # (t, d/2) or (b, t, d/2)
        if angle.dim() == 3:
            angle = angle[:, None]  # the same for all heads
        cos = angle.cos()
        return RotaryAngles(torch.cat([cos, cos], -1), angle.sin())


class AlibiPositions(Positions):
    """Scores fall linearly with distance, in head i of h at rate 2^(-8 i / h), i from 1 (Press et
    al. 2022, ALiBi).  In an encoder distance counts both ways."""

    def __init__(self, n_heads: int) -> None:
        super().__init__()
        slopes = [2 ** (-8 * (i + 1) / n_heads) for i in range(n_heads)]
        self.slopes: Tensor
        self.register_buffer("slopes", torch.tensor(slopes), persistent=False)

    def bias(self, queries: Tensor, keys: Tensor) -> Tensor:
        """-slope · |i - j|, (h, t, s) or (b, h, t, s)."""
        distance = (queries[..., :, None] - keys[..., None, :]).abs()  # (t, s) or (b, t, s)
        return -self.slopes[:, None, None] * distance.unsqueeze(-3)


class Distances(NamedTuple):
    """Classes of distances: their number, where the last begins, True if keys are never later."""

    buckets: int = 32
    longest: int = 128
    causal: bool = False


EVERY_DISTANCE = Distances()


class RelativePositions(Positions):
    """A trained bias of each head for each class of distances, the same in all layers (Raffel et
    al. 2020, T5): half of the classes are single distances, the others grow with the distance.
    Earlier and later keys share the classes out, unless it is `causal`."""

    def __init__(self, n_heads: int, distances: Distances) -> None:
        super().__init__()
        self.distances = distances
        self.table = nn.Embedding(distances.buckets, n_heads)

    def bias(self, queries: Tensor, keys: Tensor) -> Tensor:
        """(h, t, s) or (b, h, t, s)."""
        ahead = keys[..., None, :] - queries[..., :, None]  # (t, s) or (b, t, s)
        return self.table(self._classes(ahead)).movedim(-1, -3)  # type: ignore[no-any-return]

    def _classes(self, ahead: Tensor) -> Tensor:
        n, longest, causal = self.distances
        distance = (-ahead).clamp(min=0) if causal else ahead.abs()
        side = n if causal else n // 2
        single = side // 2
        steps = torch.log(distance.clamp(min=1) / single) / math.log(longest / single)
        grown = single + (steps * (side - single)).long()
        classes = torch.where(distance < single, distance, grown.clamp(max=side - 1))
        return classes if causal else classes + (ahead > 0) * side


def build_positions(
    kind: PositionKind,
    d_model: int,
    n_heads: int,
    d_head: int,
    max_positions: int,
    distances: Distances = EVERY_DISTANCE,
) -> Positions:
    """The positions of that kind; `max_positions` bounds learned ones only, `distances` are of
    relative ones.

    d_model: width of learned vectors.  n_heads, d_head: of attention, for positions that depend on
    heads.
    """
    match kind:
        case "sinusoidal" | "sinusoidal-halves" | "sinusoidal-marian":
            return SinusoidalPositions(kind)
        case "learned":
            return LearnedPositions(d_model, max_positions)
        case "rotary":
            return RotaryPositions(d_head)
        case "alibi":
            return AlibiPositions(n_heads)
        case "relative":
            return RelativePositions(n_heads, distances)
        case "none":
            return Positions()


class Unpadding:
    """Removes padding for position-wise layers, and restores it for attention.

    Batches without padding are unchanged, unless autocast needs another number of rows, and so are
    packed rows with borders, and all on devices where finding the padding would make the CPU wait.
    """

    def __init__(self, batch: Padded | None = None) -> None:
        """The identity, without a batch."""
        self._places: _Places | None = None
        if (
            batch is not None
            and not torch.compiler.is_compiling()  # first: the compiler cannot trace the others
            and batch.real.device.type == "cpu"
            and batch.borders is None
            and (batch.padding != "none" or torch.is_autocast_enabled("cpu"))
        ):
            places = _Places(batch.real)
            if len(places.of_rows) != batch.real.numel():
                self._places = places

    def unpad(self, x: Tensor) -> Tensor:
        """(b, t, …) -> (n, …), n real positions; or x unchanged."""
        if self._places is None:
            return x
        at = self._places
        return _Gather.apply(x.flatten(0, 1), at.of_rows, at.rows, at.padding)  # type: ignore[no-any-return, no-untyped-call]

    def pad(self, x: Tensor) -> Tensor:
        """(n, …) -> (b, t, …), with any finite values at padding; or x unchanged."""
        if self._places is None:
            return x
        at = self._places
        # What stands at padding is not looked at, so no gradient comes from there.
        spread = _Gather.apply(x, at.rows, at.of_rows, at.repeated)  # type: ignore[no-untyped-call]
        return spread.view(*at.shape, *x.shape[1:])  # type: ignore[no-any-return]


NO_PADDING = Unpadding()


class _Places:
    """Index of rows and of places: gathering is fast both ways, unlike scattering."""

    def __init__(self, real: Tensor) -> None:
        self.shape = real.shape
        flat = real.flatten()
        self.of_rows = flat.nonzero()[:, 0]  # (n,) places, perhaps with more behind them
        self.repeated = flat.new_empty(0, dtype=torch.long)
        self.padding = flat.logical_not().nonzero()[:, 0]
        self.rows = (flat.cumsum(0) - 1).clamp_(min=0)  # (b·t,) the row of each place
        if torch.is_autocast_enabled("cpu"):
            # Narrow products are compiled, and kept, for each number of rows that is new, which
            # takes longer than they do: so that few are, a row is repeated that nobody looks at.
            n = len(self.of_rows)
            self.of_rows = F.pad(self.of_rows, (0, -n % row_step(n)))
            self.repeated = torch.arange(n, len(self.of_rows))


def row_step(n: int) -> int:
    """Multiple to which n rows are rounded up: sixteen sizes between n and 2n."""
    return 1 << max(5, n.bit_length() - 5)


class _Gather(torch.autograd.Function):
    """Rows `index` of x, with their gradient gathered by `back`, zero at `zeros`."""

    @staticmethod
    def forward(context: Any, x: Tensor, index: Tensor, back: Tensor, zeros: Tensor) -> Tensor:
        context.back, context.zeros = back, zeros
        return x.index_select(0, index)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        gathered = gradients[0].index_select(0, context.back)
        return gathered.index_fill_(0, context.zeros, 0.0), None, None, None


def padded_right(x: Padded) -> tuple[Padded, Tensor | None]:
    """Move real positions of rows to the front, in order, and packed sequences to their own rows.
    Also returns the place (b, t) of each position among all places of the new rows, for
    `restore_places`; None if none moved."""
    if x.packed is not None:
        return _own_rows(x, x.packed)
    if x.padding != "any":
        return x, None
    b, t, m = x.values.shape
    order = x.real.logical_not().to(torch.uint8).argsort(dim=1, stable=True)
    values = x.values.gather(1, order[:, :, None].expand(-1, -1, m))
    moved = Padded(values, x.real.gather(1, order), "right")
    return moved, order.argsort(dim=1) + t * torch.arange(b, device=order.device)[:, None]


def restore_places(values: Tensor, places: Tensor | None) -> Tensor:
    """Move vectors (b', t', m) of positions moved by `padded_right` back to (b, t, m)."""
    if places is None:
        return values
    return values.flatten(0, 1).index_select(0, places.flatten()).view(*places.shape, -1)


def _own_rows(x: Padded, packed: Tensor) -> tuple[Padded, Tensor]:
    real = x.real.flatten()
    row = (sequence_begins(packed) & x.real).flatten().cumsum(0) - 1
    column = position_ids(x.real, x.padding, packed).flatten()
    lengths = row[real].bincount()
    width = int(lengths.max())
    places = torch.where(real, row * width + column, 0)
    values = x.values.new_zeros(len(lengths) * width, x.values.shape[2])
    values = values.index_copy(0, places[real], x.values.flatten(0, 1)[real])
    apart = torch.arange(width, device=real.device) < lengths[:, None]
    rows = Padded(values.view(len(lengths), width, -1), apart, "right")
    return rows, places.view(x.real.shape)
