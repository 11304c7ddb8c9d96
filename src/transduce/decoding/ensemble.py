"""Several models scored together: ensemble, shallow fusion, and coverage of the source."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
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
