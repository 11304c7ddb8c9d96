"""Transformer encoder and decoder (Figure 1), with independent settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from torch import Tensor, nn

from transduce.nn.attention import CrossAttention, SelfAttention, StepContext
from transduce.nn.dropout import Dropout
from transduce.nn.feed_forward import build_feed_forward
from transduce.nn.masks import key_mask, past_mask, whole_mask
from transduce.nn.positions import Distances, build_positions, position_ids
from transduce.nn.residual import NORMS, RESIDUALS, final_norm
from transduce.nn.state import DecoderState, KeyValue, KeyValueCache
from transduce.nn.transformer_config import TransformerConfig, check_heads, head_width
from transduce.nn.unpadding import Unpadding
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
        """(r, t, m), or (n, m) without padding, -> the same shape; `cache` takes in its keys."""
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
        """Input of the first layer: vectors (b, t, m) at positions `at`, without padding."""
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
