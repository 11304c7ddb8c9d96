"""An answer or an error for each input: one bad input does not stop the others."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from transduce.decoding.options import DecodingOptions
from transduce.errors import CancelledError, InputError, SettingError, TransduceError
from transduce.tasks.per_input import Attempting, Cancelled, OwnOptions
from transduce.tasks.task import Prediction, Predictor

GivenOptions = DecodingOptions | Mapping[str, Any] | None
"""Of one input: all of them, only those that differ from the recipe's, or the recipe's."""


def attempt(
    predictor: Predictor,
    inputs: Sequence[tuple[str, ...]],
    options: Sequence[GivenOptions],
    first: int = 0,
    cancelled: Cancelled | None = None,
) -> Sequence[Prediction | TransduceError]:
    """The answer to each input, or the error where there is none, in order.

    options: of each input.  first: number of the first input in a longer row of them.
    cancelled: called between steps with the place of an input, from 0; where nothing is decoded
    token by token, before the first of them.
    """
    each = [_resolved(own, predictor.options) for own in options]
    if isinstance(predictor, Attempting):
        decoded = [own for own in each if own is not None]
        return predictor.attempt([text for (text,) in inputs], decoded, first, cancelled)
    if cancelled is not None:
        gone = CancelledError("cancelled before its end")
        each = [gone if cancelled(i) else own for i, own in enumerate(each)]
    answers: list[Prediction | TransduceError] = []
    pairs = zip(inputs, each, strict=True)
    for own, group in itertools.groupby(pairs, key=lambda pair: pair[1]):
        alike = [parts for parts, _ in group]
        if isinstance(own, TransduceError):
            answers += [own] * len(alike)
        else:
            answers += _predicted(predictor, alike, own, first + len(answers))
    return answers


def _resolved(given: GivenOptions, own: DecodingOptions | None) -> OwnOptions | None:
    """The options of one input as given over the recipe's, or what is wrong with them."""
    if given is None or isinstance(given, DecodingOptions):
        return given or own
    if own is None:
        return SettingError("this run's task decodes nothing; leave out the options of decoding")
    try:
        return own.with_settings(given)
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
