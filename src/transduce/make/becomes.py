"""Forms that a run can be taken along in: the native engine, pages, exports."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from transduce.engine.pair_shape import unsupported_settings
from transduce.errors import TransduceError
from transduce.interop import ctranslate2
from transduce.models.encoder_decoder_config import EncoderDecoderConfig
from transduce.runs.run import Run
from transduce.tasks.translation.translator import Translator
from transduce.web.model import model_facts


def forms(run: Run) -> Mapping[str, str]:
    """Reason that speaks against each form of a run; empty for a possible one."""
    model: Any = run.recipe.model
    settings = ", ".join(unsupported_settings(model))
    reasons = {"engine": settings and f"it has no {settings}"}
    predictor = run.predictor
    if not isinstance(predictor, Translator) or not isinstance(model, EncoderDecoderConfig):
        return {**reasons, "onnx": reasons["engine"]}
    return {
        **reasons,
        "page": _reason(lambda: model_facts(predictor, "run", "int8")),
        "ctranslate2": _reason(lambda: ctranslate2.check_expressible(model)),
        "onnx": reasons["engine"],
    }


def _reason(check: Callable[[], object]) -> str:
    """Message of the error that a check raises; empty without one."""
    try:
        check()
    except TransduceError as error:
        return str(error)
    return ""
