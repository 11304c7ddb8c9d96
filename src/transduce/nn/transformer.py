"""Transformer encoder and decoder (Figure 1), and a decoder with a simple recurrent unit (SSRU;
Kim et al. 2019)."""

from collections.abc import Callable
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transduce.nn.attention import CrossAttention, SelfAttention, StepContext
from transduce.nn.feed_forward import build_feed_forward
from transduce.nn.masks import key_mask, past_mask, whole_mask
from transduce.nn.positions import (
    Distances,
    Unpadding,
    build_positions,
    position_ids,
    positions_after,
)
from transduce.nn.recurrent import RecurrentState
from transduce.nn.residual import NORMS, RESIDUALS, Dropout, PostNorm, final_norm
from transduce.nn.stack_configs import SsruDecoderConfig, TransformerConfig, check_heads, head_width
from transduce.nn.state import DecoderState, KeyValue, KeyValueCache
from transduce.sequence import Padded


class _Layer(nn.Module):
    """Self-attention, cross-attention if there is a memory, feed-forward: each in its residual."""

    def __init__(
        self, config: TransformerConfig, d_model: int, cross_attention: bool = False
    ) -> None:
        super().__init__()
        residual = RESIDUALS[config.norm_order]
        heads = config.n_heads, config.attention_dropout, config.d_head
        around = d_model, config.dropout, config.norm_epsilon, config.norm
        self.self_attention = SelfAttention(d_model, *heads)
        self.self_attention_residual = residual(*around)
        if cross_attention:
            self.cross_attention = CrossAttention(d_model, *heads)
            self.cross_attention_residual = residual(*around)
        self.feed_forward = build_feed_forward(
            d_model, config.d_ff, config.activation, config.feed_forward_dropout
        )
        self.feed_forward_residual = residual(*around)


class EncoderLayer(_Layer):
    """Self-attention, then feed-forward."""

    def forward(self, x: Tensor, context: StepContext) -> Tensor:
        """(b, t, m), or (n, m) without padding, -> the same shape."""
        x = self.self_attention_residual(x, self.self_attention, context)
        return self.feed_forward_residual(x, self.feed_forward)  # type: ignore[no-any-return]


class DecoderLayer(_Layer):
    """Causal self-attention, cross-attention if there is a memory, feed-forward."""

    def forward(
        self, x: Tensor, context: StepContext, cache: KeyValueCache, memory: KeyValue | None
    ) -> Tensor:
        """(r, t, m), or (n, m) without padding, -> the same shape; `cache` takes in its keys.

        x: (r, t, m) or (n, m).  context: masks and positions of the step.  memory: keys and values
        of the source; None without.
        """
        x = self.self_attention_residual(x, self.self_attention, context, cache)
        if memory is not None:
            x = self.cross_attention_residual(x, self.cross_attention, context, memory)
        return self.feed_forward_residual(x, self.feed_forward)  # type: ignore[no-any-return]


class _Stack(nn.Module):
    def __init__(
        self,
        config: TransformerConfig,
        d_model: int,
        layer: Callable[[], nn.Module],
        causal: bool = False,
    ) -> None:
        super().__init__()
        check_heads(config, d_model)
        d_head = head_width(d_model, config.n_heads, config.d_head)
        self.positions = build_positions(
            config.positions,
            d_model,
            config.n_heads,
            d_head,
            config.max_positions,
            Distances(config.relative_buckets, config.relative_distance, causal),
        )
        self.embedding_norm: nn.Module = nn.Identity()
        if config.embedding_norm:
            self.embedding_norm = NORMS[config.norm](d_model, config.norm_epsilon)
        self.dropout = Dropout(config.dropout)
        self.layers = nn.ModuleList(layer() for _ in range(config.n_layers))
        self.norm = final_norm(config.norm_order, d_model, config.norm_epsilon, config.norm)

    def embed(self, x: Padded, at: Tensor, bound: int, unpadding: Unpadding) -> Tensor:
        """Input of the first layer: vectors (b, t, m) at positions `at`, without padding.

        x: vectors (b, t, m).  bound: number that all positions are below.  unpadding: removes the
        padding.
        """
        embedded = unpadding.unpad(self.positions.embed(x.values, at, bound))
        return self.dropout(self.embedding_norm(embedded))


