"""Settings of the front ends of speech, readable without PyTorch."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from transduce.nn.stack_configs import check_middle
from transduce.nn.transformer_config import Count
from transduce.settings.sections import section


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
        check_middle(self.width)

    @property
    def stride(self) -> int:
        """Frames from one position to the next."""
        return 1 << self.n_layers

    @property
    def gap(self) -> int:
        """Positions between recordings in a row that no convolution bridges."""
        return -(-(self.width // 2) // 2)

    def positions(self, frames: int) -> int:
        """Number of positions for this number of frames."""
        return -(-frames // self.stride)


@section
class WhisperFrontEndConfig:
    """The two convolutions of Whisper (Radford et al. 2022), of imported models."""

    kind: Literal["whisper"]

    @property
    def stride(self) -> int:
        """Frames from one position to the next."""
        return 2

    def positions(self, frames: int) -> int:
        """Number of positions for this number of frames."""
        return (frames + 1) // 2
