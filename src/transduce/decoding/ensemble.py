"""Several models scored together: ensemble, shallow fusion, coverage of the source, and a draft
that proposes tokens.

The search requests a token at a time and gets the logits of the large model, precomputed if the
draft is right.  The output is therefore independent of the draft, apart from rounding.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from torch import Tensor

from transduce.decoding.constraints import OutputConstraints, SearchHooks
from transduce.decoding.options import DecodingOptions
from transduce.decoding.step_model import NextTokenModel, StepModel
from transduce.decoding.window import WindowedState
from transduce.nn.state import State
from transduce.sequence import Padded

MIN_COVERAGE = 1e-9
"""Floor for zero attention, to keep its logarithm finite."""


class LanguageModel(NamedTuple):
    """A model of the target language.  window: its context in positions."""

    model: NextTokenModel
    window: int


@dataclass(eq=False)
class EnsembleState:
    """States of all models for the same hypotheses.

    bonus:    (r, v) weighted log-probabilities of the language model for the next token.
    coverage: (r, s) attention summed over steps. real: (r, s) true for source tokens, not padding.
    """

    parts: Sequence[State]
    language: WindowedState | None
    real: Tensor
    bonus: Tensor | None = None
    coverage: Tensor | None = None

    def select(self, rows: Tensor) -> None:
        """Select hypotheses `rows` (r',), in order; repeats and omissions allowed."""
        for part in self.parts:
            part.select(rows)
        if self.language is not None:
            self.language.select(rows)
        if self.coverage is not None:
            self.coverage = self.coverage[rows]
        self.real = self.real[rows]


class Ensemble:
    """Models of a vocabulary, with shallow fusion and coverage by the last cross-attention of the
    first model; with `start` and `step`."""

    def __init__(
        self,
        models: Sequence[StepModel],
        language_model: LanguageModel | None,
        options: DecodingOptions,
    ) -> None:
        self._models = models
        self._language_model = language_model if options.language_model_weight else None
        self._options = options

    def hooks(self, sentence_constraints: Sequence[OutputConstraints]) -> SearchHooks:
        """Hooks for `search`: output constraints, and the bonuses of each step."""
        return self.beside(SearchHooks(sentence_constraints))

    def beside(self, hooks: SearchHooks) -> SearchHooks:
        """Hooks of the first model alone, with the bonuses of all."""
        coverage = self._coverage_bonus if self._options.coverage_penalty else hooks.end_bonus
        if self._language_model is None:
            return replace(hooks, end_bonus=coverage)
        alone = hooks.token_bonus

        def bonus(state: EnsembleState) -> Tensor:
            assert state.bonus is not None
            return state.bonus if alone is None else state.bonus + alone(state.parts[0])

        return replace(hooks, token_bonus=bonus, end_bonus=coverage)

    def start(self, source: Padded) -> EnsembleState:
        """Encode the source with every model."""
        return self.over([model.start(source) for model in self._models], source.real)

    def over(self, parts: Sequence[State], real: Tensor) -> EnsembleState:
        """The initial state, of those of the models over a source with tokens at `real`."""
        language = None
        if self._language_model is not None:
            language = WindowedState(*self._language_model)
        return EnsembleState(parts, language, real)

    def step(self, target: Padded, state: EnsembleState) -> Tensor:
        """Log-probabilities, or a single model's logits, (r, 1, v) after `target` (r, t)."""
        first = self._first(target, state)
        if state.language is not None:
            language_log_probs = state.language.step(target)[:, -1].float().log_softmax(1)
            state.bonus = language_log_probs * self._options.language_model_weight
        if len(self._models) == 1:
            return first
        others = zip(self._models[1:], state.parts[1:], strict=True)
        logits = [first, *(model.step(target, part)[:, -1:] for model, part in others)]
        member_log_probs = torch.stack([each.float().log_softmax(2) for each in logits])
        if self._options.ensemble == "geometric":
            return member_log_probs.mean(0)
        return member_log_probs.logsumexp(0) - math.log(len(logits))

    def _first(self, target: Padded, state: EnsembleState) -> Tensor:
        """Logits (r, 1, v) of the first model, and its cross-attention if requested."""
        model = self._models[0]
        if not self._options.coverage_penalty:
            return model.step(target, state.parts[0])[:, -1:]
        logits, weights = model.step_attended(target, state.parts[0])
        covered = weights.sum(1)  # (r, t, s) -> (r, s)
        state.coverage = covered if state.coverage is None else state.coverage + covered
        return logits[:, -1:]

    def _coverage_bonus(self, state: EnsembleState) -> Tensor:
        """(r,) beta * the sum over source tokens of log(min(attention, 1)), the cp of eq. 14."""
        assert state.coverage is not None
        missing = state.coverage.clamp(MIN_COVERAGE, 1.0).log().masked_fill(~state.real, 0.0)
        return self._options.coverage_penalty * missing.sum(1)


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
