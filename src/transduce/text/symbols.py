"""Symbols written with white space between them, such as the phones of "HH AH L OW"."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from transduce.config import section
from transduce.text.listed import ListedConfig, ListedTokenizer


@section
class SymbolsConfig(ListedConfig):
    """Settings of a tokenizer that makes every word between white space a token."""

    kind: Literal["symbols"] = "symbols"


class SymbolTokenizer(ListedTokenizer):
    """Every string between white space is a token; any run of white space is one space."""

    kind = "symbols"
    outputs = "symbols"
    separator = " "

    @classmethod
    def split(cls, text: str) -> Sequence[str]:
        """The strings between white space."""
        return text.split()
