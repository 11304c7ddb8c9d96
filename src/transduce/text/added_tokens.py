"""Tokens added to an imported tokenizer: strings that are found before all else."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from transduce.config import section


@section
class AddedToken:
    """A string that is one token, and the rules by which it is found."""

    content: str
    single_word: bool = False
    """Found only as a whole word."""
    lstrip: bool = False
    """Takes the spaces before it along."""
    rstrip: bool = False
    """Takes the spaces after it along."""
    normalized: bool = False
    """Looked for in the normalised text instead of the text as written."""
    special: bool = False
    """A sign for the model, such as the one of a speaker, not a word."""


class AddedTokens:
    """Cuts texts at added tokens as `transformers` does without the library `tokenizers`.

    The leftmost token is found first, and the longest of those that begin in one place.
    """

    def __init__(self, tokens: Iterable[AddedToken]) -> None:
        self._tokens: Mapping[str, AddedToken] = {t.content: t for t in tokens if t.content}
        longest_first = sorted(self._tokens, key=len, reverse=True)
        self._pattern = re.compile(f"({'|'.join(map(re.escape, longest_first))})")

    def split(self, text: str) -> list[tuple[str, bool]]:
        """The parts of a text, none of them empty; True beside those that are added tokens."""
        if not self._tokens:
            return [(text, False)] if text else []
        parts = [part for part in self._pattern.split(text) if part]
        for i in range(len(parts)):
            if (token := self._tokens.get(parts[i])) is not None:
                self._strip_around(token, parts, i)
        return [(part, part in self._tokens) for part in parts if part]

    @staticmethod
    def _strip_around(token: AddedToken, parts: list[str], i: int) -> None:
        """Change the parts around the token at `i`, and join it with them where it is no word."""
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