class TransformerEncoder(_Stack):
    """N encoder layers over positions: the left half of Figure 1."""

    def __init__(self, config: TransformerConfig, d_model: int) -> None:
        super().__init__(config, d_model, lambda: EncoderLayer(config, d_model))

    def forward(self, source: Padded) -> Padded:
        """Vectors (b, t, m) -> memory (b, t, m)."""
        at = position_ids(source.real, source.padding, source.packed)
        mask = key_mask(source, self.positions.bias(at, at))
        unpadding = Unpadding(source)
        x = self.embed(source, at, _bound(source, source.real.shape[1]), unpadding)
        context = StepContext(mask, self.positions.angles(at, x.dtype), unpadding)
        for layer in self.layers:
            x = layer(x, context)
        return source.with_values(unpadding.pad(self.norm(x)))


class TransformerDecoder(_Stack):
    """N decoder layers: the right half of Figure 1; without cross-attention, a GPT."""

    def __init__(
        self, config: TransformerConfig, d_model: int, cross_attention: bool = True
    ) -> None:
        super().__init__(
            config, d_model, lambda: DecoderLayer(config, d_model, cross_attention), causal=True
        )

    def start(self, memory: Padded | None = None) -> DecoderState:
        """A fresh state; the memory's keys and values are projected here, once per layer."""
        projected = []
        if memory is not None:
            unpadding = Unpadding(memory)
            rows = unpadding.unpad(memory.values)
            projected = [
                cast(DecoderLayer, layer).cross_attention.project(rows, unpadding)
                for layer in self.layers
            ]
        return DecoderState(len(self.layers), memory, projected)

    def forward(self, target: Padded, state: DecoderState) -> Padded:
        """Vectors (r, t, m) after the positions in `state` -> (r, t, m); `state` advances by t.
        Packed rows are for training: a pass from a fresh state."""
        step_positions = state.extend(target)
        if step_positions is None:  # no past
            at = queries = position_ids(target.real, target.padding, target.packed)
            bias = self.positions.bias(at, at)
            mask = whole_mask(target, bias)
        else:
            at, queries = step_positions.at, step_positions.queries
            bias = self.positions.bias(queries, step_positions.keys)
            sizes = queries.shape[-1], step_positions.keys.shape[-1]
            mask = past_mask(step_positions.allowed, *sizes, bias, target.values)
        unpadding = Unpadding(target)
        x = self.embed(target, at, _bound(target, state.length), unpadding)
        angles = self.positions.angles(queries, x.dtype)
        memory_mask = state.memory_mask
        if target.borders is not None:  # the memory's borders were taken for both sides
            memory_mask = memory_mask._replace(queries=target.borders)
        context = StepContext(mask, angles, unpadding, memory_mask)
        for i, layer in enumerate(self.layers):
            x = layer(x, context, state.caches[i], state.memory[i] if state.memory else None)
        return target.with_values(unpadding.pad(self.norm(x)))


def _bound(x: Padded, length: int) -> int:
    """Bound of the positions of sequences in rows that reach to `length`."""
    return length if x.borders is None else x.borders.longest


