"""Blocks of steps whose tensors keep their shape, and the sliding window of a decoder-only
model.

Sentences do not depend on each other: one that is done keeps its rows until the block ends, and
what they get is not looked at.
"""

import functools
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from transduce.decoding.hypotheses import ActiveHypotheses, BeamCandidates, StepOutcome
from transduce.decoding.step_model import NextTokenModel
from transduce.nn.repeated_work import RepeatedWork
from transduce.nn.state import DecoderState
from transduce.sequence import Padded

KEPT = 0.75


class WindowedState:
    """A decoder's state, and the ids that it holds."""

    def __init__(self, model: NextTokenModel, window: int) -> None:
        """window: maximum positions of a row, at least 2."""
        assert window >= 2, window
        self.model = model
        self.window = window
        self.state = model.start()
        self.held: Padded | None = None
        self._last: Tensor | None = None  # (1,) column of the newest ids, in a block

    def reserve(self, steps: int, sentences: int) -> bool:
        """Begin a block, as of `DecoderState`, that does not reach the end of the window."""
        assert self.held is not None
        self._past = past = self.held.real.shape[1]
        fits = past + steps <= self.window and isinstance(self.state, DecoderState)
        if not fits or not self.state.reserve(steps, sentences):
            return False
        values, real = (F.pad(part, (0, steps)) for part in self.held[:2])
        self.held, self._last = Padded(values, real), values.new_full((1,), past - 1)
        return True

    def reorder(self, rows: Tensor) -> None:
        """Reorder the hypotheses of each sentence among themselves, in a block."""
        assert self.held is not None
        self.held.values.copy_(self.held.values.index_select(0, rows))
        self.state.reorder(rows)

    def release(self, steps: int) -> None:
        """End the block after so many steps."""
        assert self.held is not None
        values, real = (part[:, : self._past + steps] for part in self.held[:2])
        self.held, self._last = Padded(values, real), None
        self.state.release(steps)

    def select(self, rows: Tensor) -> None:
        """Select hypotheses `rows` (r',), in order; repeats and omissions allowed."""
        self.state.select(rows)
        if self.held is not None:
            self.held = self.held.select(rows)

    def step(self, target: Padded) -> Tensor:
        """Logits (r, 1, v) of the next token after `target` (r, t)."""
        if self._last is not None and self.held is not None:
            self._last += 1
            self.held.values.index_copy_(1, self._last, target.values)
            self.held.real.index_fill_(1, self._last, True)
            return self.model.last_logits(target, self.state)
        held = target if self.held is None else _joined(self.held, target)
        if held.real.shape[1] > self.window:
            keep = self._keep(held.real)
            if keep is not None:
                first = int(keep.any(0).int().argmax())
                held = Padded(held.values[:, first:], keep[:, first:], "any")
                self.state, target = self.model.start(), held
        self.held = held
        return self.model.last_logits(target, self.state)

    def _keep(self, real: Tensor) -> Tensor | None:
        """(r, t) `real` after cutting rows that are too long, each by its own length; None if there
        are none."""
        too_long = real.sum(1, keepdim=True) > self.window  # (r, 1)
        if not bool(too_long.any()):
            return None
        from_the_end = real.flip(1).cumsum(1).flip(1)
        return real & ~(too_long & (from_the_end > kept_tokens(self.window)))


def kept_tokens(window: int) -> int:
    """Tokens that are left of a row beyond the window."""
    return max(1, int(KEPT * window))


def _joined(before: Padded, after: Padded) -> Padded:
    values = torch.cat([before.values, after.values], 1)
    real = torch.cat([before.real, after.real], 1)
    return Padded(values, real, "none" if before.padding == after.padding == "none" else "any")


Step = Callable[[Padded, ActiveHypotheses], StepOutcome]
"""Feeds the newest tokens of hypotheses to a model; its state moves on."""
Continuing = Callable[[BeamCandidates], BeamCandidates]
"""Candidates that go on."""

