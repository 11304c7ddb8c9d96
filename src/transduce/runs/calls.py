"""Calls of a loaded run that translate, the same with and without PyTorch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

from transduce.decoding.backend import Cancelled
from transduce.decoding.options import DecodingOptions
from transduce.errors import InputError, RunError, TransduceError
from transduce.runs.call_inputs import check_texts, decoding_options, input_parts
from transduce.support.work import chunks
from transduce.tasks.attempts import GivenOptions, attempt
from transduce.tasks.translation.translations import Translation
from transduce.tasks.translation.translator import Translator

if TYPE_CHECKING:
    from pathlib import Path

    from transduce.tasks.recipe import Recipe
    from transduce.tasks.task import Prediction, Predictor

STREAM_TEXTS = 512
"""Texts of an iterable that are translated together."""


class RunCalls:
    """Base of runs: translation of texts, and answers with errors of single inputs.

    predictor: made by the task, for its inputs.
    """

    path: Path
    recipe: Recipe
    predictor: Predictor

    @property
    def translator(self) -> Translator:
        """The predictor of a run that turns text into text.  Raises RunError for others."""
        if not isinstance(self.predictor, Translator):
            raise self.unable("which does not turn text into text")
        return self.predictor

    def unable(self, reason: str) -> RunError:
        """The error of a call that this task lacks."""
        task = self.recipe.task
        return RunError(f"{self.path} is a run of the task {task!r}, {reason}; use predict")

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

        options: of all inputs, or a sequence, for each; a mapping holds only settings that
        differ from the recipe's.  first: number of the first input in a longer sequence of them.
        cancelled: called between steps with the index of an input, from 0.  An input for which it
        returns true leaves its batch, and its answer is a CancelledError.
        """
        check_texts(inputs)
        names = self.predictor.inputs
        if options is None or isinstance(options, DecodingOptions | Mapping):
            options = [options] * len(inputs)
        each: list[GivenOptions | TransduceError] = list(options)
        parts = []
        for i, texts in enumerate(inputs):
            try:
                parts.append(input_parts(texts, names, first + i))
            except InputError as error:
                parts.append(("",) * len(names))
                each[i] = error
        return attempt(self.predictor, parts, each, first, cancelled)

    @overload
    def translate(
        self, texts: str, options: GivenOptions = None, **settings: Any
    ) -> Translation: ...
    @overload
    def translate(
        self, texts: Iterable[str], options: GivenOptions = None, **settings: Any
    ) -> Iterator[Translation]: ...
    def translate(
        self, texts: str | Iterable[str], options: GivenOptions = None, **settings: Any
    ) -> Translation | Iterator[Translation]:
        """The translation of a text, or, lazily, of each text of an iterable, in order.

        options: for decoding; by default the recipe's.  settings: of decoding that differ from
        them, such as `beam_size=2`.
        """
        translator, decoding = self.translator, self._decoding(options, settings)
        if isinstance(texts, str):
            return translator.translate([texts], decoding)[0]
        check_texts(texts)
        return self._stream(texts, decoding)

    __call__ = translate

    def translate_batch(
        self,
        texts: Sequence[str],
        options: DecodingOptions | Sequence[DecodingOptions] | None = None,
        first: int = 0,
    ) -> list[Translation]:
        """Translations of a sequence of texts; options of all, or a list of each text's.

        first: number of the first text in a longer input, for messages and the random streams of
        sampling.
        """
        check_texts(texts)
        sources = [input_parts(text, ("source",), i)[0] for i, text in enumerate(texts, first)]
        return self.translator.translate(sources, options, first)

    def _decoding(
        self, options: GivenOptions, settings: Mapping[str, Any]
    ) -> DecodingOptions | None:
        return decoding_options(self.predictor.options, options, settings)

    def _stream(
        self, texts: Iterable[str], options: DecodingOptions | None
    ) -> Iterator[Translation]:
        first = 0
        for chunk in chunks(texts, STREAM_TEXTS):
            yield from self.translate_batch(chunk, options, first)
            first += len(chunk)
