"""Engine of a predictor with a PyTorch model: PyTorch, or the native engine in its place."""

from __future__ import annotations

import dataclasses
import logging
from pathlib import Path
from typing import Any

from transduce.decoding.session import SequencePredictor
from transduce.decoding.step_search import DecoderSearch, EncoderDecoderSearch
from transduce.engine.build import NO_COMPILER, build_refusal, log_once
from transduce.engine.instructions import chosen_instructions
from transduce.engine.linear import to_native
from transduce.engine.model import NativeModel
from transduce.engine.shape import unsupported
from transduce.errors import RunError, SettingError
from transduce.models.decoder_only import DecoderOnlyConfig
from transduce.models.encoder_decoder_config import EncoderDecoderConfig
from transduce.nn.kernels.bf16 import to_bf16
from transduce.nn.kernels.linear import Precision
from transduce.nn.kernels.weight_layout import pack_for_few_rows
from transduce.runs.engine import EngineName
from transduce.tasks.recipe import Recipe
from transduce.tasks.task import Predictor

logger = logging.getLogger("transduce")

TextSearch = EncoderDecoderSearch | DecoderSearch


def with_engine(
    predictor: Predictor, recipe: Recipe, path: Path, engine: EngineName, precision: Precision
) -> tuple[Predictor, EngineName]:
    """The predictor with an engine behind it, and the engine that is used.

    On a CPU, bf16 and int8 are the native engine's: it decodes where it can, and all that PyTorch
    still computes multiplies matrices with it.  path: of the run, for messages.  Raises RunError
    for a task that the engine does not serve, SettingError for a model or a precision that cannot
    be followed.
    """
    reduced = precision != "float32" and _on_cpu(predictor)
    if reduced:
        if refusal := _build_refusal():
            raise SettingError(
                f"precision {precision!r} on a CPU needs the native engine ({refusal}); use float32"
            )
        if precision == "bf16" and "avx512_bf16" not in chosen_instructions().features:
            logger.warning("this processor has no instructions for bfloat16; float32 is faster")
        if engine != "native":
            engine = "pytorch" if native_refusal(predictor, recipe.model) else "native"
    decoding, used = _decoding(predictor, recipe, path, engine, precision)
    if reduced:  # now that the engine has read the matrices
        to_native(predictor.model, precision)
    return decoding, used


def _decoding(
    predictor: Predictor, recipe: Recipe, path: Path, engine: EngineName, precision: Precision
) -> tuple[Predictor, EngineName]:
    """The predictor with an engine of a name, or with the best."""
    refusal = native_refusal(predictor, recipe.model) if engine == "auto" else None
    if refusal == NO_COMPILER:
        log_once(refusal)
    if engine != "pytorch" and refusal is None:
        try:
            return _native(predictor, recipe, path, precision), "native"
        except SettingError as error:
            if engine == "native":
                raise
            logger.warning("decoding with PyTorch: %s", error)
    if not _on_cpu(predictor):
        if precision == "bf16":
            to_bf16(predictor.model)
    elif precision == "float32":
        pack_for_few_rows(predictor.model)
    return predictor, "pytorch"


def _native(predictor: Predictor, recipe: Recipe, path: Path, precision: Precision) -> Any:
    """The predictor with the native engine's search."""
    search = _text_search(predictor, recipe.model)
    if search is None:
        raise RunError(
            f"{path} is a run of the task {recipe.task!r}; engine 'native' applies only to "
            "translation, language models and dialogue; remove --engine"
        )
    assert isinstance(predictor, SequencePredictor)
    network: Any = predictor.model
    model = NativeModel(network, recipe.model, precision)
    return dataclasses.replace(predictor, backend=search.native(model))


def _text_search(predictor: Predictor, model: object) -> TextSearch | None:
    """The search of a predictor from text to text; None of another."""
    if not isinstance(predictor, SequencePredictor):
        return None
    if not isinstance(model, EncoderDecoderConfig | DecoderOnlyConfig):
        return None
    search = predictor.backend.step_search("the native engine")
    return search if isinstance(search, EncoderDecoderSearch | DecoderSearch) else None


def native_refusal(predictor: Predictor, model: object) -> str | None:
    """Reason that a predictor with this model configuration cannot use the engine; None if it can.

    Nothing is compiled for it.
    """
    if _text_search(predictor, model) is None:
        return "it decodes only translations, continuations and replies"
    if not _on_cpu(predictor):
        return "it runs on a CPU only"
    if (setting := unsupported(model)) is not None:
        return f"it does not support {setting}"
    return _build_refusal()


def _build_refusal() -> str | None:
    """Reason that the engine is unavailable on this machine; None if available."""
    try:
        return build_refusal(chosen_instructions())
    except SettingError as error:
        return str(error)


def _on_cpu(predictor: Predictor) -> bool:
    return next(predictor.model.parameters()).device.type == "cpu"


def native_support(predictor: Predictor, recipe: Recipe) -> str:
    """The instructions that the native engine would take, or why it cannot be used."""
    refusal = native_refusal(predictor, recipe.model)
    return f"no: {refusal}" if refusal else f"yes, with {chosen_instructions().name}"
