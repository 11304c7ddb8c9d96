"""Settings of a Transformer stack, readable without PyTorch."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from transduce.errors import DataError, SettingError
from transduce.settings.sections import section

Activation = Literal["relu", "gelu", "gelu-tanh", "silu", "swiglu", "geglu"]
NormOrder = Literal["post", "pre"]
NormKind = Literal["layer", "rms"]
InitMethod = Literal["xavier", "normal"]
PositionKind = Literal[
    "sinusoidal",
    "sinusoidal-halves",
    "sinusoidal-marian",
    "learned",
    "rotary",
    "alibi",
    "relative",
    "none",
]

Share = Annotated[float, Field(ge=0, lt=1)]
Count = Annotated[int, Field(ge=1)]


@section
class TransformerConfig:
    """A stack of Transformer layers.  The defaults are the paper's base model (Table 3)."""

    kind: Literal["transformer"] = "transformer"
    n_layers: Count = 6
    """Number of layers, N in the paper."""
    n_heads: Count = 8
    """Attention heads, h in the paper; must divide d_model unless d_head is set."""
    d_head: Count | None = None
    """Width of a head, d_k in the paper; by default d_model / n_heads."""
    d_ff: Count = 2048
    """Inner width of the feed-forward network."""
    activation: Activation = "relu"
    """Non-linearity of the feed-forward network."""
    norm_order: NormOrder = "post"
    """Layer norm after each residual sum (post, the paper) or before each sublayer (pre)."""
    norm: NormKind = "layer"
    """Layer norm, or its division by the root mean square alone (rms; Zhang and Sennrich 2019)."""
    positions: PositionKind = "sinusoidal"
    """Position encoding."""
    max_positions: Count = 1024
    """Longest sequence that learned positions can take; other kinds have no limit."""
    relative_buckets: Annotated[int, Field(ge=4)] = 32
    """Classes of distances of relative positions."""
    relative_distance: Count = 128
    """Distance from which on all are in the last class."""
    dropout: Share = 0.1
    """Dropped from each sublayer's output and from embeddings plus positions (section 5.4)."""
    attention_dropout: Share = 0.0
    """Dropped from the attention weights."""
    feed_forward_dropout: Share = 0.0
    """Dropped from the inner activations of the feed-forward network."""
    embedding_norm: bool = False
    """A layer norm over embeddings plus positions, at the bottom of the stack, as in BERT."""
    norm_epsilon: Annotated[float, Field(gt=0, lt=1)] = 1e-5
    """Added to the variance in every layer norm."""


def head_width(d_model: int, n_heads: int, d_head: int | None = None) -> int:
    """The width of a head, by default d_model / n_heads.  Raises SettingError if that is none."""
    if min(d_model, n_heads, 1 if d_head is None else d_head) < 1:
        sizes = f"d_model = {d_model}, n_heads = {n_heads}, d_head = {d_head}"
        raise SettingError(f"widths and numbers of heads are at least 1, not {sizes}")
    if d_head is None and d_model % n_heads:
        raise SettingError(
            f"n_heads = {n_heads} does not divide d_model = {d_model}; change one, or set d_head"
        )
    return d_model // n_heads if d_head is None else d_head


def check_heads(config: TransformerConfig, d_model: int) -> None:
    """Raises SettingError when the heads do not fit the width."""
    width = head_width(d_model, config.n_heads, config.d_head)
    if config.positions == "rotary" and width % 2:
        raise SettingError(f"rotary positions need an even head width, not {width}")
    if config.positions == "relative" and config.relative_distance <= config.relative_buckets // 2:
        raise SettingError(
            f"relative_distance = {config.relative_distance} must exceed half of "
            f"relative_buckets = {config.relative_buckets}"
        )


def beyond_positions(limit: int) -> DataError:
    """The error of a sequence with more tokens than learned positions."""
    return DataError(
        f"a sequence has more than {limit} tokens, the limit of the model's learned positions; "
        "shorten it or train with a larger max_positions"
    )


Pooling = Literal["first", "mean", "max"]

PoolerActivation = Literal["tanh", "relu"]
