"""Transformer decoder with a simple recurrent unit (SSRU; Kim et al. 2019) for self-attention: the
past is a vector per layer, and a step costs the same at any length."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transduce.nn.attention import CrossAttention, StepContext
from transduce.nn.dropout import Dropout
from transduce.nn.feed_forward import build_feed_forward
from transduce.nn.positions import build_positions, position_ids, positions_after
from transduce.nn.recurrent import RecurrentState
from transduce.nn.residual import PostNorm
from transduce.nn.stack_configs import SsruDecoderConfig
from transduce.nn.state import KeyValue
from transduce.sequence import Padded


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
        """(r, t, m) -> the same shape; `last` takes in the last cells (r, m)."""
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
