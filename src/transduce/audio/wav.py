"""Plain samples of WAV files, from a file or a pipe, and raw samples."""

from __future__ import annotations

import io
import os
import re
import struct
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

READ_BYTES = 2**16
"""Maximum number of bytes read at a time."""
UNKNOWN_SIZE = 0x7FFFF000
"""Sizes from here on are written to a pipe, where the length is not known yet."""
PCM, FLOAT, EXTENSIBLE = 1, 3, 0xFFFE
LAYOUTS = {
    (PCM, 8): "u1",
    (PCM, 16): "<i2",
    (PCM, 24): "V3",
    (PCM, 32): "<i4",
    (FLOAT, 32): "<f4",
    (FLOAT, 64): "<f8",
}


@dataclass(frozen=True)
class Layout:
    """Uncompressed samples: type of each, number of channels, rate a second."""

    dtype: np.dtype[np.void | np.generic]
    channels: int
    rate: int

    @property
    def size(self) -> int:
        """Bytes of a sample of all channels."""
        return self.dtype.itemsize * self.channels

    def values(self, data: bytes) -> NDArray[np.float32]:
        """Samples (n, channels) from -1 to 1; 24 bits are read as bytes."""
        if self.dtype.kind == "V":
            padded = np.zeros((len(data) // 3, 4), np.uint8)
            padded[:, 1:] = np.frombuffer(data, np.uint8).reshape(-1, 3)
            values = padded.view("<i4")[:, 0].astype(np.float32) / np.float32(2**31)
        else:
            values = np.frombuffer(data, self.dtype).astype(np.float32)
            if self.dtype.kind == "u":
                values -= 128
            full = 1 if self.dtype.kind == "f" else 2 ** (8 * self.dtype.itemsize - 1)
            values = values / np.float32(full)
        return values.reshape(-1, self.channels)


@dataclass(frozen=True)
class WavHeader:
    """Header of a WAV file.

    layout: None where the samples are compressed.  start, size: bytes before the samples and of
    them; None where they run to the end.  unfinished: the size is 0, as a recorder fills it in at
    its end.
    """

    layout: Layout | None
    start: int
    size: int | None
    unfinished: bool


def is_wav(head: bytes) -> bool:
    """True for the first 12 bytes of a WAV file."""
    return head[:4] == b"RIFF" and head[8:12] == b"WAVE"


def read_header(
    stream: BinaryIO, head: bytes, seekable: bool = True
) -> tuple[WavHeader | None, bytes]:
    """Header of a WAV file after its first 12 bytes, None if damaged; of a pipe also all bytes
    read.  A file, which is seekable, is left at any place."""
    layout, begun, at = None, [head], len(head)
    while len(chunk := exactly(stream, 8)) == 8:
        begun.append(chunk)
        at += 8
        size = int.from_bytes(chunk[4:], "little")
        if chunk[:4] == b"data":
            whole = 8 + int.from_bytes(head[4:8], "little")
            if not size:
                begun.append(exactly(stream, 4))
            unfinished = not size and not (at < whole < UNKNOWN_SIZE and _is_name(begun[-1]))
            there = stream.seek(0, os.SEEK_END) if seekable else 0
            endless = unfinished or (size >= UNKNOWN_SIZE and at + size > there)
            header = WavHeader(layout, at, None if endless else size, unfinished)
            return header, b"".join(begun)
        at += size + size % 2
        if chunk[:4] == b"fmt ":
            begun.append(content := exactly(stream, size + size % 2))
            layout = _layout(content)
        elif seekable:
            stream.seek(at)
        else:
            begun.append(exactly(stream, size + size % 2))
    return None, b"".join([*begun, chunk])


def _is_name(data: bytes) -> bool:
    """True for the name of a chunk: an empty recording may have others behind it."""
    return len(data) == 4 and re.fullmatch(rb"[A-Za-z0-9_ ]{4}", data) is not None


def _layout(chunk: bytes) -> Layout | None:
    """The layout of a `fmt ` chunk; None for a compressed or an impossible layout."""
    if len(chunk) < 16:
        return None
    kind, channels, rate, _, block, bits = struct.unpack("<HHIIHH", chunk[:16])
    if kind == EXTENSIBLE and len(chunk) >= 26:
        (kind,) = struct.unpack("<H", chunk[24:26])
    name = LAYOUTS.get((kind, bits))
    if name is None or not channels:
        return None
    layout = Layout(np.dtype(name), channels, rate)
    return layout if block == layout.size else None


def finished(data: bytes, header: WavHeader) -> bytes:
    """The bytes of a file whose header was never finished, with the sizes of its samples."""
    riff, size = struct.pack("<I", len(data) - 8), struct.pack("<I", len(data) - header.start)
    return data[:4] + riff + data[8 : header.start - 4] + size + data[header.start :]


class PlainSamples:
    """Uncompressed samples of a file or a pipe, as they come."""

    def __init__(
        self, stream: BinaryIO, layout: Layout, size: int | None, begun: bytes = b"", start: int = 0
    ) -> None:
        """size: bytes of all samples, to the end if None.  begun: the first of them, read already
        from a pipe.  start: place of the first in a file."""
        self.samplerate = layout.rate
        self.channels = layout.channels
        self.missing = size or 0
        """Bytes that are declared and not read yet; 0 where their number is not known."""
        self._stream = stream
        self._layout = layout
        self._endless = size is None
        self._rest = begun
        self._start = start

    def seek(self, frame: int) -> int:
        """Go to a sample of a file, or to its end; returns its number."""
        if not self._endless:
            frame = min(frame, self.missing // self._layout.size)
            self.missing -= frame * self._layout.size
        self._stream.seek(self._start + frame * self._layout.size)
        return frame

    def read(self, count: int) -> NDArray[np.float32]:
        """At most `count` samples (n, channels), as soon as there are some; none at the end."""
        size = self._layout.size
        while len(self._rest) < size:
            most = READ_BYTES if self._endless else min(READ_BYTES, self.missing)
            more = _some(self._stream, most)
            if not more:
                return np.zeros((0, self.channels), np.float32)
            self.missing = max(0, self.missing - len(more))
            self._rest += more
        whole = min(count, len(self._rest) // size) * size
        block, self._rest = self._rest[:whole], self._rest[whole:]
        return self._layout.values(block)


def exactly(stream: BinaryIO, count: int) -> bytes:
    """The next bytes; fewer where the stream ends."""
    data = io.BytesIO()
    while count and (more := stream.read(min(count, READ_BYTES))):
        data.write(more)
        count -= len(more)
    return data.getvalue()


def _some(stream: BinaryIO, most: int) -> bytes:
    read_some = getattr(stream, "read1", stream.read)
    data: bytes = read_some(most)
    return data
