"""Language of each piece of a recording, and windows cut where it changes."""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from transduce.speech.prompt import Encoded, Source
from transduce.speech.recogniser import Recogniser
from transduce.speech.windows import Window

HEARD, AFTER = 5.0, 1.0
"""Seconds of a piece by which its language is detected, and of silence after them."""
CLEAR = 2.0
"""Advantage in nats of the most probable language over the next that is clear."""
CHANGE = 3.0
"""Cost in nats of a change of language, so that a short piece does not make one."""


class SpokenLanguages:
    """Detection of the languages of a recording, window by window.

    recogniser: detects them.  last: code of the language before the first window, if known.
    """

    def __init__(self, recogniser: Recogniser, last: str = "") -> None:
        self._recogniser = recogniser
        self._codes = [*recogniser.prompt.languages]
        self._last = self._codes.index(last) if last in self._codes else None

    @property
    def last(self) -> str:
        """Code of the language of the last piece; empty without one."""
        return "" if self._last is None else self._codes[self._last]

    def cut(self, windows: Sequence[Window]) -> list[Window]:
        """The windows, each of one language, which is noted in them; as they are if it is not to be
        detected."""
        if not self._codes or not windows:
            return list(windows)
        pieces = [piece for window in windows for piece in window.pieces]
        scores = np.stack([self._scores(piece.samples) for piece in pieces])
        if self._last is not None:
            scores[0] -= CHANGE * (np.arange(len(self._codes)) != self._last)
        path = most_probable(scores, CHANGE)
        self._last = path[-1]
        languages = iter(path)
        parts = []
        for window in windows:
            known = zip(window.pieces, languages)  # noqa: B905  the next ones of all
            for language, run in itertools.groupby(known, itemgetter(1)):
                same = [piece for piece, _ in run]
                parts.append(Window(same, window.rate, self._codes[language]))
        return parts

    def _scores(self, samples: NDArray[np.float32]) -> NDArray[np.float64]:
        """(k,) log-probabilities of the languages by the beginning of a piece, or by all of it if
        that is unclear."""
        audio, extractor = self._recogniser.recipe.audio, self._recogniser.extractor
        frames = extractor(samples)
        n = round((min(len(samples) / audio.rate, HEARD) + AFTER) / extractor.seconds)
        for some in (frames[: n // 2 * 2], frames):
            (scores,) = self._recogniser.backend.language_scores([some])
            if np.diff(np.sort(scores)[-2:]).sum() > CLEAR:
                break
        return np.asarray(scores, np.float64)


def most_probable(scores: NDArray[np.float64], change: float) -> list[int]:
    """The sequence of states of the greatest sum of scores (n, k), less `change` for each change
    (Viterbi 1967)."""
    best, before = scores[0], []
    for row in scores[1:]:
        top = int(best.argmax())
        stays = best >= best[top] - change
        before.append(np.where(stays, np.arange(len(best)), top))
        best = np.where(stays, best, best[top] - change) + row
    path = [int(best.argmax())]
    for choice in reversed(before):
        path.append(int(choice[path[-1]]))
    return path[::-1]


def noted(sources: Sequence[Source], windows: Sequence[Window]) -> list[Source]:
    """Encoded windows with their languages."""
    return [
        replace(source, language=window.language) if isinstance(source, Encoded) else source
        for source, window in zip(sources, windows, strict=True)
    ]
