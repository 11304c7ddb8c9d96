"""Parts of a Transformer under Marian's own names, those of its `.npz` and `.bin` files."""

from __future__ import annotations

from transduce.interop.layers import Parts, layer_parts

SETTINGS = "special:model.yml"
"""Name of the settings among the tensors."""
ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "silu": "swish"}
"""Names in Marian."""
EPSILON = 1e-6
"""Of every layer norm there."""


_ATTENTION = "{0}_q {0}_k {0}_v {0}_o {0}_Wo_ln"
_FEED_FORWARD = "ffn_1 ffn_2 ffn_ffn_ln"


def parts_of(side: str, recurrent: bool) -> Parts:
    """Parts of a layer of the encoder or decoder.  recurrent: of a decoder with SSRU."""
    if side == "encoder":
        return layer_parts(_ATTENTION.format("self"), _FEED_FORWARD)
    parts = layer_parts(_ATTENTION.format("self"), _FEED_FORWARD, _ATTENTION.format("context"))
    if not recurrent:
        return parts
    return {
        "recurrence.candidate": ["rnn_"],
        "recurrence.forget": ["rnn_f"],
        "recurrence_residual.norm": ["rnn_ffn_ln"],
        **{part: names for part, names in parts.items() if not part.startswith("self_attention")},
    }


def layer_name(side: str, number: int) -> str:
    """Text before the names of the parts of a layer, whose number is from 0."""
    return f"{side}_l{number + 1}_"


def tensor_name(name: str, kind: str) -> str:
    """Name of the tensor of a part: of its "weight" or its "bias"."""
    if name.endswith("_ln"):
        return f"{name}_{'scale' if kind == 'weight' else 'bias'}"
    prefix, _, letter = name.rpartition("_")
    return f"{prefix}_{'W' if kind == 'weight' else 'b'}{letter}"
