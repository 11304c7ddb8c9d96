"""Read recordings from a pipe as they come: WAV, or raw samples of 16 bits."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from transduce.audio.container import unread_format
from transduce.audio.read import (
    RATES,
    Excerpt,
    Samples,
    audio_blocks,
    check_channel,
    check_values,
    mono,
    resampled,
    warn_of_rate,
)
from transduce.errors import DataError

PIPE_BYTES = 2**16
"""Maximum number of bytes read at a time."""
HEAD_BYTES = 12
COMPRESSED = (b"fLaC", b"OggS", b"ID3", b"FORM", b".snd", b"caff", b"RF64", b"riff")
"""First bytes of files that are decoded as a whole."""
PCM, FLOAT, EXTENSIBLE = 1, 3, 0xFFFE
LONGEST_CHUNK = 2**20
"""Maximum size in bytes of a WAV header chunk before the samples."""


def pipe_blocks(
    pipe: BinaryIO, rate: int, raw_rate: int, place: str, channel: int | None = None
) -> Iterator[Samples]:
    """Stream a recording from a pipe as blocks (n,) of float32 samples, mono, `rate` a second.

    A WAV file is recognised by its header; other known formats are read to their end first.
    Anything else is raw: little-endian integers of 16 bits, one channel, `raw_rate` a second.
    channel: a channel of a WAV file from 0, by default the mean of all.  Raises DataError, while
    reading, for a header that cannot be read.
    """
    head = _exactly(pipe, HEAD_BYTES)
    if head[:4] == b"RIFF" and head[8:12] == b"WAVE":
        yield from _wav_blocks(pipe, head, rate, place, channel)
        return
    whole = head.startswith(COMPRESSED) or unread_format(head) or _is_mpeg(head)
    if whole:
        yield from audio_blocks(head + pipe.read(), rate, place, Excerpt(channel=channel))
        return
    form = _Format(np.dtype("<i2"), 1, raw_rate)
    yield from form.blocks(pipe, head, rate, place, channel)


def _is_mpeg(head: bytes) -> bool:
    """True for a frame of MPEG audio; raw samples begin so too, at a loud click of 1 in 16,000."""
    return len(head) > 2 and head[0] == 0xFF and head[1] in (0xFA, 0xFB, 0xF2, 0xF3)


class _Format:
    """Layout of uncompressed samples."""

    def __init__(self, dtype: np.dtype[np.void | np.generic], channels: int, rate: int) -> None:
        self.dtype = dtype
        self.channels = channels
        self.rate = rate

    def blocks(
        self, pipe: BinaryIO, begun: bytes, rate: int, place: str, channel: int | None
    ) -> Iterator[Samples]:
        """Blocks of samples at another rate, `begun` being the first bytes of them."""
        check_channel(channel, self.channels, place)
        if self.rate < rate:
            warn_of_rate(self.rate, rate)
        return resampled(self._decoded(pipe, begun, place, channel), self.rate, rate)

    def _decoded(
        self, pipe: BinaryIO, rest: bytes, place: str, channel: int | None
    ) -> Iterator[Samples]:
        size, second = self.dtype.itemsize * self.channels, 0.0
        while True:
            whole = len(rest) // size * size
            if whole:
                block = self._values(rest[:whole]).reshape(-1, self.channels)
                check_values(block, second, place)
                second += len(block) / self.rate
                yield mono(block, channel)
            more = _some(pipe)
            if not more:
                return
            rest = rest[whole:] + more

    def _values(self, data: bytes) -> NDArray[np.float32]:
        """Samples from -1 to 1; 24 bits are read as bytes."""
        if self.dtype.kind == "V":
            padded = np.zeros((len(data) // 3, 4), np.uint8)
            padded[:, 1:] = np.frombuffer(data, np.uint8).reshape(-1, 3)
            return padded.view("<i4")[:, 0].astype(np.float32) / np.float32(2**31)
        values = np.frombuffer(data, self.dtype).astype(np.float32)
        if self.dtype.kind == "u":
            values -= 128
        full = 1 if self.dtype.kind == "f" else 2 ** (8 * self.dtype.itemsize - 1)
        return values / np.float32(full)


def _wav_blocks(
    pipe: BinaryIO, begun: bytes, rate: int, place: str, channel: int | None
) -> Iterator[Samples]:
    """Samples of a WAV file; a format that is not plain is decoded when the file has ended."""
    form: _Format | None = None
    while len(head := _exactly(pipe, 8)) == 8:
        begun += head
        size = int.from_bytes(head[4:], "little")
        if head[:4] == b"data":
            if form is None:
                yield from audio_blocks(begun + pipe.read(), rate, place, Excerpt(channel=channel))
            else:
                yield from form.blocks(pipe, b"", rate, place, channel)
            return
        if size > LONGEST_CHUNK:
            break
        begun += (content := _exactly(pipe, size + size % 2))
        if head[:4] == b"fmt ":
            form = _wav_format(content, place)
    raise DataError(f"{place} has a damaged WAV header: no samples follow it")


def _wav_format(chunk: bytes, place: str) -> _Format | None:
    """The layout that a `fmt ` chunk declares; None for one that is not plain."""
    if len(chunk) < 16:
        raise DataError(f"{place} has a damaged WAV header: its format has {len(chunk)} bytes")
    kind, channels, rate, _, _, bits = struct.unpack("<HHIIHH", chunk[:16])
    if kind == EXTENSIBLE and len(chunk) >= 26:
        (kind,) = struct.unpack("<H", chunk[24:26])
    name = {
        (PCM, 8): "u1",
        (PCM, 16): "<i2",
        (PCM, 24): "V3",
        (PCM, 32): "<i4",
        (FLOAT, 32): "<f4",
        (FLOAT, 64): "<f8",
    }.get((kind, bits))
    if not channels or not RATES[0] <= rate <= RATES[1]:
        raise DataError(f"{place} has a damaged WAV header: {channels} channels, {rate} a second")
    return None if name is None else _Format(np.dtype(name), channels, rate)


def _exactly(pipe: BinaryIO, count: int) -> bytes:
    """The next bytes; fewer where the pipe ends."""
    data = b""
    while len(data) < count and (more := pipe.read(count - len(data))):
        data += more
    return data


def _some(pipe: BinaryIO) -> bytes:
    """Some bytes as soon as there are any; none at the end."""
    read_some = getattr(pipe, "read1", pipe.read)
    data: bytes = read_some(PIPE_BYTES)
    return data
