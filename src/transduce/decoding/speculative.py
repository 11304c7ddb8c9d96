"""Speculative decoding: a draft proposes tokens, which the model verifies in a pass (Leviathan et
al. 2023; Xia et al. 2023).

The search requests a token at a time and gets the logits of the large model, precomputed if the
draft is right.  The output is therefore independent of the draft, apart from rounding.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from transduce.decoding.step_model import StepModel
from transduce.sequence import Padded

FIRST_DRAFT, MAX_DRAFT = 4, 16
"""Draft tokens verified in a pass: the initial and the maximum number."""


class RewindableDecoder:
    """A model with a decoder state that can be rewound, and the tokens that it has read."""

    def __init__(self, model: StepModel, source: Padded) -> None:
        assert model.can_rewind, "a recurrent state cannot be rewound"
        self._model = model
        self._state = model.start(source)
        self.read: list[int] = []

    def rewind_to(self, tokens: list[int]) -> int:
        """Discard the cache after the first difference from `tokens`; returns the tokens kept."""
        same = 0
        for mine, theirs in zip(self.read, tokens, strict=False):
            if mine != theirs:
                break
            same += 1
        if len(self.read) > same:
            self._state.rewind(len(self.read) - same)
            del self.read[same:]
        return same

    def step(self, tokens: list[int]) -> Tensor:
        """Logits (t, v) of the next token after each of t more tokens."""
        self.read += tokens
        ids = torch.tensor([tokens], device=self._model.head.weight.device)
        logits = self._model.step(Padded.unpadded(ids), self._state)
        return logits[0]


@dataclass(eq=False)
class SpeculativeState:
    """Positions of the search and of both models.

    fed: ids fed by the search; `checked` of them at the last pass of the large model.  ahead: (t,
    v) its logits after its last t tokens.  draft_length: of the next round, from the last accepted.
    """

    large: RewindableDecoder
    draft: RewindableDecoder
    fed: list[int] = field(default_factory=list)
    ahead: Tensor = field(default_factory=lambda: torch.empty(0))
    checked: int = 0
    draft_length: int = FIRST_DRAFT

    def select(self, rows: Tensor) -> None:
        """Keep the only hypothesis."""
        assert len(rows) == 1, "speculation follows one hypothesis"


class SpeculativeDecoder:
    """A model and the draft that proposes its tokens; with `start` and `step`."""

    def __init__(
        self, model: StepModel, draft: StepModel, eos: int, max_target_length: int | None
    ) -> None:
        """Takes Transformers of the same vocabularies, of up to that many positions."""
        self._model = model
        self._draft = draft
        self._eos = eos
        self._max_target_length = max_target_length

    def start(self, source: Padded) -> SpeculativeState:
        """Encode the source (1, s) with both models."""
        return SpeculativeState(
            RewindableDecoder(self._model, source), RewindableDecoder(self._draft, source)
        )

    def step(self, target: Padded, state: SpeculativeState) -> Tensor:
        """Logits (1, 1, v) of the next token after `target` (1, t)."""
        fed, large = state.fed, state.large
        fed += target.values[0].tolist()
        if large.read[: len(fed)] != fed:
            if state.checked:
                accepted = len(fed) - 1 - state.checked
                state.draft_length = min(accepted + 2, MAX_DRAFT)
            known = large.rewind_to(fed)
            state.ahead = large.step(fed[known:] + self._drafted(state))
            state.checked = len(fed)
        unread = len(large.read) - len(fed)
        return state.ahead[-1 - unread].view(1, 1, -1)

    def _drafted(self, state: SpeculativeState) -> list[int]:
        room = (
            state.draft_length
            if self._max_target_length is None
            else self._max_target_length - len(state.fed)
        )
        drafted: list[int] = []
        if room <= 0:
            return drafted
        new = state.fed[state.draft.rewind_to(state.fed) :]
        for _ in range(min(room, state.draft_length)):
            token = int(state.draft.step(new)[-1].argmax())
            if token == self._eos:
                break
            drafted.append(token)
            new = [token]
        return drafted
