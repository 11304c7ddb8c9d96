"""Presets: published models, with their settings spelled out.

A recipe names one with `preset = "paper-base"` under `[model]` and may change any setting of it.
"""

from __future__ import annotations

from dataclasses import replace

from transduce.models.encoder_decoder_config import EncoderDecoderConfig
from transduce.nn.stack_configs import (
    AdditiveContext,
    BytenetConfig,
    ContextConfig,
    ConvolutionDecoderConfig,
    ConvolutionEncoderConfig,
    DotContext,
    FixedContext,
    GeneralContext,
    RecurrentDecoderConfig,
    RecurrentEncoderConfig,
)
from transduce.nn.transformer_config import TransformerConfig

# Vaswani et al. 2017, Table 3, row "base".
_BASE_STACK = TransformerConfig(
    n_layers=6,
    n_heads=8,
    d_ff=2048,
    activation="relu",
    norm_order="post",
    positions="sinusoidal",
    dropout=0.1,
)
PAPER_BASE = EncoderDecoderConfig(
    d_model=512, tie="three-way", encoder=_BASE_STACK, decoder=_BASE_STACK
)

# The same table, row "big" (dropout 0.3 for English to German; 0.1 for English to French).
_BIG_STACK = TransformerConfig(
    n_layers=6,
    n_heads=16,
    d_ff=4096,
    activation="relu",
    norm_order="post",
    positions="sinusoidal",
    dropout=0.3,
)
PAPER_BIG = EncoderDecoderConfig(
    d_model=1024, tie="three-way", encoder=_BIG_STACK, decoder=_BIG_STACK
)

# What a few thousand to a few ten thousand pairs can fill: Wu et al. 2021 call it Transformer-Tiny.
# Norm, positions and initial weights belong together; effects of each: docs/quality.md.
_TINY_STACK = TransformerConfig(
    n_layers=4,
    n_heads=4,
    d_ff=256,
    activation="relu",
    norm_order="post",
    positions="rotary",
    dropout=0.3,
)
TINY = EncoderDecoderConfig(
    d_model=128,
    tie="three-way",
    init="normal",
    encoder=_TINY_STACK,
    decoder=_TINY_STACK,
)

# A hundred thousand short pairs on a laptop.
_SMALL_STACK = TransformerConfig(
    n_layers=3,
    n_heads=4,
    d_ff=1024,
    activation="relu",
    norm_order="pre",
    positions="sinusoidal",
    dropout=0.1,
)
SMALL = EncoderDecoderConfig(
    d_model=256, tie="three-way", encoder=_SMALL_STACK, decoder=_SMALL_STACK
)

# Letters to sounds: two small alphabets, so two vocabularies.
_SPELLER_STACK = TransformerConfig(
    n_layers=3,
    n_heads=4,
    d_ff=512,
    activation="relu",
    norm_order="pre",
    positions="sinusoidal",
    dropout=0.1,
)
SPELLER = EncoderDecoderConfig(
    d_model=128, tie="two-way", encoder=_SPELLER_STACK, decoder=_SPELLER_STACK
)

# The ancestors, for comparison: with a joint vocabulary of 8,000 each has about as many parameters
# as "tiny", 2.3 million, and its dropout.

