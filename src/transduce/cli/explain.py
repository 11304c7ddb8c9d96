"""`transduce explain`: one input on its way through a model, in a terminal, as JSON or a page."""

from __future__ import annotations

import json as json_format
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from transduce.cli.inputs import split_input
from transduce.cli.lines import STDIN, LineReader
from transduce.cli.options import THIS_MACHINE, Flag, Machine
from transduce.cli.output import STDOUT, open_output
from transduce.errors import DataError, InputError, SettingError

if TYPE_CHECKING:
    from transduce.inspect.explanation import Explanation
    from transduce.run import Run

MAX_TEXTS = 64
"""Texts in one page."""


def explain(
    run: Path,
    text: Annotated[str | None, Parameter(show_default=False)] = None,
    /,
    *,
    html: Annotated[str | None, Parameter(show_default=False)] = None,
    json: Flag = False,
    machine: Machine = THIS_MACHINE,
) -> None:
    """Explain one prediction: steps, attention heads, search and layers.

    Prints a report: the probabilities of each step, the attention of the last layer, the pattern of
    each head and the finished hypotheses of the search. The prediction equals that of `predict`.

    Parameters
    ----------
    run
        A run directory.
    text
        One input: a text, or the path of an image; several parts stand between tabs. Without it,
        stdin, one input a line.
    html
        File to write one self-contained page to instead of the report; it opens without a
        network.
    json
        Print one JSON object for each input instead of the report (docs/explain.md).
    """
    if json and html == STDOUT:
        raise SettingError("--json and --html - both write to stdout; give --html a file")
    machine.check_no_engine("explain")
    model = machine.load(run)
    found = _explained(model, text)
    if html is None:
        with open_output() as out:
            for one in found:
                out.write([_as_json(one)] if json else [_report(one), ""])
        return
    kept: list[dict[str, Any]] = []
    with open_output() as out:
        for one in found:
            if len(kept) == MAX_TEXTS:
                raise DataError(f"a page holds {MAX_TEXTS} texts; give it fewer lines")
            kept.append(one.packed())
            if json:
                out.write([_as_json(one)])
    if not kept:
        raise DataError("stdin is empty; there is nothing to make a page of")
    from transduce.inspect.page import page_of

    with open_output(html) as out:
        out.write_text(page_of(kept))


def _explained(model: Run, text: str | None) -> Iterator[Explanation]:
    """The explanation of the text, or of each line of stdin."""
    names = model.predictor.inputs
    if text is not None:
        given = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        yield _explain(model, split_input(given, names, "TEXT"), "TEXT")
        return
    reader = LineReader(STDIN)
    for batch in reader:
        for number, line in enumerate(batch.lines, batch.first + 1):
            place = f"{reader.name}: line {number}"
            yield _explain(model, split_input(line, names, place), place)


def _explain(model: Run, parts: tuple[str, ...], place: str) -> Explanation:
    try:
        return model.explain(parts)
    except InputError as error:
        raise DataError(f"{place}: {error.reason}") from None


def _as_json(one: Explanation) -> str:
    return json_format.dumps(one.as_dict(), ensure_ascii=False)


def _report(one: Explanation) -> str:
    from transduce.inspect.report import report_of

    return report_of(one)
