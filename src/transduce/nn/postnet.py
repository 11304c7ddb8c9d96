"""Postnet: convolutions that refine the frames of a causal decoder."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn

from transduce.nn.stack_configs import check_middle
from transduce.nn.transformer_config import Count
from transduce.sequence import Padded
from transduce.settings.sections import section


@section
class PostnetConfig:
    """Convolutions over the frames of a whole recording (Shen et al. 2018)."""

    n_layers: Count = 4
    """Number of convolutions."""
    width: Count = 5
    """Frames that a convolution spans; odd, so that it has a middle."""
    channels: Count = 192
    """Width between the convolutions."""

    def __post_init__(self) -> None:
        check_middle(self.width)


class Postnet(nn.Module):
    """Convolutions with tanh between, the last of which is added to the frames.  Padding is set to
    zero before each, so that a row gives the same frames in any batch."""

    def __init__(self, config: PostnetConfig, bins: int) -> None:
        super().__init__()
        widths = [bins, *[config.channels] * (config.n_layers - 1), bins]
        self.convolutions = nn.ModuleList(
            nn.Conv1d(before, after, config.width, padding=config.width // 2)
            for before, after in itertools.pairwise(widths)
        )

    def forward(self, frames: Padded) -> Tensor:
        """Frames (r, t, bins) -> frames of the same shape, arbitrary at padding."""
        values = frames.values.transpose(1, 2)
        for number, convolution in enumerate(self.convolutions):
            if number:
                values = torch.tanh(values)
            if frames.padding != "none":
                values = values.masked_fill(~frames.real[:, None], 0.0)
            values = convolution(values)
        return frames.values + values.transpose(1, 2)
