"""The native engine's own search behind a translator.

It follows options that need only the logits of a step; all others need `decoding.search`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from transduce.decoding.hypotheses import Hypothesis
from transduce.decoding.options import DecodingOptions
from transduce.engine.search import search
from transduce.engine.weights import EngineWeights
from transduce.tasks.native_search import beyond_logits, follows, search_rules
from transduce.tasks.translation.translator_config import SourceSegment
from transduce.text import BOS, EOS, PAD

M = TypeVar("M", bound=EngineWeights)


class NativeEngine(Generic[M]):
    """A model in the engine, and its search.

    threads: called at each search; the number of threads for the sentences of a batch.
    """

    def __init__(self, model: M, threads: Callable[[], int]) -> None:
        self.model = model
        self._threads = threads

    def follows(self, options: DecodingOptions, segments: Sequence[SourceSegment]) -> bool:
        """True if the engine's own search follows these options and constraints."""
        return follows(options, (segment.output_constraints for segment in segments))

    def search(
        self,
        segments: Sequence[SourceSegment],
        limits: Sequence[int],
        options: DecodingOptions,
        cancelled: Callable[[int], bool] | None,
    ) -> list[list[Hypothesis]]:
        """The `n_best` hypotheses of each piece, best first, of at most `limits` tokens."""
        streams = [segment.stream for segment in segments]
        rules = search_rules(options, (BOS, PAD), self._threads(), streams, limits)
        min_lengths = [
            max(options.min_length, segment.output_constraints.min_length) for segment in segments
        ]
        sources = [[*segment.ids, EOS] for segment in segments]
        prompts = [[BOS]] * len(sources)
        found = search(self.model, sources, prompts, limits, min_lengths, rules, cancelled)
        return [[Hypothesis(*one) for one in of_sentence] for of_sentence in found]


def needs_other_search(options: DecodingOptions) -> str | None:
    """The first setting that the engine's own search does not follow, or None."""
    texts = [name for name in ("prefix", "constraints", "avoid") if getattr(options, name)]
    return next(iter([*beyond_logits(options), *texts]), None)
