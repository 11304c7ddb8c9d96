"""`transduce calibrate`: learn to estimate translation quality without a reference."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from transduce.cli.options import (
    AS_IN_RECIPE,
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
    from transduce.tasks.translation.confidence import Confidence
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
    from transduce.tasks.splits import has_split
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
    from transduce.tasks.translation.confidence import confidences
    from transduce.tasks.translation.evaluation import references_by_source
    from transduce.tasks.translation.quality_estimation import sentence_chrf
    from transduce.tasks.translation.recipe import read_pairs_of

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
