"""Constraint trie: an automaton over token ids that finds the phrases an output contains, by
failure links (Aho and Corasick 1975): phrases may overlap, and leaving a partial match costs
nothing."""

from __future__ import annotations

import collections
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple


class Phrase(NamedTuple):
    """Token ids; `whole` unless a longer word matches too ("house" is not in "houses")."""

    ids: tuple[int, ...]
    whole: bool = False


class ConstraintState(NamedTuple):
    """Node of a hypothesis in the trie; met constraints, a bit each; those of them, `fresh`,
    undone by a token that continues the last word."""

    node: int = 0
    met: int = 0
    fresh: int = 0


class ConstraintTrie:
    """Constraints, each a phrase or any of several alternatives, that all must be met."""

    def __init__(
        self, constraints: Sequence[Sequence[Phrase]], continues: Collection[int] = frozenset()
    ) -> None:
        """continues: tokens that make the word before them longer."""
        assert all(phrase.ids for constraint in constraints for phrase in constraint)
        self.everything = (1 << len(constraints)) - 1
        self.continues = continues
        self.continuing = sorted(continues)
        self._shortest = [min(len(p.ids) for p in constraint) for constraint in constraints]
        self._children: list[dict[int, int]] = [{}]
        self._met = [0]  # by node: constraints met there
        self._met_for_good = [0]  # by node: those that the next token cannot undo
        self._begun: list[list[tuple[int, int]]] = [[]]  # by node: constraint, tokens left of it
        for number, constraint in enumerate(constraints):
            for phrase in constraint:
                self._add(number, phrase)
        self._fail = self._links()

    def next(self, progress: ConstraintState, token: int) -> ConstraintState:
        """State of a hypothesis after another token."""
        node, met, fresh = progress
        if fresh and token in self.continues:
            met &= ~fresh
        while node and token not in self._children[node]:
            node = self._fail[node]
        node = self._children[node].get(token, 0)
        new = self._met[node] & ~met
        return ConstraintState(node, met | new, new & ~self._met_for_good[node])

    def needed(self, progress: ConstraintState) -> int:
        """Tokens sufficient to meet the remaining constraints, phrase after phrase."""
        saved = 0
        for number, left in self._begun[progress.node]:
            if not progress.met >> number & 1:
                saved = max(saved, self._shortest[number] - left)
        return self.needed_anew(progress.met) - saved

    def needed_anew(self, met: int) -> int:
        """As `needed`, if none of the remaining phrases has begun."""
        return sum(n for number, n in enumerate(self._shortest) if not met >> number & 1)

    def is_done(self, progress: ConstraintState) -> bool:
        """True when every constraint is met."""
        return progress.met == self.everything

    def onward(self, progress: ConstraintState) -> Iterator[tuple[int, ConstraintState]]:
        """Tokens that begin or continue a phrase, and the nodes they lead to."""
        tokens: set[int] = set()
        node = progress.node
        while True:
            for token in self._children[node].keys() - tokens:
                yield token, self.next(progress, token)
            tokens |= self._children[node].keys()
            if not node:
                return
            node = self._fail[node]

    def undoes(self, progress: ConstraintState) -> bool:
        """True if a token that continues the last word would undo a met constraint."""
        return bool(progress.fresh and self.continuing)

    def _add(self, number: int, phrase: Phrase) -> None:
        node = 0
        for at, token in enumerate(phrase.ids, 1):
            if token not in self._children[node]:
                self._children[node][token] = len(self._children)
                self._children.append({})
                self._met.append(0)
                self._met_for_good.append(0)
                self._begun.append([])
            node = self._children[node][token]
            if at < len(phrase.ids):
                self._begun[node].append((number, len(phrase.ids) - at))
        self._met[node] |= 1 << number
        if not phrase.whole:
            self._met_for_good[node] |= 1 << number

    def _links(self) -> list[int]:
        """Failure links, to the longest proper suffix, whose matches a node inherits."""
        fail = [0] * len(self._children)
        waiting = collections.deque(self._children[0].values())
        while waiting:
            node = waiting.popleft()
            for token, child in self._children[node].items():
                waiting.append(child)
                at = fail[node]
                while at and token not in self._children[at]:
                    at = fail[at]
                fail[child] = self._children[at].get(token, 0)
                self._met[child] |= self._met[fail[child]]
                self._met_for_good[child] |= self._met_for_good[fail[child]]
                self._begun[child] += self._begun[fail[child]]
        return fail
