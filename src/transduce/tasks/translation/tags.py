"""Warnings of sources without the tags of the training data."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from transduce.data.pairs import ParallelFiles, mark
from transduce.tasks.translation.recipe import DataConfig
from transduce.text import Tokenizer
from transduce.text.characters import CharacterTokenizer, leading_tags

logger = logging.getLogger("transduce")

NAMED = 40
"""Limit on the tags listed in a message."""


class ExpectedTags:
    """Warns once if a source has no tag, or an unknown one, which may be a typo."""

    def __init__(self, data: DataConfig, source: Tokenizer) -> None:
        """data: training data. Tags are expected if all of it has them."""
        corpora = [part.train for part, _ in data.corpora() if part.train is not None]
        by_column = [not isinstance(p, ParallelFiles) and bool(p.tag_columns) for p in corpora]
        self.used = any(by_column) or any(pairs.tag for pairs in corpora)
        """True if any training data has tags."""
        self._expected = bool(corpora) and all(
            pairs.tag or columns for pairs, columns in zip(corpora, by_column, strict=True)
        )
        self._normalize = source.normalizer.apply
        self._known: list[str] = []
        """Known tags; empty if they are not recorded."""
        if isinstance(source, CharacterTokenizer):
            self._known = sorted(source.tags)
        elif not any(by_column):
            self._known = sorted({self._normalize(mark(pairs.tag)) for pairs in corpora})

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
