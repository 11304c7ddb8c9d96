"""Settings of a speech model, readable without PyTorch."""

from __future__ import annotations

from typing import Annotated

from transduce.nn.front_ends.speech_config import SpeechFrontEndConfig, WhisperFrontEndConfig
from transduce.nn.transformer_config import Count, TransformerConfig, check_heads
from transduce.settings.kinds import ByKind
from transduce.settings.sections import section

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
