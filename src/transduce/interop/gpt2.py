"""GPT-2: transposed matrices, and a token that both begins and ends a text."""

from __future__ import annotations

import math
from pathlib import Path

import torch

from transduce.interop.layers import ACTIVATIONS, Copier, share
from transduce.interop.read import Config, ImportedModel, open_checkpoint, reordered, reordered_bias
from transduce.interop.tokenizers import DECODER, read_tokenizer
from transduce.models.decoder_only import DecoderOnlyConfig
from transduce.nn.transformer_config import TransformerConfig
from transduce.settings.sections import to_dict

BUFFERS = (r"h\.\d+\.attn\.(bias|masked_bias)",)  # the causal mask
_END = {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"}


def import_gpt2(directory: Path, config: Config) -> ImportedModel:
    """Import a directory with `model_type` gpt2."""
    config.known_architecture("GPT2LMHeadModel", "GPT2Model")
    config.require("add_cross_attention", False, False)
    checkpoint = open_checkpoint(directory)
    checkpoint.rename(r"^transformer\.", "")
    copier = Copier(checkpoint)
    m = config.integer("n_embd", 768)
    d_ff = config.integer("n_inner", 4 * m)
    n_layers = config.integer("n_layer", 12)
    n_positions = config.integer("n_positions", 1024)
    numbering_size = config.integer("vocab_size", 50257)
    tokenizer = read_tokenizer(directory, numbering_size, DECODER, _END, usual="GPT2Tokenizer")
    rows = tokenizer.numbering.rows
    words = reordered(checkpoint.take("wte.weight", numbering_size, m), rows)
    copier.weights["front_end.embedding.weight"] = words
    copier.weights["decoder.positions.table.weight"] = checkpoint.take("wpe.weight", n_positions, m)
    for i in range(n_layers):
        _layer(config, copier, i, m, d_ff)
    copier.norm("decoder.norm", "ln_f", m)
    tie = True
    if "lm_head.weight" in checkpoint:
        output = reordered(checkpoint.take("lm_head.weight", numbering_size, m), rows)
        tie = torch.equal(output, words)
        if not tie:
            copier.weights["head.weight"] = output
    copier.weights["head.bias"] = reordered_bias(torch.zeros(numbering_size), rows)
    left_out = checkpoint.finish(buffers=BUFFERS)
    decoder = TransformerConfig(
        n_layers=n_layers,
        n_heads=config.integer("n_head", 12),
        d_ff=d_ff,
        activation=config.one_of("activation_function", ACTIVATIONS, "gelu_new"),
        norm_order="pre",
        positions="learned",
        max_positions=n_positions,
        dropout=share(config, "resid_pdrop", 0.1),
        attention_dropout=share(config, "attn_pdrop", 0.1),
        norm_epsilon=config.number("layer_norm_epsilon", 1e-5),
    )
    model = DecoderOnlyConfig(
        d_model=m, decoder=decoder, tie=tie, scale_embeddings=False, output_bias=True
    )
    text = {"tokenizer": {"kind": tokenizer.kind}, "block": n_positions}
    recipe = {"task": "language-model", "data": {}, "text": text, "model": to_dict(model)}
    return ImportedModel(recipe, copier.weights, {"tokenizer": tokenizer}, left_out=left_out)


def _layer(config: Config, copier: Copier, i: int, m: int, d_ff: int) -> None:
    ours, theirs = f"decoder.layers.{i}", f"h.{i}"
    query_key_value = f"{ours}.self_attention.query_key_value"
    copier.transposed(query_key_value, f"{theirs}.attn.c_attn", m, 3 * m)
    # Ours divides by the root of the heads' width alone; further factors go into the queries.
    factor = 1.0
    if not config.flag("scale_attn_weights", True):
        factor *= math.sqrt(m // config.integer("n_head", 12))
    if config.flag("scale_attn_by_inverse_layer_idx", False):
        factor /= i + 1
    for part in ("weight", "bias"):
        copier.weights[f"{query_key_value}.{part}"][:m] *= factor
    copier.transposed(f"{ours}.self_attention.output", f"{theirs}.attn.c_proj", m, m)
    copier.norm(f"{ours}.self_attention_residual.norm", f"{theirs}.ln_1", m)
    copier.transposed(f"{ours}.feed_forward.inner", f"{theirs}.mlp.c_fc", m, d_ff)
    copier.transposed(f"{ours}.feed_forward.outer", f"{theirs}.mlp.c_proj", d_ff, m)
    copier.norm(f"{ours}.feed_forward_residual.norm", f"{theirs}.ln_2", m)
