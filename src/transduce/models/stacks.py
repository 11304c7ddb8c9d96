"""Stacks of a model, told apart by `kind`, and the protocols that models need."""

from __future__ import annotations

from typing import Annotated, Protocol

from pydantic import Field
from torch import nn

from transduce.config import DefaultKind
from transduce.nn.convolution import (
    ConvolutionEncoder,
    ConvolutionEncoderConfig,
    TextCnnConfig,
    TextCnnEncoder,
    check_widths,
)
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
    TransformerConfig | RecurrentEncoderConfig | ConvolutionEncoderConfig | TextCnnConfig,
    Field(discriminator="kind"),
    DefaultKind("transformer"),
]
DecoderConfig = Annotated[
    TransformerConfig | RecurrentDecoderConfig,
    Field(discriminator="kind"),
    DefaultKind("transformer"),
]
StackConfig = (
    TransformerConfig
    | RecurrentEncoderConfig
    | ConvolutionEncoderConfig
    | TextCnnConfig
    | RecurrentDecoderConfig
)


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
    if isinstance(config, TransformerConfig) and config.positions == "learned":
        return config.max_positions
    return None


def cross_attention_heads(config: DecoderConfig) -> tuple[int, int]:
    """Cross-attention layers of a decoder, and heads of each."""
    if isinstance(config, TransformerConfig):
        return config.n_layers, config.n_heads
    return (0, 0) if config.context.kind == "fixed" else (1, 1)


def norm_epsilon(config: StackConfig) -> float:
    """Epsilon of the stack's layer norms, also used in heads."""
    return config.norm_epsilon if isinstance(config, TransformerConfig) else 1e-5


def build_encoder(config: EncoderConfig, d_model: int) -> nn.Module:
    """The encoder of that kind, an `Encoder`."""
    match config:
        case TransformerConfig():
            return TransformerEncoder(config, d_model)
        case RecurrentEncoderConfig():
            return RecurrentEncoder(config, d_model)
        case ConvolutionEncoderConfig():
            return ConvolutionEncoder(config, d_model)
        case TextCnnConfig():
            return TextCnnEncoder(config, d_model)


def build_decoder(
    config: DecoderConfig, d_model: int, cross_attention: bool = True
) -> TransformerDecoder | RecurrentDecoder:
    """Build a decoder of that kind; without cross-attention it has no memory."""
    match config:
        case TransformerConfig():
            return TransformerDecoder(config, d_model, cross_attention)
        case RecurrentDecoderConfig():
            return RecurrentDecoder(config, d_model, cross_attention)
