"""Row of speech synthesis."""

from transduce.speech.synthesiser import SynthesisRecipe
from transduce.tasks.task import Task, imported

SPEECH_SYNTHESIS = Task(
    SynthesisRecipe,
    imported("transduce.speech.synthesis", "prepare_synthesis"),
    imported("transduce.speech.synthesis", "load_synthesis"),
    imported("transduce.speech.explaining", "explain_synthesis"),
    pipeline_tag="text-to-speech",
)
