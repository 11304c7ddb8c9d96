"""Worker: a loaded run as a queue uses it.  The only module here that runs a model."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from transduce.errors import CancelledError, RunError, SettingError, TransduceError, needing_torch
from transduce.tasks.predictors import CanTranslate
from transduce.tasks.translation.translator import Translator

if TYPE_CHECKING:
    from transduce.decoding.options import DecodingOptions
    from transduce.explain.parts import KnockOut
    from transduce.loading import Run
    from transduce.localise.projection import Links
    from transduce.speech.agreement import OpenSpeech
    from transduce.speech.audio import Samples
    from transduce.speech.segments import Segment
    from transduce.speech.speakers import Speakers
    from transduce.speech.spoken import Speech
    from transduce.speech.transcriber import Transcriber
    from transduce.tasks.task import Prediction
    from transduce.tasks.translation.alignment import TranslatedWords


Input = str | Sequence[str]
Answer = Any
"""A `Prediction`, links of an alignment, `TranslatedWords` or a page, or the TransduceError of an
input."""
AUDIO = ("audio",)
"""Inputs of a run that reads recordings: never a path, which a client may not choose."""


class ToTranscribe(NamedTuple):
    """A recording to transcribe, or to translate.

    language, prompt, words: as in `Run.transcriber`; of a model without a prompt they are ignored.
    hotwords: as in `DecodingOptions`.  speakers: encoder that tells them apart, if any.
    """

    audio: bytes
    task: Literal["transcribe", "translate"] = "transcribe"
    language: str = ""
    prompt: str = ""
    words: bool = False
    hotwords: tuple[str, ...] = ()
    speakers: Path | None = None


@functools.cache
def speakers_by(encoder: Path) -> Speakers:
    """Speakers of a number to be found, by an encoder that is loaded once."""
    from transduce.speech.speakers import SpeakerEncoder, Speakers

    return Speakers(SpeakerEncoder(encoder))


def _check(over: Callable[[], bool]) -> None:
    if over():
        raise CancelledError("cancelled before completion")


def _audio_blocks(audio: bytes, rate: int, over: Callable[[], bool]) -> Iterator[Samples]:
    """Blocks of a recording; raises CancelledError once `over` is true."""
    from transduce.speech.audio import audio_blocks

    for block in audio_blocks(audio, rate, "the file"):
        _check(over)
        yield block


class Worker:
    """A run, ready for a queue.  Raises RunError for a run that reads images."""

    def __init__(self, run: Run) -> None:
        self._loud = run.predictor
        if isinstance(run.predictor, Translator):  # batches mix lines of requests: `inspect` warns
            run = dataclasses.replace(run, predictor=run.predictor.quiet())
        self.run = run
        self.options = run.predictor.options
        self.inputs = run.predictor.inputs
        if "image" in self.inputs:
            raise RunError(
                f"{run.path} reads image files; `transduce serve` answers texts and recordings: "
                "use `transduce predict`"
            )

    def load_torch(self) -> None:
        """Load the model in PyTorch, if it can be; else the calls that need it say why not."""
        with contextlib.suppress(Exception):
            _ = self.run.predictor.model

    def attempt(
        self,
        inputs: Sequence[Input],
        options: Sequence[DecodingOptions | None],
        first: int,
        cancelled: Callable[[int], bool],
    ) -> Sequence[Prediction | TransduceError]:
        """An answer or an error for each input; for a run of recordings, errors.

        inputs: of the run.  options: one for each input.  first: number of the first input in a
        longer sequence.  cancelled: called between steps with the index of an input.
        """
        if self.inputs == AUDIO:
            return [RunError("this model reads recordings; use /v1/audio/transcriptions")] * len(
                inputs
            )
        return self.run.attempt(inputs, options, first, cancelled)

    def stream(
        self, text: Input, options: DecodingOptions | None, number: int, over: Callable[[], bool]
    ) -> Iterator[str]:
        """An answer in parts; whole where the run or its options cannot be streamed.

        text: the input.  number: in a longer sequence.  over: called between steps; true ends the
        search.
        """
        try:
            parts = None
            if isinstance(text, str) and self.inputs != AUDIO:
                parts = self.run.stream(text, options, number, over)
        except TransduceError:
            parts = None
        if parts is not None:
            yield from parts
            return
        (answer,) = self.attempt([text], [options], number, lambda index: over())
        if isinstance(answer, TransduceError):
            raise answer
        yield answer.text

    def transcribe(
        self,
        recording: ToTranscribe,
        over: Callable[[], bool],
        options: DecodingOptions | None = None,
    ) -> Iterator[Segment | float]:
        """Segments of a recording, and at the end its length in seconds.

        options: for decoding.  over: called for each block and each segment.  Raises DataError for
        bytes that are not a recording, SettingError for options that the model lacks,
        CancelledError once `over` is true.
        """
        transcriber = self._transcriber(recording, options)
        length = 0

        def blocks() -> Iterator[Samples]:
            nonlocal length
            for block in _audio_blocks(recording.audio, transcriber.rate, over):
                length += len(block)
                yield block

        for segment in transcriber.transcribe(blocks(), cancelled=over):
            _check(over)
            yield segment
        yield length / transcriber.rate

    def transcribe_so_far(
        self, sound: bytes, state: OpenSpeech, last: bool, over: Callable[[], bool]
    ) -> tuple[list[Segment], OpenSpeech]:
        """As `Transcriber.transcribe_so_far`, of an encoded recording.

        sound: the recording.  state: of the call before.  last: True for sound that has ended.
        over: called for each block and between steps.  Raises as `transcribe`.
        """
        import numpy as np

        transcriber = self._transcriber(ToTranscribe(sound), None)
        blocks = _audio_blocks(sound, transcriber.rate, over)
        samples = np.concatenate([np.zeros(0, np.float32), *blocks])
        return transcriber.transcribe_so_far(samples, state, last, over)

    def _transcriber(self, recording: ToTranscribe, options: DecodingOptions | None) -> Transcriber:
        _, task, language, text, words, _, encoder = recording
        speakers = None if encoder is None else speakers_by(encoder)
        recipe = self.run.recipe
        prompt = getattr(recipe, "prompt", None)
        if prompt is not None:
            language = language if prompt.language else ""
            return self.run.transcriber(
                options, language or None, task, text or None, words, speakers=speakers
            )
        if task == "translate" and recipe.task != "speech-translation":
            raise SettingError("this model does not translate; use /v1/audio/transcriptions")
        return self.run.transcriber(options, speakers=speakers)

    def speak(self, text: str, speed: float | None, voice: str) -> Speech:
        """The speech of a text, with durations divided by `speed`.  Raises TransduceError.

        voice: speaker of a run with several; of a single voice it is ignored.
        """
        several = self.run.synthesiser.speakers
        return self.run.speak(text, speed, voice if several else None)

    def inspect(self, text: str, name: str = "") -> Iterator[str]:
        """The parts of a text to translate that are unknown, with warnings under its name, if any.
        Raises UnknownTextError where all of its words are."""
        assert isinstance(self._loud, Translator)
        return self._loud.inspect(text, name)

    def align(self, source: str, output: str) -> Links:
        """Links between a source and its translation.  Raises TransduceError."""
        from transduce.localise.translate import aligner

        (links,) = aligner(self.run.translator)([(source, output)])
        return links

    def words(self, source: str, output: str, tag: str) -> TranslatedWords:
        """Words of a source and its translation.  Raises TransduceError.

        output: the translation.  tag: text before the source that selects the target language.
        """
        with needing_torch("the alignment of words"):
            from transduce.tasks.translation.alignment import translated_words
        return translated_words(self.run.translator, source, output, tag)

    def explain(
        self,
        parts: Sequence[str],
        options: DecodingOptions | None,
        without: KnockOut,
        live: bool = False,
    ) -> str:
        """The page that explains an answer, without some heads and tokens where `without` names
        any, or with the model inside.

        parts: texts of the input.  options: of decoding.  live: with the model inside.

        Raises TransduceError, for a run of recordings always.
        """
        if self.inputs == AUDIO:
            raise RunError("recordings are explained by `transduce explain` alone")
        with needing_torch("an explanation"):
            from transduce.explain.page import page_of
            from transduce.explain.runs import explain_with_and_without

            run = self._explained
        if live:
            explanation = run.explain(parts, options)
            return page_of([explanation.packed()], run.live_model(options).packed())
        if without:
            return explain_with_and_without(run, parts, without, options).page()
        return run.explain(parts, options).page()

    @cached_property
    def _explained(self) -> Run:
        """The run with the search of PyTorch, which is loaded beside another engine's."""
        from transduce.loading import load

        return (
            self.run
            if self.run.engine == "pytorch"
            else load(self.run.path, "cpu", engine="pytorch")
        )

    def n_tokens(self, inputs: Sequence[Input], answers: Sequence[Answer]) -> tuple[int, int]:
        """Source and target tokens of translations; zeros for other tasks."""
        from transduce.tasks.translation.text_translator import Translation

        if not isinstance(self.run.predictor, CanTranslate):
            return 0, 0
        texts = [text for text in inputs if isinstance(text, str)]
        read = sum(map(len, self.run.predictor.source.encode_batch(texts)))
        done = [answer for answer in answers if isinstance(answer, Translation)]
        return read, sum(len(answer.tokens) for answer in done)

    def count_tokens(self, texts: Sequence[str], written: bool) -> int:
        """Tokens of some texts, as the model reads them, or as it has written them."""
        predictor: Any = self.run.predictor  # with text in or out, it has a tokenizer
        if isinstance(predictor, CanTranslate):
            tokenizer = predictor.target if written else predictor.source
        else:
            tokenizer = predictor.tokenizer
        return sum(map(len, tokenizer.encode_batch(list(texts))))
