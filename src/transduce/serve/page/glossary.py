"""Glossary of a request: terms of the source, and their required translations."""

from __future__ import annotations

import re
from functools import lru_cache

from transduce.decoding.options import MOST_PHRASES
from transduce.serve.errors import invalid
from transduce.serve.requests import texts_of
from transduce.serve.terms import as_words

MAX_TERMS = 200

Entries = tuple[tuple[str, str], ...]


def read_terms(given: object) -> Entries:
    """Pairs (source term, its translation).  Raises RequestError for others; blank ones are left
    out."""
    if given is None:
        return ()
    if not isinstance(given, list) or len(given) > MAX_TERMS:
        raise invalid(f"glossary is not a list of at most {MAX_TERMS} pairs")
    found = []
    for number, pair in enumerate(given, 1):
        texts = texts_of(pair)
        if texts is None or len(texts) != 2:
            raise invalid(f"glossary entry {number} is not a pair of texts")
        source, target = (text.strip() for text in texts)
        if source and target:
            found.append((source, target))
    return tuple(found)


def required_by(terms: Entries, sentence: str) -> tuple[str, ...]:
    """Translations of the terms that a sentence has as whole words, in any case."""
    found = [target for source, target in terms if _pattern(source).search(sentence)]
    return tuple(dict.fromkeys(found))[:MOST_PHRASES]


@lru_cache(maxsize=1024)
def _pattern(term: str) -> re.Pattern[str]:
    return re.compile(as_words(term), re.IGNORECASE)
