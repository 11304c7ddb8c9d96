"""Auxiliary models: ensemble members, a language model for shallow fusion, a draft."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from transduce.decoding.options import DecodingOptions
from transduce.decoding.output_constraints import OutputConstraints, SearchHooks
from transduce.decoding.step_model import StepModel
from transduce.errors import SettingError

if TYPE_CHECKING:
    from transduce.decoding.ensemble import LanguageModel


class DraftModel(NamedTuple):
    """A smaller model.  max_target_length: positions of its decoder; None for no limit."""

    model: StepModel
    max_target_length: int | None


@dataclass(frozen=True)
class AuxiliaryModels:
    """Models that decode together with a translator, of the same vocabularies.

    others: ensemble members, all trained for `max_source_length` tokens, with positions for
    `max_target_length`; None for no limit.  language_model: for shallow fusion.  draft: for
    speculative decoding, which takes a model alone.
    """

    others: Sequence[StepModel] = ()
    language_model: LanguageModel | None = None
    draft: DraftModel | None = None
    max_source_length: int | None = None
    max_target_length: int | None = None

    def check_compatible(self, model: StepModel) -> None:
        """Raises SettingError for auxiliary models that the model cannot be combined with."""
        if self.draft is None:
            return
        if self.others or self.language_model is not None:
            raise SettingError("speculative decoding takes a single model; remove the draft")
        if not (model.can_rewind and self.draft.model.can_rewind):
            raise SettingError("speculative decoding needs Transformer decoders; remove the draft")

    def check(self, options: DecodingOptions) -> None:
        """Raises SettingError for options that the auxiliary models do not support."""
        weighed = options.coverage_penalty or options.shortlist or options.minimum_risk != "none"
        if self.draft is not None and (options.width > 1 or weighed):
            raise SettingError(
                "speculative decoding keeps one hypothesis: set beam_size = 1 and remove "
                "n_best, coverage_penalty, minimum_risk and shortlist, or remove the draft"
            )
        if options.shortlist and (self.others or self.language_model is not None):
            raise SettingError("a shortlist cannot be combined with auxiliary models; remove it")

    def scorer(
        self,
        model: StepModel,
        max_target_length: int | None,
        eos: int,
        options: DecodingOptions,
        sentence_constraints: Sequence[OutputConstraints],
    ) -> tuple[Any, SearchHooks]:
        """Combined model, with `start` and `step` to its own limit, and its search hooks."""
        if self.draft is not None:
            from transduce.decoding.speculative import SpeculativeDecoder

            max_target_length = smallest_limit(max_target_length, self.draft.max_target_length)
            return SpeculativeDecoder(model, self.draft.model, eos, max_target_length), SearchHooks(
                sentence_constraints
            )
        if self.others or self.language_model is not None or options.coverage_penalty:
            from transduce.decoding.ensemble import Ensemble

            ensemble = Ensemble([model, *self.others], self.language_model, options)
            return ensemble, ensemble.hooks(sentence_constraints)
        return model, SearchHooks(sentence_constraints)


def smallest_limit(*limits: int | None) -> int | None:
    """Smallest of several limits; None means no limit."""
    return min((limit for limit in limits if limit is not None), default=None)


NO_AUXILIARY = AuxiliaryModels()
