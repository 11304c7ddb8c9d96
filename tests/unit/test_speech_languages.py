"""The language of each piece, and windows cut where it changes."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from transduce.errors import SettingError
from transduce.speech.languages import SpokenLanguages, most_probable, noted
from transduce.speech.prompt import Encoded, _codes
from transduce.speech.windows import AudioPiece, Window

RATE = 100
CODES = {"en": 7, "de": 8, "fr": 9}


def recogniser(heard: dict[int, list[float]]) -> Any:
    """Detects by the first sample of a piece."""
    extractor = SimpleNamespace(seconds=0.01)
    features: Any = lambda samples: samples  # noqa: E731
    features.seconds = extractor.seconds

    def language_scores(sources: list[Any]) -> Any:
        return np.log(np.array([heard[int(sources[0][0])]]))

    return SimpleNamespace(
        prompt=SimpleNamespace(languages=CODES),
        recipe=SimpleNamespace(audio=SimpleNamespace(rate=RATE)),
        extractor=features,
        backend=SimpleNamespace(language_scores=language_scores),
    )


def piece(number: int, start: float) -> AudioPiece:
    return AudioPiece(start, start + 1, np.full(RATE, number, np.float32))


def test_windows_are_cut_where_the_language_changes() -> None:
    heard = {1: [0.98, 0.01, 0.01], 2: [0.01, 0.98, 0.01], 3: [0.3, 0.3, 0.4]}
    languages = SpokenLanguages(recogniser(heard))
    first = Window([piece(n, i) for i, n in enumerate((1, 1, 2, 3, 2))], RATE)
    parts = languages.cut([first])
    assert [(part.language, len(part.pieces)) for part in parts] == [("en", 2), ("de", 3)]
    (after,) = languages.cut([Window([piece(3, 9)], RATE)])
    assert after.language == "de", "an unclear piece goes on in the language before"
    (rest,) = after.unheard([]) or [after]
    assert rest.language == "de"
    memory = Encoded(np.zeros((2, 2), np.float32), 2)
    assert [source.language for source in noted([memory], [after])] == ["de"]  # type: ignore[union-attr]


def test_a_change_has_its_cost() -> None:
    clear, short = np.log([[0.99, 0.01], [0.2, 0.8]])
    assert most_probable(np.stack([clear, short, clear]), 3.0) == [0, 0, 0]
    assert most_probable(np.stack([clear, short, clear]), 0.1) == [0, 1, 0]
    assert most_probable(np.stack([clear, *[short] * 6]), 3.0) == [0, *[1] * 6]
    assert most_probable(clear[None], 3.0) == [0]


def test_languages_of_a_setting() -> None:
    assert _codes("auto", CODES) == ["en", "de", "fr"]
    assert _codes("German, en,de-AT", CODES) == ["de", "en"]
    assert _codes("", CODES) == [""]
    with pytest.raises(SettingError, match=r"'xx' is not a language of this model.*en, de, fr"):
        _codes("en,xx", CODES)
