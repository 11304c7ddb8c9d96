"""Stacks of a model, distinguished by `kind`, and the protocols that models need."""

from collections.abc import Callable
from typing import Any, Protocol

from torch import nn

from transduce.nn.convolution import (
    BytenetDecoder,
    BytenetEncoder,
    ConvolutionDecoder,
    ConvolutionEncoder,
    TextCnnEncoder,
)
from transduce.nn.memory_network import MemoryDecoder, MemoryEncoder
from transduce.nn.recurrent import RecurrentDecoder, RecurrentEncoder
from transduce.nn.stack_configs import (
    BytenetConfig,
    ConvolutionDecoderConfig,
    ConvolutionEncoderConfig,
    EncoderConfig,
    LanguageDecoderConfig,
    MemoryConfig,
    RecurrentDecoderConfig,
    RecurrentEncoderConfig,
    SsruDecoderConfig,
    TextCnnConfig,
    TransformerConfig,
)
from transduce.nn.state import State
from transduce.nn.transformer import SsruDecoder, TransformerDecoder, TransformerEncoder
from transduce.sequence import Padded


class Encoder(Protocol):
    """Encoder: reads a whole sequence at once."""

    def __call__(self, source: Padded) -> Padded:
        """Vectors (b, t, m) -> memory (b, t, m)."""


class Decoder(Protocol):
    """Decoder: continues from a state, by some positions."""

    def start(self, memory: Padded | None = None) -> State:
        """Initial state over the memory (b, s, m), if the decoder has cross-attention."""

    def __call__(self, target: Padded, state: State) -> Padded:
        """Vectors (r, t, m) after the positions in `state` -> (r, t, m); `state` advances by t."""


ENCODERS: dict[type, Callable[..., nn.Module]] = {
    TransformerConfig: TransformerEncoder,
    RecurrentEncoderConfig: RecurrentEncoder,
    ConvolutionEncoderConfig: ConvolutionEncoder,
    BytenetConfig: BytenetEncoder,
    TextCnnConfig: TextCnnEncoder,
    MemoryConfig: MemoryEncoder,
}
"""An `Encoder`, made from its section and d_model."""
DECODERS: dict[type, Callable[..., nn.Module]] = {
    TransformerConfig: TransformerDecoder,
    RecurrentDecoderConfig: RecurrentDecoder,
    ConvolutionDecoderConfig: ConvolutionDecoder,
    BytenetConfig: BytenetDecoder,
    SsruDecoderConfig: SsruDecoder,
    MemoryConfig: MemoryDecoder,
}
"""A `Decoder`, made from its section, d_model and `cross_attention`."""


def build_encoder(config: EncoderConfig, d_model: int) -> Any:
    """Build an `Encoder` of that kind."""
    return ENCODERS[type(config)](config, d_model)


def build_decoder(config: LanguageDecoderConfig, d_model: int, cross_attention: bool = True) -> Any:
    """Build a `Decoder` of that kind; without cross-attention it looks at no source.

    config: settings of the decoder.  d_model: width.  cross_attention: False for a decoder without
    source.
    """
    return DECODERS[type(config)](config, d_model, cross_attention)
