"""Hotwords: phrases whose tokens gain a bonus in the search; a match that breaks gives it back."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple

from transduce.decoding.constraint_trie import ConstraintState, ConstraintTrie, Phrase

if TYPE_CHECKING:
    from torch import Tensor


class Match(NamedTuple):
    """Node of a hypothesis; `fresh` right behind a phrase that a longer word would undo."""

    node: int = 0
    fresh: bool = False


class Hotwords(ConstraintTrie):
    """Bonuses of next tokens, for tokens that begin or continue a phrase (contextual biasing).

    Of a phrase that breaks off, the bonus of its tokens is taken back; of a whole one it stays.
    """

    def __init__(
        self, phrases: Sequence[Phrase], bonus: float, continues: Collection[int] = frozenset()
    ) -> None:
        """bonus: of each token.  continues: tokens that make the word before them longer."""
        super().__init__([[phrase] for phrase in phrases], continues)
        self.bonus = bonus
        self.most = bonus * max(len(phrase.ids) for phrase in phrases)
        pairs = [(n, child) for n, some in enumerate(self._children) for child in some.values()]
        self._depth, self._whole = [0] * (1 + len(pairs)), [0] * (1 + len(pairs))
        for node, child in pairs:  # parents first
            self._depth[child] = self._depth[node] + 1
        for node, child in pairs:
            at = child
            while at and self._met[at] == self._met[self._fail[at]]:
                at = self._fail[at]  # until a phrase of as many tokens ends
            self._whole[child] = max(self._whole[node], self._depth[at])

    def match(self, ids: Sequence[int]) -> Match:
        """The match at the end of an output."""
        match = Match()
        for token in ids:
            match = self._after(match, token)
        return match

    def gain(self, match: Match, token: int) -> float:
        """Bonus of a token, negative if it ends a match."""
        if token in self._children[match.node]:
            return self.bonus
        undone = self._whole[match.node] if match.fresh and token in self.continues else 0
        begun = self._depth[self._after(match, token).node]
        return self.bonus * (begun - self._pending(match.node) - undone)

    def add_to(self, row: Tensor, match: Match) -> None:
        """Add the bonus of every next token to a row (v)."""
        tokens = {*self._children[match.node], *self._children[0]}
        node = match.node
        while node := self._fail[node]:
            tokens.update(self._children[node])
        row -= self.bonus * self._pending(match.node)
        if match.fresh:
            row[self.continuing] -= self.bonus * self._whole[match.node]
        for token in tokens:
            row[token] = self.gain(match, token)

    def _after(self, match: Match, token: int) -> Match:
        node = match.node
        if token not in self._children[node] and not self._pending(node):
            node = 0  # tokens of a whole phrase do not begin another
        after = self.next(ConstraintState(node), token)
        return Match(after.node, bool(after.fresh))

    def _pending(self, node: int) -> int:
        """Tokens of a phrase that has begun."""
        return self._depth[node] - self._whole[node]
