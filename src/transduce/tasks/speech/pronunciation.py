"""Spelling to sound in front of synthesis, by a translation run of single words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from transduce.tasks.recipe_settings import auxiliary_run
from transduce.tasks.translation.recipe import TranslationRecipe
from transduce.tasks.translation.task import load_translation
from transduce.tasks.translation.translator import Translator

BOUNDARY = "|"
"""Symbol between two words."""
_PARTS = re.compile(r"\w+(?:['\N{RIGHT SINGLE QUOTATION MARK}-]\w+)*|[^\w\s]")
"""Words, and signs between them."""


class Pronouncer:
    """Texts as symbols: the sounds of each word, a boundary between words, signs as they are.

    Words are translated in lower case, each once.
    """

    def __init__(self, translator: Translator) -> None:
        self._translator = translator
        self._sounds: dict[str, str] = {}

    def pronounce(self, texts: Sequence[str]) -> list[str]:
        """The symbols of each text, separated by spaces."""
        parts = [_PARTS.findall(text) for text in texts]
        words = {part.lower() for text in parts for part in text if _is_word(part)}
        new = sorted(words - self._sounds.keys())
        translations = self._translator.translate(new) if new else []
        self._sounds |= {
            word: translation.text for word, translation in zip(new, translations, strict=True)
        }
        return [self._joined(text) for text in parts]

    def words(self, text: str) -> list[str]:
        """Words of a text, each with the signs after it; first any signs before them."""
        words: list[str] = []
        for part in _PARTS.findall(text):
            if _is_word(part) or not words:
                words.append(part)
            else:
                words[-1] += part
        return words

    def _joined(self, parts: Sequence[str]) -> str:
        symbols: list[str] = []
        for part in parts:
            if not _is_word(part):
                symbols.append(part)
                continue
            if symbols:
                symbols.append(BOUNDARY)
            symbols += self._sounds[part.lower()].split()
        return " ".join(symbols)


def load_pronouncer(run: str | None, device: str) -> Pronouncer | None:
    """The run of `text.pronounce`; None if unset. Raises RunError for a run of another task."""
    if run is None:
        return None
    path = Path(run)
    use = "; a run of the task 'translation' from words to their sounds is needed"
    settings = auxiliary_run(path, "text.pronounce", "translation", use)
    recipe = TranslationRecipe.parse(settings, str(path / "recipe.toml"))
    return Pronouncer(load_translation(recipe, path, device))


def _is_word(part: str) -> bool:
    return part[0].isalnum() or part[0] == "_"
