"""`transduce shortlist`: learn the target tokens that sources can need."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter, validators

from transduce.cli.options import Count
from transduce.cli.output import print_lines

Natural = Annotated[int, Parameter(validator=validators.Number(gte=0))]


def shortlist(run: Path, /, *, likely: Count = 50, frequent: Natural = 200) -> None:
    """Learn a vocabulary shortlist for faster translation.

    Learns the likely target tokens of each source token from the training data, for
    `translate --shortlist`, and saves them in the run directory. Prints the coverage of the
    validation targets and the mean shortlist size.

    Parameters
    ----------
    run
        Run directory of a translation model.
    likely
        Likely target tokens per source token.
    frequent
        Most frequent target tokens, added for every sentence.
    """
    import transduce
    from transduce.tasks.common import cache_of
    from transduce.tasks.translation.data import training_pairs
    from transduce.tasks.translation.recipe import read_pairs_of
    from transduce.tasks.translation.shortlist import coverage, learn_shortlist, save_shortlist

    translator = transduce.load(run, "cpu").translator
    recipe, source, target = translator.recipe, translator.source, translator.target
    pairs = training_pairs(recipe, source, target, cache_of(run.resolve()))
    learnt = learn_shortlist(pairs, source, target, likely, frequent)
    reach = coverage(learnt, source, target, read_pairs_of(recipe.data, "valid"))
    print_lines(
        str(save_shortlist(learnt, run)),
        f"coverage {100 * reach.covered:.2f} % of validation target tokens, "
        f"mean size {reach.size:.0f} of {target.size} tokens",
    )
