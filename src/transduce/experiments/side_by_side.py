"""Explain one input with several runs of a task."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from transduce.errors import DataError, SettingError
from transduce.experiments.compare import short_names
from transduce.inspect.side_by_side import ComparedRun, SideBySide
from transduce.run import Run


def explain_runs(runs: Sequence[Run], text: str | Sequence[str]) -> SideBySide:
    """One input on its way through each of several models, side by side.

    runs: of one task, with the same inputs; their vocabularies and sizes may differ.  text: as in
    `Run.explain`.  Raises SettingError without runs, DataError for runs of different tasks, and
    the errors of `Run.explain`.
    """
    _check_alike(runs)
    parts = (text,) if isinstance(text, str) else tuple(text)
    names = short_names([run.path for run in runs])
    return SideBySide(tuple(map(_compared, runs, names, [parts] * len(runs))))


def _check_alike(runs: Sequence[Run]) -> None:
    """Raises SettingError without runs, and DataError for runs that take no common input."""
    if not runs:
        raise SettingError("nothing to explain; give at least one run")
    first = runs[0]
    for run in runs[1:]:
        for what, own, other in (
            ("tasks", first.recipe.task, run.recipe.task),
            ("inputs", " and ".join(first.predictor.inputs), " and ".join(run.predictor.inputs)),
        ):
            if own != other:
                raise DataError(
                    f"{run.path} and {first.path} have different {what} ({other}; {own}); explain "
                    f"runs with the same {what} side by side"
                )


def _compared(run: Run, name: str, parts: tuple[str, ...]) -> ComparedRun:
    found = dataclasses.replace(run.explain(parts), run=name)
    with _without_warnings():
        began = time.perf_counter()
        list(run.predict([parts]))
        seconds = time.perf_counter() - began
    return ComparedRun(found, run.info()["parameters"], seconds)


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
