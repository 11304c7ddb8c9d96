"""Error rates of sequences of symbols: phones, words and characters, of texts and of speech.

An item may have several equally right references (a word with several pronunciations).  Two fields
use "WER" differently: see `item_error_rate` (spelling to sound) and `word_error_rate` (speech).
"""

import unicodedata
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Literal

from transduce.metrics.case import caseless
from transduce.metrics.metric import RatioMetric, check_comparisons, mean_of_best


def accuracy() -> RatioMetric:
    """Share of items with a hypothesis equal to one of the references."""
    return RatioMetric("accuracy", mean_of_best(_same_symbols), higher_is_better=True)


def item_error_rate() -> RatioMetric:
    """Share of items with a hypothesis equal to none of the references: 100 - accuracy.

    Called word error rate in grapheme-to-phoneme conversion, where an item is a word; not the word
    error rate of speech.
    """
    right = mean_of_best(_same_symbols)
    return RatioMetric(
        "wer", lambda hypothesis, accepted: (1 - right(hypothesis, accepted)[0], 1.0)
    )


def _same_symbols(hypothesis: str, reference: str) -> bool:
    return hypothesis.split() == reference.split()


def edit_rate(
    name: str, units: Callable[[str], Sequence[str]] = str.split, details: str = ""
) -> RatioMetric:
    """Edits per symbol of the reference; above 100 with many insertions.

    Edits are the insertions, deletions and substitutions (Levenshtein 1966) to the closest of the
    item's references; of equally close references the longest counts.  With phones it is the phone
    error rate (PER), with words the word error rate of speech, with characters the character error
    rate (CER).  details: as in `RatioMetric`.

    name: of the metric.  units: splits a text into symbols.
    """

    def edits_and_length(hypothesis: str, accepted: Sequence[str]) -> tuple[float, float]:
        written = units(hypothesis)
        choices = [units(reference) for reference in accepted]
        pairs = ((edit_distance(written, choice), len(choice)) for choice in choices)
        return min(pairs, key=lambda pair: (pair[0], -pair[1]))

    return RatioMetric(name, edits_and_length, details=details)


def word_error_rate(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    """Word error rate of speech recognition: word edits per reference word, in percent; with case
    and punctuation, unlike "word-error-rate" of `METRICS`."""
    metric = edit_rate("word_error_rate")
    return metric.score(metric.statistics(hypotheses, references).sum(0))


def edit_distance(a: Sequence[Hashable], b: Sequence[Hashable]) -> int:
    """Minimum number of insertions, deletions and substitutions that turn `a` into `b`.  Raises
    TooLongError as `check_comparisons`."""
    from rapidfuzz.distance import Levenshtein

    check_comparisons(a, b)
    return int(Levenshtein.distance(a, b))


def group_by_source(pairs: Iterable[tuple[str, str]]) -> tuple[list[str], list[list[str]]]:
    """Each source once, in order of first appearance, with the list of its different targets."""
    groups: dict[str, dict[str, None]] = {}
    for source, target in pairs:
        groups.setdefault(source, {})[target] = None
    return list(groups), [list(targets) for targets in groups.values()]


APOSTROPHES = "'\N{RIGHT SINGLE QUOTATION MARK}"
NORMALISATION = "case:folded|punct:removed|unicode:NFKC"


def normalise(text: str, language: str = "") -> str:
    """Text as recognisers are compared by: NFKC, case folded, punctuation and symbols as spaces,
    but a straight apostrophe between letters."""
    folded = caseless(unicodedata.normalize("NFKC", text), language)
    return " ".join("".join(_kept(folded, i) for i in range(len(folded))).split())


def _kept(text: str, i: int) -> str:
    if text[i] in APOSTROPHES:
        inside = text[i - 1 : i].isalnum() and text[i + 1 : i + 2].isalnum()
        return "'" if inside else " "
    return " " if unicodedata.category(text[i])[0] in "PS" else text[i]


def speech_error_rate(unit: Literal["word", "character"], language: str = "") -> RatioMetric:
    """Edits per word or character, spaces too, of the reference, as of `edit_rate`, after
    `normalise`."""
    spaces = "|spaces:counted" if unit == "character" else ""

    def units(text: str) -> Sequence[str]:
        plain = normalise(text, language)
        return plain.split() if unit == "word" else plain

    return edit_rate(f"{unit}-error-rate", units, f"nrefs:{{nrefs}}|{NORMALISATION}{spaces}")
