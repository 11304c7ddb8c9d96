"""Codes of languages, and the pairs that a server offers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from transduce.text.language_names import canonical, name_of

CODE = re.compile(r"[A-Za-z]{2,16}([-_][A-Za-z0-9]{1,16})*")


def base_of(code: str) -> str:
    """The language of a code, without script and region."""
    return code.partition("-")[0]


class Languages:
    """Pairs that the runs translate directly, and those reached through a pivot.

    pairs: (source, target), canonical codes.  pivots: languages that may stand between two runs.
    """

    def __init__(self, pairs: Iterable[tuple[str, str]], pivots: Sequence[str] = ()) -> None:
        self.pairs = frozenset(pairs)
        self._pivots = tuple(map(canonical, pivots))
        codes = {code for pair in self.pairs for code in pair}
        self.codes = tuple(sorted(codes, key=lambda code: (code != "en", name_of(code), code)))
        """All languages: English first, then by name."""
        sources = {source for source, _ in self.pairs}
        self.sources = tuple(code for code in self.codes if code in sources)

    def resolve(self, code: str) -> str | None:
        """The served language for a code: itself, its base, or its only regional variant."""
        code = canonical(code)
        for candidate in (code, canonical(base_of(code))):
            if candidate in self.codes:
                return candidate
        alike = [other for other in self.codes if base_of(other) == base_of(code)]
        return alike[0] if len(alike) == 1 else None

    def path(self, source: str, target: str) -> list[tuple[str, str]] | None:
        """Pairs to translate by, in turn; empty for equal languages, None if there is
        no path."""
        if source == target:
            return []
        if (source, target) in self.pairs:
            return [(source, target)]
        for pivot in self._pivots:
            steps = [(source, pivot), (pivot, target)]
            if self.pairs.issuperset(steps):
                return steps
        return None

    def targets(self, source: str) -> list[str]:
        """Languages that a source can be translated into, itself included."""
        return [target for target in self.codes if self.path(source, target) is not None]
