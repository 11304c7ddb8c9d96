"""Frames of speech to vectors, by convolutions that halve their number."""

from __future__ import annotations

import itertools
import math
from typing import Annotated, Literal, cast

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from transduce.config import section
from transduce.errors import SettingError
from transduce.nn.transformer import Count
from transduce.sequence import Padded


@section
class SpeechFrontEndConfig:
    """Gated convolutions over frames, each of stride 2 (Synnaeve et al. 2020)."""

    kind: Literal["gated"] = "gated"
    n_layers: Annotated[int, Field(ge=1, le=4)] = 2
    """Number of convolutions; each doubles the time that a position spans: with frames of 10 ms, 2
    give positions of 40 ms and 3 of 80 ms."""
    width: Count = 5
    """Frames that a convolution spans; odd, so that it has a middle."""
    channels: Count = 128
    """Width between the convolutions."""

    def __post_init__(self) -> None:
        if self.width % 2 == 0:
            raise SettingError(f"width = {self.width} of a convolution must be odd")

    def positions(self, frames: int) -> int:
        """Positions that so many frames become."""
        for _ in range(self.n_layers):
            frames = (frames + 1) // 2
        return frames


class SpeechFrontEnd(nn.Module):
    """Convolutions of stride 2, each GLU(conv(x)), the last one of the width of the model.

    Padding is set to zero before each convolution, so that a row gives the same vectors in any
    batch.  Positions belong to the stack above.
    """

    def __init__(self, config: SpeechFrontEndConfig, bins: int, d_model: int) -> None:
        """bins: features of a frame."""
        super().__init__()
        widths = [bins, *[config.channels] * (config.n_layers - 1), d_model]
        self.convolutions = nn.ModuleList(
            nn.Conv1d(before, 2 * after, config.width, 2, config.width // 2)
            for before, after in itertools.pairwise(widths)
        )
        for convolution, before in zip(self.convolutions, widths, strict=False):
            # Half of the variance is lost at the gate, and more (Gehring et al. 2017, section 3.5).
            weight, bias = convolution.weight, convolution.bias
            nn.init.normal_(cast(Tensor, weight), std=math.sqrt(4 / (config.width * before)))
            nn.init.zeros_(cast(Tensor, bias))

    def forward(self, frames: Padded) -> Padded:
        """Frames (b, t, bins), padded on the right -> vectors (b, t', m), t' = t halved n times."""
        assert frames.padding != "any", "frames are padded on the right"
        values, real, lengths = frames.values.transpose(1, 2), frames.real, frames.lengths
        for convolution in self.convolutions:
            if frames.padding != "none":
                values = values.masked_fill(~real[:, None], 0.0)
            values = F.glu(convolution(values), 1)
            lengths = (lengths + 1) // 2
            real = torch.arange(values.shape[2], device=values.device) < lengths[:, None]
        return Padded(values.transpose(1, 2), real, frames.padding)
