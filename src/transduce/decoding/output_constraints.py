"""Output constraints of each sentence, and the hooks that callers add to a search."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from transduce.decoding.banned_phrases import BannedPhrases
from transduce.decoding.constraint_trie import ConstraintState, ConstraintTrie, Phrase
from transduce.decoding.hotwords import Hotwords
from transduce.decoding.options import DecodingOptions
from transduce.decoding.token_surfaces import TokenSurfaces, last_is_letter
from transduce.errors import SettingError

if TYPE_CHECKING:
    from torch import Tensor

    from transduce.decoding.filters import Filter

logger = logging.getLogger("transduce")


@dataclass(frozen=True)
class OutputConstraints:
    """Constraints on the output of a sentence: ids that it starts with, before every other rule;
    phrases that it contains, where its length allows that; phrases that it does not contain; tokens
    before its end; phrases with a bonus."""

    prefix: tuple[int, ...] = ()
    trie: ConstraintTrie | None = None
    banned: BannedPhrases | None = None
    min_length: int = 0
    hotwords: Hotwords | None = None

    @property
    def min_tokens(self) -> int:
        """Tokens that suffice to meet the constraints."""
        needed = 0 if self.trie is None else self.trie.needed(ConstraintState())
        return len(self.prefix) + needed

    def warn_unless_met_by(
        self, tokens: Sequence[int], output: str, reason: str = "other options may rule it out"
    ) -> None:
        """Warn if an output, named by `output`, does not contain all phrases."""
        if not self.is_met_by(tokens):
            logger.warning("%s does not meet its constraints: %s", output, reason)

    def is_met_by(self, tokens: Sequence[int]) -> bool:
        """True if an output contains all phrases."""
        if self.trie is None:
            return True
        progress = ConstraintState()
        for token in tokens:
            progress = self.trie.next(progress, token)
        return self.trie.is_done(progress)


@dataclass(frozen=True)
class SearchHooks:
    """Hooks into `search`.

    sentence_constraints: (n), if any.  token_bonus: (r, v), for a state after its step, added to
    the log-probability of the next token for ranking, and end_bonus (r,), to the score; at most 0.
    filters: further rules of the next token, after all others but a forced prefix and before the
    bonus.
    """

    sentence_constraints: Sequence[OutputConstraints] = ()
    token_bonus: Callable[[Any], Tensor] | None = None
    end_bonus: Callable[[Any], Tensor] | None = None
    filters: Sequence[Filter] = ()


NO_HOOKS = SearchHooks()


def constraints_of(
    options: DecodingOptions, token_surfaces: Callable[[], TokenSurfaces]
) -> OutputConstraints:
    """Constraints that options set for every sentence; `token_surfaces` is called where needed.
    Raises SettingError for phrases that the vocabulary cannot spell, or that contain banned
    phrases."""
    if not (options.prefix or options.constraints or options.avoid or options.hotwords):
        return OutputConstraints()
    hotwords = (options.hotwords, options.hotword_bonus)
    return _constraints(
        options.prefix, options.constraints, options.avoid, hotwords, token_surfaces()
    )


@functools.lru_cache(maxsize=64)  # lines in a row often ask for the same
def _constraints(
    prefix: str,
    constraints: tuple[str | tuple[str, ...], ...],
    banned: tuple[str, ...],
    hotwords: tuple[tuple[str, ...], float],
    token_surfaces: TokenSurfaces,
) -> OutputConstraints:
    ruled_out = BannedPhrases(banned, token_surfaces) if banned else None
    trie = None
    if constraints:
        alternatives = dict.fromkeys((c,) if isinstance(c, str) else c for c in constraints)
        sayable = [_sayable(texts, ruled_out, token_surfaces) for texts in alternatives]
        trie = ConstraintTrie(sayable, token_surfaces.continues)
    texts, bonus = hotwords
    phrases = [_phrase(text, token_surfaces, "hotwords") for text in dict.fromkeys(texts)]
    boosted = Hotwords(phrases, bonus, token_surfaces.continues) if phrases else None
    return OutputConstraints(token_surfaces.prefix(prefix), trie, ruled_out, hotwords=boosted)


def _sayable(
    texts: Sequence[str], banned: BannedPhrases | None, token_surfaces: TokenSurfaces
) -> list[Phrase]:
    every = [_phrase(text, token_surfaces) for text in texts]
    allowed = [phrase for phrase in every if banned is None or not banned.is_in(phrase.ids)]
    if not allowed:
        named = " or ".join(map(repr, texts))
        raise SettingError(f"constraints: {named} is banned by avoid; remove it there")
    return allowed


def _phrase(text: str, token_surfaces: TokenSurfaces, setting: str = "constraints") -> Phrase:
    ids = token_surfaces.phrase(text, setting)
    return Phrase(ids, last_is_letter(token_surfaces.text_of(ids)))
