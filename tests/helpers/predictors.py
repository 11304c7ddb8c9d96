"""Predictors over given models, on either engine."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

from transduce.decoding.backend import NativeSearch
from transduce.decoding.options import DecodingOptions
from transduce.decoding.session import SequencePredictor
from transduce.decoding.step_search import DecoderSearch, EncoderDecoderSearch, padded_ids
from transduce.engine.model import NativeModel
from transduce.models.decoder_only import DecoderOnly
from transduce.models.encoder_decoder import EncoderDecoder
from transduce.nn.precision import Precision
from transduce.tasks.language_model.generator import FORBIDDEN, Generator
from transduce.tasks.translation.recipe import DataConfig, TranslationRecipe
from transduce.tasks.translation.text_translator import TranslatorConfig
from transduce.tasks.translation.translator import Translator
from transduce.text import Tokenizer

P = TypeVar("P", bound=SequencePredictor[Any, Any])


def generator_of(
    model: DecoderOnly, tokenizer: Tokenizer, options: DecodingOptions, window: int
) -> Generator:
    """A generator that decodes with PyTorch."""
    search = DecoderSearch(model, window, FORBIDDEN)
    return Generator(
        options=options, backend=search, model=model, tokenizer=tokenizer, window=window
    )


def translator_of(
    model: EncoderDecoder,
    source: Tokenizer,
    target: Tokenizer,
    options: DecodingOptions,
    longest: int,
) -> Translator:
    """A translator that decodes with PyTorch."""
    return Translator(
        options=options,
        backend=EncoderDecoderSearch(model, padded_ids),
        source=source,
        target=target,
        config=TranslatorConfig(longest),
        recipe=TranslationRecipe(data=DataConfig()),
        network=lambda: model,
    )


def natively(predictor: P, config: Any = None, precision: Precision = "float32") -> P:
    """The predictor with the native engine's search.  config: of the model, by default the
    recipe's."""
    whole: Any = predictor
    model = NativeModel(whole.model, config or whole.recipe.model, precision)
    search: Any = predictor.backend.step_search("the native engine")
    return dataclasses.replace(predictor, backend=search.native(model))


def native_search(predictor: SequencePredictor[Any, Any]) -> NativeSearch:
    """The native engine's search of a predictor that has it."""
    assert isinstance(predictor.backend, NativeSearch)
    return predictor.backend
