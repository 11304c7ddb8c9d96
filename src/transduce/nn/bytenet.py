"""ByteNet: residual blocks of dilated convolutions, a decoder stacked on the encoder's output.

Kalchbrenner et al. 2016.  Instead of attention, position t of the target sees the memory at
position t, and behind the end of the source its own past alone (dynamic unfolding).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from transduce.nn.causal_convolution import CausalConvolution, ConvolutionState
from transduce.nn.convolution import dilations, zero_at_padding
from transduce.nn.dropout import Dropout
from transduce.nn.residual import pre_norms
from transduce.nn.stack_configs import BytenetConfig
from transduce.nn.state import KeyValue
from transduce.nn.unpadding import padded_right, restore_places
from transduce.sequence import Padded

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
