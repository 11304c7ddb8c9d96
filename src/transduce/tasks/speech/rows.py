"""Rows of the tasks from speech to text."""

from __future__ import annotations

from transduce.tasks.speech.recipe import SpeechRecognitionRecipe, SpeechTranslationRecipe
from transduce.tasks.task import Task, imported

_TASK = "transduce.tasks.speech"
_EXPLAIN = "transduce.explain.tasks"

SPEECH_RECOGNITION = Task(
    SpeechRecognitionRecipe,
    imported(f"{_TASK}.whisper_training", "prepare_recognition"),
    imported(f"{_TASK}.task", "load_speech"),
    imported(f"{_EXPLAIN}.speech", "explain_speech"),
    imported(f"{_TASK}.native", "load_native"),
    pipeline_tag="automatic-speech-recognition",
)
SPEECH_TRANSLATION = Task(
    SpeechTranslationRecipe,
    imported(f"{_TASK}.task", "prepare_speech"),
    imported(f"{_TASK}.task", "load_speech"),
    imported(f"{_EXPLAIN}.speech", "explain_speech"),
    imported(f"{_TASK}.native", "load_native"),
    pipeline_tag="automatic-speech-recognition",
)
