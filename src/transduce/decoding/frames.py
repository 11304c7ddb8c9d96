"""Decoding of frames: a step reads the last frame of the step before, until the end is probable.  r
rows still speaking, n rows in all, k frames of a step, s positions of the memory."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from transduce.models.monotonic_synthesis import MonotonicSynthesis
from transduce.nn.heads.frames import FrameGroups
from transduce.nn.state import State
from transduce.sequence import Padded

FrameStep = Callable[[Padded, State, Tensor | None], tuple[FrameGroups, Tensor]]
"""The last frames (r, 1, bins), the state, masks of dropout (r, 1, u) -> frames (r, k, bins), stop
(r, 1), attention (r, 1, s)."""


class SpokenFrames(NamedTuple):
    """Frames (t·k, bins) of a row, `stopped` before its limit, and attention (t, s)."""

    frames: Tensor
    stopped: bool
    attention: Tensor


class DropoutMasks:
    """Masks of dropout drawn from a seed, the row's ids and the step, alike in any batch."""

    def __init__(
        self, seed: int, rows: Sequence[Sequence[int]], n_units: int, share: float
    ) -> None:
        """rows: the ids of each row.  n_units: units of a mask.  share: dropped of them."""
        self._n_units = n_units
        self._share = share
        self._draws = [
            np.random.Generator(np.random.PCG64(np.random.SeedSequence((seed, _number(ids)))))
            for ids in rows
        ]

    def draw(self, rows: Sequence[int]) -> Tensor | None:
        """Masks (r, 1, u) of the next step of these rows, True if kept; None without dropout."""
        if not self._share:
            return None
        drawn = [self._draws[i].random(self._n_units, np.float32) for i in rows]
        return torch.from_numpy(np.stack(drawn) >= self._share)[:, None]


@torch.inference_mode()
def decode_frames(
    step: FrameStep,
    state: State,
    limits: Sequence[int],
    bins: int,
    masks: DropoutMasks,
    threshold: float = 0.5,
    device: torch.device | str = "cpu",
) -> list[SpokenFrames]:
    """Frames of each row of a fresh state, before the postnet, with dropout masks, of at most
    `limits` (n,) steps.  threshold: probability of the end of a row, which then leaves the batch by
    `state.select`."""
    frames: list[list[Tensor]] = [[] for _ in limits]
    attention: list[list[Tensor]] = [[] for _ in limits]
    stopped = [False] * len(limits)
    rows, length = list(range(len(limits))), 0
    read = torch.zeros(len(limits), 1, bins, device=device)
    while rows:
        dropout_mask = masks.draw(rows)
        outputs, weights = step(
            Padded.unpadded(read), state, None if dropout_mask is None else dropout_mask.to(device)
        )
        ends = (outputs.stop[:, 0].float().sigmoid() > threshold).tolist()
        length += 1
        staying = []
        for position, row in enumerate(rows):
            frames[row].append(outputs.frames[position])
            attention[row].append(weights[position])
            stopped[row] = ends[position]
            if not ends[position] and length < limits[row]:
                staying.append(position)
        read = outputs.frames[:, -1:]
        if len(staying) < len(rows):
            chosen = torch.tensor(staying, dtype=torch.long, device=device)
            rows, read = [rows[position] for position in staying], read[chosen]
            if rows:
                state.select(chosen)
    return [
        SpokenFrames(torch.cat(parts), stopped[row], torch.cat(attention[row]))
        for row, parts in enumerate(frames)
    ]


@torch.inference_mode()
def frames_by_durations(
    model: MonotonicSynthesis, text: Padded, speed: float
) -> list[SpokenFrames]:
    """Frames of texts (n, s), all at once, with durations as attention: 1 for the token of a step.

    speed: divisor of the durations.
    """
    encoded = model.encode(text)
    durations = model.steps(encoded.log_durations, text, speed)
    frames = model.decode(encoded.hidden, durations)
    spoken = []
    for row, steps, length in zip(frames.values, durations, text.lengths.tolist(), strict=True):
        path = torch.eye(length, device=row.device).repeat_interleave(steps[:length], 0)
        spoken.append(SpokenFrames(row[: len(path) * model.frames_per_step], True, path))
    return spoken


def _number(ids: Sequence[int]) -> int:
    digest = hashlib.blake2b(np.asarray(ids, "<i8").tobytes(), digest_size=8).digest()
    return int.from_bytes(digest, "little")
