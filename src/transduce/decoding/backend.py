"""Search backends, from pieces to hypotheses, in Python or in the engine, with auxiliary models
and errors per input."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from ctypes import c_int32
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from transduce.decoding.constraints import OutputConstraints, SearchHooks
from transduce.decoding.hypotheses import Hypothesis
from transduce.decoding.options import DecodingOptions, check_shortlist, not_native, uniforms
from transduce.decoding.step_model import StepModel
from transduce.engine.inference import (
    LENGTH_PENALTIES,
    STOPS,
    EngineWeights,
    HypothesisFields,
    NativeResults,
    search,
)
from transduce.engine.library import Sampling, SearchOptions, Spoken
from transduce.errors import CancelledError, SettingError, TransduceError
from transduce.text import BOS, EOS, PAD

if TYPE_CHECKING:
    from torch import Tensor

    from transduce.decoding.ensemble import LanguageModel
    from transduce.decoding.search import SearchRequest
    from transduce.decoding.shortlist import Shortlist


@dataclass(frozen=True)
class AuxiliaryModels:
    """Models that decode together with a translator, of the same vocabularies.

    others: ensemble members, all trained for `max_source_length` tokens, with positions for
    `max_target_length`; None for no limit.  language_model: for shallow fusion.
    """

    others: Sequence[StepModel] = ()
    language_model: LanguageModel | None = None
    max_source_length: int | None = None
    max_target_length: int | None = None

    def check(self, options: DecodingOptions) -> None:
        """Raises SettingError for options that the auxiliary models do not support."""
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
        """Combined model, with `start` and `step` to its own limit, and its search hooks.

        max_target_length: limit of the model; None for none.  eos: id of the end.  options: of
        decoding.  sentence_constraints: of each sentence.
        """
        if self.others or self.language_model is not None or options.coverage_penalty:
            from transduce.decoding.ensemble import Ensemble

            ensemble = Ensemble([model, *self.others], self.language_model, options)
            return ensemble, ensemble.hooks(sentence_constraints)
        return model, SearchHooks(sentence_constraints)


def smallest_limit(*limits: int | None) -> int | None:
    """Smallest of several limits; None means no limit."""
    return min((limit for limit in limits if limit is not None), default=None)


NO_AUXILIARY = AuxiliaryModels()


Cancelled = Callable[[int], bool]
"""Called between steps with the index of an input or piece: is it cancelled?"""


class Piece(NamedTuple):
    """Part of an input that is decoded at a time.

    owner:       index of the input in its call.
    source:      ids of a text with their end, frames (t, f), an image (c, h, w); None for a
                 decoder alone.
    length:      positions that it takes in a batch.
    limit:       maximum tokens of its output.
    stream:      number for the random numbers of sampling.
    constraints: of its output.
    prompt:      ids that every hypothesis begins with.
    stopped:     True for the ids of an output that ends there, by its stop strings.
    line:        number of its line in a text.
    """

    owner: int
    source: Any
    length: int
    limit: int
    stream: int
    constraints: OutputConstraints
    prompt: tuple[int, ...] = (BOS,)
    stopped: Callable[[list[int]], bool] | None = None
    line: int = 0

    @property
    def is_constrained(self) -> bool:
        """True for a prefix, phrases to contain, or phrases to avoid."""
        constraints = self.constraints
        return bool(constraints.prefix or constraints.trie or constraints.banned)

    def question(self, sampled: bool) -> Hashable:
        """All that decides the hypotheses of a text; equal pieces are decoded once."""
        source = self.source if isinstance(self.source, Hashable) else id(self.source)  # frames
        return source, self.prompt, self.constraints, self.stream if sampled else 0


class Decoded(NamedTuple):
    """Result of the search for a piece: the `n_best` hypotheses, best first, none if it is
    cancelled.

    ctc: of speech, log-probabilities (t, v) at each position of the memory, if the model has CTC.
    language: of speech, code of the spoken language, given or detected.
    no_speech: of speech, probability that there is none, if the model has a token for it.
    """

    hypotheses: list[Hypothesis]
    ctc: Tensor | None = None
    language: str = ""
    no_speech: float | None = None


class SearchBackend(ABC):
    """The search of a predictor.  auxiliary: models that decode with it."""

    auxiliary: AuxiliaryModels = NO_AUXILIARY

    @abstractmethod
    def search(
        self, pieces: Sequence[Piece], options: DecodingOptions, cancelled: Cancelled | None = None
    ) -> list[Decoded]:
        """Decode pieces together, until `cancelled` is true of a piece's index."""

    @abstractmethod
    def step_search(self, feature: str) -> StepSearch:
        """The search step by step.  feature: that needs it, for the error without PyTorch."""

    @abstractmethod
    def check(self, options: DecodingOptions) -> None:
        """Raises SettingError or RunError for options that this search cannot follow."""


