"""A model inside a page: weights as bytes, settings as plain data.

The page's own forward pass (`static/forward.js`) reads them.
"""

import base64
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from transduce.errors import SettingError
from transduce.nn.convolution import dilations
from transduce.nn.stack_configs import (
    ConvolutionDecoderConfig,
    ConvolutionEncoderConfig,
    MemoryConfig,
    RecurrentDecoderConfig,
    RecurrentEncoderConfig,
    SsruDecoderConfig,
    TextCnnConfig,
    TransformerConfig,
    head_width,
)
from transduce.settings.sections import outside, to_dict

Precision = Literal["int8", "float32"]
"""Numbers of matrices in a page; vectors are float32 in both."""
GREATEST = 127
INTEGERS = {torch.int16: "int16", torch.int32: "int32"}
"""Kinds of tables of ids, which are never rounded."""
MOST_PARAMETERS = 130_000_000
"""Parameters of a model in a page, 1.4 bytes each."""


@dataclass(frozen=True)
class LiveModel:
    """Facts of a run, as JSON has them, its network, other tensors, and divisors (rows,) of the
    matrices that came in int8.  The names are those of the page."""

    facts: Mapping[str, Any]
    network: nn.Module
    others: Mapping[str, Tensor] = field(default_factory=dict)
    divisors: Mapping[str, Tensor] = field(default_factory=dict)

    def packed(self, precision: Precision = "int8") -> dict[str, Any]:
        """Plain data for a page."""
        tensors = {**self.network.state_dict(), **self.others}
        arrays, content = packed_arrays(tensors, precision, divisors=self.divisors)
        return {**self.facts, "arrays": arrays, "bytes": base64.b64encode(content).decode()}


def packed_arrays(
    tensors: Mapping[str, Tensor],
    precision: Precision,
    exact: Collection[str] = (),
    divisors: Mapping[str, Tensor] = {},
) -> tuple[list[tuple[str, list[int], str, int]], bytes]:
    """Name, shape, kind and offset of each array, and the bytes of all; tied ones share an offset.

    exact: names of matrices in float32 in every precision, also under other names.  An int8 matrix
    has one scale for each row (a convolution for each channel), before its numbers; matrices that
    came in int8 keep their numbers, with their divisors (rows,) instead.
    """
    index: list[tuple[str, list[int], str, int]] = []
    content = bytearray()
    offsets: dict[int, tuple[str, int]] = {}
    wide = {tensors[name].data_ptr() for name in exact}
    rounded = {tensors[name].data_ptr(): by for name, by in divisors.items()}
    for name, tensor in tensors.items():
        address = tensor.data_ptr()
        if address not in offsets:
            content += bytes(-len(content) % 4)
            is_rounded = tensor.dim() > 1 and address not in wide
            kind = INTEGERS.get(tensor.dtype, precision if is_rounded else "float32")
            by = rounded.get(address) if precision == "int8" else None
            if by is not None:
                offsets[address] = "levels", len(content)
                levels = (tensor.detach().cpu() * by[:, None]).round().char()
                content += bytes(by.numpy().data) + bytes(levels.contiguous().numpy().data)
                index.append((name, list(tensor.shape), *offsets[address]))
                continue
            offsets[address] = kind, len(content)
            content += _bytes_of(tensor.detach().cpu(), kind)
        index.append((name, list(tensor.shape), *offsets[address]))
    return index, bytes(content)


def _bytes_of(tensor: Tensor, kind: str) -> bytes:
    if kind in INTEGERS.values():
        return bytes(tensor.contiguous().numpy().data)
    array: Any = tensor.float().numpy()
    if kind == "float32":
        return bytes(np.ascontiguousarray(array, "<f4").data)
    array = array.reshape(len(array), -1)
    scale = np.abs(array).max(1, keepdims=True) / GREATEST
    numbers = np.round(array / np.where(scale > 0, scale, 1)).astype(np.int8)
    return bytes(scale.astype("<f4").data) + bytes(numbers.data)


