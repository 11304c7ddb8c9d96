"""Rows of the tasks of language models."""

from __future__ import annotations

from transduce.explain.tasks import (
    explain_generation,
    explain_recommendation,
    live_generation,
    live_recommendation,
)
from transduce.tasks.language_model import dialogue, recommendation
from transduce.tasks.language_model import task as language_model
from transduce.tasks.task import Task
from transduce.tasks.text_inputs import tokenizer_of
from transduce.tasks.training import loader

LANGUAGE_MODEL = Task(
    language_model.LanguageModelRecipe,
    language_model.prepare_language_model,
    loader(language_model.new_language_model, tokenizer_of),
    explain_generation,
    live=live_generation,
    pipeline_tag="text-generation",
)
DIALOGUE = Task(
    dialogue.DialogueRecipe,
    dialogue.prepare_dialogue,
    loader(dialogue.new_dialogue, tokenizer_of),
    explain_generation,
    live=live_generation,
    pipeline_tag="text-generation",
)
RECOMMENDATION = Task(
    recommendation.RecommendationRecipe,
    recommendation.prepare_recommendation,
    loader(recommendation.Recommender, tokenizer_of),
    explain_recommendation,
    live=live_recommendation,
)