class SimpleRecurrentUnit(nn.Module):
    """h_t = max(0, c_t), c_t = f_t ∘ c_{t-1} + (1 - f_t) ∘ W x_t, f_t = σ(W_f x_t + b_f)."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.candidate = nn.Linear(d_model, d_model, bias=False)
        self.forget = nn.Linear(d_model, d_model)

    def forward(self, x: Tensor, before: Tensor, real: Tensor, begins: Tensor) -> Tensor:
        """x (r, t, m) after cells `before` (r, m) -> cells (r, t, m).  real (r, t): other positions
        change nothing; begins (r, t): True where a cell starts from zero."""
        gates = torch.sigmoid(self.forget(x))
        added = (1 - gates) * self.candidate(x) * real[..., None]
        gates = gates.masked_fill(~real[..., None], 1.0).masked_fill(begins[..., None], 0.0)
        first = added[:, :1] + gates[:, :1] * before[:, None].to(added.dtype)
        return scanned(gates, torch.cat([first, added[:, 1:]], 1))


def scanned(gates: Tensor, added: Tensor) -> Tensor:
    """c_t = f_t ∘ c_{t-1} + added_t, from (r, t, m) each, by doubling the span of each sum."""
    span = 1
    while span < added.shape[1]:
        carried = gates[:, span:] * added[:, :-span]
        added = torch.cat([added[:, :span], added[:, span:] + carried], 1)
        gates = torch.cat([gates[:, :span], gates[:, span:] * gates[:, :-span]], 1)
        span *= 2
    return added


class SsruLayer(nn.Module):
    """Recurrent unit, cross-attention if there is a memory, feed-forward: each in its residual."""

    def __init__(self, config: SsruDecoderConfig, d_model: int, cross_attention: bool) -> None:
        super().__init__()
        around = d_model, config.dropout, config.norm_epsilon
        self.recurrence = SimpleRecurrentUnit(d_model)
        self.recurrence_residual = PostNorm(*around)
        if cross_attention:
            self.cross_attention = CrossAttention(d_model, config.n_heads)
            self.cross_attention_residual = PostNorm(*around)
        self.feed_forward = build_feed_forward(d_model, config.d_ff, config.activation, 0.0)
        self.feed_forward_residual = PostNorm(*around)

    def forward(
        self,
        x: Tensor,
        before: Tensor,
        real: Tensor,
        begins: Tensor,
        context: StepContext,
        memory: KeyValue | None,
        last: list[Tensor],
    ) -> Tensor:
        """(r, t, m) -> the same shape; `last` takes in the last cells (r, m).

        x: (r, t, m).  before: cells (r, m) before the first position.  real, begins: (r, t), as in
        the recurrence.  context: masks of the step.  memory: keys and values of the source; None
        without.
        """
        cells = self.recurrence(x, before, real, begins)
        x = self.recurrence_residual(x, lambda _: F.relu(cells))
        if memory is not None:
            x = self.cross_attention_residual(x, self.cross_attention, context, memory)
        last.append(cells[:, -1])
        return self.feed_forward_residual(x, self.feed_forward)  # type: ignore[no-any-return]


class SsruDecoder(nn.Module):
    """Layers of `SsruLayer`.  The first position is a zero vector, whatever its token, as in
    Marian, so that the embedding of BOS has no use."""

    def __init__(
        self, config: SsruDecoderConfig, d_model: int, cross_attention: bool = True
    ) -> None:
        super().__init__()
        self.n_heads = config.n_heads if cross_attention else 0
        self.positions = build_positions(config.positions, d_model, config.n_heads, d_model, 1)
        self.dropout = Dropout(config.dropout)
        self.layers = nn.ModuleList(
            SsruLayer(config, d_model, cross_attention) for _ in range(config.n_layers)
        )

    def start(self, memory: Padded | None = None) -> RecurrentState:
        """A fresh state; the memory's keys and values are projected here, once per layer."""
        projected: list[KeyValue] = []
        if memory is not None:
            projected = [layer.cross_attention.project(memory.values) for layer in self.layers]  # type: ignore[union-attr, operator]
        return RecurrentState(memory, projected)

    def forward(self, target: Padded, state: RecurrentState) -> Padded:
        """Vectors (r, t, m) after the positions in `state` -> (r, t, m); `state` advances by t."""
        rows, t, m = target.values.shape
        state.extend(rows, t)
        real = target.real
        if state.hidden is None:  # cells (layers, r, m), and numbers of positions (1, r)
            none_yet = torch.zeros(1, rows, dtype=torch.long, device=real.device)
            state.hidden = target.values.new_zeros(len(self.layers), rows, m), none_yet
        cells, (count,) = state.hidden
        at = positions_after(count, real)
        if target.packed is not None:
            at = position_ids(real, target.padding, target.packed)
        begins = (at == 0) & real
        x = self.positions.embed(target.values.masked_fill(begins[..., None], 0.0), at)
        x = self.dropout(x)
        memory_mask = state.memory_mask
        if target.borders is not None:
            memory_mask = memory_mask._replace(queries=target.borders)
        context = StepContext(memory_mask=memory_mask)
        last: list[Tensor] = []
        for i, layer in enumerate(self.layers):
            memory = state.memory[i] if state.memory else None
            x = layer(x, cells[i], real, begins, context, memory, last)
        state.hidden = torch.stack(last), (count + real.sum(1))[None]
        return target.with_values(x)
