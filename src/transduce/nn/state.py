"""State of a decoder between two steps: cached keys and values.  Beam search reorders hypotheses
through `State.select` alone."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from transduce.nn.masks import Mask, any_key_allowed, key_mask
from transduce.nn.positions import position_ids, positions_after
from transduce.sequence import Padded, is_at_hand, moved

ROOM = 64
"""Slots that a cache has room for at least, once it grows."""
FORGET = 128
"""Slots before the first removal of unused ones."""
SPREAD = 16
"""Slots of a sentence for each slot of a hypothesis, above which hypotheses share no slots."""


class State(Protocol):
    """Decoder state of a batch of hypotheses."""

    length: int
    """Positions decoded so far, padding included."""

    def select(self, rows: Tensor) -> None:
        """Select hypotheses `rows` (r',), in order; repeats and omissions allowed."""


class KeyValue(NamedTuple):
    """Keys and values, each (b, h, s, d)."""

    key: Tensor
    value: Tensor

    def select(self, rows: Tensor) -> KeyValue:
        """Rows by index; the old rows may not be used any more."""
        return KeyValue(_select(self.key, rows), _select(self.value, rows))


class KeyValueCache:
    """Keys and values of the past, to which each step appends its own.

    The hypotheses of a sentence may share a row, so that nothing moves when they change places (see
    `BeamSlots`).  The first append keeps the tensors as they are: training, a long step, copies
    nothing.  Later appends write into room that doubles when it is used up.
    """

    def __init__(self) -> None:
        self.length = 0
        self._room: KeyValue | None = None
        self._present: Tensor | None = None  # (w,) slots of a step in a block

    def fold(self, x: Tensor) -> Tensor:
        """Vectors (r, t, m) of r hypotheses in the g rows of this cache: (g, r / g · t, m)."""
        return x if self._room is None else x.view(self._room.key.shape[0], -1, x.shape[2])

    def append(self, present: KeyValue) -> KeyValue:
        """Keys and values of past and present, (g, h, length, d)."""
        t = present.key.shape[2]
        if self._room is None:
            self._room, self.length = present, t
            return present
        key, value = self._room
        if self._present is not None:
            key.index_copy_(2, self._present, present.key)
            value.index_copy_(2, self._present, present.value)
            return self._room
        if self.length + t > key.shape[2]:
            more = (0, 0, 0, max(ROOM, 2 * (self.length + t)) - key.shape[2])
            self._room = key, value = KeyValue(F.pad(key, more), F.pad(value, more))
        key.narrow(2, self.length, t).copy_(present.key)
        value.narrow(2, self.length, t).copy_(present.value)
        self.length += t
        return KeyValue(key.narrow(2, 0, self.length), value.narrow(2, 0, self.length))

    def reserve(self, room: int, present: Tensor) -> None:
        """Have exactly so many slots; steps write into those of `present` (w,) from now on."""
        assert self._room is not None
        more = (0, 0, 0, room - self._room.key.shape[2])
        self._room = KeyValue(*(F.pad(part, more) for part in self._room))
        self._present = present

    def release(self, length: int) -> None:
        """Append again, after so many slots."""
        self._present, self.length = None, length

    def select(self, rows: Tensor) -> None:
        """Keep, repeat or reorder rows."""
        if self._room is not None:
            self._room = self._room.select(rows)

    def keep(self, rows: Tensor, slots: Tensor) -> None:
        """Keep only slots (r', n) of rows (r',)."""
        assert self._room is not None
        heads = torch.arange(self._room.key.shape[1], device=rows.device)
        at = (rows[:, None, None], heads[:, None], slots[:, None, :])
        self._room = KeyValue(self._room.key[at], self._room.value[at])
        self.length = slots.shape[1]


class MemoryRows:
    """Encoder memory of a batch of hypotheses: its keys and values, in rows.  length: positions
    decoded.

    With n memory rows and r hypotheses, hypothesis i attends to memory row i // (r / n).  `select`
    drops rows that no hypothesis needs; if the others do not form equal groups, each gets its own.
    """

    def __init__(self, memory: Padded | None, memory_layers: list[KeyValue]) -> None:
        self.length = 0
        self.memory = memory_layers
        self.memory_real = None if memory is None else memory.with_values(memory.real)
        self.memory_mask = Mask() if memory is None else key_mask(memory)
        self._rows = 0

    def select(self, rows: Tensor) -> None:
        """Select hypotheses `rows` (r',), in order; repeats and omissions allowed."""
        self._select_memory(rows, rows.cpu())

    def _select_memory(self, rows: Tensor, on_cpu: Tensor) -> None:
        """Select hypotheses; on_cpu: the same rows, as each copy from a GPU waits for it."""
        if self.memory_real is not None:
            n = self.memory_real.real.shape[0]
            used = _groups_used(on_cpu, n, max(self._rows, n), rows.device)
            if used is not None:
                self.memory = [layer.select(used) for layer in self.memory]
                self.memory_real = self.memory_real.select(used)
                self.memory_mask = key_mask(self.memory_real)
        self._rows = len(rows)


class StepPositions(NamedTuple):
    """Positions about to be decoded, r hypotheses in g rows of the cache: `at` (t,) or (r, t); the
    same in cache order, (q,) or (g, q) with q = r / g · t; those of all slots of the cache, these
    included, (s,) or (g, s); slots visible to each, (g, q, s) bool, None for all earlier slots."""

    at: Tensor
    queries: Tensor
    keys: Tensor
    allowed: Tensor | None


class BeamSlots:
    """Cache slots of the past of each hypothesis.

    The r hypotheses form g groups of equal size, a sentence's each, and each group shares a row of
    the cache: a step appends a slot for each hypothesis, which attends only to slots of its
    ancestors. Reordering hypotheses reorders these lists of slots, without copying keys or values;
    common ancestors are stored once. Unused slots are removed when they may have become too many.
    """

    def __init__(self, real: Tensor, padding: str) -> None:
        """real (r, t) of the first step, and possible sides of padding."""
        self.groups = self.rows = real.shape[0]
        self._forget_at = FORGET
        t = real.shape[1]
        self._own: Tensor | None = None  # (r, s) bool; None if every slot is one's own
        self._next: int | Tensor = t  # position to come, or (r,) where they differ
        self._slots_at = torch.arange(t, device=real.device)  # (s,) or (g, s) positions
        if padding != "none":
            self._own = real
            self._next = real.sum(1)
            self._slots_at = position_ids(real, "any")

    def extend(self, target: Padded) -> StepPositions:
        """Note the positions about to be decoded."""
        self.rows, t = target.real.shape
        g, w = self.groups, self.rows // self.groups
        at = self._positions(target)
        queries = at
        if w > 1:
            queries = at.repeat(w) if at.dim() == 1 else at.view(g, w * t)
        before = self._slots_at
        if before.dim() != queries.dim():
            before, queries = before.expand(g, -1), queries.expand(g, -1)
        self._slots_at = torch.cat([before, queries], -1)
        allowed = None
        if w > 1 or self._own is not None or target.padding != "none":
            allowed = self._allowed(target, before.shape[-1])
        return StepPositions(at, queries, self._slots_at, allowed)

    def _positions(self, target: Padded) -> Tensor:
        t = target.real.shape[1]
        if target.padding == "none" and isinstance(self._next, int):
            at = torch.arange(self._next, self._next + t, device=target.real.device)
            self._next += t
            return at
        before = self._next
        if isinstance(before, int):
            before = target.real.new_full((self.rows,), before, dtype=torch.long)
        at = positions_after(before, target.real)
        self._next = before + target.real.sum(1)
        return at

    def _allowed(self, target: Padded, past: int) -> Tensor:
        """(g, w·t, s + w·t): the own past, and the present up to the query."""
        t, g, w = target.real.shape[1], self.groups, self.rows // self.groups
        real = target.real
        visible = real.new_ones(self.rows, past) if self._own is None else self._own
        mine = torch.eye(w, dtype=torch.bool, device=real.device)
        if t == 1 and target.padding == "none":
            allowed = torch.cat([visible.view(g, w, past), mine.expand(g, w, w)], 2)
            self._own = allowed.view(self.rows, past + w)
            return allowed
        ones = mine[None, :, :, None] & real.view(g, 1, w, t)  # (g, w, w, t) own and present
        self._own = torch.cat([visible, ones.reshape(self.rows, w * t)], 1)
        before = visible.view(g, w, 1, past).expand(g, w, t, past)
        causal = torch.ones(t, t, dtype=torch.bool, device=real.device).tril()
        present = ones[:, :, None] & causal[:, None, :]  # (g, w, t, w, t)
        allowed = torch.cat([before, present.reshape(g, w, t, w * t)], 3).flatten(1, 2)
        return any_key_allowed(allowed)

    def select(self, rows: Tensor, on_cpu: Tensor, caches: list[KeyValueCache]) -> None:
        """Select hypotheses `rows` (r',), in order; repeats and omissions allowed.

        on_cpu: the same rows on the CPU.  caches: keys and values that are selected alike.
        """
        used = _groups_used(on_cpu, self.groups, self.rows, rows.device)
        if used is not None:
            self.groups = len(used)
            for cache in caches:
                cache.select(used)
            if self._slots_at.dim() == 2:
                self._slots_at = self._slots_at[used]
        if self._own is not None:
            self._own = self._own.index_select(0, rows)
        if isinstance(self._next, Tensor):
            self._next = self._next[rows]
        self.rows = len(rows)
        if self._own is not None and self._own.shape[1] >= self._forget_at:
            self._forget(caches)

    def _forget(self, caches: list[KeyValueCache]) -> None:
        """Remove slots without a remaining hypothesis; hypotheses that share too few slots to
        search for get their own rows."""
        assert self._own is not None
        g, w = self.groups, self.rows // self.groups
        used = self._own.view(g, w, -1).any(1)  # (g, s)
        shared, longest = used.sum(1).amax(), self._own.sum(1).amax()
        places = torch.arange(g, device=used.device)
        if w > 1 and bool(shared > SPREAD * longest):
            used, shared, self.groups = self._own, longest, self.rows
            places = places.repeat_interleave(w)
        live = int(shared)
        slots = used.to(torch.uint8).argsort(dim=1, descending=True, stable=True)[:, :live]
        for cache in caches:
            cache.keep(places, slots)
        each = self.rows // self.groups
        self._own = self._own.gather(1, slots.repeat_interleave(each, 0))
        at = self._slots_at if self._slots_at.dim() == 2 else self._slots_at.expand(g, -1)
        self._slots_at = at[places].gather(1, slots)
        self._forget_at = max(FORGET, 2 * live)


class BlockSlots:
    """Slots of a block of steps, one position of each hypothesis a step, which `slots` leave to it.
    A step overwrites tensors, whose shapes stay, and reads no value."""

    def __init__(self, slots: BeamSlots, steps: int) -> None:
        self._slots = slots
        g, self._width = slots.groups, slots.rows // slots.groups
        before, after, visible = slots._slots_at, slots._next, slots._own
        self._past = before.shape[-1]
        self.room = -(-(self._past + steps * self._width) // ROOM) * ROOM
        if visible is None:
            visible = before.new_ones((slots.rows, self._past), dtype=torch.bool)
        self._own = F.pad(visible, (0, self.room - self._past))
        self._slots_at = F.pad(before.expand(g, -1), (0, self.room - self._past))
        self._next = before.new_full((slots.rows,), after) if isinstance(after, int) else after
        self._mine = torch.eye(self._width, dtype=torch.bool, device=visible.device).repeat(g, 1)
        self.present = torch.arange(self._width, device=visible.device) + self._past - self._width

    def extend(self) -> StepPositions:
        """Note the positions about to be decoded."""
        self.present += self._width
        at = self._next[:, None].clone()  # (r, 1)
        self._next += 1
        queries = at.view(-1, self._width)  # (g, w)
        self._own.index_copy_(1, self.present, self._mine)
        self._slots_at.index_copy_(1, self.present, queries)
        allowed = self._own.view(*queries.shape, -1)
        return StepPositions(at, queries, self._slots_at, allowed)

    def reorder(self, rows: Tensor) -> None:
        """Reorder hypotheses within their groups."""
        self._own.copy_(self._own.index_select(0, rows))

    def release(self, steps: int) -> int:
        """Give back the slots, as used in so many steps; returns their number."""
        length = self._past + steps * self._width
        slots, slots._next = self._slots, self._next
        slots._own, slots._slots_at = self._own[:, :length], self._slots_at[:, :length]
        return length


class DecoderState(MemoryRows):
    """The past of a batch of hypotheses under attention, layer by layer."""

    def __init__(self, n_layers: int, memory: Padded | None, memory_layers: list[KeyValue]) -> None:
        super().__init__(memory, memory_layers)
        self.caches = [KeyValueCache() for _ in range(n_layers)]
        self._first: Padded | None = None
        self._beam_slots: BeamSlots | None = None
        self._block: BlockSlots | None = None

    def reserve(self, steps: int, sentences: int) -> bool:
        """Begin a block of at most so many steps of one token, which read no value and keep the
        shapes of all tensors; False if the hypotheses of a sentence do not share their slots."""
        slots = self._known_slots()
        if slots.groups != sentences:
            return False
        self._block = BlockSlots(slots, steps)
        for cache in self.caches:
            cache.reserve(self._block.room, self._block.present)
        self._before, self.length = self.length, self.length + steps  # a bound, in the block
        return True

    def reorder(self, rows: Tensor) -> None:
        """Reorder the hypotheses of each sentence among themselves, in a block."""
        assert self._block is not None
        self._block.reorder(rows)

    def release(self, steps: int) -> None:
        """End the block after so many steps."""
        assert self._block is not None
        length = self._block.release(steps)
        for cache in self.caches:
            cache.release(length)
        self._block, self.length = None, self._before + steps

    def extend(self, target: Padded) -> StepPositions | None:
        """Record the positions about to be decoded; None if there is no past."""
        if self._block is not None:
            return self._block.extend()
        self._rows, t = target.real.shape
        self.length += t
        if self._first is None:
            self._first = target.with_values(target.real)
            return None
        return self._known_slots().extend(target)

    def select(self, rows: Tensor) -> None:
        """Select hypotheses `rows` (r',), in order; repeats and omissions allowed."""
        on_cpu = rows.cpu()
        if self._first is not None:
            self._known_slots().select(rows, on_cpu, self.caches)
        self._select_memory(rows, on_cpu)

    def _known_slots(self) -> BeamSlots:
        """Made on first use, which does not occur in training."""
        if self._beam_slots is None:
            assert self._first is not None
            self._beam_slots = BeamSlots(self._first.real, self._first.padding)
        return self._beam_slots


def _groups_used(rows: Tensor, n: int, total: int, device: torch.device) -> Tensor | None:
    """Groups needed by hypotheses `rows` (r',) on the CPU, of n groups of `total` hypotheses: equal
    groups of the new rows, or else each row; None if all stay."""
    each, every = total // n, torch.arange(n)
    group = rows // each
    if len(rows) == total and torch.equal(group, every.repeat_interleave(each)):
        return None
    used: Tensor = torch.unique_consecutive(group)
    each, rest = divmod(len(rows), len(used))
    if rest or not torch.equal(used.repeat_interleave(each), group):
        used = group
    if len(used) == n and torch.equal(used, every):
        return None
    return moved(used, device)


def _select(x: Tensor, rows: Tensor) -> Tensor:
    """Rows of x by index, in place where rows from the end take the place of rows that leave."""
    n = len(rows)
    if n < len(x) and not x.requires_grad and is_at_hand(x):
        moving = (rows != torch.arange(n, device=rows.device)).nonzero()[:, 0]
        sources = rows[moving]
        if bool((sources >= n).all()):
            x.index_copy_(0, moving, x.index_select(0, sources))
            return x[:n]
    return x.index_select(0, rows)
