"""Calls of a loaded run that translate, the same with and without PyTorch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, overload

from transduce.data.workers import chunks
from transduce.decoding.options import DecodingOptions
from transduce.errors import TransduceError
from transduce.tasks.attempts import GivenOptions, attempt
from transduce.tasks.per_input import Cancelled
from transduce.tasks.translation.text_translator import TextTranslator
from transduce.tasks.translation.translations import Translation

if TYPE_CHECKING:
    from transduce.tasks.task import Prediction, Predictor

STREAM_TEXTS = 512
"""Texts of an iterable that are translated together."""


class RunCalls(ABC):
    """Base of runs: translation of texts, and answers with errors of single inputs.

    predictor: made by the task, for its inputs.
    """

    predictor: Predictor

    @property
    @abstractmethod
    def translator(self) -> TextTranslator:
        """The predictor of a run that turns text into text.  Raises RunError for others."""

    def attempt(
        self,
        inputs: Sequence[str | Sequence[str]],
        options: GivenOptions | Sequence[GivenOptions] = None,
        first: int = 0,
        cancelled: Cancelled | None = None,
    ) -> Sequence[Prediction | TransduceError]:
        """The prediction for each input, or its error, in order, whatever the task.

        Options that cannot be followed, and images that cannot be read, are errors of their inputs
        alone; all others are answered as by `predict`.

        options: of all inputs, or a sequence with one for each; a mapping holds only settings that
        differ from the recipe's.  first: number of the first input in a longer sequence of them.
        cancelled: called between steps with the index of an input, from 0.  An input for which it
        returns true leaves its batch, and its answer is a CancelledError.
        """
        parts = [(one,) if isinstance(one, str) else tuple(one) for one in inputs]
        if options is None or isinstance(options, DecodingOptions | Mapping):
            options = [options] * len(parts)
        return attempt(self.predictor, parts, options, first, cancelled)

    @overload
    def translate(  # type: ignore[overload-overlap]
        self, texts: str, options: DecodingOptions | None = None
    ) -> Translation: ...
    @overload
    def translate(
        self, texts: Iterable[str], options: DecodingOptions | None = None
    ) -> Iterator[Translation]: ...
    def translate(
        self, texts: str | Iterable[str], options: DecodingOptions | None = None
    ) -> Translation | Iterator[Translation]:
        """The translation of one text, or, lazily, of each text of an iterable, in order.

        options: for decoding; by default the recipe's.
        """
        if isinstance(texts, str):
            return self.translator.translate([texts], options)[0]
        return self._stream(texts, options)

    __call__ = translate

    def translate_batch(
        self,
        texts: Sequence[str],
        options: DecodingOptions | Sequence[DecodingOptions] | None = None,
        first: int = 0,
    ) -> list[Translation]:
        """Translations of a sequence of texts; options of all, or a list with one for each.

        first: number of the first text in a longer input, for messages and the random streams of
        sampling.
        """
        return self.translator.translate(texts, options, first)

    def _stream(
        self, texts: Iterable[str], options: DecodingOptions | None
    ) -> Iterator[Translation]:
        first = 0
        for chunk in chunks(texts, STREAM_TEXTS):
            yield from self.translate_batch(chunk, options, first)
            first += len(chunk)
