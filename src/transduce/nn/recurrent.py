"""Recurrent encoder and decoder, with four kinds of context from the source.

    fixed      one vector for the whole source, at every step        Cho et al. 2014
    dot        attention by the score h · z                          Luong et al. 2015
    general    attention by the score h · W z                        Luong et al. 2015
    additive   attention by the score v · tanh(W_h h + W_z z)        Bahdanau et al. 2015

The recurrent layers process the whole target first, and attention is computed from their outputs,
so that training calls each cell's fused kernel once instead of once per position.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from transduce.config import section
from transduce.errors import SettingError
from transduce.nn.attention import RecordedAttention
from transduce.nn.dropout import Dropout
from transduce.nn.masks import Mask
from transduce.nn.state import KeyValue, RecurrentState
from transduce.nn.transformer import Count, Share
from transduce.nn.unpadding import padded_right, restore_columns
from transduce.sequence import Padded

Cell = Literal["lstm", "gru"]


@section
class FixedContext:
    """One vector that sums up the source."""

    kind: Literal["fixed"] = "fixed"


@section
class DotContext:
    """Attention by the dot product."""

    kind: Literal["dot"] = "dot"


@section
class GeneralContext:
    """Attention by a bilinear form."""

    kind: Literal["general"] = "general"


@section
class AdditiveContext:
    """Attention by a network of one hidden layer."""

    kind: Literal["additive"] = "additive"
    width: Annotated[int, Field(ge=0)] = 0
    """Width of the hidden layer; 0 for d_model."""


ContextConfig = Annotated[
    FixedContext | DotContext | GeneralContext | AdditiveContext, Field(discriminator="kind")
]


@section
class RecurrentEncoderConfig:
    """Recurrent layers that read the source in both directions."""

    kind: Literal["recurrent"] = "recurrent"
    cell: Cell = "lstm"
    """Recurrent cell: "lstm" (Hochreiter and Schmidhuber 1997) or "gru" (Cho et al.
    2014)."""
    n_layers: Count = 1
    """Number of layers; each has d_model / 2 units in either direction."""
    dropout: Share = 0.1
    """Dropout on the input of each layer and on the output of the last."""


@section
class RecurrentDecoderConfig:
    """Recurrent decoder, and its source context."""

    kind: Literal["recurrent"] = "recurrent"
    cell: Cell = "lstm"
    """Recurrent cell, independent of the encoder's."""
    n_layers: Count = 1
    """Number of layers, of d_model units each."""
    context: ContextConfig = GeneralContext()
    """Source context of the decoder; not used without a source."""
    dropout: Share = 0.1
    """Dropout on the input of each layer and on the decoder's output."""


# --- recurrence ------------------------------------------------------------------------------


class Recurrence(nn.Module):
    """LSTM or GRU layers over rows with padding; the hidden state is a tuple for both.

    Padding is skipped: it affects neither outputs nor hidden states.
    """

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
        """Vectors (b, t, input) -> vectors (b, t, hidden), and the hidden state.

        hidden: state of the previous call, each (layers, b, hidden): h and c of an LSTM, h of a
        GRU.
        """
        if isinstance(self.cells, nn.LSTM) and _lacks_narrow_lstm(x.values.device.type):
            with torch.autocast("cpu", enabled=False):
                return self.forward(x.with_values(x.values.float()), hidden)
        if hidden is not None:  # autocast may have made it narrower than what the cells run in
            hidden = tuple(part.to(x.values.dtype) for part in hidden)
        rows, columns = padded_right(x)
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
        return restore_columns(values, columns), after

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
    """Each parameter holds as many, one below the other; an LSTM's: input, forget, cell, output."""
    return 4 if isinstance(cells, nn.LSTM) else 3


def initialise_cells(cells: nn.LSTM | nn.GRU) -> None:
    """Initialise each gate separately: Xavier for inputs, orthogonal for recurrence, zero for
    biases.

    Biases of LSTM forget gates start at one (Jozefowicz et al. 2015).
    """
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


