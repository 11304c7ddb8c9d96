"""Marian directory of Hugging Face, from an encoder-decoder: the reverse of `interop.marian`.

Sinusoids have another order there (all sines first).  A model does not depend on the order of its
dimensions, so every weight is written with the dimensions in that order, which is exact.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from transduce.errors import RunError
from transduce.interop.layers import MARIAN
from transduce.interop.sentencepiece_checks import check_sentencepiece
from transduce.models.encoder_decoder import EncoderDecoder
from transduce.models.encoder_decoder_config import EncoderDecoderConfig
from transduce.nn.stack_configs import SsruDecoderConfig
from transduce.nn.transformer_config import TransformerConfig
from transduce.text import BOS, EOS, PAD, SPECIAL_TOKENS, Tokenizer

ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "gelu-tanh": "gelu_new", "silu": "silu"}
"""Names in transformers."""
POSITIONS = ("sinusoidal", "sinusoidal-halves")
EPSILON = 1e-5
TOKENS = {
    "pad_token_id": PAD,
    "bos_token_id": BOS,
    "eos_token_id": EOS,
    "decoder_start_token_id": BOS,
}
SEARCH = {**TOKENS, "bad_words_ids": [[PAD], [BOS]], "forced_eos_token_id": EOS}
"""Settings of a search that all models share."""


class Expressible(NamedTuple):
    """Values that a form of Marian can have."""

    positions: tuple[str, ...] = POSITIONS
    epsilon: float = EPSILON
    activations: tuple[str, ...] = tuple(ACTIVATIONS)
    decoders: tuple[str, ...] = ("transformer",)


IN_TRANSFORMERS = Expressible()
Rows = Iterator[tuple[str, Any, tuple[Any, ...]]]
"""Names of settings, their values, and possible ones."""


def check_settings(rows: Rows) -> None:
    """Raises RunError, with all settings to change before training, for values that are not
    possible."""
    refused = {name: (setting, able) for name, setting, able in rows if setting not in able}
    if refused:
        has = ", ".join(f"{name} = {setting!r}" for name, (setting, _) in refused.items())
        choices = (f"{n} = {' or '.join(map(repr, able))}" for n, (_, able) in refused.items())
        raise RunError(f"Marian has no {has}; train with {', '.join(choices)}")


def check_expressible(
    config: EncoderDecoderConfig,
    source: Tokenizer,
    target: Tokenizer,
    able: Expressible = IN_TRANSFORMERS,
) -> None:
    """Raises RunError, with the setting to change before training, if Marian cannot express it."""
    check_settings(_settings(config, able))
    for side, tokenizer in (("source", source), ("target", target)):
        check_sentencepiece("Marian", side, tokenizer)


def _settings(config: EncoderDecoderConfig, able: Expressible) -> Rows:
    """Name, value and possible values of each setting that Marian restricts."""
    yield "model.tie", config.tie, ("three-way", "two-way")
    for side, stack in (("encoder", config.encoder), ("decoder", config.decoder)):
        yield f"model.{side}.kind", stack.kind, able.decoders[: 1 + (side == "decoder")]
        if not isinstance(stack, TransformerConfig | SsruDecoderConfig):
            continue
        yield f"model.{side}.positions", stack.positions, able.positions
        yield f"model.{side}.activation", stack.activation, able.activations
        yield f"model.{side}.norm_epsilon", stack.norm_epsilon, (able.epsilon,)
        if isinstance(stack, SsruDecoderConfig):
            continue
        yield f"model.{side}.norm_order", stack.norm_order, ("post",)
        yield f"model.{side}.norm", stack.norm, ("layer",)
        yield f"model.{side}.embedding_norm", stack.embedding_norm, (False,)
        width = (stack.d_head or 0) * stack.n_heads
        d_head = None if width == config.d_model else stack.d_head
        yield f"model.{side}.d_head", d_head, (None,)
    for name, known in (("positions", able.positions), ("activation", able.activations)):
        same = getattr(config.encoder, name, None)
        if same in known and getattr(config.decoder, name, None) in known:
            yield f"model.decoder.{name}", getattr(config.decoder, name), (same,)


class MarianDirectory(NamedTuple):
    """Content of a directory: tensors of model.safetensors, and the other files by name."""

    tensors: dict[str, Tensor]
    files: dict[str, bytes]


def marian_directory(
    model: EncoderDecoder,
    config: EncoderDecoderConfig,
    source: Tokenizer,
    target: Tokenizer,
    search: Mapping[str, Any],
    positions: int,
) -> MarianDirectory:
    """A model and its tokenizers as transformers reads them, for sequences of so many positions.
    search: settings of `generation_config.json`."""
    check_expressible(config, source, target)
    shared = config.tie == "three-way"
    files = {
        "config.json": _json(_config(config, source, target, shared, positions)),
        "generation_config.json": _json({**SEARCH, **search, "max_length": positions}),
        **_tokenizers(source, target, positions),
    }
    return MarianDirectory(_tensors(model.state_dict(), config, shared), files)


def sizes(config: EncoderDecoderConfig) -> dict[str, int]:
    """Sizes of a model, by their names in transformers."""
    encoder, decoder = config.encoder, config.decoder
    assert isinstance(encoder, TransformerConfig) and isinstance(decoder, TransformerConfig)
    named = {
        f"{side}_{name}": value
        for side, stack in (("encoder", encoder), ("decoder", decoder))
        for name, value in (
            ("layers", stack.n_layers),
            ("attention_heads", stack.n_heads),
            ("ffn_dim", stack.d_ff),
        )
    }
    return {"d_model": config.d_model, **named}


def _config(
    config: EncoderDecoderConfig,
    source: Tokenizer,
    target: Tokenizer,
    shared: bool,
    positions: int,
) -> dict[str, Any]:
    encoder = config.encoder
    assert isinstance(encoder, TransformerConfig)
    return {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        "is_encoder_decoder": True,
        "vocab_size": source.size,
        "decoder_vocab_size": target.size,
        **sizes(config),
        "activation_function": ACTIVATIONS[encoder.activation],
        "dropout": encoder.dropout,
        "attention_dropout": encoder.attention_dropout,
        "activation_dropout": encoder.feed_forward_dropout,
        "scale_embedding": config.scale_embeddings,
        "static_position_embeddings": True,
        "normalize_before": False,
        "normalize_embedding": False,
        "add_final_layer_norm": False,
        "share_encoder_decoder_embeddings": shared,
        "tie_word_embeddings": True,
        "max_position_embeddings": positions,
        **TOKENS,
    }


def _tokenizers(source: Tokenizer, target: Tokenizer, positions: int) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    sides = {"source": ("vocab.json", source), "target": ("target_vocab.json", target)}
    for side, (name, tokenizer) in sides.items():
        files[f"{side}.spm"] = tokenizer.to_bytes()
        vocabulary = {piece: i for i, piece in enumerate(tokenizer.tokens(range(tokenizer.size)))}
        vocabulary |= {piece: i for i, piece in enumerate(SPECIAL_TOKENS)}
        if side == "source" or source is not target:
            files[name] = _json(vocabulary)
    pad, unknown, _, end = SPECIAL_TOKENS
    settings = {
        "tokenizer_class": "MarianTokenizer",
        "pad_token": pad,
        "unk_token": unknown,
        "eos_token": end,
        "model_max_length": positions - 1,
        "separate_vocabs": source is not target,
    }
    return {**files, "tokenizer_config.json": _json(settings)}


def _tensors(
    weights: Mapping[str, Tensor], config: EncoderDecoderConfig, shared: bool
) -> dict[str, Tensor]:
    """Weights under their names in transformers, dimensions reordered for its sinusoids."""
    encoder, decoder = config.encoder, config.decoder
    assert isinstance(encoder, TransformerConfig) and isinstance(decoder, TransformerConfig)
    dimensions = torch.arange(config.d_model)
    if encoder.positions == "sinusoidal":
        dimensions = torch.cat([dimensions[::2], dimensions[1::2]])
    tensors: dict[str, Tensor] = {}
    for side, stack in (("encoder", encoder), ("decoder", decoder)):
        for i, (part, names) in itertools.product(range(stack.n_layers), MARIAN[side].items()):
            layer = f"{side}.layers.{i}"
            weight, bias = (weights[f"{layer}.{part}.{kind}"] for kind in ("weight", "bias"))
            if part.endswith(("output", "outer", "norm")):
                weight, bias = weight[dimensions], bias[dimensions]
            else:
                weight = weight[:, dimensions]
            n = len(names)
            for name, w, b in zip(names, weight.chunk(n), bias.chunk(n), strict=True):
                tensors[f"model.{layer}.{name}.weight"] = w
                tensors[f"model.{layer}.{name}.bias"] = b
    target = weights["target_front_end.embedding.weight"][:, dimensions]
    if shared:
        tensors["model.shared.weight"] = target
    else:
        source = weights["front_end.embedding.weight"][:, dimensions]
        tensors["model.encoder.embed_tokens.weight"] = source
        tensors["model.decoder.embed_tokens.weight"] = target
    bias = weights.get("head.bias", torch.zeros(len(target)))
    tensors["final_logits_bias"] = bias[None].float()
    return tensors


def _json(content: Any) -> bytes:
    return (json.dumps(content, ensure_ascii=False, indent=1) + "\n").encode()
