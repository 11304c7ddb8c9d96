"""Calls of a loaded run that hear or speak.  Imports no torch."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from transduce.decoding.options import DecodingOptions
from transduce.decoding.session import SequencePredictor
from transduce.runs.arguments import check_text
from transduce.runs.run import LoadedRun

if TYPE_CHECKING:
    from transduce.speech.features import Mel
    from transduce.speech.segments import Segment
    from transduce.speech.speakers import Speakers
    from transduce.speech.spoken import Speech
    from transduce.speech.transcriber import Transcriber


@runtime_checkable
class CanSpeak(Protocol):
    """Speaks texts."""

    features: Mel
    speakers: tuple[str, ...]

    def speak(self, texts: Iterable[str]) -> Iterator[Speech]:
        """The speech of each text."""

    def speaking(self, speed: float | None, speaker: str | None) -> CanSpeak:
        """This model with durations divided by `speed`, in the voice of a speaker."""


class SpeechCalls(LoadedRun):
    """Transcription of recordings, and speech from texts."""

    def transcribe(
        self,
        audio: str | os.PathLike[str] | bytes,
        options: DecodingOptions | None = None,
        language: str | None = None,
        task: str | None = None,
        prompt: str | None = None,
        words: bool = False,
        then: LoadedRun | None = None,
        speakers: Speakers | None = None,
    ) -> Iterator[Segment]:
        """Segments of a recording of any length, lazily, with their times.

        audio: a file, or its bytes.  options, language, task, prompt, words, then and speakers are
        as in `transcriber`.  Raises DataError, while reading, for no recording.

        >>> for segment in run.transcribe("talk.wav", words=True):
        ...     print(segment.start, segment.text)
        """
        file = audio if isinstance(audio, bytes) else Path(audio)
        transcriber = self.transcriber(options, language, task, prompt, words, then, speakers)
        return transcriber.transcribe_file(file)

    def transcriber(
        self,
        options: DecodingOptions | None = None,
        language: str | None = None,
        task: str | None = None,
        prompt: str | None = None,
        words: bool = False,
        then: LoadedRun | None = None,
        speakers: Speakers | None = None,
    ) -> Transcriber:
        """A transcriber of long recordings, for a run that takes recordings.

        options: for decoding.  language, task: of an imported Whisper, the code of the spoken
        language or "auto", "transcribe" or "translate". prompt: text before the recording; outputs
        follow its names and spelling. By default all are the recipe's. words: give the times of
        words. then: a run of translation, for segments with its translations and the spoken words
        as transcripts. speakers: tell them apart, by an imported encoder; segments come at the end,
        and are cut where the speaker changes if words have times. Raises RunError for a run that
        does not take recordings, SettingError for options that the model lacks.

        >>> transcriber = run.transcriber(language="de", prompt="Herr Grün")
        >>> segments = list(transcriber.transcribe_file(Path("talk.wav")))
        """
        predictor = self.predictor
        if not (isinstance(predictor, SequencePredictor) and predictor.kind == "speech"):
            raise self.unable("which does not take recordings")
        from transduce.speech.transcriber import Transcriber

        recogniser: Any = predictor
        translate = None if then is None else then.translator.texts_of
        return Transcriber(recogniser, options, language, task, prompt, words, translate, speakers)

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
