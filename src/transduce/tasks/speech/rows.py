"""Rows of the tasks of speech."""

from __future__ import annotations

from transduce.explain.tasks.speech import explain_speech
from transduce.explain.tasks.synthesis import explain_synthesis
from transduce.tasks.speech.native import load_native
from transduce.tasks.speech.recipe import SpeechRecognitionRecipe, SpeechTranslationRecipe
from transduce.tasks.speech.synthesis_recipe import SynthesisRecipe
from transduce.tasks.speech.synthesis_runs import load_synthesis, prepare_synthesis
from transduce.tasks.speech.task import load_speech, prepare_speech
from transduce.tasks.speech.whisper_training import prepare_recognition
from transduce.tasks.task import Task

SPEECH_RECOGNITION = Task(
    SpeechRecognitionRecipe,
    prepare_recognition,
    load_speech,
    explain_speech,
    load_native,
    pipeline_tag="automatic-speech-recognition",
)
SPEECH_TRANSLATION = Task(
    SpeechTranslationRecipe,
    prepare_speech,
    load_speech,
    explain_speech,
    load_native,
    pipeline_tag="automatic-speech-recognition",
)
SPEECH_SYNTHESIS = Task(
    SynthesisRecipe,
    prepare_synthesis,
    load_synthesis,
    explain_synthesis,
    pipeline_tag="text-to-speech",
)
