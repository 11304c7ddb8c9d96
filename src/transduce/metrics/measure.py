"""Table of metrics by name, and several of them at once."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

from transduce.errors import SettingError
from transduce.metrics.error_rates import accuracy, edit_rate, item_error_rate, speech_error_rate
from transduce.metrics.labels import MacroF1, answer_f1, exact_match
from transduce.metrics.metric import Metric, TooLongError
from transduce.metrics.translation import (
    SacreBleuMetric,
    bleu,
    bleu_tokenised_lowercased,
    chrf,
    rouge,
    ter,
)
from transduce.settings.sections import did_you_mean

logger = logging.getLogger("transduce")

# name -> how to make the metric for a target language;
# the metrics of symbols and labels know no language
METRICS: dict[str, Callable[[str], Metric]] = {
    "bleu": bleu,
    "bleu_tokenised_lowercased": bleu_tokenised_lowercased,
    "chrf": chrf,
    "ter": ter,
    "wer": lambda language: item_error_rate(),
    "per": lambda language: edit_rate("per"),
    "cer": lambda language: edit_rate("cer", tuple),
    "word-error-rate": lambda language: speech_error_rate("word", language),
    "character-error-rate": lambda language: speech_error_rate("character", language),
    "accuracy": lambda language: accuracy(),
    "macro-f1": lambda language: MacroF1(),
    "exact_match": exact_match,
    "f1": answer_f1,
    "rouge-1": lambda language: rouge("rouge-1", language),
    "rouge-2": lambda language: rouge("rouge-2", language),
    "rouge-l": lambda language: rouge("rouge-l", language),
}


def make_metric(name: str, language: str = "") -> Metric:
    """The named metric for a target language.  Raises SettingError for an unknown name."""
    check_metric(name)
    return METRICS[name](language)


def check_metric(name: str) -> None:
    """Raises SettingError, with the nearest name, for an unknown metric."""
    if name not in METRICS:
        hint = did_you_mean(name, METRICS) or f"; choose from {', '.join(METRICS)}"
        raise SettingError(f"{name!r} is not a metric{hint}")


def metrics_named(name: str) -> list[str]:
    """The metric of this name, or all that begin with it and a hyphen: "rouge-1" and others for
    "rouge".  Raises SettingError for none."""
    names = [name] if name in METRICS else [m for m in METRICS if m.startswith(f"{name}-")]
    if not names:
        check_metric(name)
    return names


def measure(
    names: Iterable[str],
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    language: str = "",
) -> dict[str, float | str]:
    """Compute each named metric of the whole corpus, in percent, with its signature.

    names: of metrics.  hypotheses: outputs, one for each item.  references: correct texts of each
    item.  language: code of the target language (`de`, `zh-CN`); it chooses tokenizers.  Returns
    {"bleu": 41.3, "bleu_signature": "nrefs:1|...", ...}; metrics with a single way of computing
    have no signature.  A metric for which an item is too long is skipped with a warning.  Raises
    SettingError for an unknown name, DataError for empty input or differing counts.
    """
    result: dict[str, float | str] = {}
    for metric in [make_metric(name, language) for name in names]:
        try:
            sums = metric.statistics(hypotheses, references).sum(0)
        except TooLongError as error:
            logger.warning("%s; skipping it", error)
            continue
        if isinstance(metric, SacreBleuMetric) and (caveat := metric.caveat(references)):
            logger.warning("%s", caveat)
        result[metric.name] = metric.score(sums)
        if signature := metric.signature(references):
            result[f"{metric.name}_signature"] = signature
    return result


def numeric_scores(measured: Mapping[str, float | str]) -> dict[str, float]:
    """Scores without the signatures of metrics."""
    return {name: score for name, score in measured.items() if isinstance(score, float)}
