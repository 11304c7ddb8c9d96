"""Translator over the native engine, without PyTorch except for options the engine lacks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transduce.decoding.hypotheses import Hypothesis
from transduce.decoding.options import DecodingOptions
from transduce.engine.pair_shape import max_positions, pair_shape
from transduce.engine.weights import EngineWeights
from transduce.errors import RunError, TransduceError
from transduce.models.transformer_pair import TransformerPairConfig
from transduce.nn.kernels.float_weight import FloatWeight
from transduce.nn.kernels.precision import Precision
from transduce.runtime.settings import read_settings
from transduce.tasks.per_input import Cancelled, OwnOptions, checked, of_each
from transduce.tasks.prediction import TextStream
from transduce.tasks.translation.native_engine import NativeEngine, needs_other_search
from transduce.tasks.translation.splitting import Lines
from transduce.tasks.translation.tags import ExpectedTags
from transduce.tasks.translation.text_translator import TextTranslator
from transduce.tasks.translation.translations import Translation
from transduce.tasks.translation.translator_config import SourceSegment, TranslatorConfig
from transduce.tasks.unknown_tokens import UnknownTokens
from transduce.tasks.vocabularies import saved_vocabularies
from transduce.text import BOS, EOS, Tokenizer
from transduce.training.plain_weights import read_plain_weights

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from transduce.tasks.translation.translator import Translator


class NativeTranslator(TextTranslator):
    """Translator of a run directory in the native engine.

    Options that the engine's search does not support, and all other calls of a `Translator`, use
    the translator of PyTorch, loaded by the first such call.
    """

    def __init__(
        self,
        source: Tokenizer,
        target: Tokenizer,
        config: TranslatorConfig,
        engine: NativeEngine[EngineWeights],
        complete: Callable[[str], Translator],
    ) -> None:
        """complete: makes the translator with PyTorch, given the name of the feature that needs it,
        for the SettingError without PyTorch."""
        super().__init__(source, target, config)
        self._engine = engine
        self._complete = complete

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._complete(name), name)

    def has_cross_attention(self) -> bool:
        """True: the engine has Transformers only."""
        return True

    def search(
        self,
        segments: Sequence[SourceSegment],
        options: DecodingOptions,
        cancelled: Callable[[int], bool] | None,
    ) -> list[list[Hypothesis]]:
        """Hypotheses for each of some pieces, decoded together."""
        limits = self.preparation.limits([segment.ids for segment in segments], options)
        return self._engine.search(segments, limits, options, cancelled)

    def check(self, options: DecodingOptions) -> None:
        """Raises SettingError or RunError for options that this model cannot follow."""
        other = self._translator_for(options)
        super().check(options) if other is None else other.check(options)

    def attempt(
        self,
        texts: Sequence[str],
        options: DecodingOptions | Sequence[OwnOptions] | None = None,
        first: int = 0,
        cancelled: Cancelled | None = None,
    ) -> list[Translation | TransduceError]:
        """As `Translator.attempt`; without PyTorch, options that need it are errors of their
        texts."""
        each = checked(of_each(options, self.options, len(texts)), self._translator_for)
        other = self._translator_for(each)
        if other is None:
            return super().attempt(texts, each, first, cancelled)
        return other.attempt(texts, each, first, cancelled)

    def stream(
        self,
        text: str,
        options: DecodingOptions | None = None,
        number: int = 0,
        cancelled: Callable[[], bool] | None = None,
    ) -> TextStream:
        """As `Translator.stream`; always with PyTorch."""
        return self._complete("streaming").stream(text, options, number, cancelled)

    def attention(self, source: str, target: str, layer: int = -1) -> NDArray[np.float32]:
        """As `Translator.attention`; with PyTorch for another layer than the last."""
        if layer != -1:
            return self._complete(f"attention in layer {layer}").attention(source, target, layer)
        source_ids, target_ids = self.source.encode(source), self.target.encode(target)
        return self._engine.model.attention([*source_ids, EOS], [BOS, *target_ids])

    def _translated(
        self,
        texts: Sequence[Lines],
        options: DecodingOptions | Sequence[DecodingOptions] | None,
        first: int,
    ) -> list[Translation]:
        other = self._translator_for(options)
        if other is None:
            return super()._translated(texts, options, first)
        return other._translated(texts, options, first)

    def _translator_for(
        self, options: DecodingOptions | Sequence[OwnOptions] | None
    ) -> Translator | None:
        """The translator with PyTorch where any options need it; None for this one.

        Raises SettingError, which names an option, without PyTorch.
        """
        options = options or self.options
        each = [options] if isinstance(options, DecodingOptions) else options
        for own in set(each):
            name = needs_other_search(own) if isinstance(own, DecodingOptions) else None
            if name is not None:
                return self._complete(f"decoding.{name} = {getattr(own, name)!r}")
        return None


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
    model = settings.model
    shape = pair_shape(model, source.size, target.size, precision)
    weights = tied(read_plain_weights(run / "weights.safetensors"), model)
    check_biases(weights, model)
    engine = NativeEngine(EngineWeights(shape, weights), threads)
    limit = max_positions(shape.decoder)
    config = TranslatorConfig(
        options=settings.decoding,
        max_source_length=settings.max_source_length,
        max_target_length=None if limit is None else limit - 1,  # the first is BOS
        target_language=settings.target_language,
        expected_tags=ExpectedTags(settings.tags, source),
        unknown_tokens=UnknownTokens(source),
    )
    return NativeTranslator(source, target, config, engine, complete)


def tied(
    weights: Mapping[str, FloatWeight], model: TransformerPairConfig
) -> dict[str, FloatWeight]:
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


def check_biases(weights: Mapping[str, FloatWeight], model: TransformerPairConfig) -> None:
    """Raises RunError unless each layer has a bias, and each embedding none."""
    for name in weights:
        part, _, kind = name.rpartition(".")
        bare = part.endswith((".embedding", ".table")) or (part == "head" and not model.output_bias)
        if kind == "weight" and (f"{part}.bias" in weights) == bare:
            raise RunError(f"{part} has {'a' if bare else 'no'} bias; it is of another model")
