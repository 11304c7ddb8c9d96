"""Windows of neighbouring pieces, and times mapped back."""

from __future__ import annotations

import numpy as np
import pytest

from transduce.speech.segments import Segment, Word
from transduce.speech.windows import AudioPiece, Window, sound_pieces, windows_of

RATE = 100


def piece(start: float, end: float) -> AudioPiece:
    return AudioPiece(start, end, np.full(round((end - start) * RATE), start + 1, np.float32))


PIECES = [piece(1, 4), piece(4.2, 6.2), piece(60, 70), piece(90, 110)]


def test_neighbours_share_a_window_as_long_as_they_fit() -> None:
    together = list(windows_of(iter(PIECES), 20.0, RATE))
    assert [len(window.pieces) for window in together] == [3, 1]
    assert [len(window.pieces) for window in windows_of(iter(PIECES), 0.0, RATE)] == [1] * 4
    window = together[0]
    assert window.starts == pytest.approx([0, 3.2, 5.7]) and window.ends[-1] == pytest.approx(15.7)
    samples = window.samples
    assert len(samples) == 1570 and set(samples[300:320]) == {0}
    assert set(samples[:300]) == {2} and set(samples[570:]) == {61}


def test_a_window_of_one_piece_waits_for_no_other() -> None:
    def pieces():  # type: ignore[no-untyped-def]
        yield PIECES[0]
        raise AssertionError("read on")

    assert next(windows_of(pieces(), 0.0, RATE)).pieces == [PIECES[0]]


@pytest.mark.parametrize(
    ("written", "placed"),
    [
        ((0.5, 2.0), (1.5, 3.0)),
        ((0.0, 4.0), (1.0, 5.0)),  # over two pieces
        ((2.9, 5.0), (4.2, 6.0)),  # begins at the end of the piece before
        ((5.5, 7.0), (60.0, 61.3)),  # begins in the pause
        ((6.0, 99.0), (60.3, 70.0)),
    ],
)
def test_times_of_segments(written: tuple[float, float], placed: tuple[float, float]) -> None:
    segment = Window(PIECES[:3], RATE).placed(Segment(*written, "a"))
    assert (segment.start, segment.end) == pytest.approx(placed)


def test_a_segment_outside_ends_before_it_begins() -> None:
    window = Window(PIECES[:1], RATE)
    outside = window.placed(Segment(3.5, 3.9, "a"))
    assert outside.start >= outside.end


def test_words_lie_in_pieces() -> None:
    words = (Word("a", 2.5, 3.4, 0), Word("b", 3.4, 6.0, 0), Word("c", 6.0, 6.5, 0))
    segment = Window(PIECES[:3], RATE).placed(Segment(0, 9, "a b c", words=words))
    times = [time for word in segment.words for time in (word.start, word.end)]
    assert times == pytest.approx([3.5, 4.0, 4.4, 6.2, 60.3, 60.8])
    assert (segment.start, segment.end) == (times[0], times[-1])


def test_sound_after_the_last_segment_is_heard_again() -> None:
    window = Window(PIECES[:3], RATE)
    (rest,) = window.unheard([Segment(0.0, 2.0, "a")])
    assert [(p.start, p.end) for p in rest.pieces] == [(3, 4), (4.2, 6.2), (60, 70)]
    assert len(rest.pieces[0].samples) == RATE and rest.samples[0] == 2
    assert not window.unheard([Segment(0.0, 15.0, "a")])  # less than a second
    assert not window.unheard([Segment(0.0, 0.0, "a")])  # would be the same again
    first, second = window.unheard([])
    assert (len(first.pieces), len(second.pieces)) == (1, 2)
    assert not Window(PIECES[:1], RATE).unheard([])


def test_an_open_piece_is_given_again_with_new_sound_alone_and_is_cut_at_its_limit() -> None:
    rate = 16_000
    samples = np.random.default_rng(0).standard_normal(12 * rate).astype(np.float32)
    loud = np.arange(len(samples)) // (rate // 5) % 2  # syllables of 0.2 s
    seconds = np.arange(len(samples)) / rate
    samples *= np.where((seconds > 1) & (seconds < 9.1), 0.001 + 0.1 * loud, 0.001)
    blocks = [samples[i : i + 1600] for i in range(0, len(samples), 1600)]
    pieces = [*sound_pieces(blocks, rate, 5.0, every=1.0)]
    drafts = [piece for piece in pieces if piece.goes_on]
    finals = [piece for piece in pieces if not piece.goes_on]
    assert all(piece.end - piece.start <= 5 for piece in finals)
    assert [piece.is_cut for piece in finals] == [True] * (len(finals) - 1) + [False]
    assert len(finals) > 1 and finals[0].end == pytest.approx(finals[1].start, abs=0.2)
    ends = [piece.end for piece in drafts]
    assert len(drafts) > 3 and ends[-1] < 10 and min(np.diff(ends)) > 0.4
