"""Languages of translations: tokens of models of many, selected by tags before a source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from transduce.errors import DataError, RunError, SettingError
from transduce.tasks.translation.recipe import LanguagesConfig
from transduce.text import Tokenizer
from transduce.text.characters import leading_tags
from transduce.text.imported import ImportedTokenizer
from transduce.text.language_names import canonical, known_code

Pair = tuple[str, str]
"""Codes of the languages of source and target."""
NAMED = 12
"""Limit on the languages listed in a message."""


class LanguageTokens(NamedTuple):
    """Tokens of languages that stand before a source and begin its output.

    sources: codes, the first where a source has no tag.  targets: codes; a text needs a tag of one
    if there are several.
    """

    source: ImportedTokenizer
    target: ImportedTokenizer
    sources: tuple[str, ...]
    targets: tuple[str, ...]

    def separate(self, lines: Sequence[str]) -> tuple[list[str], list[Pair]]:
        """Lines of a text without their tags, and the languages of each; a line without tags has
        those of the line before it.  Raises DataError where none names the target."""
        source, target = self.sources[0], self.targets[0] if len(self.targets) == 1 else ""
        bare, pairs = [], []
        for line in lines:
            tags = [tag for tag in leading_tags(line)[:2] if known_code(tag[1:-2], self._codes)]
            if tags and line.startswith("".join(tags)):
                line = line.removeprefix("".join(tags))
                *before, target = (self._code(tag) for tag in tags)
                source = before[0] if before else source
            if line.strip() and not target:
                raise DataError(
                    f"no target language; give --target-language, or begin it with a tag such as "
                    f"<{source}> <{next(t for t in self.targets if t != source)}>"
                )
            bare.append(line)
            pairs.append((source, target))
        return bare, pairs

    @property
    def _codes(self) -> frozenset[str]:
        return frozenset((*self.sources, *self.targets))

    def _code(self, tag: str) -> str:
        return known_code(tag[1:-2], self._codes) or ""


def language_tokens(
    config: LanguagesConfig, source: Tokenizer, target: Tokenizer
) -> LanguageTokens | None:
    """Tokens of the languages that a recipe names; None if it has none.  Raises RunError."""
    if config.tags != "pair":
        return None
    sides = (source, config.sources), (target, config.targets)
    for tokenizer, codes in sides:
        known = tokenizer.numbering.languages if isinstance(tokenizer, ImportedTokenizer) else {}
        if not codes or not known.keys() >= {*map(canonical, codes)}:
            raise RunError('languages.tags = "pair" needs a tokenizer with all its languages')
    assert isinstance(source, ImportedTokenizer) and isinstance(target, ImportedTokenizer)
    first, second = (tuple(map(canonical, codes)) for _, codes in sides)
    return LanguageTokens(source, target, first, second)


def opened(
    config: LanguagesConfig, source: Tokenizer, target: Tokenizer
) -> tuple[Tokenizer, Tokenizer]:
    """The tokenizers of a recipe's languages, if they have tokens: of the first source language,
    and of the target language if there is only one."""
    tokens = language_tokens(config, source, target)
    if tokens is None:
        return source, target
    if len(tokens.targets) > 1:
        return tokens.source.opened(tokens.sources[0]), target
    return tokens.source.opened(tokens.sources[0]), tokens.target.opened(tokens.targets[0])


def chosen(code: str, codes: Sequence[str], side: str) -> str:
    """A code among a run's languages.  Raises SettingError."""
    by_code = {canonical(known): known for known in codes}
    if (known := known_code(code, by_code)) is not None:
        return by_code[known]
    named = ", ".join(codes[:NAMED]) + (", ..." if len(codes) > NAMED else "")
    raise SettingError(
        f"{code!r} is not a {side} language of this run; "
        + (f"choose {named}" if codes else "its recipe names none")
    )
