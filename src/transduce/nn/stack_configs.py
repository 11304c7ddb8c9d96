"""Settings of the stacks, distinguished by `kind`, readable without PyTorch."""

from functools import partial
from typing import Annotated, Literal

from pydantic import Field

from transduce.errors import DataError, SettingError
from transduce.settings.sections import ByKind, section

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
    """Non-linearity of the feed-forward network: gelu-tanh of GPT-2, geglu (by GELU's tanh) of T5.
    swiglu and geglu have a third matrix: for equal size take d_ff two thirds as wide."""
    norm_order: NormOrder = "post"
    """Layer norm after each residual sum (post, the paper) or before each sublayer (pre)."""
    norm: NormKind = "layer"
    """Layer norm, or its division by the root mean square alone (rms; Zhang and Sennrich 2019)."""
    positions: PositionKind = "sinusoidal"
    """Position encoding: sinusoidal-halves has all sines, then all cosines, sinusoidal-marian the
    same with Marian's rates, 10000^(−2i/(m − 2)); relative is T5's."""
    max_positions: Count = 1024
    """Number of learned positions, at least `data.filters.max_length` + 2; other kinds have no
    limit."""
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


SMALL_STACK = partial(
    TransformerConfig, n_layers=4, n_heads=4, d_ff=512, activation="gelu", norm_order="pre"
)
"""Stack of a model for one machine."""
BASE_STACK = partial(
    TransformerConfig, n_layers=12, n_heads=12, d_ff=3072, positions="learned", dropout=0.1
)
"""Stack of BERT-base, the smallest GPT-2 and ViT-B."""


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


ConvolutionPositions = Literal["sinusoidal", "learned", "none"]
SsruPositions = Literal["sinusoidal", "sinusoidal-halves", "sinusoidal-marian", "none"]


def check_middle(width: int) -> None:
    """Raises SettingError for a convolution that has no middle."""
    if width % 2 == 0:
        raise SettingError(f"width = {width} of a convolution must be odd")


@section
class ConvolutionEncoderConfig:
    """Layers of gated convolutions (Gehring et al. 2017)."""

    kind: Literal["convolution"] = "convolution"
    n_layers: Count = 5
    """Number of layers."""
    width: Count = 3
    """Positions that a convolution spans; odd, so that it has a middle."""
    dilation_growth: Annotated[int, Field(ge=1, le=8)] = 1
    """Factor between the dilations of successive layers: 1 for no dilation (ConvS2S); 2 for 1, 2,
    4, 8, 16, repeated (ByteNet)."""
    positions: ConvolutionPositions = "none"
    """Position encoding, in addition to the effect of padding at the edges."""
    max_positions: Count = 1024
    """Longest sequence that learned positions can take; other kinds have no limit."""
    dropout: Share = 0.1
    """Dropped from each layer's output and from the embeddings."""

    def __post_init__(self) -> None:
        check_middle(self.width)


@section
class TextCnnConfig:
    """A layer of convolutions of several widths (Kim 2014), for use with max pooling."""

    kind: Literal["text-cnn"] = "text-cnn"
    widths: Annotated[tuple[Count, ...], Field(min_length=1)] = (3, 4, 5)
    """Positions that the windows span; each width gets an equal share of d_model."""
    dropout: Share = 0.1
    """Dropped from the embeddings."""


def check_widths(config: TextCnnConfig, d_model: int) -> None:
    """Raises SettingError when there are more widths than features to share among them."""
    if len(config.widths) > d_model:
        raise SettingError(f"{len(config.widths)} widths exceed d_model = {d_model}; use fewer")


@section
class ConvolutionDecoderConfig:
    """Layers of gated causal convolutions, with attention in each (Gehring et al. 2017)."""

    kind: Literal["convolution"] = "convolution"
    n_layers: Count = 5
    """Number of layers."""
    width: Count = 3
    """Positions that a convolution spans: its own, and those before it."""
    positions: ConvolutionPositions = "learned"
    """Position encoding."""
    max_positions: Count = 1024
    """Longest sequence that learned positions can take; other kinds have no limit."""
    dropout: Share = 0.1
    """Dropped from each layer's output and from the embeddings."""


@section
class BytenetConfig:
    """Residual blocks of dilated convolutions (Kalchbrenner et al. 2016)."""

    kind: Literal["bytenet"] = "bytenet"
    n_layers: Count = 10
    """Number of blocks; their dilations are 1, 2, 4, 8, 16, repeated.  The paper has 30."""
    width: Annotated[int, Field(ge=2)] = 3
    """Positions that a convolution spans; odd, so that an encoder's has a middle."""
    dropout: Share = 0.1
    """Dropped from each block's output and from the embeddings."""

    def __post_init__(self) -> None:
        check_middle(self.width)


@section
class SsruDecoderConfig:
    """A Transformer decoder with a simple recurrent unit for self-attention (Kim et al. 2019), the
    student of Marian, Bergamot and Firefox; norms follow residual sums."""

    kind: Literal["ssru"] = "ssru"
    n_layers: Count = 2
    """Number of layers."""
    n_heads: Count = 8
    """Heads of cross-attention; must divide d_model."""
    d_ff: Count = 1536
    """Inner width of the feed-forward network."""
    activation: Activation = "relu"
    """Non-linearity of the feed-forward network."""
    positions: SsruPositions = "sinusoidal-marian"
    """Position encoding."""
    dropout: Share = 0.1
    """Dropped from each sublayer's output and from embeddings plus positions."""
    norm_epsilon: Annotated[float, Field(gt=0, lt=1)] = 1e-6
    """Added to the variance in every layer norm."""