# Four recurrent models as their papers have them, each with its own cell, context and first state.
_ONE_DIRECTION = RecurrentEncoderConfig(cell="lstm", n_layers=2, bidirectional=False, dropout=0.3)
# Sutskever et al. 2014: the last state of the encoder is the first of the decoder, and no more.
RNN_SUTSKEVER = EncoderDecoderConfig(
    d_model=168,
    tie="three-way",
    encoder=_ONE_DIRECTION,
    decoder=RecurrentDecoderConfig(
        cell="lstm",
        n_layers=2,
        context=FixedContext(every_step=False),
        summary="last",
        dropout=0.3,
    ),
)
# Cho et al. 2014: it also enters every step.
RNN_CHO = EncoderDecoderConfig(
    d_model=176,
    tie="three-way",
    encoder=replace(_ONE_DIRECTION, cell="gru"),
    decoder=RecurrentDecoderConfig(
        cell="gru", n_layers=2, context=FixedContext(), summary="last", dropout=0.3
    ),
)
# Bahdanau et al. 2015: the state before finds the context that enters the step.
RNN_BAHDANAU = EncoderDecoderConfig(
    d_model=176,
    tie="three-way",
    encoder=RecurrentEncoderConfig(cell="gru", n_layers=2, dropout=0.3),
    decoder=RecurrentDecoderConfig(
        cell="gru",
        n_layers=2,
        context=AdditiveContext(input_feeding="context"),
        summary="both-ends",
        dropout=0.3,
    ),
)
# Luong et al. 2015: the new state finds it, and the attentional state enters the next step.
RNN_LUONG = EncoderDecoderConfig(
    d_model=160,
    tie="three-way",
    encoder=_ONE_DIRECTION,
    decoder=RecurrentDecoderConfig(
        cell="lstm",
        n_layers=2,
        context=GeneralContext(input_feeding="attentional"),
        summary="last",
        dropout=0.3,
    ),
)

# The same encoder and cells under four contexts that leave the recurrence alone, to be compared.
_RECURRENT_ENCODER = RecurrentEncoderConfig(cell="lstm", n_layers=2, dropout=0.3)


def _recurrent(context: ContextConfig) -> EncoderDecoderConfig:
    return EncoderDecoderConfig(
        d_model=168,
        tie="three-way",
        encoder=_RECURRENT_ENCODER,
        decoder=RecurrentDecoderConfig(cell="lstm", n_layers=2, context=context, dropout=0.3),
    )


RNN_FIXED = _recurrent(FixedContext())
RNN_DOT = _recurrent(DotContext())
RNN_GENERAL = _recurrent(GeneralContext())
RNN_ADDITIVE = _recurrent(AdditiveContext())

# Gehring et al. 2017: gated convolutions on both sides, attention in each layer.
CONVS2S = EncoderDecoderConfig(
    d_model=128,
    tie="three-way",
    encoder=ConvolutionEncoderConfig(
        n_layers=6, width=3, positions="learned", max_positions=258, dropout=0.3
    ),
    decoder=ConvolutionDecoderConfig(
        n_layers=6, width=3, positions="learned", max_positions=258, dropout=0.3
    ),
)

# Kalchbrenner et al. 2016: dilated convolutions on both sides, and no attention.
_BYTENET_STACK = BytenetConfig(n_layers=10, width=3, dropout=0.3)
BYTENET = EncoderDecoderConfig(
    d_model=160, tie="three-way", encoder=_BYTENET_STACK, decoder=_BYTENET_STACK
)

# Gehring et al. 2017 for the encoder, under the decoder of "tiny", but pre-norm and with sinusoids.
CONVOLUTION = EncoderDecoderConfig(
    d_model=128,
    tie="three-way",
    encoder=ConvolutionEncoderConfig(
        n_layers=5, width=3, dilation_growth=1, positions="sinusoidal", dropout=0.3
    ),
    decoder=replace(_TINY_STACK, norm_order="pre", positions="sinusoidal"),
)

PRESETS: dict[str, EncoderDecoderConfig] = {
    "paper-base": PAPER_BASE,
    "paper-big": PAPER_BIG,
    "tiny": TINY,
    "small": SMALL,
    "speller": SPELLER,
    "rnn-sutskever": RNN_SUTSKEVER,
    "rnn-cho": RNN_CHO,
    "rnn-bahdanau": RNN_BAHDANAU,
    "rnn-luong": RNN_LUONG,
    "rnn-fixed": RNN_FIXED,
    "rnn-dot": RNN_DOT,
    "rnn-general": RNN_GENERAL,
    "rnn-additive": RNN_ADDITIVE,
    "convs2s": CONVS2S,
    "bytenet": BYTENET,
    "convolution": CONVOLUTION,
}
"""Models from text to text."""
