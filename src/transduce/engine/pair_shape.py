"""Shape of a model for the engine, from its settings alone."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from transduce.engine.library import ModelShape, StackShape
from transduce.errors import RunError
from transduce.nn.precision import Precision
from transduce.nn.stack_configs import SsruDecoderConfig, TransformerConfig, head_width
from transduce.settings.sections import outside

if TYPE_CHECKING:
    from transduce.models.config import EncoderOnlyConfig
    from transduce.nn.stack_configs import EncoderConfig, LanguageDecoderConfig


# Numbers of the enums in products.h and model.h.
PRECISIONS: tuple[Precision, ...] = ("float32", "bf16", "int8")
ACTIVATIONS = ("relu", "gelu", "gelu-tanh", "silu", "swiglu", "geglu")
POSITIONS = (
    "none",
    "sinusoidal",
    "sinusoidal-halves",
    "learned",
    "rotary",
    "alibi",
    "sinusoidal-marian",
    "relative",
)
FRONT_ENDS = ("gated", "whisper", "none")
POOLINGS = ("none", "first", "mean", "max")
DENSE = ("none", "tanh", "relu", "gelu-norm")
NORM_ORDERS = ("post", "pre")
NORMS = ("layer", "rms")
IN_STACKS: Mapping[str, Collection[str]] = {
    "positions": POSITIONS,
    "activation": ACTIVATIONS,
    "norm_order": NORM_ORDERS,
    "norm": NORMS,
}
"""Values of the settings of a stack that the engine computes; it refuses others."""
IN_MODELS: Mapping[str, Collection[str | bool]] = {
    "tie": ("none", "two-way", "three-way", False, True),
    "pooling": POOLINGS,
    "pooler_activation": DENSE,
}
"""The same of a model."""


class EncoderHead(NamedTuple):
    """Head of an encoder alone: a pooled vector, and scores of it or of positions.

    dense: layer before the scores, with its activation.  scores: their number; 0 for none.
    """

    pooling: Literal["none", "first", "mean", "max"] = "none"
    dense: Literal["none", "tanh", "relu", "gelu-norm"] = "none"
    scores: int = 0


class DecodingModel(Protocol):
    """Settings of a model with a decoder, and with or without an encoder."""

    @property
    def d_model(self) -> int:
        """Width of the model."""

    @property
    def decoder(self) -> LanguageDecoderConfig:
        """Settings of the decoder."""

    @property
    def scale_embeddings(self) -> bool:
        """True if embeddings are multiplied by √d_model."""


def model_shape(
    config: DecodingModel,
    source_size: int,
    target_size: int,
    precision: Precision,
) -> ModelShape:
    """The shape of a supported model for vocabularies of these sizes; 0 without a source.

    config: of the model.  source_size, target_size: tokens of each vocabulary.  precision: of
    matrix products.
    """
    encoder: EncoderConfig | None = getattr(config, "encoder", None)
    return ModelShape(
        StackShape() if encoder is None else _stack_shape(encoder, config.d_model),
        _stack_shape(config.decoder, config.d_model),
        config.d_model,
        source_size,
        target_size,
        PRECISIONS.index(precision),
        math.sqrt(config.d_model) if config.scale_embeddings else 1.0,
    )


def layers_shape(stack: EncoderConfig, d_model: int, precision: Precision) -> ModelShape:
    """The shape of the layers of a supported encoder alone, over vectors.

    stack: settings of the encoder.  d_model: width of the model.  precision: of matrix products.
    """
    shape = ModelShape(_stack_shape(stack, d_model), StackShape(), d_model)
    shape.precision, shape.bins = PRECISIONS.index(precision), d_model
    shape.front_end = FRONT_ENDS.index("none")
    return shape


def encoder_shape(
    config: EncoderOnlyConfig, size: int, head: EncoderHead, precision: Precision
) -> ModelShape:
    """The shape of a supported encoder alone, for a vocabulary of a size.

    config: of the model.  head: pooling and scores on top.  precision: of matrix products.
    """
    shape = layers_shape(config.encoder, config.d_model, precision)
    shape.bins, shape.front_end, shape.source_size = 0, 0, size
    shape.scale = math.sqrt(config.d_model) if config.scale_embeddings else 1.0
    shape.segments = 2 if config.segments else 0
    shape.pooling, shape.dense = POOLINGS.index(head.pooling), DENSE.index(head.dense)
    shape.scores = head.scores
    return shape


def unsupported_settings(config: object) -> Iterator[str]:
    """Settings of a model that rule the engine out."""
    for name, value in outside(config, "model", IN_MODELS):
        yield f"{name} = {value!r}"
    front_end = getattr(config, "front_end", None)
    for name, value in outside(front_end, "model.front_end", {"kind": FRONT_ENDS}):
        yield f"{name} = {value!r}"
    for side in ("encoder", "decoder"):
        stack = getattr(config, side, None)
        if stack is not None and not isinstance(stack, TransformerConfig | SsruDecoderConfig):
            yield f"model.{side}.kind = {stack.kind!r}"
        elif stack is not None:
            for name, value in outside(stack, f"model.{side}", IN_STACKS):
                yield f"{name} = {value!r}"


def check_settings(config: object, run: Path) -> None:
    """Raises RunError if the engine lacks a setting of a run's model."""
    for setting in unsupported_settings(config):
        raise RunError(f"{run}: the native engine has no {setting}")


def max_positions(stack: StackShape) -> int | None:
    """Maximum number of positions of a stack; None for no limit."""
    return stack.max_positions if stack.positions == POSITIONS.index("learned") else None


def _stack_shape(stack: EncoderConfig | LanguageDecoderConfig, d_model: int) -> StackShape:
    if isinstance(stack, SsruDecoderConfig):
        layers = TransformerConfig(
            n_layers=stack.n_layers,
            n_heads=stack.n_heads,
            d_ff=stack.d_ff,
            activation=stack.activation,
            positions=stack.positions,
            norm_epsilon=stack.norm_epsilon,
        )
        shape = _stack_shape(layers, d_model)
        shape.recurrent = True
        return shape
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
        False,
        stack.norm == "rms",
        stack.relative_buckets,
        stack.relative_distance,
    )
