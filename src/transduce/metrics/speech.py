"""Word and character error rates of speech, after normalising both sides."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from transduce.metrics.metric import Statistics
from transduce.metrics.symbols import edit_rate, edit_statistics

APOSTROPHES = "'\N{RIGHT SINGLE QUOTATION MARK}"
NORMALISATION = "case:folded|punct:removed|unicode:NFKC"


def normalise(text: str) -> str:
    """Text as recognisers are compared by: NFKC, case folded, punctuation and symbols as spaces.

    An apostrophe between letters stays, as a straight one; other signs separate words.
    """
    folded = unicodedata.normalize("NFKC", text).casefold()
    return " ".join("".join(_kept(folded, i) for i in range(len(folded))).split())


def _kept(text: str, i: int) -> str:
    if text[i] in APOSTROPHES:
        inside = text[i - 1 : i].isalnum() and text[i + 1 : i + 2].isalnum()
        return "'" if inside else " "
    return " " if unicodedata.category(text[i])[0] in "PS" else text[i]


@dataclass(frozen=True)
class SpeechErrorRate:
    """Edits per word or character of the reference, in percent, after `normalise`.

    Edits are insertions, deletions and substitutions (Levenshtein 1966) to the closest of the
    item's references, summed over all items before dividing.  A space is a character.
    """

    unit: Literal["word", "character"]
    higher_is_better: bool = False

    @property
    def name(self) -> str:
        """Key of `METRICS`."""
        return f"{self.unit}-error-rate"

    def statistics(
        self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]
    ) -> Statistics:
        """(n, 2): edits to the closest reference, and its length.

        Raises DataError as `check_items` does.
        """
        return edit_statistics(hypotheses, references, self._units)

    def score(self, sums: Statistics) -> float:
        """Edits in percent of the references' length, as `edit_rate`."""
        return edit_rate(sums)

    def signature(self, references: Sequence[Sequence[str]]) -> str:
        """Number of references, and the normalisation."""
        counts = {len(item) for item in references}
        number = str(counts.pop()) if len(counts) == 1 else "var"
        spaces = "|spaces:counted" if self.unit == "character" else ""
        return f"nrefs:{number}|{NORMALISATION}{spaces}"

    def _units(self, text: str) -> Sequence[str]:
        plain = normalise(text)
        return plain.split() if self.unit == "word" else plain
