"""Banned phrases, independent of the split into tokens."""

from __future__ import annotations

from collections.abc import Sequence

from transduce.decoding.token_surfaces import TokenSurfaces, first_is_letter, last_is_letter
from transduce.errors import SettingError

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
