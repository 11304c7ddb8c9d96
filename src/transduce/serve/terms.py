"""Terms of a glossary, as constraints of the sentences that they occur in."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from transduce.decoding.options import MOST_PHRASES
from transduce.text.scripts import is_unspaced

Constraint = str | tuple[str, ...]
"""A phrase that is in the output, or phrases of which any is."""


class Terms:
    """Source terms with their translations.

    A term is found as a whole word, also with a capital at its beginning; of two that overlap the
    longer counts.  Its translation is in the output as given; with a capital at its beginning only
    if it has none and the term begins the sentence.

    form: of terms and sentences when they are compared, such as lower case.
    """

    def __init__(self, entries: Mapping[str, str], form: Callable[[str], str] = str) -> None:
        targets = {capitalised(term): target for term, target in entries.items()} | {**entries}
        self._targets = {form(term): target for term, target in targets.items()}
        self._lengths = sorted(set(map(len, self._targets)), reverse=True)
        self._form = form

    def constraints(self, text: str) -> tuple[Constraint, ...]:
        """For each term in a sentence its translation, each once, at most `MOST_PHRASES`."""
        text = self._form(text)
        # By the parts of the text, since a glossary may have many more terms.
        parts = (text[i : i + n] for n in self._lengths for i in range(len(text) - n + 1))
        present = dict.fromkeys(part for part in parts if part in self._targets)
        if not present:
            return ()
        pattern = "|".join(map(as_words, present))
        first = next((i for i, c in enumerate(text) if c.isalnum()), 0)
        spellings: dict[str, Constraint] = {}
        for match in re.finditer(pattern, text):
            target = self._targets[match[0]]
            may_begin = match.start() <= first and target.islower()
            both = (target, capitalised(target)) if may_begin else (target,)
            spellings.setdefault(target, tuple(dict.fromkeys(both)))
        return tuple(spellings.values())[:MOST_PHRASES]


def capitalised(text: str) -> str:
    """A text with a capital at its beginning."""
    return text[:1].upper() + text[1:]


def as_words(term: str) -> str:
    """Pattern of a term that no word goes on before or after, in scripts with spaces."""
    before = r"(?<!\w)" if _is_of_a_word(term[0]) else ""
    after = r"(?!\w)" if _is_of_a_word(term[-1]) else ""
    return before + re.escape(term) + after


def _is_of_a_word(character: str) -> bool:
    return character.isalnum() and not is_unspaced(character)
