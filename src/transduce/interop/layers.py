"""Transformer layers by their names in other libraries, copied into ours."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from transduce.errors import DataError
from transduce.interop.read import Checkpoint, Config, reordered, reordered_bias
from transduce.nn.positions import SinusoidalPositions
from transduce.nn.transformer_config import NormOrder, PositionKind, TransformerConfig
from transduce.text import Numbering

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


SINUSOIDS: tuple[Literal["sinusoidal", "sinusoidal-halves"], ...] = (
    "sinusoidal",
    "sinusoidal-halves",
)
ROUNDED = 1e-3
"""Difference of sinusoids in half precision."""


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
VIT = replace(
    BERT,
    query="attention.attention.query",
    key="attention.attention.key",
    value="attention.attention.value",
    attention_norm="layernorm_before",
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


class MarianDefaults(NamedTuple):
    """Settings of a stack where `config.json` has none; None where it must."""

    activation: str
    dropout: float
    n_layers: int | None = None
    n_heads: int | None = None
    d_ff: int | None = None


class StackLayout(NamedTuple):
    """Parts of a stack under Marian's names; positions: a table (n, m), or None for sinusoids."""

    norm_order: NormOrder = "post"
    embedding_norm: bool = False
    positions: Tensor | None = None
    key_bias: bool = True


POST_NORM = StackLayout()


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
        """Copy linear layers of equal size, with concatenated outputs.  bias: False if theirs have
        none, or a value for each; ours is zero where there is none."""
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

    def marian_stack(
        self,
        config: Config,
        stack: str,
        m: int,
        usual: MarianDefaults,
        layout: StackLayout = POST_NORM,
    ) -> TransformerConfig:
        """Copy an encoder or decoder under Marian's names; returns its configuration."""
        names, n_layers = marian_layer(stack), config.integer(f"{stack}_layers", usual.n_layers)
        d_ff, key_bias = config.integer(f"{stack}_ffn_dim", usual.d_ff), layout.key_bias
        for i in range(n_layers):
            ours, theirs = f"{stack}.layers.{i}", names.layer.format(i)
            self.layer(ours, theirs, names, m, d_ff, bias=(True, key_bias, True))
            if stack == "decoder":
                cross, parts = f"{ours}.cross_attention", f"{theirs}encoder_attn"
                self.linear(f"{cross}.query", f"{parts}.q_proj", m, m)
                key_value = [f"{parts}.k_proj", f"{parts}.v_proj"]
                self.side_by_side(f"{cross}.key_value", key_value, m, m, (key_bias, True))
                self.linear(f"{cross}.output", f"{parts}.out_proj", m, m)
                self.norm(f"{cross}_residual.norm", f"{parts}_layer_norm", m)
        table = layout.positions
        if table is not None:
            self.weights[f"{stack}.positions.table.weight"] = table
        if layout.norm_order == "pre":
            self.norm(f"{stack}.norm", f"model.{stack}.layer_norm", m)
        if layout.embedding_norm:
            self.norm(f"{stack}.embedding_norm", f"model.{stack}.layernorm_embedding", m)
        return TransformerConfig(
            n_layers=n_layers,
            n_heads=config.integer(f"{stack}_attention_heads", usual.n_heads),
            d_ff=d_ff,
            activation=config.one_of("activation_function", ACTIVATIONS, usual.activation),
            dropout=share(config, "dropout", usual.dropout),
            attention_dropout=share(config, "attention_dropout", 0.0),
            feed_forward_dropout=share(config, "activation_dropout", 0.0),
            norm_order=layout.norm_order,
            embedding_norm=layout.embedding_norm,
            positions="sinusoidal-halves" if table is None else "learned",
            max_positions=1024 if table is None else len(table),
        )

    def positions(self, stack: str, table: Tensor) -> tuple[PositionKind, int]:
        """Copy a table (n, m) of positions unless it holds the paper's sinusoids, in either layout;
        returns its kind, and its rows where they limit lengths, or else 0."""
        for kind in SINUSOIDS:
            at = torch.arange(len(table))
            sinusoids = SinusoidalPositions(kind).embed(torch.zeros_like(table), at)
            if torch.allclose(sinusoids, table, rtol=0.0, atol=ROUNDED):
                return kind, 0
        self.weights[f"{stack}.positions.table.weight"] = table
        return "learned", len(table)

    def embeddings(
        self, source: Numbering, target: Numbering, m: int, stack: str = "model.{}"
    ) -> Literal["none", "two-way", "three-way"]:
        """Copy the tables of the sides and the output matrix, as far as there are any beside the
        common one; returns how they are tied.  stack: name of a stack."""
        first, second = (f"{stack.format(s)}.embed_tokens.weight" for s in ("encoder", "decoder"))
        shared, output = stack.format("shared") + ".weight", "lm_head.weight"
        there = [name if name in self.checkpoint else shared for name in (first, second)]
        tables = [self.checkpoint.take(there[0], source.size, m)]
        same = there[0] == there[1]
        tables.append(tables[0] if same else self.checkpoint.take(there[1], target.size, m))
        if not (same or source.size != target.size) and torch.equal(*tables):
            tables[1] = tables[0]
        matrix = tables[1]
        if output in self.checkpoint:
            matrix = self.checkpoint.take(output, target.size, m)
        tied = matrix is tables[1] or torch.equal(matrix, tables[1])
        self.weights["front_end.embedding.weight"] = reordered(tables[0], source.rows)
        if tied and tables[0] is tables[1] and source.rows == target.rows:
            return "three-way"
        self.weights["target_front_end.embedding.weight"] = reordered(tables[1], target.rows)
        if tied:
            return "two-way"
        self.weights["head.weight"] = reordered(matrix, target.rows)
        return "none"

    def tied_words(self, output: str, rows: Sequence[int], size: int, m: int) -> None:
        """Copy the embedding of a decoder, which is its output matrix too, without a bias.  Raises
        DataError if the checkpoint has another matrix `output`."""
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


def fairseq_sinusoids(positions: int, m: int, first: int) -> Tensor:
    """Fairseq's table (positions, m) from `first` on, whose rates differ from the paper's."""
    half = m // 2
    rates = torch.exp(torch.arange(half).float() * -(math.log(10000) / (half - 1)))
    angles = (torch.arange(positions) + first).float()[:, None] * rates
    table = torch.cat([angles.sin(), angles.cos()], 1)
    return torch.cat([table, table.new_zeros(positions, m % 2)], 1)
