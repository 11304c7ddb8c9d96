"""GPT-2: transposed matrices, and a token that both begins and ends a text."""

import math
from pathlib import Path

import torch

from transduce.interop.layers import ACTIVATIONS, Copier, layer_parts, share
from transduce.interop.read import Config, ImportedModel, open_checkpoint, reordered
from transduce.interop.tokenizers import DECODER, read_tokenizer
from transduce.models.decoder_only import DecoderOnlyConfig
from transduce.nn.stack_configs import TransformerConfig
from transduce.settings.sections import to_dict

GPT2_BUFFERS = (r"h\.\d+\.attn\.(bias|masked_bias)",)  # the causal mask
_GPT2_LAYER = layer_parts("attn.c_attn attn.c_proj ln_1", "mlp.c_fc mlp.c_proj ln_2")
_END = {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"}


def import_gpt2(directory: Path, config: Config) -> ImportedModel:
    """Import a directory with `model_type` gpt2."""
    config.known_architecture("GPT2LMHeadModel", "GPT2Model")
    config.require("add_cross_attention", False, False)
    checkpoint = open_checkpoint(directory)
    checkpoint.rename(r"^transformer\.", "")
    copier = Copier(checkpoint, is_transposed=True)
    m = config.integer("n_embd", 768)
    d_ff = config.integer("n_inner", 4 * m)
    n_layers = config.integer("n_layer", 12)
    n_positions = config.integer("n_positions", 1024)
    numbering_size = config.integer("vocab_size", 50257)
    tokenizer = read_tokenizer(directory, numbering_size, DECODER, _END, usual="GPT2Tokenizer")
    rows = tokenizer.numbering.rows
    table = checkpoint.first_of("wte.weight", "lm_head.weight")
    words = reordered(checkpoint.take(table, numbering_size, m), rows)
    copier.weights["front_end.embedding.weight"] = words
    copier.weights["decoder.positions.table.weight"] = checkpoint.take("wpe.weight", n_positions, m)
    for i in range(n_layers):
        copier.layer(f"decoder.layers.{i}", f"h.{i}.", _GPT2_LAYER, m, d_ff)
        _scale_queries(config, copier, i, m)
    copier.norm("decoder.norm", "ln_f", m)
    tie = True
    if "lm_head.weight" in checkpoint:
        output = reordered(checkpoint.take("lm_head.weight", numbering_size, m), rows)
        tie = torch.equal(output, words)
        if not tie:
            copier.weights["head.weight"] = output
    copier.output_bias(rows, numbering_size)
    left_out = checkpoint.finish(buffers=GPT2_BUFFERS)
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


def _scale_queries(config: Config, copier: Copier, i: int, m: int) -> None:
    """Put factors of the scores into the queries: ours are divided by the root of the width of a
    head alone."""
    factor = 1.0
    if not config.flag("scale_attn_weights", True):
        factor *= math.sqrt(m // config.integer("n_head", 12))
    if config.flag("scale_attn_by_inverse_layer_idx", False):
        factor /= i + 1
    for part in ("weight", "bias"):
        copier.weights[f"decoder.layers.{i}.self_attention.query_key_value.{part}"][:m] *= factor
