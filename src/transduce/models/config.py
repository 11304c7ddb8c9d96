"""Settings of models and presets of published ones, readable without PyTorch."""

from dataclasses import replace
from functools import partial
from typing import Literal

from transduce.errors import SettingError
from transduce.nn.stack_configs import (
    BASE_STACK,
    SMALL_STACK,
    AdditiveContext,
    BytenetConfig,
    ContextConfig,
    ConvolutionDecoderConfig,
    ConvolutionEncoderConfig,
    Count,
    DecoderConfig,
    DotContext,
    EncoderConfig,
    FixedContext,
    GeneralContext,
    InitMethod,
    PoolerActivation,
    Pooling,
    RecurrentDecoderConfig,
    RecurrentEncoderConfig,
    SsruDecoderConfig,
    TransformerConfig,
    check_stack,
)
from transduce.settings.sections import section


@section
class EncoderDecoderConfig:
    """An encoder-decoder; the defaults are the paper's base model."""

    d_model: Count = 512
    """Width of the model, everywhere."""
    tie: Literal["none", "two-way", "three-way"] = "three-way"
    """Weight tying: two-way shares target embedding and output matrix, three-way also the source
    embedding (the paper; needs a joint vocabulary)."""
    init: InitMethod = "xavier"
    """Initialisation: Xavier for matrices and unit variance for scaled embeddings (xavier), or N(0,
    0.02²) for all (normal); the better choice depends on the data."""
    scale_embeddings: bool = True
    """Multiply embeddings by √d_model, as in the paper."""
    output_bias: bool = False
    """Bias on the logits; imported models ban tokens with it."""
    encoder: EncoderConfig = TransformerConfig()
    decoder: DecoderConfig = TransformerConfig()

    def __post_init__(self) -> None:
        for stack in (self.encoder, self.decoder):
            check_stack(stack, self.d_model)


def check_tie(config: EncoderDecoderConfig, joint: bool) -> None:
    """Raises SettingError if matrices of different vocabularies are to be tied."""
    if config.tie == "three-way" and not joint:
        raise SettingError(
            "model.tie = 'three-way' needs one joint vocabulary; remove text.target, or "
            "set model.tie = 'two-way'"
        )


@section
class EncoderOnlyConfig:
    """An encoder over text; the defaults are BERT's shape at a size for one machine."""

    d_model: Count = 128
    """Width of the model, everywhere."""
    encoder: EncoderConfig = SMALL_STACK(positions="learned", max_positions=512)
    scale_embeddings: bool = True
    """Multiply embeddings by √d_model, as in the paper; BERT does not."""
    segments: bool = False
    """Add segment embeddings to distinguish the two texts of a pair, as in BERT."""
    pooling: Pooling = "mean"
    """Pooling over positions: the first vector, or the mean or maximum of all."""
    pooler: bool = False
    """A dense layer and an activation over the pooled vector before the labels, as in BERT."""
    pooler_activation: PoolerActivation = "tanh"
    """Activation after the dense layer of the pooler; "relu" for DistilBERT."""

    def __post_init__(self) -> None:
        check_stack(self.encoder, self.d_model)


# Devlin et al. 2019, BERT-base: 109.48 million parameters with 30,522 word pieces and the pooler.
BERT_BASE = EncoderOnlyConfig(
    d_model=768,
    encoder=BASE_STACK(
        activation="gelu",
        norm_order="post",
        max_positions=512,
        attention_dropout=0.1,
        embedding_norm=True,
        norm_epsilon=1e-12,
    ),
    scale_embeddings=False,
    segments=True,
    pooling="first",
    pooler=True,
)

ENCODER_PRESETS = {"bert-base": BERT_BASE}
"""Encoders of text."""


_model = partial(EncoderDecoderConfig, tie="three-way")
_post_norm = partial(
    TransformerConfig, activation="relu", norm_order="post", positions="sinusoidal"
)
_pre_norm = partial(TransformerConfig, activation="relu", norm_order="pre", positions="sinusoidal")
_encoder = partial(RecurrentEncoderConfig, n_layers=2, dropout=0.3)
_decoder = partial(RecurrentDecoderConfig, n_layers=2, dropout=0.3)

_BASE = _post_norm(n_layers=6, n_heads=8, d_ff=2048, dropout=0.1)
_BIG = _post_norm(n_layers=6, n_heads=16, d_ff=4096, dropout=0.3)
_TINY = _post_norm(n_layers=4, n_heads=4, d_ff=256, dropout=0.3, positions="rotary")
_SMALL = _pre_norm(n_layers=3, n_heads=4, d_ff=1024, dropout=0.1)
_SPELLER = _pre_norm(n_layers=3, n_heads=4, d_ff=512, dropout=0.1)
_STUDENT = replace(_BASE, d_ff=1536, positions="sinusoidal-marian", norm_epsilon=1e-6)
_BYTENET = BytenetConfig(n_layers=10, width=3, dropout=0.3)


