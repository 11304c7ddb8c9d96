"""`transduce calibrate` and `transduce shortlist`: learn beside a translation run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter, validators

from transduce.cli.options import (
    AS_IN_RECIPE,
    Count,
    Decoding,
    Flag,
    Machine,
    chosen_options,
    with_decoding,
)
from transduce.cli.output import print_json, print_lines

if TYPE_CHECKING:
    from transduce.decoding.options import DecodingOptions
    from transduce.tasks.recipe import Split
    from transduce.tasks.translation.quality_estimation import Confidence
    from transduce.tasks.translation.translator import Translator


@with_decoding("translation")
def calibrate(
    run: Path,
    /,
    *,
    json: Flag = False,
    decoding: Decoding = AS_IN_RECIPE,
    machine: Machine = Machine(),
) -> None:
    """Fit reference-free quality estimation for a translation run.

    Translates the validation set, fits sentence chrF to the model's confidence features and saves
    the estimator in the run directory, for `translate --jsonl --confidence`. Prints the correlation
    with chrF on the test set, beside the mean log-probability as baseline.

    Parameters
    ----------
    run
        Run directory of a translation model.
    json
        Print a JSON object.
    """
    from transduce.tasks.recipe import has_split
    from transduce.tasks.translation.quality_estimation import (
        correlation,
        fit_quality,
        save_quality,
    )

    translator = machine.load(run).translator
    options = chosen_options(translator, decoding)
    known, scores = _confidence_and_chrf(translator, "valid", options)
    quality = fit_quality(known, scores)
    facts: dict[str, Any] = {"fitted_on": len(known)}
    if has_split(translator.recipe.data, "test"):
        known, scores = _confidence_and_chrf(translator, "test", options)
        plain = correlation([c.mean_log_prob for c in known], scores)
        facts["test"] = {
            "pairs": len(known),
            **correlation(quality.estimate(known), scores)._asdict(),
            "mean_absolute_error": float(abs(quality.estimate(known) - scores).mean()),
            "mean_log_prob": plain._asdict(),
        }
    save_quality(quality, run, facts)
    if json:
        print_json(facts)
    else:
        print_lines(_as_text(facts))


def _confidence_and_chrf(
    translator: Translator, split: Split, options: DecodingOptions
) -> tuple[list[Confidence], Any]:
    """Confidence features and chrF (n,) of each output of a split."""
    from transduce.tasks.predictors import MEASURED_TOGETHER
    from transduce.tasks.translation.quality_estimation import confidences, sentence_chrf
    from transduce.tasks.translation.recipe import read_pairs_of
    from transduce.tasks.translation.translator import references_by_source

    pairs = read_pairs_of(translator.recipe.data, split)
    sources, references = references_by_source(pairs, translator.target)
    known, hypotheses, expected = [], [], []
    for first in range(0, len(sources), MEASURED_TOGETHER):
        texts = sources[first : first + MEASURED_TOGETHER]
        translations = translator.translate_lines(texts, options, first)
        sure = confidences(translator, texts, translations)
        for translation, confidence, reference in zip(
            translations, sure, references[first : first + len(texts)], strict=True
        ):
            if confidence is not None:
                known.append(confidence)
                hypotheses.append(translation.text)
                expected.append(reference)
    return known, sentence_chrf(hypotheses, expected)


def _as_text(facts: dict[str, Any]) -> str:
    lines = [f"fitted on {facts['fitted_on']} validation pairs"]
    if test := facts.get("test"):
        plain = test["mean_log_prob"]
        lines += [
            f"on {test['pairs']} test pairs    Pearson  Spearman",
            f"quality, with chrF   {test['pearson']:7.3f}   {test['spearman']:7.3f}",
            f"mean log-probability {plain['pearson']:7.3f}   {plain['spearman']:7.3f}",
            f"mean absolute error  {test['mean_absolute_error']:7.2f}",
        ]
    return "\n".join(lines)


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
    from transduce.tasks.translation.recipe import read_pairs_of
    from transduce.tasks.translation.shortlist import coverage, learn_shortlist, save_shortlist
    from transduce.tasks.translation.training import training_pairs
    from transduce.training.weight_files import cache_of

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
