"""Marian as transformers has it, in the size of a model of ours."""

from __future__ import annotations

import importlib
from typing import Any

from workload import BOS, EOS, PAD

from transduce.models.config import EncoderDecoderConfig
from transduce.nn.stack_configs import TransformerConfig


def marian(
    config: EncoderDecoderConfig, sources: int, targets: int, joint: bool, positions: int = 512
) -> Any:
    """A `MarianMTModel` with as many layers, heads and units, post-norm, attention fused.

    sources, targets: sizes of the vocabularies.  joint: they are one.  positions: most tokens.
    """
    transformers = importlib.import_module("transformers")
    encoder, decoder = config.encoder, config.decoder
    assert isinstance(encoder, TransformerConfig) and isinstance(decoder, TransformerConfig)
    theirs = transformers.MarianMTModel(
        transformers.MarianConfig(
            vocab_size=sources,
            decoder_vocab_size=targets,
            share_encoder_decoder_embeddings=joint,
            tie_word_embeddings=config.tie != "none",
            d_model=config.d_model,
            encoder_layers=encoder.n_layers,
            decoder_layers=decoder.n_layers,
            encoder_attention_heads=encoder.n_heads,
            decoder_attention_heads=decoder.n_heads,
            encoder_ffn_dim=encoder.d_ff,
            decoder_ffn_dim=decoder.d_ff,
            dropout=encoder.dropout,
            activation_function=encoder.activation,
            scale_embedding=True,
            pad_token_id=PAD,
            bos_token_id=BOS,
            eos_token_id=EOS,
            forced_eos_token_id=None,
            decoder_start_token_id=BOS,
            max_position_embeddings=positions,
            attn_implementation="sdpa",
        )
    )
    theirs.generation_config.forced_eos_token_id = None
    return theirs
