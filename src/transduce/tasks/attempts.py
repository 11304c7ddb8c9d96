"""An answer or an error for each input: a bad input does not stop the others."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from transduce.decoding.backend import Cancelled
from transduce.decoding.options import DecodingOptions
from transduce.decoding.per_input import OwnOptions
from transduce.decoding.session import SequencePredictor
from transduce.errors import CancelledError, InputError, SettingError, TransduceError

if TYPE_CHECKING:
    from transduce.tasks.task import Prediction, Predictor

GivenOptions = DecodingOptions | Mapping[str, Any] | None
"""Options of an input: all of them, only changes to the recipe's, or the recipe's."""


def attempt(
    predictor: Predictor,
    inputs: Sequence[tuple[str, ...]],
    options: Sequence[GivenOptions | TransduceError],
    first: int = 0,
    cancelled: Cancelled | None = None,
) -> Sequence[Prediction | TransduceError]:
    """Result of each input, or its error, in order.

    options: of each input, or the error in it.  first: number of the first input in a longer
    sequence.
    cancelled: called between steps with the index of an input, from 0; without token-by-token
    decoding, before the first.
    """
    each = [_resolved(own_options, predictor.options) for own_options in options]
    if isinstance(predictor, SequencePredictor):
        decoded = [own_options for own_options in each if own_options is not None]
        return predictor.attempt([text for (text,) in inputs], decoded, first, cancelled)
    if cancelled is not None:
        gone = CancelledError("cancelled before completion")
        each = [gone if cancelled(i) else own_options for i, own_options in enumerate(each)]
    answers: list[Prediction | TransduceError] = []
    pairs = zip(inputs, each, strict=True)
    for own_options, group in itertools.groupby(pairs, key=lambda pair: pair[1]):
        alike = [parts for parts, _ in group]
        if isinstance(own_options, TransduceError):
            answers += [own_options] * len(alike)
        else:
            answers += _predicted(predictor, alike, own_options, first + len(answers))
    return answers


def _resolved(
    call_options: GivenOptions | TransduceError, defaults: DecodingOptions | None
) -> OwnOptions | None:
    """Options of an input merged with the recipe's, or the error in them."""
    if call_options is None or isinstance(call_options, DecodingOptions | TransduceError):
        return call_options or defaults
    if defaults is None:
        return SettingError("this task does not decode; remove the decoding options")
    try:
        return defaults.with_settings(call_options)
    except SettingError as error:
        return error


def _predicted(
    predictor: Predictor,
    inputs: Sequence[tuple[str, ...]],
    options: DecodingOptions | None,
    first: int,
) -> list[Prediction | TransduceError]:
    """Answers to inputs with equal options; those that cannot be read leave the others alone."""
    answers: list[Prediction | TransduceError] = []
    while inputs:
        try:
            return [*answers, *predictor.predict(inputs, options, first)]
        except InputError as error:
            before = inputs[: error.number - first]
            answers += predictor.predict(before, options, first) if before else ()
            answers.append(error)
            inputs, first = inputs[len(before) + 1 :], error.number + 1
        except SettingError as error:
            return [*answers, *[error] * len(inputs)]
    return answers
