"""Explanations of answers that are computed without some heads or source tokens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

from transduce.errors import SettingError
from transduce.explain.explanation import Explanation
from transduce.explain.knock_out import knock_out
from transduce.explain.parts import KnockOut


@runtime_checkable
class TokenReader(Protocol):
    """A predictor with a source of tokens."""

    def source_pieces(self, text: str) -> list[list[int]]:
        """The source ids of a text, in the pieces that it is translated in."""


def explain_without(
    explain: Callable[[Any, tuple[str, ...]], Explanation],
    predictor: Any,
    parts: tuple[str, ...],
    what: KnockOut,
) -> Explanation:
    """The explanation of the answer without these heads and tokens.

    Without tokens there is no work by hand, which does not support hidden keys.  Raises
    SettingError for missing heads and tokens, and for tokens of another task than translation.
    """
    if not what:
        return explain(predictor, parts)
    if what.tokens:
        _check_tokens(predictor, parts, what.tokens)
    with knock_out(predictor.model, what):
        explanation = explain(predictor, parts)
    return replace(explanation, by_hand=()) if what.tokens else explanation


def _check_tokens(predictor: Any, parts: tuple[str, ...], tokens: tuple[int, ...]) -> None:
    """Raises SettingError for numbers of tokens that the piece of a source does not have."""
    if not isinstance(predictor, TokenReader):
        raise SettingError("tokens can be left out of the source of a translation only")
    pieces = predictor.source_pieces(parts[0])
    if len(pieces) > 1:
        raise SettingError(
            f"the text is translated in {len(pieces)} pieces; leave tokens out of a shorter text"
        )
    count = len(pieces[0]) + 1 if pieces else 0  # with the end
    for number in tokens:
        if not 1 <= number <= count:
            raise SettingError(f"token {number} is not one of the {count} tokens of the source")
    if len(set(tokens)) == count:
        raise SettingError("all tokens of the source are left out; keep one")
