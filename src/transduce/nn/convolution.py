"""Encoders of convolutions: deep and gated (ConvS2S), or flat for max pooling."""

from __future__ import annotations

import math
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transduce.nn.dropout import Dropout
from transduce.nn.positions import build_positions
from transduce.nn.residual import pre_norms
from transduce.nn.stack_configs import ConvolutionEncoderConfig, TextCnnConfig, check_widths
from transduce.nn.unpadding import padded_right, restore_places
from transduce.sequence import Padded

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
