"""Warnings of sources without the tags of the training data."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from transduce.text import Tokenizer
from transduce.text.characters import CharacterTokenizer, leading_tags, mark

logger = logging.getLogger("transduce")

NAMED = 40
"""Limit on the tags listed in a message."""


class CorpusTags(NamedTuple):
    """Tags of a corpus of training data: the same for all of it, and from columns of its rows."""

    tag: str
    from_columns: bool


def expected_tags(corpora: Sequence[CorpusTags], source: Tokenizer) -> ExpectedTags | None:
    """The tags of sources, as in the training data; None where these have none."""
    return ExpectedTags(corpora, source) if any(map(any, corpora)) else None


class ExpectedTags:
    """Warns once if a source has no tag, or an unknown tag, which may be a typo."""

    def __init__(self, corpora: Sequence[CorpusTags], source: Tokenizer) -> None:
        """corpora: the training data. Tags are expected if all of it has them."""
        self._expected = bool(corpora) and all(map(any, corpora))
        self._normalize = source.normalizer.apply
        self._known: list[str] = []
        """Known tags; empty if they are not recorded."""
        if isinstance(source, CharacterTokenizer):
            self._known = sorted(source.tags)
        elif not any(corpus.from_columns for corpus in corpora):
            self._known = sorted({self._normalize(mark(corpus.tag)) for corpus in corpora})

    def check(self, texts: Iterable[str], first: int = 0) -> None:
        """Warn of the first text with a wrong beginning, if none was warned of before.

        first: number of the first text in a longer input.
        """
        if not self._expected:
            return
        for line, text in enumerate(texts, first + 1):
            problem = self._problem(text) if text.strip() else ""
            if problem:
                logger.warning("line %d %s; further lines are not reported", line, problem)
                self._expected = False
                return

    def _problem(self, text: str) -> str:
        tags = leading_tags(self._normalize(text))
        named = ", ".join(tag.strip() for tag in self._known[:NAMED])
        if len(self._known) > NAMED:
            named += ", ..."
        if not tags:
            such = f": {named}" if named else ""
            return f"has no tag, but this model was trained with tags{such}"
        unknown = [tag.strip() for tag in tags if self._known and tag not in self._known]
        return f"has the unknown tag {unknown[0]}; known are {named}" if unknown else ""
