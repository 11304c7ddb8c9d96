"""Settings of a speech model, its front end and SpecAugment, readable without PyTorch."""

from typing import Annotated, Literal

from pydantic import Field

from transduce.errors import SettingError
from transduce.nn.stack_configs import Count, TransformerConfig, check_heads, check_middle
from transduce.settings.sections import ByKind, section

Masks = Annotated[int, Field(ge=0, le=100)]
Share = Annotated[float, Field(ge=0, le=1)]
Level = Annotated[float, Field(ge=-120, le=0)]


@section
class SpecAugmentConfig:
    """Random masks over the features of training recordings, and noise added to them."""

    bin_masks: Masks = 2
    """Masks of neighbouring bins; 0 for none."""
    bin_share: Share = 0.2
    """Maximum width of a mask, as a share of the bins."""
    time_masks: Masks = 2
    """Masks of neighbouring frames; 0 for none."""
    time_share: Share = 0.1
    """Maximum width of a mask, as a share of the length of the recording."""
    noise_share: Share = 0.0
    """Share of recordings with added white noise; another random choice in each epoch."""
    noise_levels: tuple[Level, Level] = (-70.0, -30.0)
    """Lowest and highest level of the noise, in decibels below full scale; drawn for each
    recording."""

    def __post_init__(self) -> None:
        low, high = self.noise_levels
        if low > high:
            raise SettingError(
                f"augmentation.noise_levels = [{low:g}, {high:g}]; give the lower level first"
            )


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


FrontEndConfig = Annotated[SpeechFrontEndConfig | WhisperFrontEndConfig, ByKind("gated")]


@section
class SpeechConfig:
    """A speech model; the defaults are of a size for some hours of speech and one machine."""

    d_model: Count = 144
    """Width of the model, everywhere."""
    front_end: FrontEndConfig = SpeechFrontEndConfig()
    encoder: TransformerConfig = TransformerConfig(
        n_layers=4, n_heads=4, d_ff=576, norm_order="pre", dropout=0.1
    )
    decoder: TransformerConfig = TransformerConfig(
        n_layers=2, n_heads=4, d_ff=576, norm_order="pre", dropout=0.1
    )
    ctc: bool = True
    """Add a CTC head over the encoder (Graves et al. 2006), for training and joint search."""
    scale_embeddings: bool = True
    """Multiply embeddings by √d_model, as in the paper; Whisper does not."""
    output_bias: bool = False
    """Bias on the logits; imported models ban tokens with it."""

    def __post_init__(self) -> None:
        check_heads(self.encoder, self.d_model)
        check_heads(self.decoder, self.d_model)
