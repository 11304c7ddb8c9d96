"""Known figures under tests/golden, and the tiny encoder-decoder that some of them describe."""

import functools
import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from transduce.models.config import EncoderDecoderConfig
from transduce.models.encoder_decoder import EncoderDecoder, build_encoder_decoder
from transduce.nn.stack_configs import NormOrder, TransformerConfig

FOLDER = Path(__file__).parents[1] / "golden"


@functools.cache
def read_golden(name: str) -> dict[str, Any]:
    """The figures of tests/golden/NAME.json; read once, so do not change them."""
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


def exact(figures: Any) -> Tensor:
    """Figures as a float64 tensor."""
    return torch.tensor(figures, dtype=torch.float64)


def golden_encoder_decoder(norm_order: NormOrder) -> EncoderDecoder:
    """The model of encoder_decoder.json in float64, in eval mode."""
    golden = read_golden("encoder_decoder")
    stack = TransformerConfig(
        n_layers=golden["layers"],
        n_heads=golden["n_heads"],
        d_ff=golden["d_ff"],
        norm_order=norm_order,
        dropout=0.0,
    )
    config = EncoderDecoderConfig(d_model=golden["d_model"], encoder=stack, decoder=stack)
    size = golden["vocabulary"]
    model = build_encoder_decoder(config, size, size, joint=True).double().eval()
    weights = golden["parameters"]
    with torch.no_grad():
        model.target_front_end.embedding.weight.copy_(exact(weights["embedding"]))
        _load_stack(model.encoder, weights["encoder"])
        _load_stack(model.decoder, weights["decoder"])
        if norm_order == "pre":
            _load_norm(model.encoder.norm, weights["encoder_norm"])
            _load_norm(model.decoder.norm, weights["decoder_norm"])
    return model


def _load_stack(stack: nn.Module, layers: list[dict[str, Any]]) -> None:
    for layer, weights in zip(stack.layers, layers, strict=True):
        _load_linear(layer.self_attention.query_key_value, weights["self"], "q", "k", "v")
        _load_linear(layer.self_attention.output, weights["self"], "o")
        residuals = [layer.self_attention_residual]
        if "cross" in weights:
            _load_linear(layer.cross_attention.query, weights["cross"], "q")
            _load_linear(layer.cross_attention.key_value, weights["cross"], "k", "v")
            _load_linear(layer.cross_attention.output, weights["cross"], "o")
            residuals.append(layer.cross_attention_residual)
        _load_linear(layer.feed_forward.inner, weights["ffn"], "1")
        _load_linear(layer.feed_forward.outer, weights["ffn"], "2")
        residuals.append(layer.feed_forward_residual)
        for number, residual in enumerate(residuals, start=1):
            _load_norm(residual.norm, weights[f"norm_{number}"])


def _load_linear(linear: nn.Module, weights: dict[str, Any], *parts: str) -> None:
    """Matrices W_part of x @ W + b, side by side; nn.Linear keeps them transposed."""
    linear.weight.copy_(torch.cat([exact(weights[f"W_{part}"]) for part in parts], 1).T)
    linear.bias.copy_(torch.cat([exact(weights[f"b_{part}"]) for part in parts]))


def _load_norm(norm: nn.Module, weights: dict[str, Any]) -> None:
    norm.weight.copy_(exact(weights["gain"]))
    norm.bias.copy_(exact(weights["bias"]))
