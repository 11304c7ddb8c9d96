"""Rows of the tasks from speech to text."""

from transduce.speech.recipe import SpeechRecognitionRecipe, SpeechTranslationRecipe
from transduce.tasks.task import Task, imported

_TASK = "transduce.speech"
_EXPLAIN = "transduce.explain.tasks"

SPEECH_RECOGNITION = Task(
    SpeechRecognitionRecipe,
    imported("transduce.speech.training", "prepare_recognition"),
    imported("transduce.speech.training", "load_speech"),
    imported("transduce.speech.explaining", "explain_speech"),
    imported("transduce.speech.native", "load_native"),
    pipeline_tag="automatic-speech-recognition",
)
SPEECH_TRANSLATION = Task(
    SpeechTranslationRecipe,
    imported("transduce.speech.training", "prepare_speech"),
    imported("transduce.speech.training", "load_speech"),
    imported("transduce.speech.explaining", "explain_speech"),
    imported("transduce.speech.native", "load_native"),
    pipeline_tag="automatic-speech-recognition",
)
