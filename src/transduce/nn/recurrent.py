"""Recurrent encoder and decoder, with a fixed vector of the source or attention to it.

    fixed      a vector for the whole source    Sutskever et al. 2014, Cho et al. 2014
    dot        attention by the score h · z                          Luong et al. 2015
    general    attention by the score h · W z                        Luong et al. 2015
    additive   attention by the score v · tanh(W_h h + W_z z)        Bahdanau et al. 2015

h is a vector of the memory, z of the decoder.

Without input feeding, the layers process the whole target before attention, so that training calls
each cell's fused kernel once instead of once per position.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from transduce.nn.attention import RecordedAttention
from transduce.nn.masks import Mask
from transduce.nn.positions import padded_right, restore_places
from transduce.nn.residual import Dropout
from transduce.nn.stack_configs import (
    AdditiveContext,
    Cell,
    DotContext,
    FixedContext,
    GeneralContext,
    InputFeeding,
    RecurrentDecoderConfig,
    RecurrentEncoderConfig,
    Summary,
    check_directions,
)
from transduce.nn.state import KeyValue, MemoryRows
from transduce.sequence import Padded


class DotScore(nn.Module):
    """h · z."""

    def keys(self, memory: Tensor) -> Tensor:
        """Keys computed once from the memory (…, s, m): (…, s, key width)."""
        return memory

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        """Scores (…, q, s) of the memory's keys for queries z (…, q, m)."""
        return query @ keys.transpose(-2, -1)


