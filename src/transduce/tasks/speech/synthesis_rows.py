"""Row of speech synthesis."""

from __future__ import annotations

from transduce.tasks.speech.synthesis_recipe import SynthesisRecipe
from transduce.tasks.task import Task, imported

SPEECH_SYNTHESIS = Task(
    SynthesisRecipe,
    imported("transduce.tasks.speech.synthesis_runs", "prepare_synthesis"),
    imported("transduce.tasks.speech.synthesis_runs", "load_synthesis"),
    imported("transduce.explain.tasks.synthesis", "explain_synthesis"),
    pipeline_tag="text-to-speech",
)
