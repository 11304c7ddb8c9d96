"""Transformer layers by their names in other libraries, copied into ours."""

import math
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from transduce.errors import DataError
from transduce.interop.read import Checkpoint, Config, reordered, reordered_bias
from transduce.nn.positions import SinusoidalPositions
from transduce.nn.stack_configs import NormOrder, PositionKind, TransformerConfig
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


Parts = Mapping[str, Sequence[str]]
"""Linear layers and norms of a layer here, each with those there that stand side by side in it."""


def layer_parts(attention: str, feed_forward: str, cross: str = "") -> Parts:
    """Parts of a layer by their names there, with blanks between.

    attention, cross: query, key and value, or several of them in one, output, norm.  feed_forward:
    inner layer, or gate and inner layer, outer layer, norm.
    """
    *projections, output, norm = attention.split()
    parts = {
        "self_attention.query_key_value": projections,
        "self_attention.output": [output],
        "self_attention_residual.norm": [norm],
    }
    if cross:
        query, *projections, output, norm = cross.split()
        parts |= {
            "cross_attention.query": [query],
            "cross_attention.key_value": projections,
            "cross_attention.output": [output],
            "cross_attention_residual.norm": [norm],
        }
    *inner, outer, norm = feed_forward.split()
    return parts | {
        f"feed_forward.{'gate_inner' if len(inner) > 1 else 'inner'}": inner,
        "feed_forward.outer": [outer],
        "feed_forward_residual.norm": [norm],
    }


_MARIAN = (
    "self_attn.q_proj self_attn.k_proj self_attn.v_proj self_attn.out_proj self_attn_layer_norm",
    "fc1 fc2 final_layer_norm",
    "encoder_attn.q_proj encoder_attn.k_proj encoder_attn.v_proj encoder_attn.out_proj "
    "encoder_attn_layer_norm",
)
MARIAN = {"encoder": layer_parts(*_MARIAN[:2]), "decoder": layer_parts(*_MARIAN)}


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


POST_NORM = StackLayout()


