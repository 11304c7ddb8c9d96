"""Explain an input with several runs of a task, or with a single run, whole and without parts."""

import dataclasses
import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from transduce.decoding.options import DecodingOptions
from transduce.errors import DataError, SettingError
from transduce.experiments.compare import short_names
from transduce.explain.explanation import ComparedRun, SideBySide
from transduce.explain.knock_out import knock_out
from transduce.explain.parts import NOTHING, KnockOut
from transduce.loading import Run


def explain_runs(runs: Sequence[Run], text: str | Sequence[str], first: int = 0) -> SideBySide:
    """An input on its way through each of several models, side by side.

    runs: of the same task, with the same inputs; their vocabularies and sizes may differ.  text,
    first: as in `Run.explain`.  Raises SettingError without runs, DataError for runs of different
    tasks, and the errors of `Run.explain`.
    """
    _check_alike(runs)
    parts = (text,) if isinstance(text, str) else tuple(text)
    compared = [_compared(run, parts, first=first) for run in runs]
    named = [
        dataclasses.replace(run, explanation=dataclasses.replace(run.explanation, run=name))
        for run, name in zip(compared, short_names([run.path for run in runs]), strict=True)
    ]
    return SideBySide(tuple(named))


def explain_with_and_without(
    run: Run,
    text: str | Sequence[str],
    without: KnockOut,
    options: DecodingOptions | None = None,
    first: int = 0,
) -> SideBySide:
    """An input on its way through a model, and through the same model with parts left out.

    run: a loaded run.  without: heads and source tokens to leave out.  text, options, first:
    as in `Run.explain`, with its errors.
    """
    parts = (text,) if isinstance(text, str) else tuple(text)
    return SideBySide(
        tuple(_compared(run, parts, options, what, first) for what in (NOTHING, without))
    )


def _check_alike(runs: Sequence[Run]) -> None:
    """Raises SettingError without runs, and DataError for runs that take no common input."""
    if not runs:
        raise SettingError("nothing to explain; give at least one run")
    first = runs[0]
    for run in runs[1:]:
        for what, shared, other in (
            ("tasks", first.recipe.task, run.recipe.task),
            ("inputs", " and ".join(first.predictor.inputs), " and ".join(run.predictor.inputs)),
        ):
            if shared != other:
                raise DataError(
                    f"{run.path} and {first.path} have different {what} ({other}; {shared}); "
                    f"explain runs with the same {what} side by side"
                )


def _compared(
    run: Run,
    parts: tuple[str, ...],
    options: DecodingOptions | None = None,
    without: KnockOut = NOTHING,
    first: int = 0,
) -> ComparedRun:
    """The explanation with the size of the model and the time of a second `predict`."""
    explanation = run.explain(parts, options, without, first)
    with _without_warnings(), knock_out(run.model, without):
        began = time.perf_counter()
        list(run.predict([parts], options))
        seconds = time.perf_counter() - began
    return ComparedRun(explanation, run.info()["parameters"], seconds)


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Keep warnings back that the same input has caused already."""
    logger = logging.getLogger("transduce")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
