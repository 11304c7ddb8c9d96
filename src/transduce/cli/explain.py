"""`transduce explain`: an input on its way through a model, in a terminal, as JSON or a page."""

from __future__ import annotations

import json as json_format
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from transduce.cli.inputs import STDIN, LineReader, numbered_inputs, split_input
from transduce.cli.options import Flag, Machine
from transduce.cli.output import STDOUT, check_page, open_output, print_lines
from transduce.errors import DataError, InputError, SettingError

if TYPE_CHECKING:
    from transduce.explain.explanation import Explanation, SideBySide
    from transduce.explain.parts import KnockOut
    from transduce.loading import Run


MAX_EXPLANATIONS = 64
"""Explanations in a page: texts times runs."""
EXPLAIN_WIDTH = 100
"""Cells of a line if stdout is not a terminal."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """Parts of the model to leave out."""

    without_head: Annotated[tuple[str, ...], Parameter(show_default=False)] = ()
    """Attention head to leave out, as NAME:HEAD, heads from 1, such as
    decoder.layers.0.cross_attention:3; shown beside the whole model. May be repeated."""
    without_token: Annotated[tuple[int, ...], Parameter(show_default=False)] = ()
    """Source token to hide from attention, by its number, from 1; shown beside the whole source.
    May be repeated."""

    def knock_out(self) -> KnockOut:
        """The same for the model."""
        from transduce.explain.parts import KnockOut

        return KnockOut(self.without_head, self.without_token)


def explain(
    run: Path,
    text: Annotated[str | None, Parameter(show_default=False)] = None,
    /,
    *,
    against: Annotated[tuple[Path, ...], Parameter(show_default=False)] = (),
    left_out: LeftOut = LeftOut(),
    html: Annotated[str | None, Parameter(show_default=False)] = None,
    again: Flag = False,
    live: Flag = False,
    json: Flag = False,
    machine: Machine = Machine(),
) -> None:
    """Explain a prediction: steps, attention heads, search and layers.

    Prints a report: the probabilities of each step, the attention of the last layer, the pattern of
    each head and the finished hypotheses of the search. The prediction equals that of `predict`.

    Parameters
    ----------
    run
        A run directory.
    text
        An input: a text, or the path of an image; several parts stand between tabs. Without it,
        stdin, an input a line.
    against
        Another run of the same task, to explain the same input with, side by side. May be
        repeated.
    html
        File to write a self-contained page to instead of the report; it opens without a
        network. Its path is printed, unless --json takes stdout.
    again
        Replace an existing page. Default: it is kept, and the exit status is 1.
    live
        Write the model into the page as well, so that it computes: other texts, rivals, parts left
        out. For Transformers that translate, continue or classify texts.
    json
        Print a JSON object for each input instead of the report (docs/explain.md).
    """
    if json and html == STDOUT:
        raise SettingError("--json and --html - both write to stdout; give --html a file")
    if html is not None:
        check_page(html, again)
    machine = machine.without_engine("explain")
    without = left_out.knock_out()
    if without and against:
        raise SettingError("--against compares whole models; remove it, or what is left out")
    if live and (html is None or against or without):
        raise SettingError(
            "--live needs --html and one whole model; what is left out is chosen in the page"
        )
    runs = [machine.load(path) for path in (run, *against)]
    model = runs[0].live_model().packed() if live else None
    explanations = _explained(runs, text, without)
    if html is None:
        with open_output() as out:
            for explanation in explanations:
                out.write([_explain_as_json(explanation)] if json else [_report(explanation), ""])
        return
    shown: list[dict[str, Any]] = []
    with open_output() as out:
        for number, explanation in enumerate(explanations):
            shown += _packed(explanation, number)
            if len(shown) > MAX_EXPLANATIONS:
                raise DataError(_too_many(2 if without else len(runs)))
            if json:
                out.write([_explain_as_json(explanation)])
    if not shown:
        raise DataError("stdin is empty; there is nothing to make a page of")
    from transduce.explain.page import page_of

    with open_output(html) as out:
        out.write_text(page_of(shown, model))
    if html != STDOUT and not json:
        print_lines(html)


def _explained(
    runs: Sequence[Run], text: str | None, without: KnockOut
) -> Iterator[Explanation | SideBySide]:
    from transduce.explain.runs import explain_runs, explain_with_and_without

    names = runs[0].predictor.inputs
    if text is None:
        inputs = numbered_inputs(LineReader(STDIN), names)
    else:
        line = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        inputs = iter([("TEXT", split_input(line, names, "TEXT"))])
    for first, (where, parts) in enumerate(inputs):
        try:
            if without:
                yield explain_with_and_without(runs[0], parts, without, first=first)
            elif len(runs) > 1:
                yield explain_runs(runs, parts, first)
            else:
                yield runs[0].explain(parts, first=first)
        except InputError as error:
            raise DataError(f"{where}: {error.reason}") from None


def _too_many(runs: int) -> str:
    of_runs = f" of {runs} runs" if runs > 1 else ""
    return f"a page holds {MAX_EXPLANATIONS // runs} texts{of_runs}; give it fewer lines"


def _explain_as_json(explanation: Explanation | SideBySide) -> str:
    return json_format.dumps(explanation.as_dict(), ensure_ascii=False)


def _packed(explanation: Explanation | SideBySide, number: int) -> list[dict[str, Any]]:
    from transduce.explain.explanation import SideBySide

    if isinstance(explanation, SideBySide):
        return explanation.packed(number)
    return [explanation.packed()]


def _report(explanation: Explanation | SideBySide) -> str:
    from transduce.explain.explanation import SideBySide
    from transduce.explain.report import report_of, report_side_by_side

    if isinstance(explanation, SideBySide):
        return report_side_by_side(
            explanation, shutil.get_terminal_size((EXPLAIN_WIDTH, 0)).columns
        )
    return report_of(explanation)
