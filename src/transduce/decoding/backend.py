"""Search backends: from pieces to hypotheses, in Python or in the engine.  Imports no torch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from transduce.decoding.auxiliary_models import NO_AUXILIARY, AuxiliaryModels
from transduce.decoding.hypotheses import Hypothesis
from transduce.decoding.options import DecodingOptions
from transduce.decoding.output_constraints import OutputConstraints
from transduce.text import BOS

if TYPE_CHECKING:
    from torch import Tensor

    from transduce.decoding.search import SearchRequest

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

    @property
    def is_alone(self) -> bool:
        """True for pieces by themselves."""
        return self.auxiliary.draft is not None

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
        """Decode some pieces together."""
        from transduce.decoding.search import search

        request = replace(self.request(pieces, options), cancelled=cancelled)
        return [Decoded(request.whole(best)) for best in search(request)]

    def prefixes(
        self, piece: Piece, options: DecodingOptions, cancelled: Cancelled | None
    ) -> Iterator[list[int]]:
        """Ids that the output of a piece begins with, as far as they are certain."""
        from transduce.decoding.search import search_steps

        request = replace(self.request([piece], options), cancelled=cancelled)
        for snapshot in search_steps(request):
            yield request.original(snapshot.certain())

    def step_search(self, feature: str) -> StepSearch:
        """This search."""
        return self

    def check(self, options: DecodingOptions) -> None:
        """Follows every option that has a meaning for the task."""