NORM_EPSILON = 1e-5
PRE_NORM = {"norm_order": "pre", "epsilon": NORM_EPSILON}
"""Norms of convolutional stacks."""
IN_STACKS: Mapping[str, Collection[str]] = {
    "norm": ("layer",),
    "norm_order": ("post", "pre"),
    "positions": (
        *("none", "sinusoidal", "sinusoidal-halves", "sinusoidal-marian"),
        *("learned", "rotary", "alibi"),
    ),
    "activation": ("relu", "gelu", "gelu-tanh", "silu", "swiglu"),
}
"""Settings of a Transformer that `static/forward.js` computes; it refuses others."""
IN_MODELS: Mapping[str, Collection[str | bool]] = {
    "tie": ("none", "two-way", "three-way", False, True),
    "pooling": ("first", "mean", "max"),
    "pooler_activation": ("tanh", "relu"),
}
"""The same of a model."""


def check_settings(section: Any, name: str, allowed: Mapping[str, Collection[Any]]) -> None:
    """Raises SettingError for a setting of a section that the page does not compute.

    name: of the section.  allowed: values of each setting that the page computes.
    """
    for setting, value in outside(section, name, allowed):
        raise SettingError(f"a live page has no {setting} = {value!r}; leave out --live")


def stack_facts(side: str, config: Any, d_model: int, looks: bool = True) -> dict[str, Any]:
    """Settings of a stack.  Raises SettingError for one that the page does not compute.

    side: "encoder" or "decoder".  config: its settings.  d_model: width of the model.  looks: True
    for a decoder over a memory.
    """
    if not isinstance(config, TransformerConfig):
        return {
            "n_heads": 0,
            "d_head": 0,
            "positions": "none",
            **_other_facts(side, config, d_model, looks),
        }
    check_settings(config, f"model.{side}", IN_STACKS)
    slopes = None
    if config.positions == "alibi":
        slopes = [2 ** (-8 * (i + 1) / config.n_heads) for i in range(config.n_heads)]
    return {
        "kind": config.kind,
        "n_layers": config.n_layers,
        "n_heads": config.n_heads,
        "d_head": head_width(d_model, config.n_heads, config.d_head),
        "d_ff": config.d_ff,
        "activation": config.activation,
        "norm_order": config.norm_order,
        "positions": config.positions,
        "slopes": slopes,
        "epsilon": config.norm_epsilon,
    }


def _other_facts(side: str, config: Any, d_model: int, looks: bool) -> dict[str, Any]:
    """Settings of a stack without layers of a Transformer; as `stack_facts`."""
    facts = {name: setting for name, setting in to_dict(config).items() if name != "dropout"}
    match config:
        case TextCnnConfig():
            return {**facts, "n_layers": 1}
        case RecurrentEncoderConfig():
            return facts
        case RecurrentDecoderConfig():
            if not looks:
                return {**facts, "context": "", "input_feeding": "none"}
            context = facts["context"]
            has_heads = int(context["kind"] != "fixed")
            kinds = {"kind": config.kind, "context": context["kind"]}
            return {**facts, **context, **kinds, "n_heads": has_heads}
        case ConvolutionEncoderConfig():
            steps = dilations(config.n_layers, config.dilation_growth)
            return {**facts, **PRE_NORM, "dilations": steps}
        case ConvolutionDecoderConfig():
            return {**facts, **PRE_NORM, "n_heads": int(looks)}
        case SsruDecoderConfig():
            check_settings(config, f"model.{side}", IN_STACKS)
            d_head, n_heads = head_width(d_model, config.n_heads), config.n_heads * int(looks)
            heads = {"d_head": d_head, "n_heads": n_heads}
            return {**facts, **heads, "norm_order": "post", "epsilon": config.norm_epsilon}
        case MemoryConfig():
            return {**facts, "n_layers": config.hops, "n_heads": 1, "epsilon": NORM_EPSILON}
    raise SettingError(
        f"a live page computes no stack of kind {config.kind!r} (model.{side}.kind); "
        "leave out --live"
    )
