"""What a run's sources hold that no training text had: whoever sends it is told."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from transduce.text import Tokenizer
from transduce.text.listed import ListedTokenizer
from transduce.text.offsets import token_spans
from transduce.text.tokenizer import UNK

logger = logging.getLogger("transduce")


class UnknownTokens:
    """Says once of a run's sources that one has unknown tokens: another case or script, say.

    They are read all the same, each as a token of which nothing was learnt.
    """

    def __init__(self, source: Tokenizer) -> None:
        self._source = source
        self._told = False

    def check(self, texts: Sequence[str], rows: Sequence[Sequence[int]], first: int = 0) -> None:
        """Warn of the first text with such tokens, if none was warned of before.

        rows: the ids of each text.  first: number of the first text in a longer input.
        """
        if self._told:
            return
        for line, (text, ids) in enumerate(zip(texts, rows, strict=True), first + 1):
            if UNK in ids and text.strip():  # a blank one is not translated
                message = "line %d: %d of %d tokens are unknown to this model, %r first; said once"
                logger.warning(message, line, ids.count(UNK), len(ids), self._named(text, ids))
                self._told = True
                return

    def _named(self, text: str, ids: Sequence[int]) -> str:
        if isinstance(self._source, ListedTokenizer):
            return next(self._source.unknown_units(text))
        start, end = token_spans(self._source, text, ids)[ids.index(UNK)]
        return text[start:end]
