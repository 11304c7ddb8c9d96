"""Facts of a trained predictor for a page that computes its answers itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from transduce.decoding.options import DecodingOptions, facts_of_options, not_followed
from transduce.errors import SettingError
from transduce.explain.live import (
    IN_MODELS,
    MOST_PARAMETERS,
    LiveModel,
    check_settings,
    stack_facts,
    tokenizer_facts,
)
from transduce.settings.sections import to_dict
from transduce.text import Tokenizer


def live_translation(translator: Any, name: str) -> LiveModel:
    """The model of a translator.  name: of its run.

    Raises SettingError, with the setting, for a model that the page cannot compute.
    """
    tokenizers = [translator.source]
    if translator.target is not translator.source:
        tokenizers.append(translator.target)
    return _live_model(
        translator,
        name,
        ("encoder", "decoder"),
        tokenizers,
        decoding=_decoding(translator.options),
        max_source_length=translator.config.max_source_length,
        max_target_length=translator.config.max_target_length,
    )


def live_generation(generator: Any, name: str) -> LiveModel:
    """The model of a generator.  As `live_translation`."""
    return _live_model(
        generator,
        name,
        ("decoder",),
        [generator.tokenizer],
        decoding=_decoding(generator.options),
        window=generator.window,
        roles=getattr(generator.recipe.data, "roles", None),
    )


def live_recommendation(recommender: Any, name: str) -> LiveModel:
    """The model of a recommender.  As `live_translation`."""
    recipe = recommender.recipe
    return _live_model(
        recommender,
        name,
        ("decoder",),
        [recommender.tokenizer],
        window=recipe.data.block,
        at=recipe.evaluation.at,
    )


def live_text_encoder(predictor: Any, name: str) -> LiveModel:
    """The model of a classifier, an embedder or a filler of masks.  As `live_translation`."""
    recipe = predictor.recipe
    return _live_model(
        predictor,
        name,
        ("encoder",),
        [predictor.tokenizer],
        labels=list(getattr(predictor, "labels", ())),
        pooling=recipe.model.pooling,
        pooler_activation=recipe.model.pooler_activation,
        normalize=getattr(getattr(recipe, "evaluation", None), "normalize", False),
        max_length=recipe.text.max_length,
    )


def _live_model(
    predictor: Any, name: str, sides: Sequence[str], tokenizers: Sequence[Tokenizer], **facts: Any
) -> LiveModel:
    network, recipe = predictor.model, predictor.recipe
    config = recipe.model
    parameters = {p.data_ptr(): p.numel() for p in network.parameters()}
    count = sum(parameters.values())
    if count > MOST_PARAMETERS:
        raise SettingError(
            f"a live page holds all weights; this model has {count:,} parameters, more "
            f"than {MOST_PARAMETERS:,}; make it without live"
        )
    check_settings(config, "model", IN_MODELS)
    stacks = {side: stack_facts(side, getattr(config, side), config.d_model) for side in sides}
    return LiveModel(
        {
            "task": recipe.task,
            "run": name,
            "inputs": list(predictor.inputs),
            "parameters": count,
            "d_model": config.d_model,
            "scale": math.sqrt(config.d_model) if config.scale_embeddings else 1.0,
            "stacks": stacks,
            "tokenizers": [tokenizer_facts(tokenizer) for tokenizer in tokenizers],
            **facts,
        },
        network,
    )


def _decoding(options: DecodingOptions) -> dict[str, Any]:
    """Options of decoding.  Raises SettingError for one that the page does not follow."""
    for name, setting in not_followed(options, lambda facts: facts.page):
        raise SettingError(
            f"a live page does not follow decoding.{name} = {setting!r}; set it to "
            f"{getattr(DecodingOptions(), name)!r}, or make it without live"
        )
    facts = facts_of_options()
    return {name: setting for name, setting in to_dict(options).items() if facts[name].page}
