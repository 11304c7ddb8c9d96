"""The native engine behind a translator: its model for every option, its search for plain ones.

Options that need only the logits of a step are searched for in the engine; all others by
`decoding.search`, with the engine's model in place of the PyTorch one.  Scores and alignments of
given targets come from PyTorch.
"""

from __future__ import annotations

import dataclasses

import torch

from transduce.engine.build import build_refusal
from transduce.engine.instructions import chosen_instructions
from transduce.engine.model import NativeModel
from transduce.engine.shape import unsupported
from transduce.errors import SettingError
from transduce.nn.kernels.linear import Precision
from transduce.tasks.translation.native_engine import NativeEngine
from transduce.tasks.translation.task import TrainedTranslator


def native_refusal(predictor: object, model: object) -> str | None:
    """Reason that a predictor with this model configuration cannot use the engine; None if it can.

    Nothing is compiled for it.
    """
    if not isinstance(predictor, TrainedTranslator):
        return "it decodes translations only"
    if predictor.device.type != "cpu":
        return "it runs on a CPU only"
    if (setting := unsupported(model)) is not None:
        return f"it does not support {setting}"
    try:
        return build_refusal(chosen_instructions())
    except SettingError as error:
        return str(error)


def with_native(
    translator: TrainedTranslator, precision: Precision = "float32"
) -> TrainedTranslator:
    """Translator with the same weights that decodes in the native engine.

    Raises SettingError where the engine cannot be had or does not support the model.
    """
    model = NativeModel(translator.model, translator.recipe.model, precision)
    return translator.configured(
        dataclasses.replace(translator.config, native=NativeEngine(model, torch.get_num_threads))
    )
