"""Facts of a trained predictor for a page that computes its answers itself."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

from transduce.decoding.options import DecodingOptions
from transduce.errors import SettingError
from transduce.explain.live import MOST_PARAMETERS, LiveModel, stack_facts, tokenizer_facts
from transduce.settings.sections import to_dict
from transduce.tasks.language_model.dialogue import TrainedDialogue
from transduce.tasks.language_model.generator import Generator
from transduce.tasks.language_model.recommendation import Recommender
from transduce.tasks.text_encoder.embedding import TextEmbedder
from transduce.tasks.translation.translator import Translator

MISSING = {
    "question-answering": "windows over a passage",
    "captioning": "images",
    "image-classification": "images",
    "image-embedding": "images",
    "speech-recognition": "sound",
    "speech-translation": "sound",
    "speech-synthesis": "sound",
}
"""By task: what a page lacks for it."""
FOLLOWED = (
    "method",
    "beam_size",
    "length_penalty",
    "alpha",
    "stop",
    "free_end",
    "min_length",
    "min_length_ratio",
    "max_length_ratio",
    "max_length_extra",
    "max_tokens",
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "seed",
    "coverage_penalty",
)
"""Options of decoding that the page follows, or shows."""
WITHOUT_EFFECT = (
    "batch_tokens",
    "candidates",
    "ctc_weight",
    "diversity",
    "ensemble",
    "language_model_weight",
)
"""Options that change nothing while the others have their defaults."""


def live_model(predictor: Any, recipe: Any, name: str) -> LiveModel:
    """The model of a run with this name, for a page.

    Raises SettingError, with the setting, for a model that the page cannot compute.
    """
    if recipe.task in MISSING:
        raise SettingError(
            f"a live page has no {MISSING[recipe.task]}, which {recipe.task} needs; make it "
            "without live"
        )
    network = predictor.model
    parameters = {p.data_ptr(): p.numel() for p in network.parameters()}
    count = sum(parameters.values())
    if count > MOST_PARAMETERS:
        raise SettingError(
            f"a live page holds all weights; this model has {count:,} parameters, more "
            f"than {MOST_PARAMETERS:,}; make it without live"
        )
    facts = {
        "task": recipe.task,
        "run": name,
        "inputs": list(predictor.inputs),
        "parameters": count,
        "d_model": recipe.model.d_model,
        "scale": math.sqrt(recipe.model.d_model) if recipe.model.scale_embeddings else 1.0,
    }
    return LiveModel({**facts, **_facts(predictor, recipe)}, network)


def _facts(predictor: Any, recipe: Any) -> dict[str, Any]:
    config = recipe.model

    def stacks(*sides: str) -> dict[str, Any]:
        return {side: stack_facts(side, getattr(config, side), config.d_model) for side in sides}

    match predictor:
        case Translator():
            tokenizers = [predictor.source]
            if predictor.target is not predictor.source:
                tokenizers.append(predictor.target)
            return {
                "stacks": stacks("encoder", "decoder"),
                "tokenizers": [tokenizer_facts(tokenizer) for tokenizer in tokenizers],
                "decoding": _decoding(predictor.options),
                "max_source_length": predictor.config.max_source_length,
                "max_target_length": predictor.config.max_target_length,
            }
        case Generator():
            roles = predictor.recipe.data.roles if isinstance(predictor, TrainedDialogue) else None
            return {
                "stacks": stacks("decoder"),
                "tokenizers": [tokenizer_facts(predictor.tokenizer)],
                "decoding": _decoding(predictor.options),
                "window": predictor.window,
                "roles": roles,
            }
        case Recommender():
            return {
                "stacks": stacks("decoder"),
                "tokenizers": [tokenizer_facts(predictor.tokenizer)],
                "window": recipe.data.block,
                "at": recipe.evaluation.at,
            }
    return {
        "stacks": stacks("encoder"),
        "tokenizers": [tokenizer_facts(predictor.tokenizer)],
        "labels": list(getattr(predictor, "labels", ())),
        "pooling": config.pooling,
        "pooler_activation": config.pooler_activation,
        "normalize": isinstance(predictor, TextEmbedder) and recipe.evaluation.normalize,
        "max_length": recipe.text.max_length,
    }


def _decoding(options: DecodingOptions) -> dict[str, Any]:
    """Options of decoding.  Raises SettingError for one that the page does not follow."""
    for field in fields(options):
        setting = getattr(options, field.name)
        followed = field.name in FOLLOWED and not (field.name == "coverage_penalty" and setting)
        if not followed and field.name not in WITHOUT_EFFECT and setting != field.default:
            raise SettingError(
                f"a live page does not follow decoding.{field.name} = {setting!r}; set it to "
                f"{field.default!r}, or make it without live"
            )
    return {name: setting for name, setting in to_dict(options).items() if name in FOLLOWED}
