"""A trained model in use: `load` and `Run`.  Imports no torch.

Translations, encoders of texts and imported Whispers are loaded into the native engine without
PyTorch, other recognisers into the engine alone, all else with PyTorch.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar, get_args, overload

from transduce.decoding.options import DecodingOptions
from transduce.decoding.session import SequencePredictor, TextStream
from transduce.errors import NEEDS_TORCH, RunError, SettingError, TransduceError, lacks_torch
from transduce.models.config import EncoderDecoderConfig
from transduce.nn.precision import Precision
from transduce.recipes import read_recipe
from transduce.runs.arguments import (
    EngineName,
    answered,
    check_name,
    check_text,
    check_texts,
    device_for,
    has_torch,
    input_parts,
    text_pairs,
    warn_of_bf16,
    without_torch,
)
from transduce.runs.calls import STREAM_TEXTS, CanConverse, CanSpeak, RunCalls, with_auxiliary
from transduce.settings.sections import to_dict
from transduce.support.work import chunks
from transduce.tasks.predictors import GivenOptions
from transduce.tasks.recipe import Recipe, Split, check_model_size
from transduce.tasks.table import TASKS
from transduce.tasks.task import Prediction, Predictor
from transduce.training.run_files import checkpoints_of
from transduce.training.weight_files import read_weights_header

if TYPE_CHECKING:
    from torch import nn

    from transduce.explain.explanation import Explanation, Film
    from transduce.explain.live import LiveModel
    from transduce.explain.parts import KnockOut
    from transduce.speech.segments import Segment
    from transduce.speech.spoken import Speech
    from transduce.speech.transcriber import Transcriber
    from transduce.tasks.evaluation import Evaluation
    from transduce.tasks.language_model.dialogue import Conversation
    from transduce.tasks.translation.text_translator import Alignment


logger = logging.getLogger("transduce")

P = TypeVar("P", bound=Prediction)


@dataclass(eq=False, repr=False)
class Run(RunCalls):
    """A trained model, loaded from its run directory: `transduce.load(path)`.

    predictor: made by the task, for its inputs.  precision, engine: as in `load`.  others: runs
    that decode with it (`with_models`).  reload: loads the run of the native engine with PyTorch.
    is_given_engine: True if the engine was asked for by name.
    """

    path: Path
    recipe: Recipe
    predictor: Predictor
    precision: Precision = "float32"
    engine: EngineName = "pytorch"
    others: tuple[Run, ...] = ()
    reload: Callable[[], Run] | None = None
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
    def in_pytorch(self) -> Run:
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

    def conversation(self, options: DecodingOptions | None = None) -> Conversation:
        """A new conversation with a run of the task `dialogue`.  Raises RunError for others.

        >>> conversation = transduce.load("runs/dialogue").conversation()
        >>> print("".join(conversation.reply("Hello!")))
        """
        if not isinstance(self.predictor, CanConverse):
            raise self.unable("not 'dialogue'")
        return self.predictor.conversation(options)

    def transcribe(
        self,
        audio: str | os.PathLike[str] | bytes,
        options: DecodingOptions | None = None,
        language: str | None = None,
        task: str | None = None,
        prompt: str | None = None,
        words: bool = False,
        then: Run | None = None,
    ) -> Iterator[Segment]:
        """Segments of a recording of any length, lazily, with their times.

        audio: a file, or its bytes.  options, language, task, prompt, words and then are as in
        `transcriber`.  Raises DataError, while reading, for no recording.

        >>> for segment in run.transcribe("talk.wav", words=True):
        ...     print(segment.start, segment.text)
        """
        file = audio if isinstance(audio, bytes) else Path(audio)
        return self.transcriber(options, language, task, prompt, words, then).transcribe_file(file)

    def transcriber(
        self,
        options: DecodingOptions | None = None,
        language: str | None = None,
        task: str | None = None,
        prompt: str | None = None,
        words: bool = False,
        then: Run | None = None,
    ) -> Transcriber:
        """A transcriber of long recordings, for a run that takes recordings.

        options: for decoding.  language, task: of an imported Whisper, the code of the spoken
        language or "auto", "transcribe" or "translate". prompt: text before the recording; outputs
        follow its names and spelling. By default all are the recipe's. words: give the times of
        words. then: a run of translation, for segments with its translations and the spoken words
        as transcripts. Raises RunError for a run that does not take recordings, SettingError for
        options that the model lacks.

        >>> transcriber = run.transcriber(language="de", prompt="Herr Grün")
        >>> segments = list(transcriber.transcribe_file(Path("talk.wav")))
        """
        predictor = self.predictor
        if not (isinstance(predictor, SequencePredictor) and predictor.kind == "speech"):
            raise self.unable("which does not take recordings")
        from transduce.speech.transcriber import Transcriber

        recogniser: Any = predictor
        translate = None if then is None else then.translator.texts_of
        return Transcriber(recogniser, options, language, task, prompt, words, translate)

    @property
    def synthesiser(self) -> CanSpeak:
        """The predictor of a run of speech synthesis.  Raises RunError for others."""
        if not isinstance(self.predictor, CanSpeak):
            raise self.unable("which does not speak")
        return self.predictor

    def speak(self, text: str, speed: float | None = None, speaker: str | None = None) -> Speech:
        """The speech of a text; `predict` takes several.

        speed: divisor of the durations, by default the recipe's.  speaker: of a run with several,
        by default the first.  Raises RunError for a run of another task, SettingError for a speed
        of a model without durations and for an unknown speaker.

        >>> speech = run.speak("A text.", speed=1.2)
        >>> speech.save("speech.wav")
        """
        check_text(text)
        return next(self.synthesiser.speaking(speed, speaker).speak([text]))

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
        ensemble: Sequence[Run] = (),
        language_model: Run | None = None,
    ) -> Run:
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
            if not isinstance(other, Run):
                raise RunError(f"{other!r} is not a loaded run; load it by transduce.load(path)")
        predictor = with_auxiliary(self, ensemble, language_model)
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

    def explain(
        self,
        text: str | Sequence[str],
        options: GivenOptions = None,
        without: KnockOut | None = None,
        **settings: Any,
    ) -> Explanation:
        """An input on its way through the model: tokens, attention, steps, search, layers.

        text: a text or the path of an image, or for a task with several texts an input a tuple of
        them.  The answer is that of `predict`, a vector to rounding.  options: for decoding; by
        default the recipe's.
        without: heads and source tokens to leave out, for this answer alone.  settings: of decoding
        that differ from the options.  Computed by PyTorch.  Raises DataError for another number of
        texts, SettingError for a run beside others, for options that cannot be followed, and for
        parts that the model does not have.

        >>> explanation = run.explain("A text.")
        >>> html = explanation.page()
        """
        from transduce.explain.knock_out import explain_without
        from transduce.explain.parts import NOTHING

        parts = input_parts(text, self.predictor.inputs, 0)
        run = self.in_pytorch
        predictor = run._decoding_with(run._decoding(options, settings))
        explain = TASKS[self.recipe.task].explain
        if explain is None:
            raise SettingError(f"the task {self.recipe.task!r} has no explanation")
        explanation = explain_without(explain, predictor, parts, without or NOTHING)
        name = self.path.resolve().name
        if without:
            return dataclasses.replace(explanation, run=f"{name} without {without}")
        return dataclasses.replace(explanation, run=name, film=self.film)

    def live_model(self, options: GivenOptions = None) -> LiveModel:
        """The model for a page that computes explanations itself.

        options: for decoding; by default the recipe's.  Raises SettingError, with the setting, for
        a model that the page cannot compute.

        >>> from transduce.explain.page import page_of
        >>> explanation = run.explain("A text.").packed()
        >>> page = page_of([explanation], run.live_model().packed())
        """
        live = TASKS[self.recipe.task].live
        if live is None:
            raise SettingError(
                f"a live page does not compute the task {self.recipe.task!r}; make it without live"
            )
        run = self.in_pytorch
        return live(run._decoding_with(run._decoding(options, {})), self.path.resolve().name)

    def _decoding_with(self, options: DecodingOptions | None) -> Any:
        """The predictor with other options.  Raises SettingError where nothing is decoded."""
        if options is None:
            return self.predictor
        if not isinstance(self.predictor, SequencePredictor):
            raise SettingError("this model does not decode; remove the decoding options")
        return dataclasses.replace(self.predictor, options=options)

    @functools.cached_property
    def film(self) -> Film | None:
        """Film of learning (`training.film`); None if the run has none.  Raises RunError for a
        damaged file."""
        from transduce.explain.recorded_pass import film_of

        return film_of(self.path)

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


def load(
    path: str | os.PathLike[str],
    device: str = "auto",
    precision: Precision = "float32",
    engine: EngineName = "auto",
    threads: int | None = None,
) -> Run:
    """Load a run directory for use.  Raises RunError when it is missing, damaged or too new.

    path: of the run.  device: such as "cpu" or "cuda:0"; "auto" takes a GPU if there is one.
    precision: of matrix products, "bf16", or "int8" on a CPU: faster, smaller, with slightly
    different answers.  On a CPU both are computed by the native engine, which then decodes where it
    can.  engine: "native" computes translations, continuations, replies, transcripts and encoders
    of texts and images in C++, on a CPU, compiled on first use; "auto" natively where that is
    possible, else with PyTorch.  Translations, encoders of texts and imported Whispers in the
    native engine load PyTorch only for a call that needs it, such as `explain`, and for `model`.
    threads: of the CPU, by default PyTorch's choice.  Raises SettingError if impossible.

    >>> run = transduce.load("runs/demo", device="cpu")
    """
    if not isinstance(path, str | os.PathLike):
        raise RunError(f"{path!r} is not the path of a run directory")
    loaded = _load(Path(path), device, precision, engine, threads)
    if loaded.engine == "native" and precision == "float32" and has_torch():
        loaded.is_given_engine = engine == "native"
        loaded.reload = functools.cache(lambda: _load(loaded.path, "cpu", engine="pytorch"))
    return loaded


def _load(
    run: Path,
    device: str,
    precision: Precision = "float32",
    engine: EngineName = "auto",
    threads: int | None = None,
) -> Run:
    reason: TransduceError | None = None
    try:
        recipe = read_recipe(run)
        device = device_for(engine, precision, device)
        load_native = TASKS[recipe.task].load_native
        if load_native is not None and without_torch(engine, device):
            try:
                predictor = load_native(recipe, run, precision, threads)
                warn_of_bf16(precision)
                return Run(run, recipe, predictor, precision, "native")
            except TransduceError as error:
                if engine == "native" and not isinstance(recipe.model, EncoderDecoderConfig):
                    raise  # nothing else takes such a model to the engine
                reason = error
        return _load_with_torch(run, recipe, device, precision, engine, threads)
    except ImportError as error:
        if not lacks_torch(error):
            raise
        what = f"{reason}; without the native engine, this run" if reason else str(run)
        raise RunError(f"{what} {NEEDS_TORCH}") from None


def _load_with_torch(
    run: Path,
    recipe: Recipe,
    device: str,
    precision: Precision,
    engine: EngineName,
    threads: int | None,
) -> Run:
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
    return Run(run, recipe, decoding, precision, used)