BLOCK = 64
"""Most steps of a block: positions by which the cache grows."""
READ = 8
"""Steps whose outcomes are read at once."""
LEAVE = 0.5
"""Share of live sentences from which on the others leave, and another block begins."""

# once, not for each block
_log = functools.cache(logging.getLogger("transduce").warning)


class Block:
    """Steps from hypotheses on a device, whose tensors each step overwrites."""

    def __init__(
        self,
        step: Step,
        state: DecoderState | WindowedState,
        continuing: Continuing,
        active: ActiveHypotheses,
        steps: int,
    ) -> None:
        """steps: for which the state has room."""
        self._step, self._state, self._continuing, self._left = step, state, continuing, steps
        self._places = [*range(len(active.sentences))]
        self._begin = active.length
        self._active = replace(
            active,
            tokens=F.pad(active.tokens, (0, steps), value=-1),
            there=active.lengths,
        )
        self._fed = Padded.unpadded(active.tokens[:, :, -1].reshape(-1, 1))
        device = active.tokens.device
        self._first = torch.arange(0, len(self._fed.values), active.width, device=device)[:, None]
        self._number = self._first.new_zeros(1)
        self._outcomes: Tensor | None = None
        self._work = RepeatedWork(self._once, device, _log, first_times=1)

    def run(self) -> Iterator[StepOutcome]:
        """Outcomes of the next steps, on the CPU, for the sentences that are kept."""
        count = min(READ, self._left)
        self._left -= count
        self._number.zero_()
        for _ in range(count):
            self._work.launch()
        assert self._outcomes is not None
        for outcome in self._outcomes[:count].cpu():  # waits for the device
            log_probs, parents, tokens, worst, *unpenalised = outcome[:, self._places]
            candidates = BeamCandidates(log_probs, parents.long(), tokens.long(), *unpenalised)
            yield StepOutcome(candidates, worst[:, 0])

    def keep(self, rows: Sequence[int]) -> None:
        """Keep these of the sentences, in this order."""
        self._places = [self._places[row] for row in rows]

    @property
    def is_over(self) -> bool:
        """True if no step is left, or if few sentences are."""
        return not self._left or len(self._places) <= LEAVE * len(self._active.sentences)

    def end(self) -> ActiveHypotheses:
        """The hypotheses that are kept, on the device; the state has them, too."""
        active, state = self._active, self._state
        length = active.tokens.shape[2] - self._left
        state.release(length - self._begin)
        places = self._first.new_tensor(self._places)
        every = torch.arange(active.width, device=places.device)
        state.select((self._first[places] + every).flatten())
        return ActiveHypotheses(
            [active.sentences[row] for row in self._places],
            [active.limits[row] for row in self._places],
            active.log_probs[places],
            active.tokens[places, :, :length],
            None if active.unpenalised is None else active.unpenalised[places],
        )

    def _once(self) -> None:
        """A step; reads no value."""
        active = self._active
        candidates, worst, _ = self._step(self._fed, active)
        log_probs, parents, tokens, unpenalised = candidates
        parts = [log_probs, parents, tokens, worst[:, None].expand_as(tokens), unpenalised]
        # float64 holds float32 and ids without rounding
        outcome = torch.stack([part.double() for part in parts if part is not None])
        if self._outcomes is None:
            self._outcomes = outcome.new_zeros(READ, *outcome.shape)
        self._outcomes.index_copy_(0, self._number, outcome[None])
        self._number += 1
        log_probs, parents, tokens, unpenalised = self._continuing(candidates)
        if active.width > 1:
            self._state.reorder((self._first + parents).flatten())
        ids = active.tokens.gather(1, parents[:, :, None].expand_as(active.tokens))
        at = active.lengths.at
        active.tokens.copy_(ids.index_copy_(2, at, tokens[:, :, None]))
        active.log_probs.copy_(log_probs)
        if active.unpenalised is not None and unpenalised is not None:
            active.unpenalised.copy_(unpenalised)
        self._fed.values.copy_(tokens.view(-1, 1))
        at += 1
