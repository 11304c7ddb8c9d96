"""The native engine's own search, for options that need only logits.  Imports no torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ctypes import c_int32
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from transduce.decoding.backend import Cancelled, Decoded, Piece, SearchBackend, StepSearch
from transduce.decoding.hypotheses import Hypothesis
from transduce.decoding.options import DecodingOptions, check_shortlist, not_native
from transduce.decoding.random_numbers import uniforms
from transduce.engine.library import Sampling, SearchOptions, Spoken
from transduce.engine.search import (
    LENGTH_PENALTIES,
    STOPS,
    HypothesisFields,
    NativeResults,
    search,
)
from transduce.engine.weights import EngineWeights
from transduce.text import BOS, EOS, PAD

if TYPE_CHECKING:
    from transduce.decoding.shortlist import Shortlist

MOST_TOP_K = 2**31 - 1
"""As many as any vocabulary has."""


@dataclass(eq=False)
class NativeSearch(SearchBackend):
    """A model in the engine, and its search; other options take the search of Python.

    steps: makes the search over the steps of the same model, given the option or feature that
    needs it.  threads: called at each search.  window, kept_tokens: of a decoder alone, maximum
    positions of a prompt with its continuation, and tokens kept of a longer text.  shortlist:
    called when one is first needed.
    """

    model: EngineWeights
    steps: Callable[[str], StepSearch]
    threads: Callable[[], int]
    forbidden: tuple[int, ...] = (BOS, PAD)
    window: int = 0
    kept_tokens: int = 0
    shortlist: Callable[[], Shortlist | None] = lambda: None

    def __post_init__(self) -> None:
        self._forbidden = (c_int32 * len(self.forbidden))(*self.forbidden)

    def step_search(self, feature: str) -> StepSearch:
        """The search of Python over the engine's steps."""
        return self.steps(feature)

    def check(self, options: DecodingOptions) -> None:
        """Raises SettingError for options that need PyTorch, without it, or that a shortlist
        rules out, RunError without the shortlist."""
        check_shortlist(options, options.shortlist and self.shortlist())
        if (name := self.unsupported(options)) is not None:
            self._other(name, options).check(options)

    def unsupported(self, options: DecodingOptions, pieces: Sequence[Piece] = ()) -> str | None:
        """The first setting that the engine's search does not follow; None if it follows all."""
        for name in not_native(options):
            return name
        for constraints in (piece.constraints for piece in pieces):
            if constraints.prefix or constraints.trie or constraints.banned:
                return "prefix" if constraints.prefix else "constraints"
        return None

    def search(
        self, pieces: Sequence[Piece], options: DecodingOptions, cancelled: Cancelled | None = None
    ) -> list[Decoded]:
        """Decode some pieces together."""
        if (name := self.unsupported(options, pieces)) is not None:
            return self._other(name, options).search(pieces, options, cancelled)
        shortlist = self.shortlist() if options.shortlist else None
        sources = [piece.source for piece in pieces if piece.source is not None]
        lists = [] if shortlist is None else [shortlist.of(ids[:-1]).tolist() for ids in sources]
        prompts = [piece.prompt for piece in pieces]
        results = self.results(pieces, sources, prompts, options, cancelled, lists)
        return [Decoded(hypotheses_of(best)) for best in results.hypotheses]

    def results(
        self,
        pieces: Sequence[Piece],
        sources: Sequence[Sequence[int]],
        prompts: Sequence[Sequence[int]],
        options: DecodingOptions,
        cancelled: Cancelled | None,
        lists: Sequence[Sequence[int]] = (),
        spoken: Spoken | None = None,
    ) -> NativeResults:
        """Results of the engine's search for pieces; sources, prompts, lists are as in
        `engine.search`."""
        limits = [piece.limit for piece in pieces]
        search_options = self._search_options(options)
        if spoken is not None:
            search_options.spoken = spoken
        if options.method == "sample":
            numbers = uniforms(options, [piece.stream for piece in pieces], limits)
            search_options.sampling = Sampling(
                options.temperature,
                options.top_p,
                options.min_p,
                min(options.top_k, MOST_TOP_K),
                numbers.shape[2],
                numbers.ctypes.data,
            )
        return search(
            self.model,
            sources,
            prompts,
            limits,
            [max(options.min_length, piece.constraints.min_length) for piece in pieces],
            search_options,
            cancelled,
            lists,
        )

    def _other(self, name: str, options: DecodingOptions) -> StepSearch:
        return self.step_search(f"decoding.{name} = {getattr(options, name)!r}")

    def _search_options(self, options: DecodingOptions) -> SearchOptions:
        return SearchOptions(
            **search_numbers(options),
            ends_at_limit=self.window > 0,
            eos=EOS,
            window=self.window,
            kept=self.kept_tokens,
            threads=self.threads(),
            n_forbidden=len(self.forbidden),
            forbidden=self._forbidden,
        )


def hypotheses_of(best: Sequence[HypothesisFields]) -> list[Hypothesis]:
    """Hypotheses of a sentence."""
    return [Hypothesis(*fields) for fields in best]


def search_numbers(options: DecodingOptions) -> dict[str, Any]:
    """Fields of `SearchOptions` that options of decoding decide."""
    stop = options.stop if options.method == "beam" else "first"  # samples do not compete
    return {
        "beam": options.width,
        "n_best": options.n_best,
        "length_penalty": LENGTH_PENALTIES.index(options.length_penalty),
        "stop": STOPS.index(stop),
        "free_end": options.free_end,
        "extra_length": options.extra_length,
        "alpha": options.alpha,
    }
