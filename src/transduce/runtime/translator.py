"""Translator over the native engine, without PyTorch except for options the engine lacks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transduce.decoding.native_search import NativeSearch
from transduce.engine.pair_shape import max_positions, pair_shape
from transduce.engine.weights import EngineWeights
from transduce.errors import RunError
from transduce.models.encoder_decoder_config import EncoderDecoderConfig
from transduce.nn.kernels.float_weight import FloatWeight
from transduce.nn.kernels.precision import Precision
from transduce.runtime.settings import read_settings
from transduce.tasks.translation.tags import expected_tags
from transduce.tasks.translation.text_translator import TextTranslator
from transduce.tasks.translation.translator_config import TranslatorConfig
from transduce.tasks.unknown_tokens import UnknownTokens
from transduce.tasks.vocabularies import saved_vocabularies
from transduce.text import BOS, EOS
from transduce.training.plain_weights import read_plain_weights

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from transduce.tasks.translation.translator import Translator


@dataclass(eq=False, kw_only=True, repr=False)
class NativeTranslator(TextTranslator):
    """Translator of a run directory in the native engine.

    All other calls of a `Translator` use the translator of PyTorch, loaded by the first of them.

    engine: the model in the engine.  complete: makes the translator with PyTorch, given the name of
    the feature that needs it, for the SettingError without PyTorch.
    """

    engine: EngineWeights
    complete: Callable[[str], Translator]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.complete(name), name)

    def attention(self, source: str, target: str, layer: int = -1) -> NDArray[np.float32]:
        """As `Translator.attention`; with PyTorch for another layer than the last."""
        if layer != -1:
            return self.complete(f"attention in layer {layer}").attention(source, target, layer)
        source_ids, target_ids = self.source.encode(source), self.target.encode(target)
        return self.engine.attention([*source_ids, EOS], [BOS, *target_ids])


def load_translator(
    run: Path,
    precision: Precision,
    threads: Callable[[], int],
    complete: Callable[[str], Translator],
) -> NativeTranslator:
    """The translator of a run directory, in the engine.

    threads: called at each search.  complete: as in `NativeTranslator`.

    Raises RunError for a run that is damaged or needs PyTorch, SettingError if the engine is
    unavailable.
    """
    settings = read_settings(run)
    source, target = saved_vocabularies(run)
    shape = pair_shape(settings.model, source.size, target.size, precision)
    weights = tied(read_plain_weights(run / "weights.safetensors"), settings.model)
    check_biases(weights, settings.model)
    engine = EngineWeights(shape, weights)
    positions = max_positions(shape.decoder)
    return NativeTranslator(
        options=settings.decoding,
        backend=NativeSearch(
            engine, lambda feature: complete(feature).backend.step_search(feature), threads
        ),
        source=source,
        target=target,
        config=TranslatorConfig(
            max_source_length=settings.max_source_length,
            max_target_length=None if positions is None else positions - 1,  # the first is BOS
            target_language=settings.target_language,
            expected_tags=expected_tags(settings.tags, source),
            unknown_tokens=UnknownTokens(source),
        ),
        engine=engine,
        complete=complete,
    )


def tied(weights: Mapping[str, FloatWeight], model: EncoderDecoderConfig) -> dict[str, FloatWeight]:
    """Weights with every name of a tied matrix; files have only the first."""
    names = ["target_front_end.embedding.weight", "head.weight"] if model.tie != "none" else []
    if model.tie == "three-way":
        names = ["front_end.embedding.weight", *names]
    found = dict(weights)
    for name in names[1:]:
        if names[0] not in weights or name in weights:
            raise RunError(f"the weights do not have model.tie = {model.tie!r}")
        found[name] = weights[names[0]]
    return found


def check_biases(weights: Mapping[str, FloatWeight], model: EncoderDecoderConfig) -> None:
    """Raises RunError unless each layer has a bias, and each embedding none."""
    for name in weights:
        part, _, kind = name.rpartition(".")
        bare = part.endswith((".embedding", ".table")) or (part == "head" and not model.output_bias)
        if kind == "weight" and (f"{part}.bias" in weights) == bare:
            raise RunError(f"{part} has {'a' if bare else 'no'} bias; it is of another model")
