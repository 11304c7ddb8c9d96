"""The native engine behind a translator: its model for every option, its search for plain ones.

Options that need only the logits of a step are searched for in the engine; all others by
`decoding.search`, with the engine's model in place of the PyTorch one.  Scores and alignments of
given targets come from PyTorch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import torch

from transduce.decoding.hypotheses import Hypothesis
from transduce.decoding.options import DecodingOptions
from transduce.engine.build import build_refusal
from transduce.engine.instructions import chosen_instructions
from transduce.engine.model import NativeModel
from transduce.engine.search import SearchRules, search
from transduce.engine.shape import unsupported
from transduce.errors import SettingError
from transduce.nn.kernels.linear import Precision
from transduce.tasks.translation.task import TrainedTranslator
from transduce.tasks.translation.translator_config import SourceSegment
from transduce.text import BOS, EOS, PAD


class NativeEngine:
    """The model in the engine, and its search."""

    def __init__(self, model: NativeModel) -> None:
        self.model = model

    def follows(self, options: DecodingOptions, segments: Sequence[SourceSegment]) -> bool:
        """True if the engine's own search follows these options and constraints."""
        plain = (
            options.method == "beam"
            and options.beam_groups == 1
            and options.repetition_penalty == 1
            and not (options.no_repeat_ngram or options.coverage_penalty or options.shortlist)
        )
        return plain and not any(
            constraints.prefix or constraints.trie or constraints.banned
            for constraints in (segment.output_constraints for segment in segments)
        )

    def search(
        self,
        segments: Sequence[SourceSegment],
        limits: Sequence[int],
        options: DecodingOptions,
        cancelled: Callable[[int], bool] | None,
    ) -> list[list[Hypothesis]]:
        """The `n_best` hypotheses of each piece, best first, of at most `limits` tokens."""
        rules = SearchRules(
            options.beam_size,
            options.n_best,
            options.length_penalty,
            options.alpha,
            options.stop,
            options.free_end,
            BOS,
            EOS,
            PAD,
            torch.get_num_threads(),
        )
        min_lengths = [
            max(options.min_length, segment.output_constraints.min_length) for segment in segments
        ]
        sources = [[*segment.ids, EOS] for segment in segments]
        found = search(self.model, sources, limits, min_lengths, rules, cancelled)
        return [[Hypothesis(*one) for one in of_sentence] for of_sentence in found]


def native_refusal(predictor: object, model: object) -> str | None:
    """Reason that a predictor with this model configuration cannot use the engine; None if it can.

    Nothing is compiled for it.
    """
    if not isinstance(predictor, TrainedTranslator):
        return "it decodes translations only"
    if predictor.device.type != "cpu":
        return "it runs on a CPU only"
    if (setting := unsupported(model)) is not None:
        return f"it does not support {setting}"
    try:
        return build_refusal(chosen_instructions())
    except SettingError as error:
        return str(error)


def with_native(
    translator: TrainedTranslator, precision: Precision = "float32"
) -> TrainedTranslator:
    """Translator with the same weights that decodes in the native engine.

    Raises SettingError where the engine cannot be had or does not support the model.
    """
    model = NativeModel(translator.model, translator.recipe.model, precision)
    return translator.configured(dataclasses.replace(translator.config, native=NativeEngine(model)))
