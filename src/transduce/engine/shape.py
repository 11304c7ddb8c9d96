"""Models that the engine supports, and their shape as it reads them."""

from __future__ import annotations

from collections.abc import Iterator

from transduce.engine.library import ModelShape
from transduce.engine.pair_shape import ACTIVATIONS, POSITIONS, pair_shape
from transduce.models.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from transduce.nn.front_ends.text import TextFrontEnd
from transduce.nn.kernels.linear import Precision
from transduce.nn.transformer import TransformerConfig


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
    sizes = source.embedding.num_embeddings, target.embedding.num_embeddings
    return pair_shape(config, *sizes, precision)
