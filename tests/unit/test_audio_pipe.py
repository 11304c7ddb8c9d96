"""Recordings from a pipe: WAV of every layout, raw samples, and other files."""

from __future__ import annotations

import io
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.audio import Samples, encoded, noise, saved, tone
from transduce.errors import DataError
from transduce.speech.audio import Excerpt, pipe_blocks, read_audio

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
    pipe = Pipe(encoded(noise(3)), (4000,))
    blocks = pipe_blocks(cast(BinaryIO, io.BufferedReader(pipe, 4000)), RATE, RATE, "stdin")
    next(blocks)
    assert pipe.at < 13_000


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"RIFF\xff\xff\xff\xffWAVEfmt \x04\0\0\0abcd", "cannot be read as audio: "),
        (b"RIFF\xff\xff\xff\xffWAVELIST\xff\xff\xff\x7f", "cannot be read as audio: "),
        (b"RIFF\xff\xff\xff\xffWAVE", "cannot be read as audio: "),
        (
            b"\0\0\0\x20ftypM4A \0\0\0\0",
            "is MP4 or M4A, which needs the extra 'containers'|cannot be read as audio",
        ),
    ],
)
def test_broken_headers(data: bytes, message: str) -> None:
    with pytest.raises(DataError, match=f"stdin .*{message}"):
        piped(data)


def test_a_rate_of_zero() -> None:
    data = bytearray(encoded(noise(0.1)))
    data[24:28] = bytes(4)
    with pytest.raises(DataError, match="stdin has 0 samples a second by its header"):
        piped(bytes(data))


def test_values_that_are_no_samples() -> None:
    samples = noise(0.5)
    samples[5000] = np.nan
    with pytest.raises(DataError, match="stdin has samples that are not finite near second 0"):
        piped(encoded(samples, subtype="FLOAT"))


class TestAsFromAFile:
    """A file and a pipe of the same bytes give the same samples, or the same error."""

    SECOND = read_audio(encoded(noise(1)), RATE)

    def both(self, tmp_path: Path, data: bytes) -> Samples:
        samples = read_audio(saved(tmp_path / "a", data), RATE)
        assert np.array_equal(samples, piped(data, (7, 300, 4000)))
        assert np.array_equal(samples, read_audio(data, RATE))
        return samples

    @pytest.mark.parametrize("subtype", ["PCM_16", "PCM_24", "FLOAT", "ULAW", "IMA_ADPCM"])
    @pytest.mark.parametrize("sizes", [(0, 0), (36, 0), (0xFFFFFFFF, 0), (0xFFFFFFFF, 0xFFFFFFFF)])
    def test_a_header_that_was_never_finished(
        self, tmp_path: Path, subtype: str, sizes: tuple[int, int]
    ) -> None:
        data = bytearray(encoded(noise(1), subtype=subtype))
        expected = read_audio(bytes(data), RATE)
        at = data.index(b"data") + 4
        data[4:8], data[at : at + 4] = (size.to_bytes(4, "little") for size in sizes)
        samples = self.both(tmp_path, bytes(data))
        assert len(samples) >= RATE
        assert np.array_equal(samples, expected)

    @pytest.mark.parametrize("subtype", ["PCM_U8", "PCM_16", "FLOAT", "ULAW"])
    @pytest.mark.parametrize("seconds", [0, 1])
    def test_chunks_behind_the_samples(self, tmp_path: Path, subtype: str, seconds: int) -> None:
        data = encoded(noise(seconds), subtype=subtype)
        tail = b"LIST" + (999).to_bytes(4, "little") + b"INFO".ljust(999, b"\x7f") + b"\0"
        data = data[:4] + (len(data) + len(tail) - 8).to_bytes(4, "little") + data[8:] + tail
        assert len(self.both(tmp_path, data)) == seconds * RATE

    def test_chunks_before_the_samples(self, tmp_path: Path) -> None:
        data = encoded(noise(1))
        tail = b"id3 " + (3_000_001).to_bytes(4, "little") + bytes(3_000_002)
        assert np.array_equal(self.both(tmp_path, data[:12] + tail + data[12:]), self.SECOND)

    @pytest.mark.parametrize("rate", [8000, 16_000, 44_100])
    def test_every_version_of_mp3(self, tmp_path: Path, rate: int) -> None:
        samples = self.both(tmp_path, encoded(tone(2, rate), rate, "MP3"))
        assert np.abs(samples[RATE // 2 : RATE * 3 // 2]).max() == pytest.approx(0.3, abs=0.05)

    @pytest.mark.parametrize("form", ["NIST", "AU", "CAF", "W64", "RF64", "AIFF"])
    def test_rarer_containers(self, tmp_path: Path, form: str) -> None:
        assert np.allclose(self.both(tmp_path, encoded(noise(1), RATE, form)), self.SECOND)

    def test_a_truncated_file(self, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.WARNING):
            assert len(piped(encoded(noise(1))[: -RATE // 2])) == RATE * 3 // 4
        assert "stdin is truncated: 25 % of its bytes are missing" in caplog.text

    def test_raw_samples_that_begin_like_a_frame(self) -> None:
        samples = (noise(0.3) * 32767).astype("<i2")
        raw = b"\xff\xe3\x48\xc4" + samples.tobytes()
        assert len(piped(raw)) == len(samples) + 2
