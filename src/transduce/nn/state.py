"""What a decoder remembers between two steps: keys and values, and nothing hidden elsewhere.

    KeyValue        keys and values of something looked at
    KeyValueCache   those of a decoder layer's own past, growing with each step
    MemoryRows      those of the memory, and how hypotheses map to its rows
    DecoderState    all layers' caches, and the memory
    RecurrentState  what recurrent layers remember, and the memory

Beam search reorders hypotheses through `State.select` alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from transduce.nn.masks import Mask, key_mask
from transduce.sequence import Padded


class State(Protocol):
    """What a decoder remembers of a batch of hypotheses."""

    length: int
    """Positions decoded so far, padding included."""

    def select(self, rows: Tensor) -> None:
        """Go on with hypotheses `rows` (r',), in that order; repeats and omissions allowed."""


class KeyValue(NamedTuple):
    """Keys and values, each (b, h, s, d)."""

    key: Tensor
    value: Tensor

    def select(self, rows: Tensor) -> KeyValue:
        """Rows by index."""
        return KeyValue(self.key.index_select(0, rows), self.value.index_select(0, rows))


class KeyValueCache:
    """Keys and values of the past, to which each step appends its own.

    The first append keeps the tensors as they are: training, one long step, copies nothing.
    Later ones write into room that doubles when it is used up.
    """

    def __init__(self) -> None:
        self.length = 0
        self._room: KeyValue | None = None

    def append(self, present: KeyValue) -> KeyValue:
        """Keys and values of past and present, (b, h, length, d)."""
        t = present.key.shape[2]
        if self._room is None:
            self._room, self.length = present, t
            return present
        if self.length + t > self._room.key.shape[2]:
            self._room = self._with_room_for(2 * (self.length + t))
        end = self.length + t
        self._room.key[:, :, self.length : end] = present.key
        self._room.value[:, :, self.length : end] = present.value
        self.length = end
        return KeyValue(self._room.key[:, :, :end], self._room.value[:, :, :end])

    def select(self, rows: Tensor) -> None:
        """Keep, repeat or reorder rows."""
        if self._room is not None:
            self._room = self._room.select(rows)

    def _with_room_for(self, length: int) -> KeyValue:
        def grown(old: Tensor) -> Tensor:
            b, h, _, d = old.shape
            new = old.new_empty(b, h, length, d)
            new[:, :, : self.length] = old[:, :, : self.length]
            return new

        assert self._room is not None
        return KeyValue(grown(self._room.key), grown(self._room.value))


class MemoryRows:
    """The memory that a batch of hypotheses looks at: its keys and values, in rows.

    length: positions decoded so far, padding included.
    Rows stand in groups: with n memory rows and r hypotheses, hypothesis i looks at memory row
    i // (r / n).  `select` keeps this so: memory rows that no hypothesis needs are dropped, and
    where the new rows do not form equal groups each gets a memory row of its own.
    """

    def __init__(self, memory: Padded | None, memory_layers: list[KeyValue]) -> None:
        self.length = 0
        self.memory = memory_layers
        self.memory_real = None if memory is None else memory.with_values(memory.real)
        self.memory_mask = Mask() if memory is None else key_mask(memory)
        self._rows = 0

    def select(self, rows: Tensor) -> None:
        """Go on with hypotheses `rows` (r',), in that order; repeats and omissions allowed."""
        if self.memory_real is not None:
            self._select_memory(rows)
        self._rows = len(rows)

    def _select_memory(self, rows: Tensor) -> None:
        assert self.memory_real is not None
        n = self.memory_real.real.shape[0]
        group = max(self._rows, n) // n
        wanted = rows // group  # the memory row of each new hypothesis
        used = torch.unique_consecutive(wanted)
        each, rest = divmod(len(rows), len(used))
        if rest or not torch.equal(used.repeat_interleave(each), wanted):
            used = wanted
        if len(used) == n and torch.equal(used, torch.arange(n, device=used.device)):
            return
        self.memory = [layer.select(used) for layer in self.memory]
        self.memory_real = self.memory_real.select(used)
        self.memory_mask = key_mask(self.memory_real)


class DecoderState(MemoryRows):
    """The past of a batch of hypotheses under attention, layer by layer."""

    def __init__(self, n_layers: int, memory: Padded | None, memory_layers: list[KeyValue]) -> None:
        super().__init__(memory, memory_layers)
        self.caches = [KeyValueCache() for _ in range(n_layers)]
        self._real: Tensor | None = None  # (r, length), kept only once padding may be anywhere

    def extend(self, target: Padded) -> tuple[Tensor, str]:
        """Note the positions about to be decoded.

        Returns `real` (r, length) over past and present, and where padding may stand in it.
        """
        rows, t = target.real.shape
        past = self.length
        self._rows, self.length = rows, past + t
        if self._real is None and (target.padding == "none" or past == 0):
            if target.padding != "none":  # a later step would come after this padding
                self._real = target.real
            if past == 0:
                return target.real, target.padding
            return target.real.new_ones(1, self.length), "none"
        before = self._real
        if before is None:
            before = target.real.new_ones(rows, past)
        self._real = torch.cat([before, target.real], 1)
        return self._real, "any"

    def select(self, rows: Tensor) -> None:
        """Go on with hypotheses `rows` (r',), in that order; repeats and omissions allowed."""
        for cache in self.caches:
            cache.select(rows)
        if self._real is not None:
            self._real = self._real[rows]
        super().select(rows)


class RecurrentState(MemoryRows):
    """The past of a batch of hypotheses, as recurrent layers remember it.

    hidden:  tensors (layers, r, m), an LSTM's h and c or a GRU's h; None for zeros.
    summary: (r, m), the source in one vector, where that is all that is seen of it.
    """

    def __init__(
        self,
        memory: Padded | None = None,
        memory_layers: Sequence[KeyValue] = (),
        hidden: tuple[Tensor, ...] | None = None,
        summary: Tensor | None = None,
    ) -> None:
        super().__init__(memory, list(memory_layers))
        self.hidden = hidden
        self.summary = summary

    def extend(self, rows: int, t: int) -> None:
        """Note that `rows` hypotheses go on by t positions."""
        if self.hidden is not None and self.hidden[0].shape[1] != rows:
            before = self.hidden[0].shape[1]  # one for each sentence, before anything was chosen
            every = torch.arange(before, device=self.hidden[0].device)
            self._select_hidden(every.repeat_interleave(rows // before))
        self._rows, self.length = rows, self.length + t

    def select(self, rows: Tensor) -> None:
        """Go on with hypotheses `rows` (r',), in that order; repeats and omissions allowed."""
        self._select_hidden(rows)
        super().select(rows)

    def _select_hidden(self, rows: Tensor) -> None:
        if self.hidden is not None:
            self.hidden = tuple(part.index_select(1, rows) for part in self.hidden)
        if self.summary is not None:
            self.summary = self.summary.index_select(0, rows)
