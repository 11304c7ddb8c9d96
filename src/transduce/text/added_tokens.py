"""Tokens added to an imported tokenizer: strings that are found before all else."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from transduce.settings.sections import section


@section
class AddedToken:
    """A string that is one token, with its matching rules."""

    content: str
    single_word: bool = False
    """Match only as a whole word."""
    lstrip: bool = False
    """Include the spaces before it."""
    rstrip: bool = False
    """Include the spaces after it."""
    normalized: bool = False
    """Match in the normalised text instead of the original."""
    special: bool = False
    """A control token for the model, such as a role mark, not a word."""


class AddedTokens:
    """Split texts at added tokens as `transformers` does without the library `tokenizers`: the
    leftmost first, and the longest of those with the same start."""

    def __init__(self, tokens: Iterable[AddedToken]) -> None:
        self._tokens: Mapping[str, AddedToken] = {t.content: t for t in tokens if t.content}
        longest_first = sorted(self._tokens, key=len, reverse=True)
        self._pattern = re.compile(f"({'|'.join(map(re.escape, longest_first))})")

    def split(self, text: str) -> list[tuple[str, bool]]:
        """Parts of a text, none of them empty; True beside added tokens."""
        if not self._tokens:
            return [(text, False)] if text else []
        parts = [part for part in self._pattern.split(text) if part]
        for i in range(len(parts)):
            if (token := self._tokens.get(parts[i])) is not None:
                self._strip_around(token, parts, i)
        return [(part, part in self._tokens) for part in parts if part]

    @staticmethod
    def _strip_around(token: AddedToken, parts: list[str], i: int) -> None:
        """Adjust the parts around the token at `i`, and join it with them if it is not a word."""
        before = parts[i - 1] if i > 0 else ""
        after = parts[i + 1] if i + 1 < len(parts) else ""
        if token.rstrip and after:
            parts[i + 1] = after.lstrip()
        if token.lstrip and before:
            parts[i - 1] = before.rstrip()
        if not token.single_word:
            return
        if before and before[-1] != " ":
            parts[i - 1] += token.content
            parts[i] = ""
        elif after and after[0] != " ":
            parts[i + 1] = token.content + parts[i + 1]
            parts[i] = ""
