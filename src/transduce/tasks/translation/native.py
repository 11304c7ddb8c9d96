"""Translation of a run in the native engine; PyTorch is loaded when a feature first needs it."""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from transduce.decoding.backend import NativeSearch
from transduce.engine.inference import EngineWeights, check_biases, default_threads
from transduce.engine.pair_shape import check_settings, model_shape
from transduce.errors import RunError, needing_torch
from transduce.models.config import EncoderDecoderConfig
from transduce.nn.precision import FloatWeight, Precision
from transduce.tasks.translation.recipe import TranslationRecipe, opened_tokenizers
from transduce.tasks.translation.translator import Translator, config_of
from transduce.tasks.vocabularies import saved_vocabularies
from transduce.training.weight_files import read_plain_weights

if TYPE_CHECKING:
    from transduce.decoding.shortlist import Shortlist
    from transduce.decoding.step_search import EncoderDecoderSearch
    from transduce.models.encoder_decoder import EncoderDecoder


logger = logging.getLogger("transduce")


class InTorch:
    """The model of a run in PyTorch, and the search over the engine's steps, loaded together when
    first needed."""

    def __init__(
        self, recipe: TranslationRecipe, run: Path, precision: Precision, threads: int | None
    ) -> None:
        self._recipe, self._run = recipe, run
        self._precision, self._threads = precision, threads
        self._loaded: tuple[EncoderDecoder, EncoderDecoderSearch] | None = None
        self._loading = threading.Lock()  # of a server: its queue and a thread beside it

    def network(self) -> EncoderDecoder:
        """The model."""
        with self._loading:
            return self._load("this call")[0]

    def steps(self, feature: str) -> EncoderDecoderSearch:
        """The search.  feature: that needs it, for the SettingError without PyTorch."""
        with self._loading:
            return self._load(feature)[1]

    def _load(self, feature: str) -> tuple[EncoderDecoder, EncoderDecoderSearch]:
        if self._loaded is None:
            with needing_torch(feature):
                import torch
            from transduce.engine.model import NativeModel, to_native
            from transduce.tasks.translation.training import load_translation

            logger.info("loading PyTorch for %s", feature)
            if self._threads is not None:
                torch.set_num_threads(self._threads)
            translator = load_translation(self._recipe, self._run, "cpu")
            network = translator.model
            search = translator.steps.over(
                NativeModel(network, self._recipe.model, self._precision)
            )
            if self._precision != "float32":  # now that the engine has read the matrices
                to_native(network, self._precision)
            self._loaded = network, search
        return self._loaded


def load_native(
    recipe: TranslationRecipe, run: Path, precision: Precision, threads: int | None
) -> Translator:
    """The translator of a run in the engine, on the CPU.

    recipe: of the run.  precision: of matrix products.  threads: of the engine and of PyTorch; by
    default PyTorch's choice.

    Raises RunError for a run that is damaged or needs PyTorch, SettingError if the engine is
    unavailable.
    """
    check_settings(recipe.model, run)
    vocabularies = saved_vocabularies(run)
    source, target = opened_tokenizers(recipe.languages, *vocabularies)
    shape = model_shape(recipe.model, source.size, target.size, precision)
    weights = tied(read_plain_weights(run / "weights.safetensors"), recipe.model)
    check_biases(weights, recipe.model.output_bias)
    engine = EngineWeights(shape, weights)

    @functools.cache
    def shortlist() -> Shortlist | None:
        from transduce.tasks.translation.shortlist import load_shortlist

        return load_shortlist(run, *vocabularies)

    in_torch = InTorch(recipe, run, precision, threads)
    return Translator(
        options=recipe.decoding,
        backend=NativeSearch(
            engine,
            in_torch.steps,
            lambda: threads or default_threads(),
            shortlist=shortlist,
        ),
        source=source,
        target=target,
        config=config_of(recipe, source, target),
        recipe=recipe,
        network=in_torch.network,
    )


def tied(weights: Mapping[str, FloatWeight], model: EncoderDecoderConfig) -> dict[str, FloatWeight]:
    """Weights with every name of a tied matrix; files have only the first."""
    names = ["target_front_end.embedding.weight", "head.weight"] if model.tie != "none" else []
    if model.tie == "three-way":
        names = ["front_end.embedding.weight", *names]
    every = dict(weights)
    for name in names[1:]:
        if names[0] not in weights or name in weights:
            raise RunError(f"the weights do not have model.tie = {model.tie!r}")
        every[name] = weights[names[0]]
    return every
