"""Constraints of each output: phrases demanded, banned or favoured, independent of the split
into tokens."""

from __future__ import annotations

import bisect
import collections
import functools
import unicodedata
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from transduce.decoding.options import DecodingOptions
from transduce.errors import SettingError
from transduce.text import CharacterTokenizer, Tokenizer
from transduce.text.scripts import UNSPACED
from transduce.text.tokenizer import UNK, ListedTokenizer

if TYPE_CHECKING:
    from torch import Tensor

    from transduce.decoding.strategies import Filter


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


class TokenSurfaces:
    """The bytes that each token adds to a text, and the ids of phrases."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.surfaces: Sequence[bytes] = tokenizer.surfaces()
        self.words = not isinstance(tokenizer, CharacterTokenizer)
        """True if tokens are grouped into words; otherwise phrases may match anywhere."""
        order = sorted(range(UNK + 1, len(self.surfaces)), key=self.surfaces.__getitem__)
        self._ranked = [token for token in order if self.surfaces[token]]
        self._sorted = [self.surfaces[token] for token in self._ranked]

    @functools.cached_property
    def continues(self) -> frozenset[int]:
        """Tokens that make the word before them longer."""
        if not self.words:
            return frozenset()
        return frozenset(t for t in self._ranked if first_is_letter(self.surfaces[t]))

    def starting(self, beginning: bytes) -> list[int]:
        """Tokens whose bytes start with `beginning`."""
        low = bisect.bisect_left(self._sorted, beginning)
        high = bisect.bisect_left(self._sorted, _after(beginning), low)
        return self._ranked[low:high]

    def containing(self, part: bytes) -> list[int]:
        """Tokens with `part` anywhere in their bytes."""
        return [t for t, s in zip(self._ranked, self._sorted, strict=True) if part in s]

    def text_of(self, ids: Sequence[int]) -> bytes:
        """Text of ids in the middle of an output."""
        return b"".join(self.surfaces[i] for i in ids if i < len(self.surfaces))

    def prefix(self, text: str) -> tuple[int, ...]:
        """Ids of the beginning of an output.  Raises SettingError for an unknown character."""
        # a space at its end belongs to the next word, whose token brings it along
        return self._known("prefix", text, text.rstrip() if self.words else text)

    def phrase(self, text: str, setting: str = "constraints") -> tuple[int, ...]:
        """Ids of a phrase after a space.  Raises SettingError if blank or unknown."""
        if not text.strip():
            raise SettingError(f"{setting}: {text!r} is blank; remove it")
        text = text.strip() if self.words else text
        ids = self._known(setting, text, text)
        if isinstance(self.tokenizer, ListedTokenizer) or self.surfaces[ids[0]].startswith(b" "):
            return ids
        before = self.tokenizer.encode("x")
        after = self.tokenizer.encode(f"x {text}")
        inside = tuple(after[len(before) :])
        return inside if after[: len(before)] == before and inside else ids

    def _known(self, setting: str, phrase: str, text: str) -> tuple[int, ...]:
        ids = tuple(self.tokenizer.encode(text))
        if UNK in ids:
            raise SettingError(f"{setting}: {phrase!r} has characters outside the vocabulary")
        return ids


def is_letter(character: str) -> bool:
    """Part of a word, in a script that has spaces between words."""
    if not character or unicodedata.category(character)[0] not in "LNM":  # and marks on them
        return False
    return not any(low <= character <= high for low, high in UNSPACED)


def first_is_letter(text: bytes) -> bool:
    """True if a text, possibly starting within a character, begins with a letter."""
    return is_letter(text.decode("utf-8", "replace")[:1])


def last_is_letter(text: bytes) -> bool:
    """True if a text, possibly ending within a character, ends with a letter."""
    return is_letter(text[-4:].decode("utf-8", "replace")[-1:])


def _after(beginning: bytes) -> bytes:
    """The least bytes that are greater than everything that starts with `beginning`."""
    whole = beginning.rstrip(b"\xff")
    return whole[:-1] + bytes([whole[-1] + 1]) if whole else b"\xff" * 8


SLACK = 4
"""Tokens examined before a phrase, to find the character in front of it."""


class BannedPhrases:
    """Finds the tokens that would complete a banned phrase of words: "cat" is neither in
    "concatenate" nor in the token "cats", but no token may end right behind it, as the word may be
    whole."""

    def __init__(self, phrases: Sequence[str], token_surfaces: TokenSurfaces) -> None:
        """phrases: before normalisation.  Raises SettingError for a blank phrase."""
        for phrase in phrases:
            if not phrase.strip():
                raise SettingError(f"avoid: {phrase!r} is blank; remove it")
        self._token_surfaces = token_surfaces
        texts = (token_surfaces.tokenizer.normalize(phrase).strip() for phrase in phrases)
        self._phrases = [text.encode() for text in dict.fromkeys(texts) if text]
        self._reach = SLACK + max(map(len, self._phrases), default=0)
        self._anywhere = frozenset(token for p in self._phrases for token in self._within(p))
        self._after: dict[tuple[bytes, int], list[int]] = {}

    def after(self, ids: Sequence[int]) -> set[int]:
        """Tokens banned after these output ids."""
        before = self._token_surfaces.text_of(ids[-self._reach :])
        banned = set(self._anywhere)
        for phrase in self._phrases:
            for begun in range(len(phrase)):
                if before.endswith(phrase[:begun]):
                    rest = before[: len(before) - begun]
                    if not self._joined(rest, phrase):
                        banned.update(self._completing(phrase, begun))
        return banned

    def is_in(self, ids: Sequence[int]) -> bool:
        """Test for a sequence of ids that always contains a banned phrase."""
        return any(token in self.after(ids[:i]) for i, token in enumerate(ids))

    def _joined(self, before: bytes, after: bytes) -> bool:
        """Test for parts of a word."""
        return self._token_surfaces.words and last_is_letter(before) and first_is_letter(after)

    def _completing(self, phrase: bytes, begun: int) -> list[int]:
        key = phrase, begun
        if key not in self._after:
            rest = phrase[begun:]
            tokens = self._token_surfaces.starting(rest)
            surfaces = self._token_surfaces.surfaces
            allowed = [t for t in tokens if not self._joined(phrase, surfaces[t][len(rest) :])]
            self._after[key] = allowed
        return self._after[key]

    def _within(self, phrase: bytes) -> list[int]:
        banned = []
        for token in self._token_surfaces.containing(phrase):
            surface = self._token_surfaces.surfaces[token]
            at = surface.find(phrase, 1)
            while at > 0:
                after = surface[at + len(phrase) :]
                if not self._joined(surface[:at], phrase) and not self._joined(phrase, after):
                    banned.append(token)
                    break
                at = surface.find(phrase, at + 1)
        return banned


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