# --- attention -------------------------------------------------------------------------------


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
    """The mean of the memory's vectors, weighted by the softmax of their scores: one head."""

    def __init__(self, score: Score) -> None:
        super().__init__()
        self.score = score

    def project(self, memory: Tensor) -> KeyValue:
        """Keys and values of the memory (n, s, m), to be made once per sentence."""
        return KeyValue(self.score.keys(memory)[:, None], memory[:, None])

    def forward(self, query: Tensor, memory: KeyValue, mask: Mask) -> Tensor:
        """Queries (n·k, t, m) over a memory of n rows -> contexts (n·k, t, m).

        Row i attends to memory row i // k; its k hypotheses become k·t queries of one row.
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
        self.record(weights)
        return (weights @ memory.value).view(rows, t, m)


def build_score(config: DotContext | GeneralContext | AdditiveContext, d_model: int) -> Score:
    """The scoring function of that kind."""
    match config:
        case DotContext():
            return DotScore()
        case GeneralContext():
            return GeneralScore(d_model)
        case AdditiveContext():
            return AdditiveScore(d_model, config.width or d_model)


# --- the two stacks --------------------------------------------------------------------------


class RecurrentEncoder(nn.Module):
    """Layers that read from left to right and from right to left, side by side."""

    def __init__(self, config: RecurrentEncoderConfig, d_model: int) -> None:
        super().__init__()
        check_directions(d_model)
        self.dropout = Dropout(config.dropout)
        self.layers = Recurrence(
            config.cell, d_model, d_model // 2, config.n_layers, config.dropout, bidirectional=True
        )

    def forward(self, source: Padded) -> Padded:
        """Vectors (b, t, m) -> memory (b, t, m)."""
        memory, _ = self.layers(source.with_values(self.dropout(source.values)))
        return source.with_values(self.dropout(memory))


class RecurrentDecoder(nn.Module):
    """Recurrent layers, then a context c of the source for each output z: tanh(W [c; z]).

    They start from tanh(W' s), s being the mean of the memory; as a fixed context, s is also
    part of every input.  Without cross-attention they start from 0, and z is the output.
    """

    def __init__(
        self, config: RecurrentDecoderConfig, d_model: int, cross_attention: bool = True
    ) -> None:
        super().__init__()
        self.n_layers = config.n_layers
        self.looks = cross_attention
        fixed = isinstance(config.context, FixedContext)
        self.dropout = Dropout(config.dropout)
        d_input = 2 * d_model if cross_attention and fixed else d_model
        self.layers = Recurrence(config.cell, d_input, d_model, config.n_layers, config.dropout)
        self.cross_attention: ContextAttention | None = None
        if cross_attention:
            self.first = nn.Linear(d_model, config.n_layers * d_model)
            self.output = nn.Linear(2 * d_model, d_model)
            if not isinstance(config.context, FixedContext):
                self.cross_attention = ContextAttention(build_score(config.context, d_model))

    def start(self, memory: Padded | None = None) -> RecurrentState:
        """Initial state; computes keys and values of the memory once."""
        if memory is None:
            return RecurrentState()
        assert self.looks, "this decoder looks at no memory"
        summary = _mean(memory)
        first = torch.tanh(self.first(summary))  # (n, layers·m)
        hidden = first.view(len(first), self.n_layers, -1).transpose(0, 1).contiguous()
        lstm = isinstance(self.layers.cells, nn.LSTM)
        remembered = (hidden, torch.zeros_like(hidden)) if lstm else (hidden,)
        if self.cross_attention is None:
            return RecurrentState(hidden=remembered, summary=summary)
        projected = self.cross_attention.project(memory.values)
        return RecurrentState(memory, [projected], hidden=remembered)

    def forward(self, target: Padded, state: RecurrentState) -> Padded:
        """Vectors (r, t, m) after the positions in `state` -> (r, t, m); `state` advances by t."""
        rows, t, _ = target.values.shape
        state.extend(rows, t)
        x, context = self.dropout(target.values), None
        if state.summary is not None:
            context = state.summary[:, None].expand(-1, t, -1)  # (r, t, m)
            x = torch.cat([x, context.to(x.dtype)], -1)
        z, state.hidden = self.layers(target.with_values(x), state.hidden)
        if self.cross_attention is not None:
            context = self.cross_attention(z, state.memory[0], state.memory_mask)
        if context is not None:
            z = torch.tanh(self.output(torch.cat([context, z], -1)))
        return target.with_values(self.dropout(z))


def check_directions(d_model: int) -> None:
    """Raises SettingError when the two directions of the encoder cannot share the width."""
    if d_model % 2:
        raise SettingError(
            f"d_model = {d_model} must be even for a bidirectional recurrent encoder"
        )


def _mean(memory: Padded) -> Tensor:
    """Mean (n, m) of the real vectors of each row; zero if there are none."""
    total = memory.values.masked_fill(~memory.real[:, :, None], 0.0).sum(1)
    return total / memory.lengths.clamp(min=1)[:, None]