class StepSearch(SearchBackend):
    """Base of the searches over a model's steps; a subclass begins them."""

    @abstractmethod
    def request(self, pieces: Sequence[Piece], options: DecodingOptions) -> SearchRequest[Any]:
        """The search for the outputs of some pieces, ready to run."""

    def search(
        self, pieces: Sequence[Piece], options: DecodingOptions, cancelled: Cancelled | None = None
    ) -> list[Decoded]:
        """Decode some pieces together.

        options: of decoding, for all pieces.  cancelled: called between steps with the index of a
        sentence; true ends it.
        """
        from transduce.decoding.search import search

        request = replace(self.request(pieces, options), cancelled=cancelled)
        return [Decoded(request.whole(best)) for best in search(request)]

    def prefixes(
        self, piece: Piece, options: DecodingOptions, cancelled: Cancelled | None
    ) -> Iterator[list[int]]:
        """Ids that the output of a piece begins with, as far as they are certain.

        options: of decoding.  cancelled: called between steps; true ends the search.
        """
        from transduce.decoding.search import search_steps

        request = replace(self.request([piece], options), cancelled=cancelled)
        for snapshot in search_steps(request):
            yield request.original(snapshot.certain())

    def step_search(self, feature: str) -> StepSearch:
        """This search."""
        return self

    def check(self, options: DecodingOptions) -> None:
        """Follows every option that has a meaning for the task."""


OwnOptions = DecodingOptions | TransduceError
"""Options of one input, or the error in the given ones."""


class Cancellation:
    """Inputs of a call cancelled during decoding, each for good."""

    def __init__(self, hook: Cancelled | None, first: int = 0) -> None:
        """first: index for the hook of the first of the inputs that are decoded together."""
        self._hook = hook
        self._first = first
        self._cancelled: set[int] = set()

    def __call__(self, owner: int) -> bool:
        """True if an input has been cancelled."""
        if self._hook is None:
            return False
        if owner not in self._cancelled and self._hook(self._first + owner):
            self._cancelled.add(owner)
        return owner in self._cancelled

    def error(self, owner: int) -> CancelledError | None:
        """The answer to an input that was found cancelled; None for others."""
        return CancelledError("cancelled before completion") if owner in self._cancelled else None

    def in_search(self, owners: Sequence[Iterable[int]]) -> Cancelled | None:
        """Hook of a search in which piece i is decoded for all inputs of owners[i]."""
        if self._hook is None:
            return None
        return lambda i: all(map(self, owners[i]))


def checked(
    options: Sequence[OwnOptions], check: Callable[[DecodingOptions], object]
) -> list[OwnOptions]:
    """The options of each input, or the error that a check of them raises; equal ones once."""
    results: dict[DecodingOptions, OwnOptions] = {}
    for choice in options:
        if isinstance(choice, DecodingOptions) and choice not in results:
            try:
                check(choice)
                results[choice] = choice
            except TransduceError as error:
                results[choice] = error
    return [
        results[choice] if isinstance(choice, DecodingOptions) else choice for choice in options
    ]


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
        for constraints in (piece.constraints for piece in pieces if piece.is_constrained):
            return "prefix" if constraints.prefix else "constraints"
        return None

    def search(
        self, pieces: Sequence[Piece], options: DecodingOptions, cancelled: Cancelled | None = None
    ) -> list[Decoded]:
        """Decode some pieces together.

        options: of decoding, for all pieces.  cancelled: called between steps with the index of a
        sentence; true ends it.  The search of a piece, and so the last bit of its score, does not
        depend on the constraints of others.
        """
        parts = [[i for i, p in enumerate(pieces) if p.is_constrained is c] for c in (False, True)]
        if all(parts) and self.unsupported(options) is None:
            decoded: dict[int, Decoded] = {}
            for part in parts:
                hook = None if cancelled is None else _of_part(cancelled, part)
                results = self.search([pieces[i] for i in part], options, hook)
                decoded.update(zip(part, results, strict=True))
            return [decoded[i] for i in range(len(pieces))]
        if (name := self.unsupported(options, pieces)) is not None:
            return self._other(name, options).search(pieces, options, cancelled)
        shortlist = self.shortlist() if options.shortlist else None
        sources = [piece.source for piece in pieces if piece.source is not None]
        lists = [] if shortlist is None else [shortlist.of(ids[:-1]) for ids in sources]
        prompts = [piece.prompt for piece in pieces]
        native = self.results(pieces, sources, prompts, options, cancelled, lists)
        return [Decoded(hypotheses_of(best)) for best in native.hypotheses]

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
        `engine.search`.

        options: of decoding, for all pieces.  cancelled: called between steps.  spoken: options of
        recordings; None for texts.
        """
        limits = [piece.limit for piece in pieces]
        search_options = SearchOptions(
            **search_numbers(options),
            ends_at_limit=self.window > 0,
            eos=EOS,
            window=self.window,
            kept=self.kept_tokens,
            threads=self.threads(),
            n_forbidden=len(self.forbidden),
            forbidden=self._forbidden,
        )
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


def _of_part(cancelled: Cancelled, numbers: Sequence[int]) -> Cancelled:
    """The same for some of the sentences, by their numbers."""
    return lambda index: cancelled(numbers[index])


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
