"""T5, mT5 and ByT5: relative positions, root-mean-square norms, and layers without biases.

Their scores are not divided by √d, and outputs over a tied matrix are multiplied by m^-0.5: the
matrices of the queries and the last norm take that in.
"""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

from transduce.errors import DataError
from transduce.interop.generation import decoding, read_generation
from transduce.interop.layers import ACTIVATIONS, Copier, layer_parts, share
from transduce.interop.read import Config, ImportedModel, open_checkpoint
from transduce.interop.tokenizers import STARTED, byte_tokenizer, read_tokenizer, tokenizer_settings
from transduce.models.encoder_decoder_config import EncoderDecoderConfig
from transduce.nn.transformer_config import TransformerConfig
from transduce.settings.sections import to_dict
from transduce.text import HuggingFaceTokenizer

PROJECTIONS = {
    **ACTIVATIONS,
    "gelu": "gelu",
    "gated-gelu": "geglu",
    "gated-gelu_new": "geglu",
    "gated-silu": "swiglu",
}
"""Kinds of feed-forward networks, by `feed_forward_proj`."""
GATED = ("geglu", "swiglu")
ATTENTION = "{0}.q {0}.k {0}.v {0}.o {1}.layer_norm"
"""Parts of an attention and its norm, by the names of both."""
LONGEST, LONGEST_OF_BYTES = 512, 1024
"""Tokens of a source in training, which positions do not limit."""


def import_t5(directory: Path, config: Config) -> ImportedModel:
    """Import a directory with `model_type` t5 or mt5 (ByT5 is either)."""
    name = "MT5" if config.values["model_type"] == "mt5" else "T5"
    config.known_architecture(f"{name}ForConditionalGeneration", "T5ForConditionalGeneration")
    checkpoint = open_checkpoint(directory)
    m, size = config.integer("d_model", 512), config.integer("vocab_size", 32128)
    tokenizer = _tokenizer(directory, config, size)
    copier = Copier(checkpoint, without_bias=("",), is_rms=True)
    tie = copier.embeddings(tokenizer.numbering, tokenizer.numbering, m, stack="{}")
    copier.output_bias(tokenizer.numbering.rows, size)
    n_layers = config.integer("num_layers", 6)
    depths = {"encoder": n_layers, "decoder": config.integer("num_decoder_layers", n_layers)}
    stacks: dict[str, Any] = {
        side: _stack(copier, config, side, n, m) for side, n in depths.items()
    }
    scaled = name == "T5" and config.values.get("tie_word_embeddings") is not False
    if config.flag("scale_decoder_outputs", scaled):
        copier.weights["decoder.norm.weight"] *= m**-0.5
    unused = (r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight",)
    left_out = checkpoint.finish((*unused, r"(shared|(en|de)coder\.embed_tokens)\.weight"))
    model = EncoderDecoderConfig(
        d_model=m, tie=tie, scale_embeddings=False, output_bias=True, **stacks
    )
    of_bytes = _class_of(directory, config) == "ByT5Tokenizer"
    recipe = {
        "task": "translation",
        "data": {"filters": {"max_length": LONGEST_OF_BYTES if of_bytes else LONGEST}},
        "text": {"source": {"kind": tokenizer.kind}},
        "model": to_dict(model),
        "decoding": decoding(read_generation(directory, config), config, opened=False),
    }
    return ImportedModel(recipe, copier.weights, {"tokenizer": tokenizer}, left_out=left_out)


def _class_of(directory: Path, config: Config) -> str:
    named = tokenizer_settings(directory).get("tokenizer_class")
    return str(named or config.values.get("tokenizer_class") or "T5Tokenizer").removesuffix("Fast")


def _tokenizer(directory: Path, config: Config, size: int) -> HuggingFaceTokenizer:
    pad, eos = config.token("pad_token_id"), config.token("eos_token_id")
    start = config.token("decoder_start_token_id")
    start = pad if start is None else start
    if pad is None or eos is None:
        raise DataError(f"{config.path} must set pad_token_id and eos_token_id")
    if _class_of(directory, config) == "ByT5Tokenizer":
        tokenizer = byte_tokenizer(size)
    else:
        tokenizer = read_tokenizer(directory, size, STARTED, {}, usual="T5Tokenizer")
    numbering = dataclasses.replace(tokenizer.numbering, pad=pad, bos=start, eos=eos)
    return tokenizer.renumbered(numbering)


def _stack(copier: Copier, config: Config, side: str, n_layers: int, m: int) -> TransformerConfig:
    """Copy an encoder or decoder; returns its configuration."""
    take, weights = copier.checkpoint.take, copier.weights
    n_heads, d = config.integer("num_heads", 8), config.integer("d_kv", 64)
    d_ff, wide = config.integer("d_ff", 2048), n_heads * d
    activation = config.one_of("feed_forward_proj", PROJECTIONS, "relu")

    last = 1 if side == "encoder" else 2
    network = f"layer.{last}.DenseReluDense"
    inner = f"{network}.wi_0 {network}.wi_1" if activation in GATED else f"{network}.wi"
    parts = layer_parts(
        ATTENTION.format("layer.0.SelfAttention", "layer.0"),
        f"{inner} {network}.wo layer.{last}.layer_norm",
        ATTENTION.format("layer.1.EncDecAttention", "layer.1") if side == "decoder" else "",
    )
    for i in range(n_layers):
        ours = f"{side}.layers.{i}"
        copier.layer(ours, f"{side}.block.{i}.", parts, m, d_ff, wide)
        weights[f"{ours}.self_attention.query_key_value.weight"][:wide] *= math.sqrt(d)
        if side == "decoder":
            weights[f"{ours}.cross_attention.query.weight"] *= math.sqrt(d)
    buckets = config.integer("relative_attention_num_buckets", 32)
    table = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
    weights[f"{side}.positions.table.weight"] = take(table, buckets, n_heads)
    copier.norm(f"{side}.norm", f"{side}.final_layer_norm", m)
    dropout = share(config, "dropout_rate", 0.1)
    return TransformerConfig(
        n_layers=n_layers,
        n_heads=n_heads,
        d_head=d,
        d_ff=d_ff,
        activation=activation,
        norm_order="pre",
        norm="rms",
        norm_epsilon=config.number("layer_norm_epsilon", 1e-6),
        positions="relative",
        relative_buckets=buckets,
        relative_distance=config.integer("relative_attention_max_distance", 128),
        dropout=dropout,
        attention_dropout=dropout,
        feed_forward_dropout=dropout,
    )
