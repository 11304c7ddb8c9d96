"""Rows of the tasks of language models."""

from __future__ import annotations

from transduce.explain.tasks.language_model import explain_generation, explain_recommendation
from transduce.tasks.language_model.dialogue import (
    DialogueRecipe,
    load_dialogue,
    parse_dialogue,
    train_dialogue,
)
from transduce.tasks.language_model.recommendation import (
    RecommendationRecipe,
    load_recommendation,
    parse_recommendation,
    train_recommendation,
)
from transduce.tasks.language_model.task import (
    LanguageModelRecipe,
    load_language_model,
    parse_language_model,
    train_language_model,
)
from transduce.tasks.task import Task

LANGUAGE_MODEL = Task(
    LanguageModelRecipe,
    parse_language_model,
    train_language_model,
    load_language_model,
    explain_generation,
    pipeline_tag="text-generation",
)
DIALOGUE = Task(
    DialogueRecipe,
    parse_dialogue,
    train_dialogue,
    load_dialogue,
    explain_generation,
    pipeline_tag="text-generation",
)
RECOMMENDATION = Task(
    RecommendationRecipe,
    parse_recommendation,
    train_recommendation,
    load_recommendation,
    explain_recommendation,
)
