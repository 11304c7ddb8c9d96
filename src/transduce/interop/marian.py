"""Marian: an encoder-decoder whose outputs start with the padding token."""

from __future__ import annotations

from pathlib import Path

from transduce.errors import DataError
from transduce.interop.generation import decoding, read_generation, renormalises
from transduce.interop.layers import Copier, MarianDefaults
from transduce.interop.read import (
    IMPOSSIBLE,
    Config,
    ImportedModel,
    open_checkpoint,
    text_kinds,
)
from transduce.interop.tokenizers import read_marian_tokenizers
from transduce.models.encoder_decoder_config import EncoderDecoderConfig
from transduce.settings.sections import to_dict
from transduce.text import PAD

BUFFERS = (r"model\.(encoder|decoder)\.embed_positions\.weight",)  # sinusoids
USUAL = MarianDefaults("gelu", 0.1, n_layers=12, n_heads=16, d_ff=4096)


def import_marian(directory: Path, config: Config) -> ImportedModel:
    """Import a directory with `model_type` marian."""
    _check(config)
    checkpoint = open_checkpoint(directory)
    shared = config.flag("share_encoder_decoder_embeddings", True)
    source_size = config.integer("vocab_size")
    target_size = source_size if shared else config.integer("decoder_vocab_size", source_size)
    source, target = read_marian_tokenizers(
        directory, (source_size, target_size), *_special_tokens(config)
    )
    copier = Copier(checkpoint)
    m = config.integer("d_model", 1024)
    tie = copier.embeddings(source.numbering, target.numbering, m, common=shared)
    encoder = copier.marian_stack(config, "encoder", m, USUAL)
    decoder = copier.marian_stack(config, "decoder", m, USUAL)
    copier.output_bias(target.numbering.rows, target_size, "final_logits_bias", rank=2)
    generation = read_generation(directory, config)
    if renormalises(generation, target.numbering.pad):
        # Never an output, and excluded from the softmax.
        copier.weights["head.bias"][PAD] = IMPOSSIBLE
    # Where the sides have tables of their own, the common one is a relic.
    left_out = checkpoint.finish((r"model\.shared\.weight",), BUFFERS)
    model = EncoderDecoderConfig(
        d_model=m,
        tie=tie,
        encoder=encoder,
        decoder=decoder,
        scale_embeddings=config.flag("scale_embedding", False),
        output_bias=True,
    )
    max_length = config.integer("max_position_embeddings", 1024) - 1
    recipe = {
        "task": "translation",
        "data": {"filters": {"max_length": max(max_length, 1)}},
        "text": text_kinds(source, target, shared),
        "model": to_dict(model),
        "decoding": decoding(generation, config),
    }
    tokenizers = {"source_tokenizer": source, "target_tokenizer": target}
    return ImportedModel(recipe, copier.weights, tokenizers, left_out=left_out)


def _check(config: Config) -> None:
    config.known_architecture("MarianMTModel")
    config.require("normalize_before", False, False)
    config.require("add_final_layer_norm", False, False)
    config.require("normalize_embedding", False, False)


def _special_tokens(config: Config) -> tuple[int, int, int]:
    pad, eos = config.token("pad_token_id"), config.token("eos_token_id")
    if pad is None or eos is None:
        raise DataError(f"{config.path} must set pad_token_id and eos_token_id")
    start = config.token("decoder_start_token_id")
    return pad, pad if start is None else start, eos