class GeneralScore(DotScore):
    """h · W z: the keys are h W."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.key = nn.Linear(d_model, d_model, bias=False)

    def keys(self, memory: Tensor) -> Tensor:
        """(…, s, m) -> (…, s, m)."""
        return self.key(memory)  # type: ignore[no-any-return]


class AdditiveScore(nn.Module):
    """v · tanh(W_h h + W_z z): costs a vector of `width` for each pair of positions."""

    def __init__(self, d_model: int, width: int) -> None:
        super().__init__()
        self.key = nn.Linear(d_model, width, bias=False)
        self.query = nn.Linear(d_model, width, bias=False)
        self.score = nn.Linear(width, 1, bias=False)

    def keys(self, memory: Tensor) -> Tensor:
        """(…, s, m) -> (…, s, width)."""
        return self.key(memory)  # type: ignore[no-any-return]

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        """(…, q, m) and (…, s, width) -> (…, q, s)."""
        pairs = self.query(query)[..., :, None, :] + keys[..., None, :, :]  # (…, q, s, width)
        return self.score(pairs.tanh_())[..., 0]  # type: ignore[no-any-return]


Score = DotScore | AdditiveScore


class ContextAttention(RecordedAttention):
    """Mean of the memory's vectors, weighted by the softmax of their scores, as a single head."""

    def __init__(self, score: Score) -> None:
        super().__init__()
        self.score = score

    def project(self, memory: Tensor) -> KeyValue:
        """Keys and values of the memory (n, s, m), to be made once per sentence."""
        return KeyValue(self.score.keys(memory)[:, None], memory[:, None])

    def forward(self, query: Tensor, memory: KeyValue, mask: Mask) -> Tensor:
        """Queries (n·k, t, m) over a memory of n rows -> contexts (n·k, t, m).

        query: (n·k, t, m).  mask: positions of the memory to hide.
        """
        context, weights = self.attend(query, memory, mask)
        self.record(weights)
        return context

    def attend(self, query: Tensor, memory: KeyValue, mask: Mask) -> tuple[Tensor, Tensor]:
        """Contexts as of `forward`, and the weights (n, 1, k·t, s), not recorded.  Row i attends to
        memory row i // k; its k hypotheses become k·t queries of a row.

        query: (n·k, t, m).  mask: positions of the memory to hide.
        """
        rows, t, m = query.shape
        n = memory.key.shape[0]
        folded = query.reshape(n, 1, rows // n * t, m)
        scores: Tensor = self.score(folded, memory.key)  # (n, 1, k·t, s)
        if mask.allowed is not None:
            scores = scores.masked_fill(~mask.allowed, float("-inf"))
        weights = scores.softmax(-1)
        if mask.allowed is not None:  # over a source of nothing softmax is not a number
            weights = weights.masked_fill(~mask.allowed, 0.0)
        return (weights @ memory.value).view(rows, t, m), weights

    def record_steps(self, weights: Sequence[Tensor]) -> None:
        """Record the weights (n, 1, k, s) of t single steps, as a call of `forward` would."""
        self.record(torch.stack(list(weights), 3).flatten(2, 3))


def build_score(config: DotContext | GeneralContext | AdditiveContext, d_model: int) -> Score:
    """The scoring function of that kind."""
    match config:
        case DotContext():
            return DotScore()
        case GeneralContext():
            return GeneralScore(d_model)
        case AdditiveContext():
            return AdditiveScore(d_model, config.width or d_model)


def summarise(memory: Padded, kind: Summary) -> Tensor:
    """The source as a vector (n, m); zero if a row has no real position."""
    if kind == "mean":
        total = memory.values.masked_fill(~memory.real[:, :, None], 0.0).sum(1)
        return total / memory.lengths.clamp(min=1)[:, None]
    rows, _ = padded_right(memory)
    lengths, values = rows.lengths, rows.values
    summary = values[torch.arange(len(values), device=values.device), (lengths - 1).clamp(min=0)]
    if kind == "both-ends":
        half = values.shape[2] // 2
        summary = torch.cat([summary[:, :half], values[:, 0, half:]], 1)
    return summary.masked_fill((lengths == 0)[:, None], 0.0)


class RecurrentState(MemoryRows):
    """State of recurrent layers for a batch of hypotheses.

    hidden: (layers, r, m), an LSTM's h and c or a GRU's h; None for zeros.  summary: (r, m), a
    source seen as a vector alone.  fed: (r, m), output of the step before, where it is an input of
    the next.
    """

    def __init__(
        self,
        memory: Padded | None = None,
        memory_layers: Sequence[KeyValue] = (),
        hidden: tuple[Tensor, ...] | None = None,
        summary: Tensor | None = None,
        fed: Tensor | None = None,
    ) -> None:
        super().__init__(memory, list(memory_layers))
        self.hidden = hidden
        self.summary = summary
        self.fed = fed

    def extend(self, rows: int, t: int) -> None:
        """Record that `rows` hypotheses advance by t positions."""
        if self.hidden is not None and self.hidden[0].shape[1] != rows:
            before = self.hidden[0].shape[1]  # one for each sentence, before anything was chosen
            every = torch.arange(before, device=self.hidden[0].device)
            self._select_hidden(every.repeat_interleave(rows // before))
        self._rows, self.length = rows, self.length + t

    def select(self, rows: Tensor) -> None:
        """Select hypotheses `rows` (r',), in order; repeats and omissions allowed."""
        self._select_hidden(rows)
        super().select(rows)

    def _select_hidden(self, rows: Tensor) -> None:
        if self.hidden is not None:
            self.hidden = tuple(part.index_select(1, rows) for part in self.hidden)
        if self.summary is not None:
            self.summary = self.summary.index_select(0, rows)
        if self.fed is not None:
            self.fed = self.fed.index_select(0, rows)


PARAMETERS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
"""Names of a layer's parameters in PyTorch's cells, in the order of its functions of a step."""


class Recurrence(nn.Module):
    """LSTM or GRU layers over rows, whose padding they skip; a hidden state is a tuple."""

    def __init__(
        self,
        cell: Cell,
        d_input: int,
        d_hidden: int,
        n_layers: int,
        dropout: float,
        bidirectional: bool = False,
    ) -> None:
        super().__init__()
        make = nn.LSTM if cell == "lstm" else nn.GRU
        self.cells = make(
            d_input,
            d_hidden,
            n_layers,
            batch_first=True,
            dropout=dropout if n_layers > 1 else 0.0,  # PyTorch's is between layers alone
            bidirectional=bidirectional,
        )
        initialise_cells(self.cells)

    def forward(
        self, x: Padded, hidden: tuple[Tensor, ...] | None = None
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """(b, t, input) -> (b, t, hidden), and h and c of an LSTM, h of a GRU: (layers, b,
        hidden)."""
        if isinstance(self.cells, nn.LSTM) and _lacks_narrow_lstm(x.values.device.type):
            with torch.autocast("cpu", enabled=False):
                return self.forward(x.with_values(x.values.float()), hidden)
        assert hidden is None or x.packed is None, "packed rows are read from a fresh state"
        if hidden is not None:  # autocast may have lowered its precision
            hidden = tuple(part.to(x.values.dtype) for part in hidden)
        rows, places = padded_right(x)
        if rows.padding == "none":
            return self._run(x.values, hidden)
        lengths = rows.lengths
        packed = pack_padded_sequence(
            rows.values, lengths.clamp(min=1).cpu(), batch_first=True, enforce_sorted=False
        )
        outputs, after = self._run(packed, hidden)
        values, _ = pad_packed_sequence(outputs, batch_first=True, total_length=rows.real.shape[1])
        empty = (lengths == 0)[:, None]  # these were read as one position of nonsense
        before = hidden or tuple(torch.zeros_like(part) for part in after)
        after = tuple(
            torch.where(empty, old.to(new.dtype), new)
            for old, new in zip(before, after, strict=True)
        )
        return restore_places(values, places), after

    def step(self, x: Tensor, hidden: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        """A position without padding: (b, input) -> (b, hidden), and the new hidden state."""
        cells = self.cells
        layers: list[tuple[Tensor, ...]] = []
        for i in range(cells.num_layers):
            parameters = [getattr(cells, f"{name}_l{i}") for name in PARAMETERS]
            old = [part[i] for part in hidden]
            if isinstance(cells, nn.LSTM):
                layers.append(torch.lstm_cell(x, old, *parameters))
            else:
                layers.append((torch.gru_cell(x, *old, *parameters),))
            x = layers[i][0]
            if i + 1 < cells.num_layers:
                x = F.dropout(x, cells.dropout, self.training)
        return x, tuple(torch.stack(parts) for parts in zip(*layers, strict=True))

    def _run(self, x: Any, hidden: tuple[Tensor, ...] | None) -> tuple[Any, tuple[Tensor, ...]]:
        if isinstance(self.cells, nn.LSTM):
            return self.cells(x, hidden)  # type: ignore[no-any-return]
        outputs, last = self.cells(x, None if hidden is None else hidden[0])
        return outputs, (last,)


def _lacks_narrow_lstm(device: str) -> bool:
    """True if autocast would use a bfloat16 LSTM that this processor lacks."""
    asked = device == "cpu" and torch.is_autocast_enabled("cpu")
    return asked and not torch.ops.mkldnn._is_mkldnn_bf16_supported()


def number_of_gates(cells: nn.LSTM | nn.GRU) -> int:
    """Each parameter holds as many, stacked; an LSTM's: input, forget, cell, output."""
    return 4 if isinstance(cells, nn.LSTM) else 3


def initialise_cells(cells: nn.LSTM | nn.GRU) -> None:
    """Initialise each gate: Xavier for inputs, orthogonal for recurrence, zero for biases but for
    LSTM forget gates, which start at 1 (Jozefowicz et al. 2015)."""
    with torch.no_grad():
        for name, parameter in cells.named_parameters():
            gates = parameter.chunk(number_of_gates(cells))
            for gate in gates:
                if name.startswith("weight_ih"):
                    nn.init.xavier_uniform_(gate)
                elif name.startswith("weight_hh"):
                    nn.init.orthogonal_(gate)
                else:
                    nn.init.zeros_(gate)
            if isinstance(cells, nn.LSTM) and name.startswith("bias_ih"):
                nn.init.ones_(gates[1])


class RecurrentEncoder(nn.Module):
    """Layers that read from left to right and, beside these, from right to left."""

    def __init__(self, config: RecurrentEncoderConfig, d_model: int) -> None:
        super().__init__()
        check_directions(config, d_model)
        self.dropout = Dropout(config.dropout)
        both = config.bidirectional
        width = d_model // 2 if both else d_model
        self.layers = Recurrence(config.cell, d_model, width, config.n_layers, config.dropout, both)

    def forward(self, source: Padded) -> Padded:
        """Vectors (b, t, m) -> memory (b, t, m)."""
        memory, _ = self.layers(source.with_values(self.dropout(source.values)))
        return source.with_values(self.dropout(memory))


class RecurrentDecoder(nn.Module):
    """Recurrent layers, and a context c of the source for each of their outputs z: tanh(W [c; z]).

    They start from tanh(W' s), s being the source as a vector, which as a fixed context is also
    part of every input, or of none; without cross-attention from 0.  Without a context of each
    output, z is the output.
    """

    def __init__(
        self, config: RecurrentDecoderConfig, d_model: int, cross_attention: bool = True
    ) -> None:
        super().__init__()
        # Without a source, nothing of one enters a step: as with the first states alone.
        context = config.context if cross_attention else FixedContext(every_step=False)
        self.n_layers = config.n_layers
        self.looks = cross_attention
        self.summary = config.summary
        self.repeats = isinstance(context, FixedContext) and context.every_step
        self.feeding: InputFeeding = "none"
        if not isinstance(context, FixedContext):
            self.feeding = context.input_feeding
        self.dropout = Dropout(config.dropout)
        d_input = 2 * d_model if self.repeats or self.feeding != "none" else d_model
        self.layers = Recurrence(config.cell, d_input, d_model, config.n_layers, config.dropout)
        self.cross_attention: ContextAttention | None = None
        if cross_attention:
            self.first = nn.Linear(d_model, config.n_layers * d_model)
        if self.repeats or not isinstance(context, FixedContext):
            self.output = nn.Linear(2 * d_model, d_model)
        if not isinstance(context, FixedContext):
            self.cross_attention = ContextAttention(build_score(context, d_model))

    def start(self, memory: Padded | None = None) -> RecurrentState:
        """Initial state; computes keys and values of the memory once."""
        if memory is None:
            return RecurrentState()
        assert self.looks, "this decoder looks at no memory"
        summary = summarise(memory, self.summary)
        first = torch.tanh(self.first(summary))  # (n, layers·m)
        hidden = first.view(len(first), self.n_layers, -1).transpose(0, 1).contiguous()
        lstm = isinstance(self.layers.cells, nn.LSTM)
        remembered = (hidden, torch.zeros_like(hidden)) if lstm else (hidden,)
        if self.cross_attention is None:
            return RecurrentState(hidden=remembered, summary=summary)
        projected = self.cross_attention.project(memory.values)
        fed = torch.zeros_like(summary) if self.feeding == "attentional" else None
        return RecurrentState(memory, [projected], hidden=remembered, fed=fed)

    def forward(self, target: Padded, state: RecurrentState) -> Padded:
        """Vectors (r, t, m) after the positions in `state` -> (r, t, m); `state` advances by t."""
        rows, t, _ = target.values.shape
        state.extend(rows, t)
        x = target.with_values(self.dropout(target.values))
        z = self._in_steps(x, state) if self.feeding != "none" and t else self._at_once(x, state)
        return target.with_values(self.dropout(z))

    def _at_once(self, x: Padded, state: RecurrentState) -> Tensor:
        context = None
        if self.repeats:
            assert state.summary is not None
            context = state.summary[:, None].expand(-1, x.values.shape[1], -1)  # (r, t, m)
            x = x.with_values(torch.cat([x.values, context.to(x.values.dtype)], -1))
        z, state.hidden = self.layers(x, state.hidden)
        if self.cross_attention is not None:
            context = self.cross_attention(z, state.memory[0], state.memory_mask)
        return z if context is None else self._attentional(context, z)

    def _in_steps(self, x: Padded, state: RecurrentState) -> Tensor:
        assert self.cross_attention is not None
        assert state.hidden is not None
        memory, mask = state.memory[0], state.memory_mask
        outputs, weights = [], []
        for i in range(x.values.shape[1]):
            hidden, fed = state.hidden, state.fed
            if fed is None:  # the top layer's state looks at the source before the step
                context, attention = self.cross_attention.attend(
                    hidden[0][-1][:, None], memory, mask
                )
                z, after = self.layers.step(_joined(x.values[:, i], context[:, 0]), hidden)
            else:
                z, after = self.layers.step(_joined(x.values[:, i], fed), hidden)
                context, attention = self.cross_attention.attend(z[:, None], memory, mask)
            output = self._attentional(context[:, 0], z)
            if x.padding != "none":
                real = x.real[:, i, None]
                after = tuple(
                    torch.where(real, new, old) for new, old in zip(after, hidden, strict=True)
                )
            state.hidden = after
            if fed is not None:
                state.fed = output if x.padding == "none" else torch.where(real, output, fed)
            outputs.append(output)
            weights.append(attention)
        self.cross_attention.record_steps(weights)
        return torch.stack(outputs, 1)

    def _attentional(self, context: Tensor, z: Tensor) -> Tensor:
        return torch.tanh(self.output(torch.cat([context, z], -1)))


def _joined(x: Tensor, fed: Tensor) -> Tensor:
    """Input of a step: [x; fed], (r, m) each."""
    return torch.cat([x, fed.to(x.dtype)], -1)
