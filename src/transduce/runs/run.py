"""A trained model in use, whatever its task, from text to text.  Imports no torch.

Translations, encoders of texts and imported Whispers are loaded into the native engine without
PyTorch, other recognisers into the engine alone, all else with PyTorch.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    Protocol,
    Self,
    TypeVar,
    get_args,
    overload,
    runtime_checkable,
)

from transduce.decoding.backend import AuxiliaryModels, Cancelled, smallest_limit
from transduce.decoding.options import DecodingOptions
from transduce.decoding.session import SequencePredictor, TextStream
from transduce.errors import (
    NEEDS_TORCH,
    InputError,
    RunError,
    SettingError,
    TransduceError,
    lacks_torch,
)
from transduce.models.config import EncoderDecoderConfig
from transduce.nn.precision import Precision
from transduce.recipes import read_recipe
from transduce.runs.arguments import (
    EngineName,
    answered,
    check_name,
    check_text,
    check_texts,
    decoding_options,
    device_for,
    has_torch,
    input_parts,
    measured_precision,
    text_pairs,
    warn_of_bf16,
    without_torch,
)
from transduce.settings.sections import to_dict
from transduce.support.work import chunks
from transduce.tasks.predictors import CanContinue, GivenOptions, attempt
from transduce.tasks.recipe import Recipe, Split, check_model_size
from transduce.tasks.table import TASKS
from transduce.tasks.task import Prediction, Predictor
from transduce.tasks.translation.text_translator import Translation
from transduce.tasks.translation.translator import Translator
from transduce.text import Tokenizer
from transduce.training.weight_files import checkpoints_of, read_weights_header

if TYPE_CHECKING:
    from torch import nn

    from transduce.tasks.evaluation import Evaluation
    from transduce.tasks.language_model.dialogue import Conversation
    from transduce.tasks.translation.text_translator import Alignment


logger = logging.getLogger("transduce")

P = TypeVar("P", bound=Prediction)


@runtime_checkable
class CanConverse(Protocol):
    """Replies to the turns of a conversation."""

    def conversation(self, options: DecodingOptions | None) -> Conversation:
        """A new conversation."""


STREAM_TEXTS = 512
"""Inputs of an iterable that are computed together."""


@dataclass(eq=False, repr=False)
class LoadedRun:
    """A trained model, loaded from its run directory, without the calls of rooms above.

    predictor: made by the task, for its inputs.  precision, engine: as in `load`.  others: runs
    that decode with it (`with_models`).  reload: loads the run of the native engine with PyTorch.
    is_given_engine: True if the engine was asked for by name.
    """

    path: Path
    recipe: Recipe
    predictor: Predictor
    precision: Precision = "float32"
    engine: EngineName = "pytorch"
    others: tuple[LoadedRun, ...] = ()
    reload: Callable[[], Self] | None = None
    is_given_engine: bool = True

    @property
    def model(self) -> nn.Module:
        """The network.  A run that `auto` gave to the native engine computes with its network from
        now on, so that tensors can be recorded and weights changed."""
        if not self.is_given_engine:
            self.predictor, self.engine = self.in_pytorch.predictor, "pytorch"
            self.reload, self.is_given_engine = None, True
        return self.predictor.model

    @property
    def in_pytorch(self) -> Self:
        """This run with the search of PyTorch, loaded when first asked for."""
        return self if self.reload is None else self.reload()

    def __repr__(self) -> str:
        return f"<transduce run {self.path}: {self.recipe.task}, {self._parameters():,} parameters>"

    @overload
    def predict(
        self,
        inputs: Iterable[str | Sequence[str]],
        options: GivenOptions = None,
        *,
        kind: type[P],
        **settings: Any,
    ) -> Iterator[P]: ...
    @overload
    def predict(
        self, inputs: Iterable[str | Sequence[str]], options: GivenOptions = None, **settings: Any
    ) -> Iterator[Prediction]: ...
    def predict(
        self,
        inputs: Iterable[str | Sequence[str]],
        options: GivenOptions = None,
        *,
        kind: type[Prediction] | None = None,
        **settings: Any,
    ) -> Iterator[Prediction]:
        """The prediction for each input, lazily, in order, whatever the task.

        inputs: texts, or tuples of texts for a task with several per input (`predictor.inputs`).
        options: for decoding, if there is any; by default the recipe's.  settings: of decoding
        that differ from them.  kind: class of the predictions of this task, such as
        `LabelPrediction`, for type checkers.  Raises RunError where the task has others.

        >>> for prediction in run.predict(["A text.", "Another."]):
        ...     print(prediction.text)
        """
        check_texts(inputs)
        return self._predictions(inputs, self._decoding(options, settings), kind)

    def _predictions(
        self,
        inputs: Iterable[str | Sequence[str]],
        options: DecodingOptions | None,
        kind: type[Prediction] | None,
    ) -> Iterator[Prediction]:
        first, names = 0, self.predictor.inputs
        for chunk in chunks(inputs, STREAM_TEXTS):
            parts = [input_parts(texts, names, first + i) for i, texts in enumerate(chunk)]
            for prediction in self.predictor.predict(parts, options, first):
                if kind is not None and not isinstance(prediction, kind):
                    raise RunError(
                        f"{self.path} is a run of the task {self.recipe.task!r}, whose predictions "
                        f"are of class {type(prediction).__name__}, not {kind.__name__}"
                    )
                yield prediction
            first += len(chunk)

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

    def conversation(self, options: DecodingOptions | None = None) -> Conversation:
        """A new conversation with a run of the task `dialogue`.  Raises RunError for others.

        >>> conversation = transduce.load("runs/dialogue").conversation()
        >>> print("".join(conversation.reply("Hello!")))
        """
        if not isinstance(self.predictor, CanConverse):
            raise self.unable("not 'dialogue'")
        return self.predictor.conversation(options)

    def stream(
        self,
        text: str,
        options: GivenOptions = None,
        number: int = 0,
        cancelled: Callable[[], bool] | None = None,
        **settings: Any,
    ) -> TextStream:
        """The output for an input in parts, each as soon as it is certain.

        Joined, the parts equal the output of `translate` or `predict`.  Closing the generator ends
        the search; so does `cancelled`, called between steps, with a CancelledError.  number: of
        the text in a longer input, for sampling.  settings: of decoding that differ from the
        options.  Options that rule streaming out raise at once.

        >>> for part in run.stream("A text.", beam_size=1):
        ...     print(part, end="", flush=True)
        """
        check_text(text)
        if not isinstance(self.predictor, SequencePredictor):
            raise self.unable("which decodes no text")
        decoding = self._decoding(options, settings)
        return self.predictor.stream(text, decoding, number, cancelled)

    def with_models(
        self,
        ensemble: Sequence[LoadedRun] = (),
        language_model: LoadedRun | None = None,
    ) -> Self:
        """This run, decoding together with others of the same vocabularies.

        ensemble: runs averaged with this run, as `options.ensemble` says.  language_model: a run
        with the target's vocabulary, for shallow fusion with `options.language_model_weight`, of
        texts or recordings.  `score` and `align` use this run alone.

        Raises RunError if vocabularies differ, SettingError for runs that cannot be combined or
        that already have auxiliary models.

        >>> run = run.with_models(ensemble=[transduce.load("runs/other")])
        >>> print(run.translate("A text.").text)
        """
        beside = (*ensemble, language_model)
        others = tuple(other for other in beside if other is not None)
        for other in others:
            if not isinstance(other, LoadedRun):
                raise RunError(f"{other!r} is not a loaded run; load it by transduce.load(path)")
        predictor = _with_auxiliary(self, ensemble, language_model)
        run = dataclasses.replace(self, predictor=predictor, others=others)
        if self.reload is not None:
            run.reload = functools.cache(
                lambda: self.in_pytorch.with_models(
                    [other.in_pytorch for other in ensemble],
                    None if language_model is None else language_model.in_pytorch,
                )
            )
        return run

    def between(self, source: str | None = None, target: str | None = None) -> Self:
        """This run of several languages, translating between two of them, by codes such as "de";
        None for what the texts' own tags say.  Raises SettingError for other languages.

        >>> run = transduce.load("runs/many").between("en", "de")
        >>> print(run.translate("A text.").text)
        """
        if source is None and target is None:
            return self
        run = dataclasses.replace(self, predictor=self.translator.between(source, target))
        if self.reload is not None:
            run.reload = functools.cache(lambda: self.in_pytorch.between(source, target))
        return run

    def score(self, pairs: Iterable[tuple[str, str]]) -> Iterator[float]:
        """Natural log-probability of each given (source, target) pair.

        >>> (log_prob,) = run.score([("A text.", "Ein Text.")])
        """
        check_texts(pairs)
        return self.translator.score(text_pairs(pairs))

    def align(self, source: str, target: str | None = None, layer: int = -1) -> Alignment:
        """Attention of the target (by default the model's own) to the source, in one layer.

        >>> weights = run.align("A text.", "Ein Text.").weights  # (t, s)
        """
        check_text(source, "the source")
        if target is not None:
            check_text(target, "the target")
        if not isinstance(layer, int):
            raise SettingError(f"layer must be a number, not {layer!r}")
        return self.translator.align(source, target, layer)

    def evaluate(
        self,
        split: Split = "test",
        examples: Iterable[tuple[str | Sequence[str], str]] | None = None,
        options: GivenOptions = None,
        **settings: Any,
    ) -> Evaluation:
        """Predict held-out inputs and score the predictions.

        examples: (input, right answer) to use instead of a split of the recipe's data.  settings:
        of decoding that differ from the options.

        >>> scores = run.evaluate("valid", beam_size=1).scores
        >>> scores = run.evaluate(examples=[("A text.", "Ein Text.")]).scores
        """
        check_name("split", split, get_args(Split))
        if examples is not None:
            check_texts(examples)
            examples = answered(examples, self.predictor.inputs)
        return self.predictor.evaluate(split, examples, self._decoding(options, settings))

    def info(self) -> dict[str, Any]:
        """Facts about the run: sizes, best validation scores, checkpoints, settings.

        >>> n_parameters = run.info()["parameters"]
        """
        from transduce.training.log import kept_scores

        return {
            "run": str(self.path),
            "task": self.recipe.task,
            "inputs": list(self.predictor.inputs),
            "parameters": self._parameters(),
            **self.predictor.facts(),
            "engine": self.engine,
            "native_engine": self._native_support(),
            "validation": kept_scores(self.path),
            "checkpoints": [path.name for path in checkpoints_of(self.path)],
            "recipe": to_dict(self.recipe),
        }

    def _native_support(self) -> str:
        from transduce.engine.build import chosen_instructions

        if self.engine == "native":
            return f"yes, with {chosen_instructions().name}"
        from transduce.runs.network_engine import native_support

        return native_support(self.predictor, self.recipe)

    def _parameters(self) -> int:
        if self.engine == "native":  # the file has each once
            shapes = read_weights_header(self.path / "weights.safetensors").shapes
            return sum(map(math.prod, shapes.values()))
        return sum({p.data_ptr(): p.numel() for p in self.model.parameters()}.values())


def _with_auxiliary(
    run: LoadedRun,
    ensemble: Sequence[LoadedRun],
    language_model: LoadedRun | None,
) -> Predictor:
    """The predictor of a run, decoding with other models, as `LoadedRun.with_models`.

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


def _scorer(run: LoadedRun, language_model: LoadedRun, target: Tokenizer) -> Any:
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
    search = predictor.backend.step_search("a language model")
    from transduce.decoding.ensemble import LanguageModel
    from transduce.decoding.step_search import DecoderSearch

    assert isinstance(search, DecoderSearch)
    return LanguageModel(search.model, search.window)


R = TypeVar("R", bound=LoadedRun)


def load_as(
    kind: type[R],
    path: str | os.PathLike[str],
    device: str = "auto",
    precision: str = "float32",
    engine: EngineName = "auto",
    threads: int | None = None,
) -> R:
    """A run directory as a run of this kind; the rest is as in `transduce.load`."""
    if not isinstance(path, str | os.PathLike):
        raise RunError(f"{path!r} is not the path of a run directory")
    run = _load(kind, Path(path), device, precision, engine, threads)
    if run.engine == "native" and run.precision == "float32" and has_torch():
        run.is_given_engine = engine == "native"
        run.reload = functools.cache(lambda: _load(kind, run.path, "cpu", engine="pytorch"))
    return run


def _load(
    kind: type[R],
    run: Path,
    device: str,
    precision: str = "float32",
    engine: EngineName = "auto",
    threads: int | None = None,
) -> R:
    reason: TransduceError | None = None
    try:
        recipe = read_recipe(run)
        device = device_for(engine, precision, device)
        chosen = measured_precision(precision, recipe.model)
        load_native = TASKS[recipe.task].load_native
        if load_native is not None and without_torch(engine, device):
            try:
                predictor = load_native(recipe, run, chosen, threads)
                warn_of_bf16(chosen)
                return kind(run, recipe, predictor, chosen, "native")
            except TransduceError as error:
                if engine == "native" and not isinstance(recipe.model, EncoderDecoderConfig):
                    raise  # nothing else takes such a model to the engine
                reason = error
        return _load_with_torch(kind, run, recipe, device, chosen, engine, threads)
    except ImportError as error:
        if not lacks_torch(error):
            raise
        what = f"{reason}; without the native engine, this run" if reason else str(run)
        raise RunError(f"{what} {NEEDS_TORCH}") from None


def _load_with_torch(
    kind: type[R],
    run: Path,
    recipe: Recipe,
    device: str,
    precision: Precision,
    engine: EngineName,
    threads: int | None,
) -> R:
    """The run with the engine of a name, or for "auto" with the native engine where possible.

    On a CPU, bf16 and int8 are the native engine's: it decodes where it can, and all that PyTorch
    still computes multiplies matrices with it.
    """
    check_model_size(to_dict(recipe.model), run)
    import torch

    from transduce.engine.build import NO_COMPILER, log_once
    from transduce.engine.model import to_native
    from transduce.nn.kernels import to_bf16
    from transduce.runs.network_engine import check_reduced, native_refusal, natively, on_cpu

    if threads is not None:
        torch.set_num_threads(threads)
    is_chosen = engine == "native"
    predictor = decoding = TASKS[recipe.task].load(recipe, run, device)
    reduced = precision != "float32" and on_cpu(predictor)
    if reduced:
        check_reduced(precision)
    if reduced and engine != "native":
        engine = "pytorch" if native_refusal(predictor, recipe.model) else "native"
    refusal = native_refusal(predictor, recipe.model) if engine == "auto" else None
    if refusal == NO_COMPILER:
        log_once(refusal)
    used: EngineName = "pytorch"
    if engine != "pytorch" and refusal is None:
        try:
            decoding, used = natively(predictor, recipe, run, precision), "native"
        except TransduceError as error:
            if is_chosen:
                raise
            logger.warning("decoding with PyTorch: %s", error)
    if used == "pytorch" and precision == "bf16" and not reduced:
        to_bf16(predictor.model)
    if reduced:  # now that the engine has read the matrices
        to_native(predictor.model, precision)
    return kind(run, recipe, decoding, precision, used)
