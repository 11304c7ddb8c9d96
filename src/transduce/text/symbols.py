"""Tokenizer of symbols separated by white space, such as the phones of "HH AH L OW"."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from transduce.settings.sections import section
from transduce.text.listed import ListedConfig, ListedTokenizer


@section
class SymbolsConfig(ListedConfig):
    """Settings of a tokenizer with one token per word between white space."""

    kind: Literal["symbols"] = "symbols"


class SymbolTokenizer(ListedTokenizer):
    """One token per string between white space; a run of white space counts as one space."""

    kind = "symbols"
    outputs = "symbols"
    separator = " "

    @classmethod
    def split(cls, text: str) -> Sequence[str]:
        """Split a text at white space."""
        return text.split()
