"""Film of learning: the attention of a few fixed inputs at points of training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np

from transduce.explain.heads import PatternName
from transduce.explain.page import place_of, shown_attention, visible_weights
from transduce.explain.parts import Attention

PATTERNS = get_args(PatternName)
MAX_FILM_WEIGHTS = 160_000
"""Attention weights of a film in a page, a character each; layers in between are left out beyond
it."""
DIGITS = np.frombuffer(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8
)
"""Characters of the numbers 0 to 63, which stand for weights from 0 to 1."""


@dataclass(frozen=True)
class FilmScene:
    """An input at all points of training.

    tokens: sequences by name.  attention: of each point, as in an explanation.
    """

    text: str
    tokens: Mapping[str, Sequence[str]]
    attention: tuple[tuple[Attention, ...], ...]


@dataclass(frozen=True)
class Film:
    """A training seen by its attention.

    points: optimizer steps made at each, and the share of the budget that was spent.
    """

    points: tuple[tuple[int, float], ...]
    scenes: tuple[FilmScene, ...]

    def packed(self) -> dict[str, Any]:
        """The same for a page: weights of 6 bits, a character each."""
        room = MAX_FILM_WEIGHTS // max(1, len(self.points) * len(self.scenes))
        scenes = [_packed(scene, room) for scene in self.scenes]
        points = [[step, round(share, 5)] for step, share in self.points]
        return {"points": points, "patterns": PATTERNS, "scenes": scenes}


def _packed(scene: FilmScene, room: int) -> dict[str, Any]:
    last = scene.attention[-1]
    numbers = shown_attention(last, (), room)
    return {
        "text": scene.text,
        "sequences": scene.tokens,
        "attention": [_frames(number, scene) for number in numbers],
        "leftOut": len(last) - len(numbers),
    }


def _frames(number: int, scene: FilmScene) -> dict[str, Any]:
    """An attention at all points; of each pattern two characters, its number and its value."""
    all_points = [point[number] for point in scene.attention]
    patterns = [
        [x for name, value in at.patterns for x in (PATTERNS.index(name) / 63, value)]
        for at in all_points
    ]
    return {
        **place_of(all_points[-1]),
        "frames": [_text(visible_weights(at)) for at in all_points],
        "patterns": [_text(np.array(at)) for at in patterns],
    }


def _text(shares: Any) -> str:
    """Numbers from 0 to 1 as a character each."""
    numbers = (np.asarray(shares) * 63).round().clip(0, 63).astype(int)
    return bytes(DIGITS[numbers.ravel()]).decode()
