"""`transduce shortlist`: learn the target tokens that sources can need."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter, validators

from transduce.cli.options import Count
from transduce.cli.output import print_lines
from transduce.errors import RunError

Natural = Annotated[int, Parameter(validator=validators.Number(gte=0))]


def shortlist(run: Path, /, *, likely: Count = 50, frequent: Natural = 200) -> None:
    """Learn which few target tokens a source can need, for faster translation.

    Keeps it in the run directory, and prints which share of the tokens of the validation targets
    it covers, and how many tokens a sentence may use on average.

    Parameters
    ----------
    run
        A run directory.
    likely
        Target tokens for each source token.
    frequent
        Most frequent target tokens, for all sentences.
    """
    import transduce
    from transduce.tasks.translation.data import training_pairs
    from transduce.tasks.translation.recipe import read_pairs_of
    from transduce.tasks.translation.shortlist import coverage, learn_shortlist, save_shortlist
    from transduce.tasks.translation.task import TrainedTranslator

    translator = transduce.load(run, "cpu").translator
    if not isinstance(translator, TrainedTranslator):
        raise RunError(f"{run} does not say what it was trained on")
    recipe, source, target = translator.recipe, translator.source, translator.target
    pairs = training_pairs(recipe, source, target, run.resolve().parent / ".cache")
    learnt = learn_shortlist(pairs, source, target, likely, frequent)
    found = coverage(learnt, source, target, read_pairs_of(recipe.data, "valid"))
    print_lines(
        str(save_shortlist(learnt, run)),
        f"covers {100 * found.covered:.2f} % of the tokens of the validation targets, with "
        f"{found.size:.0f} of {target.size} tokens a sentence",
    )
