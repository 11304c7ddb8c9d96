"""The film of a run, for its page."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from transduce.explain.film import Film, FilmScene
from transduce.explain.recorded_pass import named_attention
from transduce.training.film import read_film


def film_of(run: Path) -> Film | None:
    """The film of a run directory; None if there is none.  Raises RunError if damaged."""
    film = read_film(run)
    if film is None:
        return None
    scenes = tuple(
        FilmScene(
            scene.text,
            scene.tokens,
            tuple(
                tuple(
                    named_attention(name, _weights(frames[point]), scene.sequences, scene.tokens)
                    for name, frames in scene.attention.items()
                )
                for point in range(len(film.points))
            ),
        )
        for scene in film.scenes
    )
    return Film(tuple(film.points), scenes)


def _weights(stored: torch.Tensor) -> NDArray[np.float32]:
    """Weights (h, t, s) of 8 bits as numbers from 0 to 1."""
    weights: NDArray[np.float32] = stored.numpy().astype(np.float32) / np.float32(255)
    return weights
