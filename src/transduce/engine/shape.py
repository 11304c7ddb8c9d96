"""Models that the engine supports, and their shape as it reads them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

from transduce.engine.library import ModelShape, StackShape
from transduce.models.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from transduce.models.stacks import StackConfig
from transduce.nn.attention import head_width
from transduce.nn.front_ends.text import TextFrontEnd
from transduce.nn.kernels.linear import Precision
from transduce.nn.transformer import TransformerConfig

# Numbers of the enums in products.h and model.h.
PRECISIONS: tuple[Precision, ...] = ("float32", "bf16", "int8")
ACTIVATIONS = ("relu", "gelu", "gelu-tanh", "silu", "swiglu")
POSITIONS = ("none", "sinusoidal", "sinusoidal-halves", "learned", "rotary", "alibi")
assert set(PRECISIONS) == set(get_args(Precision))


def unsupported(config: object) -> str | None:
    """The setting that rules the engine out for a model, or None if it supports the model."""
    return next(_unsupported(config), None)


def _unsupported(config: object) -> Iterator[str]:
    if not isinstance(config, EncoderDecoderConfig):
        yield "models other than encoder-decoders of text"
        return
    for side, stack in (("encoder", config.encoder), ("decoder", config.decoder)):
        if not isinstance(stack, TransformerConfig):
            yield f"model.{side}.kind = {stack.kind!r}"
        elif stack.activation not in ACTIVATIONS:
            yield f"model.{side}.activation = {stack.activation!r}"
        elif stack.positions not in POSITIONS:
            yield f"model.{side}.positions = {stack.positions!r}"


def model_shape(
    model: EncoderDecoder, config: EncoderDecoderConfig, precision: Precision
) -> ModelShape:
    """The shape of a supported model."""
    source, target = model.front_end, model.target_front_end
    assert isinstance(source, TextFrontEnd) and isinstance(target, TextFrontEnd)
    assert source.scale == target.scale and source.segments is target.segments is None
    return ModelShape(
        _stack_shape(config.encoder, config.d_model),
        _stack_shape(config.decoder, config.d_model),
        config.d_model,
        source.embedding.num_embeddings,
        target.embedding.num_embeddings,
        PRECISIONS.index(precision),
        source.scale,
    )


def _stack_shape(stack: StackConfig, d_model: int) -> StackShape:
    assert isinstance(stack, TransformerConfig)
    return StackShape(
        stack.n_layers,
        stack.n_heads,
        head_width(d_model, stack.n_heads, stack.d_head),
        stack.d_ff,
        ACTIVATIONS.index(stack.activation),
        stack.norm_order == "pre",
        POSITIONS.index(stack.positions),
        stack.max_positions,
        stack.embedding_norm,
        stack.norm_epsilon,
    )
