"""Recognition of a run in the native engine."""

from __future__ import annotations

import functools
import logging
from pathlib import Path

import torch

from transduce.engine.pair_shape import check_stacks
from transduce.engine.speech import NativeSpeech
from transduce.engine.weights import check_biases, default_threads
from transduce.models.speech import SpeechModel
from transduce.nn.kernels.precision import Precision
from transduce.tasks.speech.recipe import SpeechRecipe
from transduce.tasks.speech.recogniser import Recogniser, new_recogniser
from transduce.tasks.speech.task import files_of, load_speech
from transduce.training.plain_weights import read_plain_weights

logger = logging.getLogger("transduce")


def load_native(
    recipe: SpeechRecipe, run: Path, precision: Precision, threads: int | None
) -> Recogniser:
    """The recogniser of a run in the engine, on the CPU; its model in PyTorch is loaded when times
    of words first need it.

    threads: of the engine and of PyTorch; by default PyTorch's choice.

    Raises RunError for a run that is damaged or needs PyTorch, SettingError if the engine is
    unavailable.
    """
    check_stacks(recipe.model, run)
    if threads is not None:
        torch.set_num_threads(threads)
    files = files_of(recipe, run)
    weights = read_plain_weights(run / "weights.safetensors")
    if "head.weight" not in weights and "target_front_end.embedding.weight" in weights:
        weights["head.weight"] = weights["target_front_end.embedding.weight"]
    check_biases(weights, recipe.model.output_bias)
    sizes = recipe.audio.bins, files[0].size
    engine = NativeSpeech(recipe.model, sizes, weights, precision, default_threads)

    @functools.cache
    def network() -> SpeechModel:
        logger.info("loading the model in PyTorch for this call")
        return load_speech(recipe, run, "cpu").model

    return new_recogniser(recipe, *files, (engine, network))