@section
class MemoryConfig:
    """Hops of a query over memories, with the same matrices in each (RNN-like tying)."""

    kind: Literal["memory-network"] = "memory-network"
    hops: Count = 3
    """Number of hops."""
    window: Annotated[int, Field(ge=1)] = 8
    """Tokens of a memory and of a query."""
    max_age: Count = 128
    """Ages of memories that have a vector of their own.  Of an encoder: positions from the end of a
    text; older memories share a vector.  Of a decoder: positions from the query; it has no older
    memories."""
    dropout: Share = 0.1
    """Dropped from the embeddings."""


Summary = Literal["mean", "last", "both-ends"]


InputFeeding = Literal["none", "context", "attentional"]


@section
class FixedContext:
    """One vector for the whole source, `summary`."""

    kind: Literal["fixed"] = "fixed"
    every_step: bool = True
    """Input of every step and of the output (Cho et al. 2014), or of the first state alone
    (Sutskever et al. 2014)."""


@section
class AttentionContext:
    """Settings of every attention of a recurrent decoder."""

    input_feeding: InputFeeding = "none"
    """Input of each step besides the token: nothing, so that attention follows the recurrence
    (none), the fastest to train; the context c found by the state before (context, Bahdanau et al.
    2015); the attentional vector tanh(W [c; z]) of the step before (attentional, Luong et al.
    2015)."""


@section
class DotContext(AttentionContext):
    """Attention by the dot product h · z of a source vector and a state (Luong et al. 2015)."""

    kind: Literal["dot"] = "dot"


@section
class GeneralContext(AttentionContext):
    """Attention by a bilinear form, h · W z (Luong et al. 2015)."""

    kind: Literal["general"] = "general"


@section
class AdditiveContext(AttentionContext):
    """Attention by a network of one hidden layer, v · tanh(W_h h + W_z z) (Bahdanau et al. 2015);
    the slowest, with a vector for each pair of positions."""

    kind: Literal["additive"] = "additive"
    width: Annotated[int, Field(ge=0)] = 0
    """Width of the hidden layer, the length of v; 0 for d_model."""


ContextConfig = Annotated[FixedContext | DotContext | GeneralContext | AdditiveContext, ByKind()]


Cell = Literal["lstm", "gru"]


@section
class RecurrentEncoderConfig:
    """Recurrent layers that read the source in one direction or in both."""

    kind: Literal["recurrent"] = "recurrent"
    cell: Cell = "lstm"
    """Recurrent cell: "lstm" (Hochreiter and Schmidhuber 1997) or "gru" (Cho et al.
    2014)."""
    n_layers: Count = 1
    """Number of layers; each has d_model / 2 units in either direction."""
    bidirectional: bool = True
    """Read in both directions; otherwise from left to right, with d_model units in each layer."""
    dropout: Share = 0.1
    """Dropout on the input of each layer and on the output of the last."""


@section
class RecurrentDecoderConfig:
    """Recurrent decoder, and its source context."""

    kind: Literal["recurrent"] = "recurrent"
    cell: Cell = "lstm"
    """Recurrent cell, independent of the encoder's."""
    n_layers: Count = 1
    """Number of layers, of d_model units each."""
    context: ContextConfig = GeneralContext()
    """Source context of the decoder; not used without a source."""
    summary: Summary = "mean"
    """Vector of the source that the first states, and a fixed context, are made from: the mean of
    the memory (mean); its last vector, which is the last state of an encoder of one direction
    (last); the last states of an encoder's two directions (both-ends)."""
    dropout: Share = 0.1
    """Dropout on the input of each layer and on the decoder's output."""


def check_directions(config: RecurrentEncoderConfig, d_model: int) -> None:
    """Raises SettingError when the two directions of the encoder cannot share the width."""
    if config.bidirectional and d_model % 2:
        raise SettingError(
            f"d_model = {d_model} must be even for a bidirectional recurrent encoder"
        )


EncoderConfig = Annotated[
    TransformerConfig
    | RecurrentEncoderConfig
    | ConvolutionEncoderConfig
    | BytenetConfig
    | TextCnnConfig
    | MemoryConfig,
    ByKind("transformer"),
]


DecoderConfig = Annotated[
    TransformerConfig
    | RecurrentDecoderConfig
    | ConvolutionDecoderConfig
    | BytenetConfig
    | SsruDecoderConfig,
    ByKind("transformer"),
]


LanguageDecoderConfig = Annotated[
    TransformerConfig
    | RecurrentDecoderConfig
    | ConvolutionDecoderConfig
    | BytenetConfig
    | SsruDecoderConfig
    | MemoryConfig,
    ByKind("transformer"),
]
"""Decoders without a source."""


StackConfig = EncoderConfig | DecoderConfig


Positioned = TransformerConfig | ConvolutionEncoderConfig | ConvolutionDecoderConfig
"""Sections with positions, which may be learned and so limited."""


def check_stack(config: StackConfig, d_model: int) -> None:
    """Raises SettingError when the stack's settings do not fit the width of the model."""
    match config:
        case TransformerConfig():
            check_heads(config, d_model)
        case SsruDecoderConfig():
            head_width(d_model, config.n_heads)
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
        case TransformerConfig() | SsruDecoderConfig():
            return config.n_layers, config.n_heads
        case RecurrentDecoderConfig():
            return (0, 0) if config.context.kind == "fixed" else (1, 1)
        case ConvolutionDecoderConfig():
            return config.n_layers, 1
        case BytenetConfig():
            return 0, 0


def norm_epsilon(config: StackConfig) -> float:
    """Epsilon of the stack's layer norms, also used in heads."""
    return getattr(config, "norm_epsilon", 1e-5)
