"""Transformer layers by their names in other libraries, copied into ours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from transduce.errors import DataError
from transduce.interop.read import Checkpoint, Config, reordered, reordered_bias

ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu-tanh",
    "gelu_fast": "gelu-tanh",
    "gelu_pytorch_tanh": "gelu-tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}


@dataclass(frozen=True)
class LayerNames:
    """Names of a layer's parts; `{}` in `layer` is its number."""

    layer: str
    query: str
    key: str
    value: str
    attention_output: str
    attention_norm: str
    inner: str
    outer: str
    norm: str


BERT = LayerNames(
    layer="encoder.layer.{}.",
    query="attention.self.query",
    key="attention.self.key",
    value="attention.self.value",
    attention_output="attention.output.dense",
    attention_norm="attention.output.LayerNorm",
    inner="intermediate.dense",
    outer="output.dense",
    norm="output.LayerNorm",
)
DISTILBERT = LayerNames(
    layer="transformer.layer.{}.",
    query="attention.q_lin",
    key="attention.k_lin",
    value="attention.v_lin",
    attention_output="attention.out_lin",
    attention_norm="sa_layer_norm",
    inner="ffn.lin1",
    outer="ffn.lin2",
    norm="output_layer_norm",
)
VIT = LayerNames(
    layer="encoder.layer.{}.",
    query="attention.attention.query",
    key="attention.attention.key",
    value="attention.attention.value",
    attention_output="attention.output.dense",
    attention_norm="layernorm_before",
    inner="intermediate.dense",
    outer="output.dense",
    norm="layernorm_after",
)


def marian_layer(stack: str) -> LayerNames:
    """Names in a Marian stack, encoder or decoder."""
    return LayerNames(
        layer=f"model.{stack}.layers.{{}}.",
        query="self_attn.q_proj",
        key="self_attn.k_proj",
        value="self_attn.v_proj",
        attention_output="self_attn.out_proj",
        attention_norm="self_attn_layer_norm",
        inner="fc1",
        outer="fc2",
        norm="final_layer_norm",
    )


class Copier:
    """Move tensors from a checkpoint to parameters of this package."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.checkpoint = checkpoint
        self.weights: dict[str, Tensor] = {}

    def linear(self, ours: str, theirs: str, n_in: int, n_out: int) -> None:
        """Copy a linear layer."""
        self.side_by_side(ours, [theirs], n_in, n_out)

    def side_by_side(
        self,
        ours: str,
        theirs: Sequence[str],
        n_in: int,
        n_out: int,
        bias: bool | Sequence[bool] = True,
    ) -> None:
        """Copy linear layers of equal size, with concatenated outputs.

        bias: False if theirs have none, or one for each; ours is zero where there is none.
        """
        take = self.checkpoint.take
        self.weights[f"{ours}.weight"] = torch.cat(
            [take(f"{name}.weight", n_out, n_in) for name in theirs]
        )
        biased = [bias] * len(theirs) if isinstance(bias, bool) else bias
        parts = zip(theirs, biased, strict=True)
        self.weights[f"{ours}.bias"] = torch.cat(
            [take(f"{name}.bias", n_out) if there else torch.zeros(n_out) for name, there in parts]
        )

    def transposed(self, ours: str, theirs: str, n_in: int, n_out: int) -> None:
        """Copy a linear layer with a transposed matrix."""
        self.weights[f"{ours}.weight"] = self.checkpoint.take(f"{theirs}.weight", n_in, n_out).T
        self.weights[f"{ours}.bias"] = self.checkpoint.take(f"{theirs}.bias", n_out)

    def norm(self, ours: str, theirs: str, width: int) -> None:
        """Copy a layer norm."""
        for part in ("weight", "bias"):
            self.weights[f"{ours}.{part}"] = self.checkpoint.take(f"{theirs}.{part}", width)

    def layer(
        self,
        ours: str,
        theirs: str,
        names: LayerNames,
        m: int,
        d_ff: int,
        bias: bool | Sequence[bool] = True,
    ) -> None:
        """Copy self-attention and feed-forward network; `bias` is of queries, keys and values."""
        attention = [theirs + name for name in (names.query, names.key, names.value)]
        self.side_by_side(f"{ours}.self_attention.query_key_value", attention, m, m, bias)
        self.linear(f"{ours}.self_attention.output", theirs + names.attention_output, m, m)
        self.norm(f"{ours}.self_attention_residual.norm", theirs + names.attention_norm, m)
        self.linear(f"{ours}.feed_forward.inner", theirs + names.inner, m, d_ff)
        self.linear(f"{ours}.feed_forward.outer", theirs + names.outer, d_ff, m)
        self.norm(f"{ours}.feed_forward_residual.norm", theirs + names.norm, m)

    def marian_cross_attention(
        self, ours: str, theirs: str, m: int, bias: bool | Sequence[bool] = True
    ) -> None:
        """Copy cross-attention under Marian's names; `bias` is of keys and values."""
        self.linear(f"{ours}.cross_attention.query", f"{theirs}encoder_attn.q_proj", m, m)
        parts = [f"{theirs}encoder_attn.{name}" for name in ("k_proj", "v_proj")]
        self.side_by_side(f"{ours}.cross_attention.key_value", parts, m, m, bias)
        self.linear(f"{ours}.cross_attention.output", f"{theirs}encoder_attn.out_proj", m, m)
        self.norm(f"{ours}.cross_attention_residual.norm", f"{theirs}encoder_attn_layer_norm", m)

    def tied_words(self, output: str, rows: Sequence[int], size: int, m: int) -> None:
        """Copy the embedding of a decoder, which is its output matrix too, without a bias.

        output: name of that matrix, if the checkpoint has it.  rows: their id of each of ours, -1
        for none.  Raises DataError if the matrices differ.
        """
        words = self.checkpoint.take("model.decoder.embed_tokens.weight", size, m)
        name = f"{output}.weight"
        if name in self.checkpoint and not torch.equal(self.checkpoint.take(name, size, m), words):
            raise DataError(
                f"{self.checkpoint.directory}: the output matrix {name!r} is not the embedding of "
                "the decoder, and no other is supported"
            )
        self.weights["target_front_end.embedding.weight"] = reordered(words, rows)
        self.weights["head.bias"] = reordered_bias(torch.zeros(size), rows)


def share(config: Config, name: str, default: float) -> float:
    """A dropout rate, below 1."""
    return min(max(config.number(name, default), 0.0), 0.999)
