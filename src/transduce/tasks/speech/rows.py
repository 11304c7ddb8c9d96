"""Rows of the tasks of speech."""

from __future__ import annotations

from transduce.explain.tasks.speech import explain_speech
from transduce.explain.tasks.synthesis import explain_synthesis
from transduce.tasks.speech.recipe import SpeechRecognitionRecipe, SpeechTranslationRecipe
from transduce.tasks.speech.synthesis import load_synthesis, train_synthesis
from transduce.tasks.speech.synthesis_recipe import SynthesisRecipe, parse_synthesis
from transduce.tasks.speech.task import (
    load_speech,
    parse_recognition,
    parse_translation,
    train_speech,
)
from transduce.tasks.task import Task

SPEECH_RECOGNITION = Task(
    SpeechRecognitionRecipe,
    parse_recognition,
    train_speech,
    load_speech,
    explain_speech,
    pipeline_tag="automatic-speech-recognition",
)
SPEECH_TRANSLATION = Task(
    SpeechTranslationRecipe,
    parse_translation,
    train_speech,
    load_speech,
    explain_speech,
    pipeline_tag="automatic-speech-recognition",
)
SPEECH_SYNTHESIS = Task(
    SynthesisRecipe,
    parse_synthesis,
    train_synthesis,
    load_synthesis,
    explain_synthesis,
    pipeline_tag="text-to-speech",
)
