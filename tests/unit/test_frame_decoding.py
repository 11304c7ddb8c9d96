"""Decoding of frames: rows end by themselves or at their limits, alike in any batch."""

from __future__ import annotations

import torch
from torch import Tensor

from transduce.sequence import Padded
from transduce.speech.synthesis_models import DropoutMasks, FrameGroups, decode_frames

NO_MASKS = DropoutMasks(1, [[0]] * 3, 4, 0.0)


class Counting:
    """A state whose row i counts its steps from `first[i]`."""

    def __init__(self, first: list[int]) -> None:
        self.rows = torch.tensor(first)
        self.length = 0

    def select(self, rows: Tensor) -> None:
        self.rows = self.rows[rows]


def step(read: Padded, state: Counting, kept: Tensor | None) -> tuple[FrameGroups, Tensor]:
    """Two frames, both the number of the step; the end at ten."""
    state.rows = state.rows + 1
    assert len(read.values) == len(state.rows)
    frames = state.rows[:, None, None].float().expand(-1, 2, 1)
    stop = torch.where(state.rows == 10, 5.0, -5.0)[:, None]
    weights = torch.nn.functional.one_hot(state.rows.clamp(max=11), 12)[:, None].float()
    return FrameGroups(frames, stop), weights


def test_rows_end_by_themselves_or_at_their_limits() -> None:
    state = Counting([7, 0, 5])
    result = decode_frames(step, state, [9, 4, 9], 1, NO_MASKS)  # type: ignore[arg-type]
    assert [one.stopped for one in result] == [True, False, True]
    assert [one.frames[::2, 0].tolist() for one in result] == [
        [8, 9, 10],
        [1, 2, 3, 4],
        [6, 7, 8, 9, 10],
    ]
    assert [one.attention.argmax(1).tolist() for one in result] == [
        [8, 9, 10],
        [1, 2, 3, 4],
        [6, 7, 8, 9, 10],
    ]


def test_each_step_reads_the_last_frame_of_the_one_before() -> None:
    observed: list[float] = []

    def watched(read: Padded, state: Counting, kept: Tensor | None) -> tuple[FrameGroups, Tensor]:
        observed.append(float(read.values[0, 0, 0]))
        return step(read, state, kept)

    decode_frames(watched, Counting([6]), [9], 1, NO_MASKS)  # type: ignore[arg-type]
    assert observed == [0.0, 7.0, 8.0, 9.0]


def test_masks_depend_on_the_seed_the_text_and_the_step_alone() -> None:
    masks = DropoutMasks(3, [[4, 5], [6], [4, 5]], 400, 0.25)
    first, second = masks.draw([0, 1, 2]), masks.draw([2])
    assert first is not None and second is not None and first.shape == (3, 1, 400)
    assert first[0].equal(first[2]) and not first[0].equal(first[1])
    assert not second[0].equal(first[2])
    assert 0.6 < float(first.float().mean()) < 0.9
    again = DropoutMasks(3, [[4, 5]], 400, 0.25)
    assert again.draw([0]).equal(first[:1]) and again.draw([0]).equal(second)  # type: ignore[union-attr]
    other = DropoutMasks(4, [[4, 5]], 400, 0.25).draw([0])
    assert other is not None and not other.equal(first[:1])
    assert NO_MASKS.draw([0]) is None
