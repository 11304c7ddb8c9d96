"""Monotonic alignment: the best way to give each token one or more frames, in their order (Kim et
al. 2020, Glow-TTS).

Shapes: b rows, n tokens, t frames.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

MONOTONIC_NEVER = -1e30


def durations(
    scores: NDArray[np.float32], n_tokens: Sequence[int], n_frames: Sequence[int]
) -> NDArray[np.int64]:
    """(b, n) frames of each token on the path of the highest sum of scores (b, n, t) (Viterbi).

    n_tokens, n_frames: (b) real ones of each row, of which no row has more tokens than frames.
    """
    assert all(n <= t for n, t in zip(n_tokens, n_frames, strict=True))
    b, n, t = scores.shape
    best = np.full((b, n), MONOTONIC_NEVER, np.float32)
    best[:, 0] = scores[:, 0, 0]
    moved = np.zeros((t, b, n), bool)
    before = np.full_like(best, MONOTONIC_NEVER)
    for frame in range(1, t):
        before[:, 1:] = best[:, :-1]
        moved[frame] = before > best
        best = np.where(moved[frame], before, best) + scores[:, :, frame]
    lengths = np.zeros((b, n), np.int64)
    rows, token, ends = np.arange(b), np.array(n_tokens) - 1, np.array(n_frames)
    for frame in range(t - 1, -1, -1):
        is_real = frame < ends
        lengths[rows, token] += is_real
        token = token - (is_real & moved[frame, rows, token])
    return lengths
