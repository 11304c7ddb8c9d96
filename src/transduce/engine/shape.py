"""Models that the engine supports, and their shapes."""

from __future__ import annotations

from collections.abc import Iterator

from transduce.engine.library import ModelShape
from transduce.engine.pair_shape import ACTIVATIONS, POSITIONS, decoder_shape, pair_shape
from transduce.models.decoder_only import DecoderOnly, DecoderOnlyConfig
from transduce.models.encoder_decoder import EncoderDecoder
from transduce.models.encoder_decoder_config import EncoderDecoderConfig
from transduce.nn.front_ends.front_end import FrontEnd
from transduce.nn.front_ends.text import TextFrontEnd
from transduce.nn.kernels.linear import Precision
from transduce.nn.transformer_config import TransformerConfig


def unsupported(config: object) -> str | None:
    """The setting that rules the engine out for a model, or None if it supports the model."""
    return next(_unsupported(config), None)


def _unsupported(config: object) -> Iterator[str]:
    if isinstance(config, EncoderDecoderConfig):
        stacks = {"encoder": config.encoder, "decoder": config.decoder}
    elif isinstance(config, DecoderOnlyConfig):
        stacks = {"decoder": config.decoder}
    else:
        yield "models other than encoder-decoders and decoders of text"
        return
    for side, stack in stacks.items():
        if not isinstance(stack, TransformerConfig):
            yield f"model.{side}.kind = {stack.kind!r}"
        elif stack.activation not in ACTIVATIONS:
            yield f"model.{side}.activation = {stack.activation!r}"
        elif stack.positions not in POSITIONS:
            yield f"model.{side}.positions = {stack.positions!r}"


def model_shape(
    model: EncoderDecoder | DecoderOnly,
    config: EncoderDecoderConfig | DecoderOnlyConfig,
    precision: Precision,
) -> ModelShape:
    """The shape of a supported model; source size 0 for a decoder alone."""
    if isinstance(model, EncoderDecoder):
        assert isinstance(config, EncoderDecoderConfig)
        sizes = vocabulary_size(model.front_end), vocabulary_size(model.target_front_end)
        return pair_shape(config, *sizes, precision)
    assert isinstance(config, DecoderOnlyConfig)
    return decoder_shape(config, vocabulary_size(model.front_end), precision)


def vocabulary_size(front_end: FrontEnd) -> int:
    """Entries of the vocabulary of a front end of texts without segments."""
    assert isinstance(front_end, TextFrontEnd) and front_end.segments is None
    return front_end.embedding.num_embeddings