class Copier:
    """Move tensors from a checkpoint to parameters of this package.

    without_bias: ends of the names of linear layers that have none.  is_transposed: matrices are
    (inputs, outputs) there.  is_rms: norms are root-mean-square.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        without_bias: tuple[str, ...] = (),
        is_transposed: bool = False,
        is_rms: bool = False,
    ) -> None:
        self.checkpoint = checkpoint
        self.without_bias = without_bias
        self.is_transposed = is_transposed
        self.is_rms = is_rms
        self.weights: dict[str, Tensor] = {}

    def linear(self, ours: str, theirs: str, n_in: int, n_out: int) -> None:
        """Copy a linear layer.

        ours: name of the layer here.  theirs: its name in the file.  n_in, n_out: width of input
        and output.
        """
        self.side_by_side(ours, [theirs], n_in, n_out)

    def side_by_side(self, ours: str, theirs: Sequence[str], n_in: int, n_out: int) -> None:
        """Copy linear layers of equal size, with concatenated outputs; zeros for a bias that theirs
        do not have.

        ours: name of the layer here.  n_in: width of the input.  n_out: width of the output of
        each.
        """
        shape = (n_in, n_out) if self.is_transposed else (n_out, n_in)
        matrices = [self._take(name, "weight", *shape) for name in theirs]
        matrices = [matrix.T for matrix in matrices] if self.is_transposed else matrices
        self.weights[f"{ours}.weight"] = torch.cat(matrices)
        self.weights[f"{ours}.bias"] = torch.cat(
            [
                self._take(name, "bias", n_out) if self.is_biased(name) else torch.zeros(n_out)
                for name in theirs
            ]
        )

    def tensor_name(self, name: str, kind: str) -> str:
        """Name of the "weight" or "bias" of a layer there."""
        return f"{name}.{kind}"

    def _take(self, name: str, kind: str, *shape: int) -> Tensor:
        return self.checkpoint.take(self.tensor_name(name, kind), *shape)

    def is_biased(self, name: str) -> bool:
        """True for a linear layer with a bias."""
        return not name.endswith(self.without_bias)

    def norm(self, ours: str, theirs: str, width: int) -> None:
        """Copy a layer norm, which has no bias if it is RMS.

        ours: name of the norm here.  theirs: its name in the file.  width: of the vectors.
        """
        for part in ("weight",) if self.is_rms else ("weight", "bias"):
            self.weights[f"{ours}.{part}"] = self._take(theirs, part, width)

    def layer(
        self, ours: str, theirs: str, parts: Parts, m: int, d_ff: int, heads: int | None = None
    ) -> None:
        """Copy a layer.  theirs: before its names.  heads: width of all together, by default m.
        Raises DataError for biases of a gated feed-forward.

        ours: name of the layer here.  parts: names in the file of each part.  d_ff: inner width.
        """
        wide = heads or m
        sizes = {
            "query_key_value": (m, 3 * wide),
            "query": (m, wide),
            "key_value": (m, 2 * wide),
            "output": (wide, m),
            "inner": (m, d_ff),
            "gate_inner": (m, 2 * d_ff),
            "outer": (d_ff, m),
        }
        for part, names in parts.items():
            kind = part.rpartition(".")[2]
            there = [theirs + name for name in names]
            if kind == "norm":
                self.norm(f"{ours}.{part}", there[0], m)
            else:
                n_in, n_out = sizes.get(kind, (m, m))
                self.side_by_side(f"{ours}.{part}", there, n_in, n_out // len(names))
        gated = ("feed_forward.gate_inner", "feed_forward.outer")
        bare = gated if gated[0] in parts else ("recurrence.candidate",)  # has no bias here
        for part in bare:
            bias = self.weights.pop(f"{ours}.{part}.bias", None)
            if bias is not None and bias.any():
                raise DataError(
                    f"{self.checkpoint.directory}: a gated feed-forward with biases is not "
                    "supported"
                )

    def marian_stack(
        self,
        config: Config,
        stack: str,
        m: int,
        usual: MarianDefaults,
        layout: StackLayout = POST_NORM,
    ) -> TransformerConfig:
        """Copy an encoder or decoder under Marian's names; returns its configuration.

        config: of the file.  stack: "encoder" or "decoder".  m: width of the model.  usual: values
        of settings that the file lacks.  layout: order of the norms, and table of positions.
        """
        n_layers = config.integer(f"{stack}_layers", usual.n_layers)
        d_ff = config.integer(f"{stack}_ffn_dim", usual.d_ff)
        for i in range(n_layers):
            ours = f"{stack}.layers.{i}"
            self.layer(ours, f"model.{ours}.", MARIAN[stack], m, d_ff)
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
        self,
        source: Numbering,
        target: Numbering,
        m: int,
        stack: str = "model.{}",
        common: bool = True,
    ) -> Literal["none", "two-way", "three-way"]:
        """Copy the tables of the sides and the output matrix, as far as there are any beside the
        common one; returns how they are tied.

        A file may have a tied table under any of its names.  stack: name of a stack.  common: the
        sides have one table, if the file names no other.

        source, target: sizes and order of the vocabularies.  m: width of the embeddings.
        """
        first, second = (f"{stack.format(s)}.embed_tokens.weight" for s in ("encoder", "decoder"))
        shared, output = stack.format("shared") + ".weight", "lm_head.weight"
        others = ((second, output), (first, output)) if common else ((), (output,))
        there = [
            self.checkpoint.first_of(name, shared, *rest)
            for name, rest in zip((first, second), others, strict=True)
        ]
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

    def output_bias(self, rows: Sequence[int], size: int, name: str = "", rank: int = 1) -> None:
        """Copy the biases of `size` logits under a name there; zeros without it.

        rows: order of the rows here.  rank: dimensions of the tensor in the file, of size 1 but for
        the last.
        """
        bias = torch.zeros(size)
        if name in self.checkpoint:
            bias = self.checkpoint.take(name, *[1] * (rank - 1), size).flatten()
        self.weights["head.bias"] = reordered_bias(bias, rows)

    def tied_words(self, output: str, rows: Sequence[int], size: int, m: int) -> None:
        """Copy the embedding of a decoder, which is its output matrix too, without a bias.  Raises
        DataError if the checkpoint has another matrix `output`.

        rows: order of the rows here.  size: rows in the file.  m: width of the embedding.
        """
        name = f"{output}.weight"
        table = self.checkpoint.first_of("model.decoder.embed_tokens.weight", name)
        words = self.checkpoint.take(table, size, m)
        if name in self.checkpoint and not torch.equal(self.checkpoint.take(name, size, m), words):
            raise DataError(
                f"{self.checkpoint.directory}: the output matrix {name!r} is not the embedding of "
                "the decoder, and no other is supported"
            )
        self.weights["target_front_end.embedding.weight"] = reordered(words, rows)
        self.output_bias(rows, size)


def share(config: Config, name: str, default: float) -> float:
    """A dropout rate, below 1.

    config: of the file.  name: of the setting.  default: value without it.
    """
    return min(max(config.number(name, default), 0.0), 0.999)


def fairseq_sinusoids(positions: int, m: int, first: int) -> Tensor:
    """Fairseq's table (positions, m) from `first` on, whose rates differ from the paper's."""
    half = m // 2
    rates = torch.exp(torch.arange(half).float() * -(math.log(10000) / (half - 1)))
    angles = (torch.arange(positions) + first).float()[:, None] * rates
    table = torch.cat([angles.sin(), angles.cos()], 1)
    return torch.cat([table, table.new_zeros(positions, m % 2)], 1)