def _recurrent(context: ContextConfig) -> EncoderDecoderConfig:
    """The same encoder and cells under a context that leaves the recurrence alone."""
    encoder, decoder = _encoder(cell="lstm"), _decoder(cell="lstm", context=context)
    return _model(d_model=168, encoder=encoder, decoder=decoder)


PRESETS: dict[str, EncoderDecoderConfig] = {
    # Vaswani et al. 2017, Table 3, rows "base" and "big" (dropout 0.3 for English to German; 0.1
    # for English to French).
    "paper-base": _model(d_model=512, encoder=_BASE, decoder=_BASE),
    "paper-big": _model(d_model=1024, encoder=_BIG, decoder=_BIG),
    # What a few thousand to a few ten thousand pairs can fill: Wu et al. 2021 call it
    # Transformer-Tiny. Norm, positions and initial weights belong together; effects of each:
    # docs/measurements/quality.md.
    "tiny": _model(d_model=128, init="normal", encoder=_TINY, decoder=_TINY),
    # A hundred thousand short pairs on a laptop.
    "small": _model(d_model=256, encoder=_SMALL, decoder=_SMALL),
    # Letters to sounds: two small alphabets, so two vocabularies.
    "speller": _model(d_model=128, tie="two-way", encoder=_SPELLER, decoder=_SPELLER),
    # Kim et al. 2019, in the sizes of Firefox's models: a decoder of two layers without
    # self-attention, for `transduce distil` and `export --format bergamot`.
    "student": _model(d_model=256, encoder=_STUDENT, decoder=SsruDecoderConfig()),
    # The ancestors, for comparison: with a joint vocabulary of 8,000 each has about as many
    # parameters as "tiny", 2.3 million, and its dropout.  Four recurrent models as their papers
    # have them, each with its own cell, context and first state.
    # Sutskever et al. 2014: the last state of the encoder is the first of the decoder, no more.
    "rnn-sutskever": _model(
        d_model=168,
        encoder=_encoder(cell="lstm", bidirectional=False),
        decoder=_decoder(cell="lstm", context=FixedContext(every_step=False), summary="last"),
    ),
    # Cho et al. 2014: it also enters every step.
    "rnn-cho": _model(
        d_model=176,
        encoder=_encoder(cell="gru", bidirectional=False),
        decoder=_decoder(cell="gru", context=FixedContext(), summary="last"),
    ),
    # Bahdanau et al. 2015: the state before finds the context that enters the step.
    "rnn-bahdanau": _model(
        d_model=176,
        encoder=_encoder(cell="gru"),
        decoder=_decoder(
            cell="gru", context=AdditiveContext(input_feeding="context"), summary="both-ends"
        ),
    ),
    # Luong et al. 2015: the new state finds it, and the attentional state enters the next step.
    "rnn-luong": _model(
        d_model=160,
        encoder=_encoder(cell="lstm", bidirectional=False),
        decoder=_decoder(
            cell="lstm", context=GeneralContext(input_feeding="attentional"), summary="last"
        ),
    ),
    "rnn-fixed": _recurrent(FixedContext()),
    "rnn-dot": _recurrent(DotContext()),
    "rnn-general": _recurrent(GeneralContext()),
    "rnn-additive": _recurrent(AdditiveContext()),
    # Gehring et al. 2017: gated convolutions on both sides, attention in each layer.
    "convs2s": _model(
        d_model=128,
        encoder=ConvolutionEncoderConfig(
            n_layers=6, width=3, positions="learned", max_positions=258, dropout=0.3
        ),
        decoder=ConvolutionDecoderConfig(
            n_layers=6, width=3, positions="learned", max_positions=258, dropout=0.3
        ),
    ),
    # Kalchbrenner et al. 2016: dilated convolutions on both sides, and no attention.
    "bytenet": _model(d_model=160, encoder=_BYTENET, decoder=_BYTENET),
    # The encoder of Gehring et al. 2017 under the decoder of "tiny", pre-norm and with sinusoids.
    "convolution": _model(
        d_model=128,
        encoder=ConvolutionEncoderConfig(
            n_layers=5, width=3, dilation_growth=1, positions="sinusoidal", dropout=0.3
        ),
        decoder=replace(_TINY, norm_order="pre", positions="sinusoidal"),
    ),
}
"""Models from text to text."""
