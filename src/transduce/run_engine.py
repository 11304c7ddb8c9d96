"""Engine of a run: PyTorch, the native engine or CTranslate2, put behind its predictor."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Literal

from transduce.engine.instructions import chosen_instructions
from transduce.errors import RunError, SettingError
from transduce.nn.kernels.bf16 import relative_slowdown, to_bf16
from transduce.nn.kernels.int8 import to_int8
from transduce.nn.kernels.linear import Precision
from transduce.nn.kernels.weight_layout import pack_for_few_rows
from transduce.tasks.task import Predictor, Recipe
from transduce.tasks.translation.ctranslate2 import with_ctranslate2
from transduce.tasks.translation.native import native_refusal, with_native
from transduce.tasks.translation.task import TrainedTranslator

logger = logging.getLogger("transduce")

EngineName = Literal["auto", "native", "pytorch", "ctranslate2"]


def device_for(engine: EngineName, device: str) -> str:
    """The device that an engine runs on.  Raises SettingError for another than the given one."""
    if engine not in ("native", "ctranslate2"):
        return device
    if device not in ("auto", "cpu"):
        raise SettingError(
            f"engine {engine!r} runs on a CPU only, not on {device!r}; remove one of them"
        )
    return "cpu"


def with_engine(
    predictor: Predictor, recipe: Recipe, path: Path, engine: EngineName, precision: Precision
) -> tuple[Predictor, EngineName]:
    """The predictor with an engine behind it, and the engine that is used.

    path: of the run, for messages.  Raises RunError for a task that the engine does not serve,
    SettingError for a model that it cannot follow.
    """
    if engine == "auto":
        if native_refusal(predictor, recipe.model) is not None:
            return with_engine(predictor, recipe, path, "pytorch", precision)
        try:
            return with_engine(predictor, recipe, path, "native", precision)
        except SettingError as error:
            logger.warning("decoding with PyTorch: %s", error)
            return with_engine(predictor, recipe, path, "pytorch", precision)
    model = predictor.model
    if engine != "pytorch":
        if not isinstance(predictor, TrainedTranslator):
            raise RunError(
                f"{path} is a run of the task {recipe.task!r}; engine {engine!r} applies only to "
                "translation; remove --engine"
            )
        put_behind = {"native": with_native, "ctranslate2": with_ctranslate2}[engine]
        return put_behind(predictor, precision), engine
    if precision == "int8":
        to_int8(model)
    elif precision == "bf16":
        if warning := relative_slowdown(next(model.parameters()).device):
            logger.warning(warning)
        to_bf16(model)
    elif next(model.parameters()).device.type == "cpu":
        pack_for_few_rows(model)
    return predictor, engine


def native_support(predictor: Predictor, recipe: Recipe) -> str:
    """The instructions that the native engine would take, or why it cannot be used."""
    refusal = native_refusal(predictor, recipe.model)
    return f"no: {refusal}" if refusal else f"yes, with {chosen_instructions().name}"
