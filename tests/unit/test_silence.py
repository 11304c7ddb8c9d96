"""Pieces of long recordings: sound is found, silence and noise are not, and times are kept."""

from __future__ import annotations

import itertools
import tracemalloc
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.audio import Samples, noise, spoken, tone
from transduce.speech.windows import AudioPiece, sound_pieces


def pieces(
    samples: Samples, rate: int = 8000, block: int = 4000, **limits: float
) -> list[AudioPiece]:
    blocks = (samples[i : i + block] for i in range(0, len(samples), block))
    return list(sound_pieces(blocks, rate, **limits))


def silence(seconds: float, rate: int = 8000, level: float = 0.0) -> Samples:
    return noise(seconds, rate, 5, level)


def brown(seconds: float, rate: int) -> Samples:
    steps = np.cumsum(noise(seconds, rate))
    return (steps / np.abs(steps).max() / 2).astype(np.float32)


@pytest.mark.parametrize(
    ("seconds", "rate"),
    [
        *((1, 8000), (1, 16_000), (30, 8000), (30, 16_000)),
        pytest.param(300, 8000, marks=pytest.mark.system),
    ],
)
def test_nothing_in_silence_noise_and_tones(seconds: int, rate: int) -> None:
    clicks = silence(seconds, rate, 1e-4)
    clicks[rate // 2 :: rate] = 0.9
    sounds = {
        "silence": silence(seconds, rate),
        "dither": silence(seconds, rate, 1e-4),
        "white noise": noise(seconds, rate),
        "brown noise": brown(seconds, rate),
        "tone": tone(seconds, rate),
        "hum": tone(seconds, rate, 50) + silence(seconds, rate, 1e-3),
        "dial tone": tone(seconds, rate, 350) + tone(seconds, rate, 440),
        "clicks": clicks,
    }
    assert {name: len(pieces(sound, rate)) for name, sound in sounds.items()} == dict.fromkeys(
        sounds, 0
    )


@pytest.mark.parametrize("level", [0.0, 1e-4, 3e-3])
def test_sound_between_silence(level: float) -> None:
    parts = [silence(3), spoken(2, 8000), silence(1), spoken(1, 8000), silence(2)]
    samples = np.concatenate(parts)
    result = pieces(samples + silence(len(samples) / 8000, 8000, level))
    assert len(result) == 2
    for piece, (start, end) in zip(result, [(3, 5), (6, 7)], strict=True):
        assert start - 0.12 < piece.start <= start + 0.05
        assert end - 0.06 <= piece.end < end + 0.12
        assert len(piece.samples) == round((piece.end - piece.start) * 8000)
        assert piece.start * 8000 == round(piece.start * 8000)


def test_pieces_are_parts_of_the_recording() -> None:
    samples = np.concatenate([silence(1), spoken(3, 8000), silence(1), spoken(1, 8000)])
    for piece in pieces(samples):
        begin = round(piece.start * 8000)
        assert np.array_equal(piece.samples, samples[begin : begin + len(piece.samples)])


def test_a_word_without_silence() -> None:
    for seconds in (0.2, 0.4, 0.8, 1.5):
        (piece,) = pieces(spoken(seconds, 8000))
        assert piece.start < 0.05
        assert piece.end > seconds - 0.1


def test_noise_before_speech_is_left_out() -> None:
    samples = np.concatenate([silence(10), spoken(3, 8000), silence(10)])
    result = pieces(samples + noise(23, 8000, 9, 0.01))
    assert len(result) == 1
    assert 9.5 < result[0].start < 10.2


def test_long_sound_is_cut_where_it_is_quiet() -> None:
    samples = spoken(70, 8000)
    samples[25 * 8000 : 25 * 8000 + 2400] *= 0.01  # too short to end a piece
    result = pieces(samples)
    assert len(result) >= 3
    assert all(piece.end - piece.start <= 30 for piece in result)
    assert 25 < result[0].end < 25.3
    assert all(a.end == b.start for a, b in itertools.pairwise(result))
    assert result[-1].end == pytest.approx(70, abs=0.1)


@pytest.mark.system
@given(st.lists(st.integers(1, 20_000), min_size=1, max_size=40), st.integers(0, 9))
@settings(max_examples=25, deadline=None)
def test_pieces_do_not_depend_on_blocks(sizes: list[int], seed: int) -> None:
    parts = [silence(1, 8000, 1e-3), spoken(1.5, 8000, seed), silence(1.2), spoken(0.3, 8000)]
    samples = np.concatenate([*parts, silence(0.1 * seed), *parts])

    def blocks() -> Iterator[Samples]:
        at = 0
        while at < len(samples):
            for size in sizes:
                yield samples[at : at + size]
                at += size

    result, expected = list(sound_pieces(blocks(), 8000)), pieces(samples)
    assert [(p.start, p.end) for p in result] == [(p.start, p.end) for p in expected]
    assert all(np.array_equal(a.samples, b.samples) for a, b in zip(result, expected, strict=True))


@pytest.mark.system
@pytest.mark.parametrize("together", [False, True])
def test_memory_does_not_grow_with_the_length(together: bool) -> None:
    minute = np.concatenate([spoken(40, 8000), silence(20, 8000, 1e-4)])

    def most(minutes: int) -> int:
        blocks = [np.tile(minute, minutes)] if together else [minute] * minutes
        tracemalloc.start()
        count = sum(1 for _ in sound_pieces(blocks, 8000))
        assert count >= minutes
        size = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return size

    assert most(6) < 1.2 * most(2)


@pytest.mark.parametrize("decibels", [-20, -50, -70])
def test_quiet_speech_has_the_pieces_of_loud_speech(decibels: float) -> None:
    parts = [part for i in range(3) for part in (silence(1, 8000, 1e-4), spoken(2, 8000, i))]
    loud = np.concatenate([*parts, silence(1, 8000, 1e-4)])
    quiet = (loud * 10 ** (decibels / 20)).astype(np.float32)
    expected = [(piece.start, piece.end) for piece in pieces(loud)]
    result = [(piece.start, piece.end) for piece in pieces(quiet)]
    assert len(result) == len(expected) >= 3
    assert np.allclose(result, expected, atol=0.1)
