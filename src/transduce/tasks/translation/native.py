"""The native engine behind a translator: its model for every option, its search for plain ones.

Options that need only the logits of a step are searched for in the engine; all others by
`decoding.search`, with the engine's model in place of the PyTorch one.  Scores and alignments of
given targets come from PyTorch.
"""

from __future__ import annotations

import dataclasses

import torch

from transduce.engine.model import NativeModel
from transduce.nn.kernels.linear import Precision
from transduce.tasks.translation.native_engine import NativeEngine
from transduce.tasks.translation.task import TrainedTranslator


def with_native(
    translator: TrainedTranslator, precision: Precision = "float32"
) -> TrainedTranslator:
    """Translator with the same weights that decodes in the native engine.

    Raises SettingError if the engine is unavailable or does not support the model.
    """
    model = NativeModel(translator.model, translator.recipe.model, precision)
    return translator.configured(
        dataclasses.replace(translator.config, native=NativeEngine(model, torch.get_num_threads))
    )
