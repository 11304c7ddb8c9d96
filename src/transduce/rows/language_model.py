"""Rows of the tasks of language models."""

from functools import partial

from transduce.tasks.language_model import dialogue, recommendation
from transduce.tasks.language_model import task as language_model
from transduce.tasks.task import Task, imported
from transduce.tasks.text_inputs import tokenizer_of
from transduce.tasks.training import loader

_EXPLAIN = "transduce.explain.tasks"
_GENERATION = imported(_EXPLAIN, "explain_generation")
_LIVE = imported(_EXPLAIN, "live_generation")

LANGUAGE_MODEL = Task(
    language_model.LanguageModelRecipe,
    partial(language_model.prepare_decoder, language_model.TrainedLanguageModel.new),
    loader(language_model.TrainedLanguageModel.new, tokenizer_of),
    _GENERATION,
    live=_LIVE,
    pipeline_tag="text-generation",
)
DIALOGUE = Task(
    dialogue.DialogueRecipe,
    partial(language_model.prepare_decoder, dialogue.TrainedDialogue.new),
    loader(dialogue.TrainedDialogue.new, tokenizer_of),
    _GENERATION,
    live=_LIVE,
    pipeline_tag="text-generation",
)
RECOMMENDATION = Task(
    recommendation.RecommendationRecipe,
    recommendation.prepare_recommendation,
    loader(recommendation.Recommender, tokenizer_of),
    imported(_EXPLAIN, "explain_recommendation"),
    live=imported(_EXPLAIN, "live_recommendation"),
)
