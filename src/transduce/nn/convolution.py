"""Stacks of convolutions: ConvS2S, text-CNN with max pooling, ByteNet.

Kalchbrenner et al. 2016.  Instead of attention, position t of the target sees the memory at
position t, and behind the end of the source its own past alone (dynamic unfolding).
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transduce.nn.masks import Mask
from transduce.nn.positions import (
    build_positions,
    padded_right,
    position_ids,
    positions_after,
    restore_places,
)
from transduce.nn.recurrent import ContextAttention, DotScore
from transduce.nn.residual import Dropout, pre_norms
from transduce.nn.stack_configs import (
    BytenetConfig,
    ConvolutionDecoderConfig,
    ConvolutionEncoderConfig,
    TextCnnConfig,
    check_widths,
)
from transduce.nn.state import KeyValue, MemoryRows
from transduce.sequence import Padded


class ConvolutionState(MemoryRows):
    """The past of a batch of hypotheses under causal convolutions: the last inputs (r, span, c) of
    each layer, zero before the first position; None before the first step."""

    def __init__(
        self, n_layers: int, memory: Padded | None, memory_layers: Sequence[KeyValue] = ()
    ) -> None:
        super().__init__(memory, list(memory_layers))
        self.pasts: list[Tensor | None] = [None] * n_layers
        self._next: Tensor | None = None  # (r,) position to come

    def extend(self, target: Padded) -> Tensor:
        """Record the positions about to be decoded; returns them, (r, t)."""
        real = target.real
        self._rows = real.shape[0]
        self.length += real.shape[1]
        if target.packed is not None:
            assert self._next is None, "packed rows are read from a fresh state"
            return position_ids(real, target.padding, target.packed)
        before = real.new_zeros(self._rows, dtype=torch.long) if self._next is None else self._next
        self._next = before + real.sum(1)
        return positions_after(before, real)

    def select(self, rows: Tensor) -> None:
        """Select hypotheses `rows` (r',), in order; repeats and omissions allowed."""
        if self._next is not None:
            self._next = self._next.index_select(0, rows)
            self.pasts = [
                past if past is None else past.index_select(0, rows) for past in self.pasts
            ]
        super().select(rows)


class CausalConvolution(nn.Module):
    """Convolution over a position and those before it, dilated: never over later ones."""

    def __init__(self, d_input: int, d_output: int, width: int, dilation: int) -> None:
        super().__init__()
        self.span = (width - 1) * dilation
        self.convolution = nn.Conv1d(d_input, d_output, width, dilation=dilation)

    def forward(self, x: Padded, past: Tensor | None) -> tuple[Tensor, Tensor]:
        """Vectors (r, t, input), and the last real inputs (r, span, input) before them, None at the
        beginning, -> (r, t, output), and the past of the next call."""
        rows, places = padded_right(x)
        whole, after = behind_past(rows, past, self.span)
        outputs = self.convolution(whole.transpose(1, 2)).transpose(1, 2)
        return restore_places(outputs, places), after


def behind_past(rows: Padded, past: Tensor | None, span: int) -> tuple[Tensor, Tensor]:
    """Vectors (r, t, m), padded on the right at most, behind the last `span` before them, zero
    before the first: (r, span + t, m); and the past (r, span, m) of the next call."""
    if past is None:
        past = rows.values.new_zeros(len(rows.values), span, rows.values.shape[2])
    whole = torch.cat([past.to(rows.values.dtype), rows.values], 1)
    if rows.padding == "none":
        return whole, whole[:, whole.shape[1] - span :]
    last = torch.arange(span, device=whole.device) + rows.lengths[:, None]  # (r, span)
    return whole, whole.gather(1, last[:, :, None].expand(-1, -1, whole.shape[2]))


DILATIONS = 5
"""Layers after which the dilation starts at 1 again: 1, 2, 4, 8, 16 in ByteNet."""


class GatedConvolution(nn.Module):
    """GLU(conv(x)): half of the channels gates the other half."""

    def __init__(self, d_model: int, width: int, dilation: int) -> None:
        super().__init__()
        around = (width - 1) // 2 * dilation
        self.convolution = nn.Conv1d(d_model, 2 * d_model, width, padding=around, dilation=dilation)
        initialise_gated(self.convolution)

    def forward(self, x: Tensor, rows: Padded) -> Tensor:
        """(b, t, m), with the padding of `rows`, -> (b, t, m)."""
        return F.glu(self.convolution(zero_at_padding(x, rows).transpose(1, 2)), 1).transpose(1, 2)


def initialise_gated(convolution: nn.Conv1d) -> None:
    """Initialise a convolution under a GLU, which halves the variance (Gehring et al. 2017,
    3.5)."""
    fan_in = convolution.in_channels * convolution.kernel_size[0]
    nn.init.normal_(convolution.weight, std=math.sqrt(4 / fan_in))
    nn.init.zeros_(cast(Tensor, convolution.bias))


class ConvolutionEncoder(nn.Module):
    """Gated convolutions, each inside a pre-norm residual so that a deep stack trains at once.
    Without dilation a position sees n_layers · (width - 1) / 2 others on either side."""

    def __init__(self, config: ConvolutionEncoderConfig, d_model: int) -> None:
        super().__init__()
        self.positions = build_positions(
            config.positions, d_model, 1, d_model, config.max_positions
        )
        self.dropout = Dropout(config.dropout)
        self.layers = nn.ModuleList(
            GatedConvolution(d_model, config.width, dilation)
            for dilation in dilations(config.n_layers, config.dilation_growth)
        )
        self.residuals = pre_norms(config.n_layers, d_model, config.dropout)
        self.norm = nn.LayerNorm(d_model)

    def forward(self, source: Padded) -> Padded:
        """Vectors (b, t, m) -> memory (b, t, m)."""
        rows, places = padded_right(source)
        at = torch.arange(rows.real.shape[1], device=rows.real.device)
        x = self.dropout(self.positions.embed(rows.values, at, len(at)))
        for layer, residual in zip(self.layers, self.residuals, strict=True):
            x = residual(x, layer, rows)
        return source.with_values(restore_places(self.norm(x), places))


class TextCnnEncoder(nn.Module):
    """The ReLU features of windows of every width around each position, with zeros beyond either
    end, so that a text may be shorter than a window."""

    def __init__(self, config: TextCnnConfig, d_model: int) -> None:
        super().__init__()
        check_widths(config, d_model)
        self.dropout = Dropout(config.dropout)
        share, rest = divmod(d_model, len(config.widths))
        self.windows = nn.ModuleList(
            nn.Conv1d(d_model, share + (i < rest), width, padding=width // 2)
            for i, width in enumerate(config.widths)
        )
        for window in self.windows:
            nn.init.kaiming_normal_(cast(Tensor, window.weight), nonlinearity="relu")
            nn.init.zeros_(cast(Tensor, window.bias))

    def forward(self, source: Padded) -> Padded:
        """Vectors (b, t, m) -> features (b, t, m), none below zero."""
        rows, places = padded_right(source)
        t = rows.real.shape[1]
        x = zero_at_padding(self.dropout(rows.values), rows).transpose(1, 2)  # (b, m, t)
        # A window of even width has one place more, beyond the end.
        features = torch.cat([window(x)[..., :t] for window in self.windows], 1)
        return source.with_values(restore_places(features.relu().transpose(1, 2), places))


def dilations(n_layers: int, growth: int) -> list[int]:
    """Dilation of each layer: 1, growth, growth², …, repeated."""
    return [growth ** (i % DILATIONS) for i in range(n_layers)]


def zero_at_padding(x: Tensor, rows: Padded) -> Tensor:
    """Vectors (b, t, m) with zeros in place of padding."""
    return x if rows.padding == "none" else x.masked_fill(~rows.real[:, :, None], 0.0)


class ConvolutionDecoderLayer(nn.Module):
    """h = GLU(conv(x)), then h + c: the context c is found by d = W h + g, g being the embedding.

    The encoder's residual sum holds the source's embeddings, which the paper adds to the values.
    Scores are divided by √m, as vectors have unit variance here.
    """

    def __init__(self, d_model: int, width: int, cross_attention: bool) -> None:
        super().__init__()
        self.convolution = CausalConvolution(d_model, 2 * d_model, width, dilation=1)
        initialise_gated(self.convolution.convolution)
        self.scale = d_model**-0.5
        if cross_attention:
            self.query = nn.Linear(d_model, d_model)
            self.cross_attention = ContextAttention(DotScore())

    def convolve(self, x: Padded, past: Tensor | None) -> tuple[Tensor, Tensor]:
        """(r, t, m) -> h (r, t, m), and the past of the next call."""
        outputs, after = self.convolution(x, past)
        return F.glu(outputs, -1), after

    def attend(self, h: Tensor, embedded: Tensor, memory: KeyValue, mask: Mask) -> Tensor:
        """h + c, (r, t, m).

        embedded: (r, t, m) inputs added to the query.  memory: keys and values of the source.
        mask: source positions to hide.
        """
        query = (self.query(h) + embedded) * self.scale
        return h + cast(Tensor, self.cross_attention(query, memory, mask))


class ConvolutionDecoder(nn.Module):
    """Layers inside pre-norm residuals, over embeddings plus positions."""

    def __init__(
        self, config: ConvolutionDecoderConfig, d_model: int, cross_attention: bool = True
    ) -> None:
        super().__init__()
        self.looks = cross_attention
        self.positions = build_positions(
            config.positions, d_model, 1, d_model, config.max_positions
        )
        self.dropout = Dropout(config.dropout)
        self.layers = nn.ModuleList(
            ConvolutionDecoderLayer(d_model, config.width, cross_attention)
            for _ in range(config.n_layers)
        )
        self.residuals = pre_norms(config.n_layers, d_model, config.dropout)
        self.norm = nn.LayerNorm(d_model)

    def start(self, memory: Padded | None = None) -> ConvolutionState:
        """Initial state over the memory, whose vectors are keys and values of every layer."""
        if memory is None:
            return ConvolutionState(len(self.layers), None)
        assert self.looks, "this decoder looks at no memory"
        values = memory.values[:, None]
        return ConvolutionState(len(self.layers), memory, [KeyValue(values, values)])

    def forward(self, target: Padded, state: ConvolutionState) -> Padded:
        """Vectors (r, t, m) after the positions in `state` -> (r, t, m); `state` advances by t."""
        if not target.real.shape[1]:
            return target
        at = state.extend(target)
        embedded = x = self.dropout(self.positions.embed(target.values, at))

        def sublayer(x: Tensor, i: int, layer: ConvolutionDecoderLayer) -> Tensor:
            h, state.pasts[i] = layer.convolve(target.with_values(x), state.pasts[i])
            if not state.memory:
                return h
            return layer.attend(h, embedded, state.memory[0], state.memory_mask)

        for i, (layer, residual) in enumerate(zip(self.layers, self.residuals, strict=True)):
            x = residual(x, sublayer, i, layer)
        return target.with_values(self.norm(x))


GROWTH = 2
"""Factor between the dilations of successive blocks."""


class BytenetBlock(nn.Module):
    """ReLU, m to m / 2, norm, ReLU, convolution, norm, ReLU, m / 2 to m (Figure 3), after a
    norm."""

    def __init__(self, d_model: int, convolution: nn.Module) -> None:
        super().__init__()
        half = inner_width(d_model)
        self.reduce = nn.Linear(d_model, half)
        self.reduced_norm = nn.LayerNorm(half)
        self.convolution = convolution
        self.convolved_norm = nn.LayerNorm(half)
        self.expand = nn.Linear(half, d_model)

    def forward(self, x: Tensor, convolve: Callable[[Tensor], Tensor]) -> Tensor:
        """(b, t, m) -> (b, t, m), with the convolution called by `convolve`."""
        x = self.reduced_norm(self.reduce(x.relu())).relu()
        x = self.convolved_norm(convolve(x)).relu()
        return self.expand(x)  # type: ignore[no-any-return]


class BytenetEncoder(nn.Module):
    """Blocks of convolutions around each position."""

    def __init__(self, config: BytenetConfig, d_model: int) -> None:
        super().__init__()
        half = inner_width(d_model)
        self.dropout = Dropout(config.dropout)
        self.layers = nn.ModuleList()
        for dilation in dilations(config.n_layers, GROWTH):
            around = (config.width - 1) // 2 * dilation
            convolution = nn.Conv1d(half, half, config.width, padding=around, dilation=dilation)
            self.layers.append(BytenetBlock(d_model, convolution))
        self.residuals = pre_norms(config.n_layers, d_model, config.dropout)
        self.norm = nn.LayerNorm(d_model)

    def forward(self, source: Padded) -> Padded:
        """Vectors (b, t, m) -> memory (b, t, m)."""
        rows, places = padded_right(source)
        x = self.dropout(rows.values)

        def convolve(x: Tensor, layer: Any) -> Tensor:
            convolved: Tensor = layer.convolution(zero_at_padding(x, rows).transpose(1, 2))
            return convolved.transpose(1, 2)

        for layer, residual in zip(self.layers, self.residuals, strict=True):
            x = residual(x, layer, functools.partial(convolve, layer=layer))
        return source.with_values(restore_places(self.norm(x), places))


class BytenetDecoder(nn.Module):
    """Blocks of causal convolutions over target embeddings plus the memory at the same position."""

    def __init__(self, config: BytenetConfig, d_model: int, cross_attention: bool = True) -> None:
        """cross_attention: with a memory; attention there is none."""
        super().__init__()
        half = inner_width(d_model)
        if cross_attention:
            self.source = nn.Linear(d_model, d_model)
        self.dropout = Dropout(config.dropout)
        self.layers = nn.ModuleList(
            BytenetBlock(d_model, CausalConvolution(half, half, config.width, dilation))
            for dilation in dilations(config.n_layers, GROWTH)
        )
        self.residuals = pre_norms(config.n_layers, d_model, config.dropout)
        self.norm = nn.LayerNorm(d_model)

    def start(self, memory: Padded | None = None) -> ConvolutionState:
        """Initial state; projects the memory once."""
        if memory is None:
            return ConvolutionState(len(self.layers), None)
        memory, _ = padded_right(memory)
        vectors = self.source(memory.values)[:, None]
        unused = vectors[..., :0]  # looked up by position, so without values beside the keys
        return ConvolutionState(len(self.layers), memory, [KeyValue(vectors, unused)])

    def forward(self, target: Padded, state: ConvolutionState) -> Padded:
        """Vectors (r, t, m) after the positions in `state` -> (r, t, m); `state` advances by t."""
        if not target.real.shape[1]:
            return target
        at = state.extend(target)
        x = target.values if state.memory_real is None else target.values + unfolded(state, at)
        x = self.dropout(x)

        def convolve(x: Tensor, i: int, layer: Any) -> Tensor:
            convolved, state.pasts[i] = layer.convolution(target.with_values(x), state.pasts[i])
            return convolved  # type: ignore[no-any-return]

        for i, (layer, residual) in enumerate(zip(self.layers, self.residuals, strict=True)):
            x = residual(x, layer, functools.partial(convolve, i=i, layer=layer))
        return target.with_values(self.norm(x))


def unfolded(state: ConvolutionState, at: Tensor) -> Tensor:
    """Vectors (r, t, m) of the memory at positions (r, t), zero behind the end of the source."""
    assert state.memory_real is not None
    vectors, lengths = state.memory[0].key[:, 0], state.memory_real.lengths
    n, s, m = vectors.shape
    folded = at.view(n, -1)  # hypotheses of a sentence share its row
    index = folded.clamp(max=s - 1)[:, :, None].expand(-1, -1, m)
    beyond = folded >= lengths[:, None]
    return vectors.gather(1, index).masked_fill(beyond[:, :, None], 0.0).view(*at.shape, m)


def inner_width(d_model: int) -> int:
    """Width inside a block: half the model's."""
    return max(1, d_model // 2)
