"""Recordings from a pipe: WAV of every layout, raw samples, and other files."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import BinaryIO, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.audio import Samples, encoded, noise
from transduce.audio.pipe import pipe_blocks
from transduce.audio.read import Excerpt, read_audio
from transduce.errors import DataError

RATE = 16_000


class Pipe(io.RawIOBase):
    """Bytes that come in parts of some sizes, as a pipe gives them; it cannot seek."""

    def __init__(self, data: bytes, sizes: Sequence[int] = (1000,)) -> None:
        self.data, self.sizes, self.at, self.turn = data, sizes, 0, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        size = min(len(buffer), self.sizes[self.turn % len(self.sizes)], len(self.data) - self.at)
        buffer[:size] = self.data[self.at : self.at + size]
        self.at, self.turn = self.at + size, self.turn + 1
        return size


def piped(data: bytes, sizes: Sequence[int] = (1000,), **options: int) -> Samples:
    pipe = cast(BinaryIO, io.BufferedReader(Pipe(data, sizes)))
    raw_rate = options.pop("raw_rate", RATE)
    return np.concatenate(
        [np.zeros(0, np.float32), *pipe_blocks(pipe, RATE, raw_rate, "stdin", **options)]
    )


@pytest.mark.parametrize(
    "subtype", ["PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE", "ULAW", "IMA_ADPCM"]
)
@pytest.mark.parametrize("rate", [8000, 16_000])
def test_wav_is_as_from_a_file(subtype: str, rate: int) -> None:
    data = encoded(noise(0.5, rate), rate, subtype=subtype)
    assert np.array_equal(piped(data, (7, 300)), read_audio(data, RATE))


def test_a_length_that_is_not_known() -> None:
    data = bytearray(encoded(noise(0.5)))
    for size in (0, 0xFFFFFFFF, 0x7FFFFFF0):
        data[40:44] = size.to_bytes(4, "little")
        assert len(piped(bytes(data))) == 8000


@pytest.mark.parametrize("form", ["FLAC", "OGG", "AIFF", "MP3"])
def test_other_files_are_read_to_their_end(form: str) -> None:
    data = encoded(noise(0.5), RATE, form)
    assert np.array_equal(piped(data), read_audio(data, RATE))


def test_channels() -> None:
    data = encoded(np.stack([noise(0.1), noise(0.1, seed=1)], 1))
    assert np.array_equal(piped(data), read_audio(data, RATE))
    assert np.array_equal(
        piped(data, channel=1), read_audio(data, RATE, excerpt=Excerpt(channel=1))
    )
    with pytest.raises(DataError, match="stdin has 2 channels, and no channel 3"):
        piped(data, channel=2)
    with pytest.raises(DataError, match=r"^stdin has 1 channel, and no channel 2$"):
        piped(encoded(noise(0.1)), channel=1)


@given(st.lists(st.integers(1, 3000), min_size=1, max_size=9))
@settings(max_examples=30, deadline=None)
def test_raw_samples_in_any_parts(sizes: list[int]) -> None:
    samples = (noise(0.3) * 32767).astype("<i2")
    assert np.array_equal(piped(samples.tobytes(), sizes), samples.astype(np.float32) / 32768)


def test_raw_samples_of_another_rate() -> None:
    samples = (noise(1, 8000) * 32767).astype("<i2")
    expected = read_audio(encoded(samples, 8000), RATE)
    assert np.array_equal(piped(samples.tobytes(), raw_rate=8000), expected)
    assert not len(piped(b""))
    assert len(piped(b"\1\2\3")) == 1  # half a sample at the end is none


def test_text_comes_before_the_end() -> None:
    """A block is there as soon as its bytes are."""
    pipe = Pipe(encoded(noise(3)), (4000,))
    blocks = pipe_blocks(cast(BinaryIO, io.BufferedReader(pipe, 4000)), RATE, RATE, "stdin")
    next(blocks)
    assert pipe.at < 13_000


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"RIFF\xff\xff\xff\xffWAVEfmt \x04\0\0\0abcd", "its format has 4 bytes"),
        (b"RIFF\xff\xff\xff\xffWAVELIST\xff\xff\xff\x7f", "no samples follow it"),
        (b"RIFF\xff\xff\xff\xffWAVE", "no samples follow it"),
        (b"\0\0\0\x20ftypM4A \0\0\0\0", "is MP4 or M4A, which is not read here"),
    ],
)
def test_broken_headers(data: bytes, message: str) -> None:
    with pytest.raises(DataError, match=f"stdin .*{message}"):
        piped(data)


def test_a_rate_of_zero() -> None:
    data = bytearray(encoded(noise(0.1)))
    data[24:28] = bytes(4)
    with pytest.raises(DataError, match="stdin has a damaged WAV header: 1 channels, 0 a second"):
        piped(bytes(data))


def test_values_that_are_no_samples() -> None:
    samples = noise(0.5)
    samples[5000] = np.nan
    with pytest.raises(DataError, match="stdin has samples that are not finite near second 0"):
        piped(encoded(samples, subtype="FLOAT"))
