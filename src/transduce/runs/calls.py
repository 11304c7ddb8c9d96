"""Calls of a loaded run from Python: auxiliary models, capabilities of tasks, translation with
and without PyTorch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, overload, runtime_checkable

from transduce.decoding.backend import (
    AuxiliaryModels,
    Cancelled,
    SearchBackend,
    smallest_limit,
)
from transduce.decoding.options import DecodingOptions
from transduce.decoding.session import SequencePredictor, TextStream
from transduce.errors import InputError, RunError, SettingError, TransduceError
from transduce.runs.arguments import check_texts, decoding_options, input_parts
from transduce.support.work import chunks
from transduce.tasks.predictors import GivenOptions, attempt
from transduce.tasks.task import Predictor
from transduce.tasks.translation.text_translator import Translation
from transduce.tasks.translation.translator import Translator
from transduce.text import Tokenizer

if TYPE_CHECKING:
    from pathlib import Path

    from transduce.speech.features import Mel
    from transduce.speech.spoken import Speech
    from transduce.tasks.language_model.dialogue import Conversation
    from transduce.tasks.recipe import Recipe
    from transduce.tasks.task import Prediction


@runtime_checkable
class CanConverse(Protocol):
    """Replies to the turns of a conversation."""

    def conversation(self, options: DecodingOptions | None) -> Conversation:
        """A new conversation."""


@runtime_checkable
class CanContinue(Protocol):
    """Continues a text, with a tokenizer for prompts and continuations alike."""

    tokenizer: Tokenizer
    options: DecodingOptions
    backend: SearchBackend
    window: int

    def stream(self, text: str, options: DecodingOptions | None) -> TextStream:
        """The continuation of a text in parts."""


@runtime_checkable
class CanTranslate(Protocol):
    """Turns texts into texts, with a tokenizer for each side."""

    source: Tokenizer
    target: Tokenizer


@runtime_checkable
class CanSpeak(Protocol):
    """Speaks texts."""

    features: Mel
    speakers: tuple[str, ...]

    def speak(self, texts: Iterable[str]) -> Iterator[Speech]:
        """The speech of each text."""

    def speaking(self, speed: float | None, speaker: str | None) -> CanSpeak:
        """This model with durations divided by `speed`, in the voice of a speaker."""


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
        """The error of a call that this task lacks.

        >>> raise run.unable("which does not speak")
        """
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

        >>> results = run.attempt(["A text.", "Another."], {"beam_size": 1})
        >>> failed = [each for each in results if isinstance(each, TransduceError)]
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

        >>> text = run.translate("A text.", beam_size=2).text
        >>> texts = [each.text for each in run.translate(["A text.", "Another."])]
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

        >>> texts = [each.text for each in run.translate_batch(["A text.", "Another."])]
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


def with_auxiliary(
    run: RunCalls,
    ensemble: Sequence[RunCalls],
    language_model: RunCalls | None,
) -> Predictor:
    """The predictor of a run, decoding with other models, as `Run.with_models`.

    ensemble: runs averaged with it.  language_model: for shallow fusion; None without.
    """
    if isinstance(run.predictor, SequencePredictor) and run.predictor.kind == "speech":
        if ensemble or language_model is None:
            raise SettingError("recordings are decoded with a language model alone; remove others")
        recogniser: Any = run.predictor
        scorer = _scorer(run, language_model, recogniser.tokenizer)
        together: Predictor = recogniser.with_models(AuxiliaryModels(language_model=scorer))
        return together
    translator = run.translator
    for other in ensemble:
        theirs = other.translator
        theirs.check_alone()
        for side in ("source", "target"):
            if getattr(translator, side).to_bytes() != getattr(theirs, side).to_bytes():
                raise RunError(
                    f"{other.path} has another {side} vocabulary than {run.path}; models "
                    "decode together over one vocabulary: train it with the tokenizers of that "
                    'run (kind = "file")'
                )
    others = [other.translator for other in ensemble]
    auxiliary = AuxiliaryModels(
        [other.steps.model for other in others],
        None if language_model is None else _scorer(run, language_model, translator.target),
        smallest_limit(*(other.config.max_source_length for other in others)),
        smallest_limit(*(other.config.max_target_length for other in others)),
    )
    return translator.with_models(auxiliary)


def _scorer(run: RunCalls, language_model: RunCalls, target: Tokenizer) -> Any:
    """The model of a run of language modelling.  Raises RunError for another vocabulary."""
    predictor, task = language_model.predictor, language_model.recipe.task
    if task != "language-model" or not isinstance(predictor, CanContinue):
        raise RunError(
            f"{language_model.path} is a run of the task {task!r}; a language model is needed here"
        )
    if predictor.tokenizer.to_bytes() != target.to_bytes():
        raise RunError(
            f"{language_model.path} has another vocabulary than the target of {run.path}; train it "
            'with text.tokenizer = { kind = "file", path = ... }, the file of that run'
        )
    from transduce.decoding.ensemble import LanguageModel

    search: Any = predictor.backend.step_search("a language model")
    return LanguageModel(search.model, search.window)
