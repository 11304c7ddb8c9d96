"""CTranslate2: an encoder-decoder as a directory that it loads.

Weights go into the specification by name; models beyond the specification are refused.  Ids are
unchanged, so a vocabulary is only a list of names for them.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from transduce.errors import RunError, SettingError, extra_module
from transduce.models.config import EncoderDecoderConfig
from transduce.models.encoder_decoder import EncoderDecoder
from transduce.nn.feed_forward import GatedFeedForward
from transduce.nn.front_ends.text import TextFrontEnd
from transduce.nn.precision import Precision
from transduce.nn.stack_configs import TransformerConfig
from transduce.settings.sections import outside
from transduce.text.tokenizer import BOS, EOS, UNK

CTRANSLATE2_ACTIVATIONS = {
    "relu": "RELU",
    "gelu": "GELU",
    "gelu-tanh": "GELUTanh",
    "silu": "SWISH",
    "swiglu": "SWISH",
}


IN_STACKS: Mapping[str, Collection[str]] = {
    "positions": ("sinusoidal", "sinusoidal-halves", "learned", "rotary", "none"),
    "norm_order": ("post", "pre"),
    "norm": ("layer",),
    "activation": CTRANSLATE2_ACTIVATIONS,
}
"""Values of the settings of a stack that CTranslate2 computes; others are refused."""


def library(name: str = "") -> Any:
    """The package `ctranslate2`, or a module of it.  Raises SettingError if it is missing."""
    return extra_module(f"ctranslate2{name}", "CTranslate2", "ctranslate2", SettingError)


def check_ctranslate2_expressible(config: EncoderDecoderConfig) -> None:
    """Raises RunError, naming all settings, for a model that CTranslate2 does not support."""
    if reasons := ", ".join(_unsupported(config)):
        raise RunError(f"CTranslate2 does not support {reasons}")


def _unsupported(config: EncoderDecoderConfig) -> Iterator[str]:
    for name, value in outside(config, "model", {"tie": ("none", "two-way", "three-way")}):
        yield f"{name} = {value!r}"
    stacks = {"encoder": config.encoder, "decoder": config.decoder}
    for side, stack in stacks.items():
        if not isinstance(stack, TransformerConfig):
            yield f"model.{side}.kind = {stack.kind!r}"
            continue
        for name, value in outside(stack, f"model.{side}", IN_STACKS):
            yield f"{name} = {value!r}"
        if stack.d_head is not None and stack.d_head * stack.n_heads != config.d_model:
            yield f"model.{side}.d_head = {stack.d_head} other than d_model / n_heads"
    epsilons = {getattr(stack, "norm_epsilon", None) for stack in stacks.values()} - {None}
    if len(epsilons) > 1:
        yield "a norm_epsilon of model.encoder other than that of model.decoder"


def write_ctranslate2(
    model: EncoderDecoder,
    config: EncoderDecoderConfig,
    directory: Path,
    source: Sequence[str],
    target: Sequence[str],
    positions: int,
    precision: Precision = "float32",
    source_end: bool = True,
) -> None:
    """Write model.bin, config.json and the vocabularies into an existing directory.

    source, target: a unique name for each id.  positions: maximum of the exported model, if its own
    have no limit.  source_end: EOS at the end of a source.  Raises RunError for an unsupported
    model.
    """
    if precision == "bf16":
        raise SettingError("CTranslate2 supports float32 and int8 on a CPU, not bf16")
    check_ctranslate2_expressible(config)
    assert isinstance(config.encoder, TransformerConfig)
    assert isinstance(config.decoder, TransformerConfig)
    specs = library(".specs")
    encoder = specs.TransformerEncoderSpec(*_sizes(config.encoder), **_shape(specs, config.encoder))
    decoder = specs.TransformerDecoderSpec(
        *_sizes(config.decoder),
        **_shape(specs, config.decoder),
        alignment_heads=config.decoder.n_heads,  # their mean, of the last layer
    )
    _front_end(encoder, encoder.embeddings[0], model.front_end)
    _front_end(decoder, decoder.embeddings, model.target_front_end)
    _ctranslate2_stack(encoder, model.encoder, config.encoder, config.d_model, positions)
    _ctranslate2_stack(decoder, model.decoder, config.decoder, config.d_model, positions)
    _linear(decoder.projection, model.head.weight, model.head.bias)
    spec = specs.TransformerSpec(encoder, decoder)
    spec.register_source_vocabulary(list(source))
    spec.register_target_vocabulary(list(target))
    spec.config.unk_token = target[UNK]
    spec.config.bos_token = spec.config.decoder_start_token = target[BOS]
    spec.config.eos_token = target[EOS]
    spec.config.add_source_eos = source_end
    spec.config.layer_norm_epsilon = config.decoder.norm_epsilon
    spec.validate()
    spec.optimize(quantization="int8" if precision == "int8" else None)
    spec.save(str(directory))


def _sizes(stack: TransformerConfig) -> tuple[int, int]:
    return stack.n_layers, stack.n_heads


def _shape(specs: Any, stack: TransformerConfig) -> dict[str, Any]:
    shape: dict[str, Any] = {
        "pre_norm": stack.norm_order == "pre",
        "activation": specs.common_spec.Activation[CTRANSLATE2_ACTIVATIONS[stack.activation]],
        "layernorm_embedding": stack.embedding_norm,
        "ffn_glu": stack.activation == "swiglu",
    }
    if stack.positions == "rotary":
        shape |= {"rotary_dim": 0, "rotary_interleave": False}
    return shape


def _front_end(spec: Any, embeddings: Any, ours: Any) -> None:
    assert isinstance(ours, TextFrontEnd)
    embeddings.weight = _ctranslate2_array(ours.embedding.weight)
    spec.scale_embeddings = ours.scale


def _ctranslate2_stack(
    spec: Any, ours: Any, stack: TransformerConfig, d_model: int, positions: int
) -> None:
    if stack.positions != "rotary":
        rows = stack.max_positions if stack.positions == "learned" else positions
        nothing = torch.zeros(rows, d_model, device=next(ours.parameters()).device)
        at = torch.arange(rows, device=nothing.device)
        spec.position_encodings.encodings = _ctranslate2_array(ours.positions.embed(nothing, at))
    if stack.embedding_norm:
        _norm(spec.layernorm_embedding, ours.embedding_norm)
    if stack.norm_order == "pre":
        _norm(spec.layer_norm, ours.norm)
    for theirs, layer in zip(spec.layer, ours.layers, strict=True):
        _layer(theirs, layer)


def _layer(spec: Any, ours: Any) -> None:
    attention = ours.self_attention
    parts: list[tuple[Any, Sequence[Any]]] = [
        (spec.self_attention.linear, (attention.query_key_value, attention.output))
    ]
    _norm(spec.self_attention.layer_norm, ours.self_attention_residual.norm)
    if hasattr(ours, "cross_attention"):
        cross = ours.cross_attention
        parts.append((spec.attention.linear, (cross.query, cross.key_value, cross.output)))
        _norm(spec.attention.layer_norm, ours.cross_attention_residual.norm)
    for theirs, linears in parts:
        for target, linear in zip(theirs, linears, strict=True):
            _linear(target, linear.weight, linear.bias)
    _feed_forward(spec.ffn, ours.feed_forward)
    _norm(spec.ffn.layer_norm, ours.feed_forward_residual.norm)


def _feed_forward(spec: Any, ours: Any) -> None:
    if isinstance(ours, GatedFeedForward):
        gate, inner = ours.gate_inner.weight.chunk(2)
        _linear(spec.linear_0, gate, None)
        _linear(spec.linear_0_noact, inner, None)
    else:
        _linear(spec.linear_0, ours.inner.weight, ours.inner.bias)
    _linear(spec.linear_1, ours.outer.weight, ours.outer.bias)


def _linear(spec: Any, weight: Tensor, bias: Tensor | None) -> None:
    spec.weight = _ctranslate2_array(weight)
    if bias is not None:
        spec.bias = _ctranslate2_array(bias)


def _norm(spec: Any, ours: nn.LayerNorm) -> None:
    spec.gamma, spec.beta = _ctranslate2_array(ours.weight), _ctranslate2_array(ours.bias)


def _ctranslate2_array(tensor: Tensor) -> Any:
    """A copy, since the specification quantises arrays in place."""
    return tensor.detach().to("cpu", torch.float32, copy=True).contiguous().numpy()
