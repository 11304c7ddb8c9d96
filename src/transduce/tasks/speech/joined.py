"""Recordings joined into windows, for the fine-tuning of a model that reads 30 s at once."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from transduce.audio.features import Frames, WhisperMel
from transduce.tasks.speech.recordings import SplitRecordings
from transduce.tasks.speech.windows import FILLED, GAP

PARTLY_FILLED = 0.25
"""Share of the windows that are filled up to a random length, as most recordings are short."""
FRAMES = 100
"""Frames a second."""


class JoinedWindow(NamedTuple):
    """Recordings, by number in their split, and the first and last second of each."""

    rows: tuple[int, ...]
    starts: tuple[float, ...]
    ends: tuple[float, ...]

    def frames(self, data: SplitRecordings) -> Frames:
        """Frames (t, f) of the window."""
        if len(self.rows) == 1:
            return data[self.rows[0]][0]
        starts = [round(start * FRAMES) for start in self.starts]
        return WhisperMel.joined([data[i][0] for i in self.rows], starts)


def single_windows(data: SplitRecordings) -> list[JoinedWindow]:
    """A window for each recording."""
    return [JoinedWindow((i,), (0.0,), (FILLED,)) for i in range(len(data))]


def joined_windows(data: SplitRecordings, seed: int) -> list[JoinedWindow]:
    """Windows of recordings of one speaker, in random order.

    A window costs the same time with any number of recordings.
    """
    random = np.random.default_rng(seed)
    seconds = [WhisperMel.sounding(data[i][0]) / FRAMES for i in range(len(data))]
    speakers = data.speakers
    windows: list[JoinedWindow] = []
    room = 0.0
    for i in sorted(random.permutation(len(data)).tolist(), key=speakers.__getitem__):
        begin = windows[-1].ends[-1] + GAP if windows else 0.0
        if windows and speakers[windows[-1].rows[0]] == speakers[i] and begin + seconds[i] <= room:
            rows, starts, ends = windows.pop()
            window = JoinedWindow((*rows, i), (*starts, begin), (*ends, begin + seconds[i]))
        else:
            window = JoinedWindow((i,), (0.0,), (seconds[i],))
            room = FILLED * (random.random() if random.random() < PARTLY_FILLED else 1.0)
        windows.append(window)
    return windows
