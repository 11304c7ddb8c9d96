"""The native engine's own search, for options that need only the logits of a step.

Imports no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from transduce.decoding.backend import Cancelled, Decoded, Piece, SearchBackend, StepSearch
from transduce.decoding.hypotheses import Hypothesis
from transduce.decoding.options import DecodingOptions, not_native
from transduce.decoding.random_numbers import uniforms
from transduce.engine.search import Sampling, SearchRules, search
from transduce.engine.weights import EngineWeights
from transduce.text import BOS, EOS, PAD


class NativeSearch(SearchBackend):
    """A model in the engine, and its search; other options take the search of Python."""

    def __init__(
        self,
        model: EngineWeights,
        steps: Callable[[str], StepSearch],
        threads: Callable[[], int],
        forbidden: tuple[int, ...] = (BOS, PAD),
        window: int = 0,
        kept: int = 0,
    ) -> None:
        """steps: makes the search over the steps of the same model, given the name of the option
        or feature that needs it.  threads: called at each search.  window, kept: of a decoder
        alone, maximum positions of a prompt with its continuation, and tokens kept of a longer one.
        """
        self.model = model
        self._steps = steps
        self._threads = threads
        self._forbidden = forbidden
        self._window, self._kept = window, kept

    def step_search(self, feature: str) -> StepSearch:
        """The search of Python over the engine's steps."""
        return self._steps(feature)

    def check(self, options: DecodingOptions) -> None:
        """Raises SettingError for options that need PyTorch, without it."""
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
        self,
        pieces: Sequence[Piece],
        options: DecodingOptions,
        cancelled: Cancelled | None = None,
    ) -> list[Decoded]:
        """Decode some pieces together."""
        if (name := self.unsupported(options, pieces)) is not None:
            return self._other(name, options).search(pieces, options, cancelled)
        results = search(
            self.model,
            [piece.source for piece in pieces if piece.source is not None],
            [piece.prompt for piece in pieces],
            [piece.limit for piece in pieces],
            [max(options.min_length, piece.constraints.min_length) for piece in pieces],
            self._rules(options, pieces),
            cancelled,
        )
        return [Decoded([Hypothesis(*fields) for fields in best]) for best in results]

    def _other(self, name: str, options: DecodingOptions) -> StepSearch:
        return self._steps(f"decoding.{name} = {getattr(options, name)!r}")

    def _rules(self, options: DecodingOptions, pieces: Sequence[Piece]) -> SearchRules:
        sampling, stop = None, options.stop
        if options.method == "sample":
            streams, limits = [piece.stream for piece in pieces], [piece.limit for piece in pieces]
            drawn = options.temperature, options.top_k, options.top_p, options.min_p
            sampling = Sampling(*drawn, uniforms(options, streams, limits))
            stop = "first"  # samples do not compete
        return SearchRules(
            options.width,
            options.n_best,
            options.length_penalty,
            options.alpha,
            stop,
            options.free_end,
            EOS,
            self._forbidden,
            self._threads(),
            ends_at_limit=self._window > 0,
            window=self._window,
            kept=self._kept,
            sampling=sampling,
        )
