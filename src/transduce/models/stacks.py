"""Stacks of a model, distinguished by `kind`, and the protocols that models need."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Protocol

from pydantic import Field
from torch import nn

from transduce.config import DefaultKind
from transduce.nn.bytenet import BytenetConfig, BytenetDecoder, BytenetEncoder
from transduce.nn.convolution import (
    ConvolutionEncoder,
    ConvolutionEncoderConfig,
    TextCnnConfig,
    TextCnnEncoder,
    check_widths,
)
from transduce.nn.convolution_decoder import ConvolutionDecoder, ConvolutionDecoderConfig
from transduce.nn.memory_network import MemoryEncoder, MemoryEncoderConfig
from transduce.nn.recurrent import (
    RecurrentDecoder,
    RecurrentDecoderConfig,
    RecurrentEncoder,
    RecurrentEncoderConfig,
    check_directions,
)
from transduce.nn.state import State
from transduce.nn.transformer import (
    TransformerConfig,
    TransformerDecoder,
    TransformerEncoder,
    check_heads,
)
from transduce.sequence import Padded

EncoderConfig = Annotated[
    TransformerConfig
    | RecurrentEncoderConfig
    | ConvolutionEncoderConfig
    | BytenetConfig
    | TextCnnConfig
    | MemoryEncoderConfig,
    Field(discriminator="kind"),
    DefaultKind("transformer"),
]
DecoderConfig = Annotated[
    TransformerConfig | RecurrentDecoderConfig | ConvolutionDecoderConfig | BytenetConfig,
    Field(discriminator="kind"),
    DefaultKind("transformer"),
]
StackConfig = (
    TransformerConfig
    | RecurrentEncoderConfig
    | ConvolutionEncoderConfig
    | BytenetConfig
    | TextCnnConfig
    | MemoryEncoderConfig
    | RecurrentDecoderConfig
    | ConvolutionDecoderConfig
)
Positioned = TransformerConfig | ConvolutionEncoderConfig | ConvolutionDecoderConfig
"""Sections with positions, which may be learned and so limited."""


class Encoder(Protocol):
    """Encoder: reads a whole sequence at once."""

    def __call__(self, source: Padded) -> Padded:
        """Vectors (b, t, m) -> memory (b, t, m)."""


class Decoder(Protocol):
    """Decoder: continues from a state, by one or more positions."""

    def start(self, memory: Padded | None = None) -> State:
        """Initial state over the memory (b, s, m), if the decoder has cross-attention."""

    def __call__(self, target: Padded, state: State) -> Padded:
        """Vectors (r, t, m) after the positions in `state` -> (r, t, m); `state` advances by t."""


def check_stack(config: StackConfig, d_model: int) -> None:
    """Raises SettingError when the stack's settings do not fit the width of the model."""
    match config:
        case TransformerConfig():
            check_heads(config, d_model)
        case RecurrentEncoderConfig():
            check_directions(config, d_model)
        case TextCnnConfig():
            check_widths(config, d_model)


def max_sequence_length(config: StackConfig) -> int | None:
    """Maximum number of positions of a stack; None for no limit."""
    if isinstance(config, Positioned) and config.positions == "learned":
        return config.max_positions
    return None


def cross_attention_heads(config: DecoderConfig) -> tuple[int, int]:
    """Cross-attention layers of a decoder, and heads of each."""
    match config:
        case TransformerConfig():
            return config.n_layers, config.n_heads
        case RecurrentDecoderConfig():
            return (0, 0) if config.context.kind == "fixed" else (1, 1)
        case ConvolutionDecoderConfig():
            return config.n_layers, 1
        case BytenetConfig():
            return 0, 0


def norm_epsilon(config: StackConfig) -> float:
    """Epsilon of the stack's layer norms, also used in heads."""
    return config.norm_epsilon if isinstance(config, TransformerConfig) else 1e-5


ENCODERS: dict[type, Callable[..., nn.Module]] = {
    TransformerConfig: TransformerEncoder,
    RecurrentEncoderConfig: RecurrentEncoder,
    ConvolutionEncoderConfig: ConvolutionEncoder,
    BytenetConfig: BytenetEncoder,
    TextCnnConfig: TextCnnEncoder,
    MemoryEncoderConfig: MemoryEncoder,
}
"""An `Encoder`, made from its section and d_model."""
DECODERS: dict[type, Callable[..., nn.Module]] = {
    TransformerConfig: TransformerDecoder,
    RecurrentDecoderConfig: RecurrentDecoder,
    ConvolutionDecoderConfig: ConvolutionDecoder,
    BytenetConfig: BytenetDecoder,
}
"""A `Decoder`, made from its section, d_model and `cross_attention`."""


def build_encoder(config: EncoderConfig, d_model: int) -> Any:
    """Build an `Encoder` of that kind."""
    return ENCODERS[type(config)](config, d_model)


def build_decoder(config: DecoderConfig, d_model: int, cross_attention: bool = True) -> Any:
    """Build a `Decoder` of that kind; without cross-attention it has no memory."""
    return DECODERS[type(config)](config, d_model, cross_attention)
