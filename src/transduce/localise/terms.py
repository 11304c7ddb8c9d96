"""Terms of a glossary, as constraints of the sentences that they occur in."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from transduce.decoding.options import MOST_PHRASES
from transduce.errors import DataError
from transduce.localise.patterns import PLACEHOLDER
from transduce.text.scripts import is_of_word

Constraint = str | tuple[str, ...]
"""A phrase that is in the output, or phrases of which any is."""
Glossary = Callable[[str], Sequence[Constraint]]
"""Constraints of a sentence, by the terms in it."""
MOST_OF_A_TERM = 1000
"""Characters of a term."""


def no_glossary(sentence: str) -> Sequence[Constraint]:
    """The glossary without terms."""
    return ()


class Terms:
    """Source terms with their translations, both with `|` between their forms: any form of the
    term is found, and any of its translation is in the output.

    A term is found as a whole word outside of placeholders, also with a capital at its beginning;
    of two that overlap the longer counts.  Its translation is in the output as given; with a
    capital at its beginning only if it has none and the term begins the sentence.

    form: of terms and sentences when they are compared, such as lower case.
    """

    def __init__(self, entries: Mapping[str, str], form: Callable[[str], str] = str) -> None:
        forms = {f: target for term, target in entries.items() for f in term.split("|") if f}
        targets = {capitalised(term): target for term, target in forms.items()} | forms
        self._targets = {form(term): target for term, target in targets.items()}
        self._lengths = sorted(set(map(len, self._targets)), reverse=True)
        self._form = form

    def constraints(self, text: str) -> tuple[Constraint, ...]:
        """For each term in a sentence its translation, each once, at most `MOST_PHRASES`."""
        text = PLACEHOLDER.sub(lambda match: " " * len(match[0]), self._form(text))
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
            forms = [form for form in target.split("|") if form]
            both = (*forms, *map(capitalised, forms)) if may_begin else forms
            spellings.setdefault(target, tuple(dict.fromkeys(both)))
        return tuple(spellings.values())[:MOST_PHRASES]


def capitalised(text: str) -> str:
    """A text with a capital at its beginning."""
    return text[:1].upper() + text[1:]


def as_words(term: str) -> str:
    """Pattern of a term that no word goes on before or after, in scripts with spaces."""
    before = r"(?<!\w)" if is_of_word(term[0]) else ""
    after = r"(?!\w)" if is_of_word(term[-1]) else ""
    return before + re.escape(term) + after


def read_entries(text: str, is_csv: bool) -> dict[str, str]:
    """Entries from lines of source and target, between which is a tab, or in CSV a comma.

    Raises DataError with the number of the line.
    """
    entries: dict[str, str] = {}
    for number, (source, target) in enumerate(_rows(text, is_csv), 1):
        source, target = source.strip(), target.strip()
        if not source or not target:
            raise DataError(f"entry {number} of the glossary lacks a source or a target")
        if max(len(source), len(target)) > MOST_OF_A_TERM:
            raise DataError(f"entry {number} of the glossary exceeds {MOST_OF_A_TERM} characters")
        if source in entries:
            raise DataError(f"entry {number} of the glossary has the source of an earlier one")
        entries[source] = target
    if not entries:
        raise DataError("the glossary has no entries")
    return entries


def _rows(text: str, is_csv: bool) -> Iterator[tuple[str, str]]:
    if is_csv:
        rows: Iterator[list[str]] = csv.reader(io.StringIO(text))
    else:
        rows = (line.split("\t") for line in text.splitlines() if line.strip())
    try:
        for number, row in enumerate(filter(None, rows), 1):
            if len(row) < 2 or (len(row) > 2 and not is_csv):
                raise DataError(f"entry {number} of the glossary is not a source and a target")
            yield row[0], row[1]
    except csv.Error as error:
        raise DataError(f"the glossary is not CSV: {error}") from None
