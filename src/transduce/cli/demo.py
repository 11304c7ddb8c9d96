"""`transduce demo`: train a Transformer from scratch within minutes and show its attention.

Every demo of `demo_table.DEMOS` takes the same way: data, training, scores on held-out items,
attention in the terminal, and the page of `transduce explain`.
"""

from __future__ import annotations

import importlib.resources
import json as json_format
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from transduce.cli.console import write_stderr
from transduce.cli.demo_data import write_pairs
from transduce.cli.demo_table import DEMOS, Demo
from transduce.cli.options import Flag
from transduce.cli.output import print_lines
from transduce.errors import RunError, SettingError
from transduce.settings.sections import load_toml

if TYPE_CHECKING:
    from transduce.explain.explanation import Explanation
    from transduce.runs.run import Run
    from transduce.training.trainer import Outcome

Show = Callable[[str], None]

FIGURES = "demo.json"
"""File of the results in the run directory, written on completion."""


def demo(
    name: Annotated[Literal["en", "zh", "copy"] | None, Parameter(show_default=False)] = None,
    /,
    *,
    language: Annotated[Literal["en", "zh"] | None, Parameter(show_default=False)] = None,
    run: Annotated[Path | None, Parameter(show_default=False)] = None,
    again: Flag = False,
    minutes: float | None = None,
    json: Flag = False,
) -> int:
    """Train a small model within minutes and show its attention.

    `transduce demo` learns English spelling to sound from the CMU Pronouncing Dictionary,
    `transduce demo --language zh` Chinese characters to Pinyin, both in some five minutes;
    `transduce demo copy` learns to copy a line of symbols in less than one. Each evaluates on
    held-out items, shows attention, and writes the page of `transduce explain`; a model that has
    hardly learnt is not shown, and ends in exit code 1.

    Parameters
    ----------
    name
        The demo: en, zh or copy. Default: en.
    language
        Language of the demo; `--language zh` is the demo zh.
    run
        Run directory; a completed demo there is shown again without training. Default: runs/demo,
        runs/demo-zh or runs/demo-copy.
    again
        Train again, replacing a completed demo.
    minutes
        Limit of the training time. Default: 10; none for copy.
    json
        Print a JSON object on stdout, and the report on stderr.
    """
    if name is not None and language not in (None, name):
        raise SettingError(f"--language {language} is another demo than {name!r}; give one")
    show: Show = (lambda text: write_stderr(f"{text}\n")) if json else print_lines
    chosen = DEMOS[name or language or "en"]
    path = run or Path(chosen.directory)
    result = run_demo(chosen, path, again, minutes, show)
    if json:
        print_lines(json_format.dumps(result))
    if chosen.has_learnt(result):
        return 0
    show(chosen.texts.short.format(**result, command=_longer(chosen, path)))
    return 1


def run_demo(
    demo: Demo, run: Path, again: bool, minutes: float | None, show: Show
) -> dict[str, Any]:
    """Train if necessary, evaluate and report; return the results.

    A model that has hardly learnt is measured, but not shown.
    """
    import transduce
    from transduce.training.weights import write_text

    result = None if again else _read_figures(demo, run)
    if result is None:
        outcome = _train(demo, run, again, minutes, show)
        result = _measure(demo, transduce.load(run), outcome)
        write_text(run / FIGURES, json_format.dumps(result) + "\n")
    else:
        show(demo.texts.again.format(run=run))
    show(demo.texts.scores.format(**result))
    if not demo.has_learnt(result):
        return dict(result)
    page = _show_inside(demo, transduce.load(run), show)
    recipe, address = run / "recipe.toml", page.resolve().as_uri()
    show(demo.texts.end.format(run=run, recipe=recipe, page=page, address=address))
    return dict(result)


def demo_recipe(demo: Demo, data: Path, minutes: float | None) -> dict[str, Any]:
    """Settings of the demo's recipe for the data in the directory `data`."""
    files = importlib.resources.files(__package__)
    with importlib.resources.as_file(files / demo.recipe) as path:
        settings = load_toml(path)
    settings["data"]["root"] = str(data)
    if minutes is not None:
        settings["training"]["minutes"] = minutes
    return settings


