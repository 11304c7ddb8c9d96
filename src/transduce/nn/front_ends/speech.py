"""Frames of speech to vectors, by convolutions that reduce their number."""

from __future__ import annotations

import itertools
from typing import cast

import torch
import torch.nn.functional as F
from torch import nn

from transduce.nn.convolution import initialise_gated
from transduce.nn.front_ends.speech_config import SpeechFrontEndConfig
from transduce.sequence import Padded


def side_by_side(frames: Padded, config: SpeechFrontEndConfig) -> tuple[Padded, Padded]:
    """Recordings (b, t, bins) in one row, each from a whole position on, with zeros between them;
    and the places (b, t') of their positions in it."""
    counts = -(-frames.lengths // config.stride)
    ends = (counts + config.gap).cumsum(0)
    starts, columns = ends - counts - config.gap, torch.arange(int(counts.max()))
    places = Padded(starts[:, None] + columns, columns < counts[:, None], "right")
    at = starts[:, None] * config.stride + torch.arange(frames.real.shape[1])
    values = frames.values.new_zeros(int(ends[-1]) * config.stride, frames.values.shape[2])
    real = torch.zeros(len(values), dtype=torch.bool)
    values[at[frames.real]], real[at[frames.real]] = frames.values[frames.real], True
    return Padded(values[None], real[None], "right"), places


class SpeechFrontEnd(nn.Module):
    """Convolutions of stride 2, each GLU(conv(x)), the last of the width of the model.  Padding is
    set to zero before each, so that a row gives the same vectors in any batch."""

    def __init__(self, config: SpeechFrontEndConfig, bins: int, d_model: int) -> None:
        """bins: features of a frame."""
        super().__init__()
        widths = [bins, *[config.channels] * (config.n_layers - 1), d_model]
        self.convolutions = nn.ModuleList(
            nn.Conv1d(before, 2 * after, config.width, 2, config.width // 2)
            for before, after in itertools.pairwise(widths)
        )
        for convolution in self.convolutions:
            initialise_gated(cast(nn.Conv1d, convolution))

    def forward(self, frames: Padded) -> Padded:
        """Frames (b, t, bins), padded on the right -> vectors (b, t', m), t' = t halved n times."""
        assert frames.padding != "any", "recordings begin at whole positions"
        values, real = frames.values.transpose(1, 2), frames.real
        for convolution in self.convolutions:
            if frames.padding != "none":
                values = values.masked_fill(~real[:, None], 0.0)
            values = F.glu(convolution(values), 1)
            real = real[:, ::2]
        return Padded(values.transpose(1, 2), real, frames.padding)


class WhisperFrontEnd(nn.Module):
    """Convolutions of strides 1 and 2 before GELU, over windows of 30 s: nothing is padding."""

    def __init__(self, bins: int, d_model: int) -> None:
        """bins: features of a frame."""
        super().__init__()
        self.first = nn.Conv1d(bins, d_model, 3, padding=1)
        self.second = nn.Conv1d(d_model, d_model, 3, 2, padding=1)

    def forward(self, frames: Padded) -> Padded:
        """Frames (b, t, bins) -> vectors (b, t / 2, m)."""
        assert frames.padding == "none", "Whisper reads windows of one length"
        values = F.gelu(self.first(frames.values.transpose(1, 2)))
        return Padded.unpadded(F.gelu(self.second(values)).transpose(1, 2))
