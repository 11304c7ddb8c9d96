"""Transformer encoder and decoder (Figure 1), with independent settings."""

from __future__ import annotations

from typing import cast

from torch import Tensor, nn

from transduce.nn.attention import CrossAttention, SelfAttention
from transduce.nn.dropout import Dropout
from transduce.nn.feed_forward import build_feed_forward
from transduce.nn.masks import Mask, causal_mask, key_mask, past_mask
from transduce.nn.positions import RotaryAngles, build_positions, position_ids
from transduce.nn.residual import RESIDUALS, final_norm
from transduce.nn.state import DecoderState, KeyValue, KeyValueCache
from transduce.nn.transformer_config import TransformerConfig, check_heads, head_width
from transduce.nn.unpadding import NO_PADDING, Unpadding
from transduce.sequence import Padded


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward, each inside its residual."""

    def __init__(self, config: TransformerConfig, d_model: int) -> None:
        super().__init__()
        residual = RESIDUALS[config.norm_order]
        heads = config.n_heads, config.attention_dropout, config.d_head
        self.self_attention = SelfAttention(d_model, *heads)
        self.self_attention_residual = residual(d_model, config.dropout, config.norm_epsilon)
        self.feed_forward = build_feed_forward(
            d_model, config.d_ff, config.activation, config.feed_forward_dropout
        )
        self.feed_forward_residual = residual(d_model, config.dropout, config.norm_epsilon)

    def forward(
        self,
        x: Tensor,
        mask: Mask,
        angles: RotaryAngles | None = None,
        unpadding: Unpadding = NO_PADDING,
    ) -> Tensor:
        """(b, t, m), or (n, m) without padding, -> the same shape."""
        x = self.self_attention_residual(
            x, lambda x: self.self_attention(x, mask, angles, unpadding=unpadding)
        )
        return self.feed_forward_residual(x, self.feed_forward)  # type: ignore[no-any-return]


class DecoderLayer(nn.Module):
    """Causal self-attention, cross-attention if there is a memory, feed-forward."""

    def __init__(self, config: TransformerConfig, d_model: int, cross_attention: bool) -> None:
        super().__init__()
        residual = RESIDUALS[config.norm_order]
        heads = config.n_heads, config.attention_dropout, config.d_head
        self.self_attention = SelfAttention(d_model, *heads)
        self.self_attention_residual = residual(d_model, config.dropout, config.norm_epsilon)
        if cross_attention:
            self.cross_attention = CrossAttention(d_model, *heads)
            self.cross_attention_residual = residual(d_model, config.dropout, config.norm_epsilon)
        self.feed_forward = build_feed_forward(
            d_model, config.d_ff, config.activation, config.feed_forward_dropout
        )
        self.feed_forward_residual = residual(d_model, config.dropout, config.norm_epsilon)

    def forward(
        self,
        x: Tensor,
        mask: Mask,
        angles: RotaryAngles | None,
        cache: KeyValueCache,
        memory: KeyValue | None,
        memory_mask: Mask,
        unpadding: Unpadding = NO_PADDING,
    ) -> Tensor:
        """(r, t, m), or (n, m) without padding, -> the same shape.

        `cache` takes in the keys and values of x.
        """
        x = self.self_attention_residual(
            x, lambda x: self.self_attention(x, mask, angles, cache, unpadding)
        )
        if memory is not None:
            x = self.cross_attention_residual(
                x, lambda x: self.cross_attention(x, memory, memory_mask, unpadding)
            )
        return self.feed_forward_residual(x, self.feed_forward)  # type: ignore[no-any-return]


class TransformerEncoder(nn.Module):
    """N encoder layers over positions: the left half of Figure 1."""

    def __init__(self, config: TransformerConfig, d_model: int) -> None:
        super().__init__()
        check_heads(config, d_model)
        d_head = head_width(d_model, config.n_heads, config.d_head)
        self.positions = build_positions(
            config.positions, d_model, config.n_heads, d_head, config.max_positions
        )
        self.embedding_norm = embedding_norm(config, d_model)
        self.dropout = Dropout(config.dropout)
        self.layers = nn.ModuleList(EncoderLayer(config, d_model) for _ in range(config.n_layers))
        self.norm = final_norm(config.norm_order, d_model, config.norm_epsilon)

    def forward(self, source: Padded) -> Padded:
        """Vectors (b, t, m) -> memory (b, t, m)."""
        at = position_ids(source.real, source.padding, source.packed)
        mask = key_mask(source, self.positions.bias(at, at))
        unpadding = Unpadding(source)
        x = unpadding.unpad(self.positions.embed(source.values, at, source.real.shape[1]))
        x = self.dropout(self.embedding_norm(x))
        angles = self.positions.angles(at, x.dtype)
        for layer in self.layers:
            x = layer(x, mask, angles, unpadding)
        return source.with_values(unpadding.pad(self.norm(x)))


class TransformerDecoder(nn.Module):
    """N decoder layers over positions: the right half of Figure 1.

    Without cross-attention it is a decoder-only stack, as in GPT.
    """

    def __init__(
        self, config: TransformerConfig, d_model: int, cross_attention: bool = True
    ) -> None:
        super().__init__()
        check_heads(config, d_model)
        d_head = head_width(d_model, config.n_heads, config.d_head)
        self.positions = build_positions(
            config.positions, d_model, config.n_heads, d_head, config.max_positions
        )
        self.embedding_norm = embedding_norm(config, d_model)
        self.dropout = Dropout(config.dropout)
        self.layers = nn.ModuleList(
            DecoderLayer(config, d_model, cross_attention) for _ in range(config.n_layers)
        )
        self.norm = final_norm(config.norm_order, d_model, config.norm_epsilon)

    def start(self, memory: Padded | None = None) -> DecoderState:
        """A fresh state; the memory's keys and values are projected here, once per layer."""
        projected = []
        if memory is not None:
            layers = (cast(DecoderLayer, layer) for layer in self.layers)
            unpadding = Unpadding(memory)
            rows = unpadding.unpad(memory.values)
            projected = [layer.cross_attention.project(rows, unpadding) for layer in layers]
        return DecoderState(len(self.layers), memory, projected)

    def forward(self, target: Padded, state: DecoderState) -> Padded:
        """Vectors (r, t, m) after the positions in `state` -> (r, t, m); `state` advances by t.

        Rows of packed sequences are for training: one pass from a fresh state.
        """
        step_positions = state.extend(target)
        if step_positions is None:  # no past
            at = queries = position_ids(target.real, target.padding, target.packed)
            bias = self.positions.bias(at, at)
            t = target.real.shape[1]
            mask = causal_mask(target.real, target.padding, t, bias, target.packed)
        else:
            at, queries = step_positions.at, step_positions.queries
            bias = self.positions.bias(queries, step_positions.keys)
            sizes = queries.shape[-1], step_positions.keys.shape[-1]
            mask = past_mask(step_positions.allowed, *sizes, bias, target.values)
        unpadding = Unpadding(target)
        x = unpadding.unpad(self.positions.embed(target.values, at, state.length))
        x = self.dropout(self.embedding_norm(x))
        angles = self.positions.angles(queries, x.dtype)
        for i, layer in enumerate(self.layers):
            memory = state.memory[i] if state.memory else None
            cache = state.caches[i]
            x = layer(x, mask, angles, cache, memory, state.memory_mask, unpadding)
        return target.with_values(unpadding.pad(self.norm(x)))


def embedding_norm(config: TransformerConfig, d_model: int) -> nn.Module:
    """Norm between embeddings and the first layer."""
    return nn.LayerNorm(d_model, config.norm_epsilon) if config.embedding_norm else nn.Identity()