def _read_figures(demo: Demo, run: Path) -> dict[str, Any] | None:
    """Results of a completed demo; None if incomplete, damaged or another's."""
    try:
        figures = json_format.loads((run / FIGURES).read_text(encoding="utf-8"))
        scores = {name: float(figures[name]) for name in demo.scores}
        counts = {name: int(figures[name]) for name in (demo.counted, "steps", "planned_steps")}
        return {**figures, **scores, **counts}
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _train(demo: Demo, run: Path, again: bool, minutes: float | None, show: Show) -> Outcome:
    import transduce
    from transduce.recipes import parse_recipe

    data = run.parent / f"{run.name}-data"
    settings = demo_recipe(demo, data, minutes)
    parse_recipe(settings, "demo")  # raises before anything is deleted
    begun = (run / "recipe.toml").is_file()
    if begun and not _is_same_demo(run, settings["data"]):
        raise RunError(f"{run} is not a run of this demo; give another --run")
    count = write_pairs(data / settings["data"]["train"]["path"], demo.pairs())
    show(demo.texts.begin.format(count=count, training=settings["training"]))
    (run / FIGURES).unlink(missing_ok=True)  # results of the run to be replaced
    _, outcome = transduce.train(settings, run, resume=begun and not again, overwrite=again)
    return outcome


def _is_same_demo(run: Path, data: dict[str, Any]) -> bool:
    match load_toml(run / "recipe.toml"):
        case {"data": {"root": root, "train": {"path": path}}}:
            return bool(root == str(Path(data["root"]).resolve()) and path == data["train"]["path"])
    return False


def _measure(demo: Demo, model: Run, outcome: Outcome) -> dict[str, Any]:
    evaluation = model.evaluate("test")
    return {
        **{name: round(float(evaluation.scores[name]), 2) for name in demo.scores},
        "train_seconds": round(outcome.seconds, 1),
        "steps": outcome.step,
        "planned_steps": model.recipe.training.steps,
        demo.counted: len(evaluation.sources),
        "run": str(model.path),
    }


def _longer(demo: Demo, run: Path) -> str:
    """The command that trains again, with twice the minutes or more."""
    name = next(name for name, row in DEMOS.items() if row.directory == demo.directory)
    words = ["transduce demo", *([] if name == "en" else [name])]
    if run != Path(demo.directory):
        words.append(f"--run {shlex.quote(str(run))}")
    before = load_toml(run / "recipe.toml")["training"].get("minutes", 0)
    return " ".join([*words, f"--minutes {max(2 * before, 10):g}", "--again"])


def _show_inside(demo: Demo, model: Run, show: Show) -> Path:
    """Show the attention from output to input for each example; return the page of them."""
    from transduce.explain.page import page_of
    from transduce.explain.picture import attention_in_terminal

    show(demo.texts.examples)
    explained = [model.explain(text) for text in demo.examples]
    for text, explanation in zip(demo.examples, explained, strict=True):
        alignment = model.align(text, explanation.answer, layer=demo.layer)
        # Without the row and column of the end-of-sequence token.
        source, rows = alignment.source[:-1], alignment.target[:-1]
        weights = alignment.weights[:-1, :-1].tolist()
        show(f"{text}  ->  {explanation.answer}\n")
        show(attention_in_terminal(source, rows, weights) + "\n")
        for character in filter(demo.polyphones.__contains__, text):
            show(demo.texts.polyphone.format(**_context_of(character, explanation)))
    page = model.path / "explain.html"
    content = page_of([explanation.packed() for explanation in explained])
    page.write_text(content, encoding="utf-8", newline="\n")
    return page


def _context_of(token: str, explained: Explanation) -> dict[str, Any]:
    """The encoder head that attends most from a token to another token, and the latter."""
    source = explained.sequences["source"]
    position = source.index(token)
    encoder = [
        attention
        for attention in explained.attention
        if attention.rows == attention.columns == "source"
    ]
    weight, layer, head, other = max(
        (float(weight), layer, head, other)
        for layer, attention in enumerate(encoder, 1)
        for head, rows in enumerate(attention.weights, 1)
        for other, weight in zip(source[:-1], rows[position], strict=False)
        if other != token
    )
    return {"token": token, "other": other, "layer": layer, "head": head, "weight": weight}
