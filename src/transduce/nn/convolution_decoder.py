"""Decoder of gated causal convolutions with attention in each layer: ConvS2S (Gehring et al. 2017);
without a memory, the language model of Dauphin et al. 2017."""

from __future__ import annotations

from typing import cast

import torch.nn.functional as F
from torch import Tensor, nn

from transduce.nn.causal_convolution import CausalConvolution, ConvolutionState
from transduce.nn.contexts import ContextAttention, DotScore
from transduce.nn.convolution import initialise_gated
from transduce.nn.dropout import Dropout
from transduce.nn.masks import Mask
from transduce.nn.positions import build_positions
from transduce.nn.residual import pre_norms
from transduce.nn.stack_configs import ConvolutionDecoderConfig
from transduce.nn.state import KeyValue
from transduce.sequence import Padded


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
        """h + c, (r, t, m)."""
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
