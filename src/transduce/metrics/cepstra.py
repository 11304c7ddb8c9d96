"""Mel-cepstral distortion: distance of spoken frames from recorded frames (Kubichek 1993)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

COEFFICIENTS = 13
"""Cepstral coefficients compared, from the first on; the zeroth is loudness."""

Frames = NDArray[np.floating[Any]]


def mel_cepstral_distortion(spoken: Frames, recorded: Frames) -> float:
    """Mean distance in dB of log mel magnitudes (t, f) from others (t', f), natural logarithms.

    The frames are paired along the cheapest path by dynamic time warping, so that pace does not
    count.  Each pair counts 10 / ln 10 · √(2 Σ (c - c')²), the root mean square distance of two
    smoothed spectra, with the cepstra c_m = 2 / f Σ_j log|S_j| cos(π m (j + ½) / f), m from 1 to
    13.  Each side has frames.
    """
    a, b = _cepstra(spoken), _cepstra(recorded)
    squares = np.zeros((len(a), len(b)))
    for i in range(COEFFICIENTS):  # a matrix of each at a time would take as often its memory
        squares += np.subtract.outer(a[:, i], b[:, i]) ** 2
    distances = 10 / math.log(10) * np.sqrt(2 * squares)
    return _warped_mean(distances)


def _cepstra(frames: Frames) -> NDArray[np.float64]:
    """(t, f) -> (t, 13)."""
    bins = frames.shape[1]
    orders = np.arange(1, COEFFICIENTS + 1)
    basis = np.cos(np.pi / bins * (np.arange(bins) + 0.5)[:, None] * orders)
    cepstra: NDArray[np.float64] = frames.astype(np.float64) @ basis * (2 / bins)
    return cepstra


def _warped_mean(distances: NDArray[np.float64]) -> float:
    """Mean of distances (t, t') along the path of the smallest sum, by diagonals.

    A path goes from corner to corner by steps of 1 along either side or both.
    """
    n, m = distances.shape
    far = np.inf
    # Cost of the best path to each cell and its length, by row, on the last two diagonals.
    before, last = (np.full(n + 1, far) for _ in range(2))
    length_before, length_last = (np.zeros(n + 1) for _ in range(2))
    for diagonal in range(n + m - 1):
        rows = np.arange(max(0, diagonal - m + 1), min(n, diagonal + 1))
        # At index i + 1: paths into row i; index 0 is outside.
        choices = np.stack([before[rows], last[rows], last[rows + 1]])
        lengths = np.stack([length_before[rows], length_last[rows], length_last[rows + 1]])
        best = choices.argmin(0)
        each = np.arange(len(rows))
        cost, length = choices[best, each], lengths[best, each]
        if diagonal == 0:
            cost, length = np.zeros(1), np.zeros(1)
        now, length_now = np.full(n + 1, far), np.zeros(n + 1)
        now[rows + 1] = cost + distances[rows, diagonal - rows]
        length_now[rows + 1] = length + 1
        before, last = last, now
        length_before, length_last = length_last, length_now
    return float(last[n] / length_last[n])
