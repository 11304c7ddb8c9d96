"""The native engine behind a predictor with a PyTorch model, and PyTorch's own kernels."""

import dataclasses
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from transduce.decoding.session import SequencePredictor
from transduce.decoding.step_search import DecoderSearch, EncoderDecoderSearch
from transduce.engine.build import build_refusal, chosen_instructions
from transduce.engine.model import NativeModel, unsupported
from transduce.engine.pair_shape import unsupported_settings
from transduce.errors import RunError, SettingError
from transduce.models.config import EncoderDecoderConfig
from transduce.models.decoder_only import DecoderOnlyConfig
from transduce.nn.precision import Precision
from transduce.runs.arguments import warn_of_bf16
from transduce.tasks.recipe import Recipe
from transduce.tasks.table import TASKS
from transduce.tasks.task import Predictor

TextSearch = EncoderDecoderSearch | DecoderSearch


@runtime_checkable
class HasNativeLayers(Protocol):
    """A predictor with an encoder of vectors that the engine computes."""

    def natively(self, precision: Precision) -> Predictor:
        """This predictor, its layers in the engine."""


def on_cpu(predictor: Predictor) -> bool:
    """True for a predictor on a CPU."""
    return next(predictor.model.parameters()).device.type == "cpu"


def check_reduced(precision: Precision) -> None:
    """Raises SettingError for a precision on a CPU without the native engine, which multiplies."""
    if refusal := _build_refusal():
        raise SettingError(
            f"precision {precision!r} on a CPU needs the native engine ({refusal}); use float32"
        )
    warn_of_bf16(precision)


def natively(predictor: Predictor, recipe: Recipe, path: Path, precision: Precision) -> Any:
    """The predictor with the native engine's search, or its layers of an encoder of images.

    path: of the run, for messages.  Raises RunError for a task that the engine does not serve,
    SettingError for a model or a precision that it cannot follow.
    """
    if isinstance(predictor, HasNativeLayers):
        return predictor.natively(precision)
    search = _text_search(predictor, recipe.model)
    if search is None:
        raise RunError(
            f"{path} is a run of the task {recipe.task!r}; engine 'native' applies only to "
            "translation, language models, dialogue, recognition and encoders of texts and images; "
            "remove --engine"
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
    in_layers = isinstance(predictor, HasNativeLayers)
    if not in_layers and _text_search(predictor, model) is None:
        return "it decodes only translations, continuations and replies"
    if not on_cpu(predictor):
        return "it runs on a CPU only"
    setting = next(unsupported_settings(model), None) if in_layers else unsupported(model)
    if setting is not None:
        return f"it does not support {setting}"
    return _build_refusal()


def _build_refusal() -> str | None:
    try:
        return build_refusal(chosen_instructions())
    except SettingError as error:
        return str(error)


def native_support(predictor: Predictor, recipe: Recipe) -> str:
    """The instructions that the native engine would take, or why it cannot be used."""
    is_loaded_natively = TASKS[recipe.task].load_native is not None
    if is_loaded_natively and not isinstance(recipe.model, EncoderDecoderConfig):
        setting = next(unsupported_settings(recipe.model), None)
        refusal = f"it does not support {setting}" if setting else _build_refusal()
    else:
        refusal = native_refusal(predictor, recipe.model)
    return f"no: {refusal}" if refusal else f"yes, with {chosen_instructions().name}"
