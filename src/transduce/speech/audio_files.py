"""Audio files: headers, WAV, frames of MPEG, containers, and samples written as WAV.

Decoders return the beginning of a truncated WAV, OGG or MP3 file without an error, so the length
in its header is compared with the file's.
"""

import io
import os
import re
import struct
import wave
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from transduce.errors import DataError, writing
from transduce.support.files import whole_file

TAG_HEADER = 10
"""Bytes of the header of an ID3v2 tag, and of its footer."""
PADDING_BYTES = 2**16
"""Bytes in which the first frame is looked for."""
LONGEST_FRAME = 2881
"""Maximum number of bytes of a frame: layer II at 384 kbit/s and 48 kHz has fewer."""
KILOBITS = {
    (1, 1): (32, 64, 96, 128, 160, 192, 224, 256, 288, 320, 352, 384, 416, 448),
    (1, 2): (32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384),
    (1, 3): (32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    (2, 1): (32, 48, 56, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256),
    (2, 2): (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
}
"""Rates of bits by version, 2.5 as 2, and layer; layer III of version 2 has those of layer II."""
RATES = (44_100, 48_000, 32_000)


class Frame(NamedTuple):
    """Header of a frame: its bytes, 0 in a free format, and those before the bytes of an index."""

    length: int
    side: int


def frame_at(data: bytes, at: int = 0) -> Frame | None:
    """The frame of layer I, II or III that begins there, or None."""
    header = int.from_bytes(data[at : at + 4], "big")
    version, layer = header >> 19 & 3, 4 - (header >> 17 & 3)
    bits, rate = header >> 12 & 15, header >> 10 & 3
    if len(data) < at + 4 or header >> 21 != 0x7FF or version == 1:
        return None
    if layer == 4 or bits == 15 or rate == 3 or header & 3 == 2:
        return None
    old = version != 3
    side = (9 if old else 17) if header >> 6 & 3 == 3 else (17 if old else 32)
    if not bits:
        return Frame(0, 4 + side)
    kilobits = KILOBITS[2 if old else 1, min(layer, 2) if old else layer][bits - 1]
    hertz, padding = RATES[rate] >> (3 - version if version else 2), header >> 9 & 1
    if layer == 1:
        return Frame((12_000 * kilobits // hertz + padding) * 4, 4 + side)
    slots = 72_000 if old and layer == 3 else 144_000
    return Frame(slots * kilobits // hertz + padding, 4 + side)


def begins_with_frames(data: bytes) -> bool:
    """True for a frame that another follows, as far as the bytes show it."""
    frame = frame_at(data)
    if frame is None:
        return False
    return len(data) < frame.length + 4 or frame_at(data, frame.length) is not None


def tags_end(file: BinaryIO) -> int:
    """Bytes of the ID3v2 tags that a file begins with."""
    at = 0
    while True:
        file.seek(at)
        head = file.read(TAG_HEADER)
        if len(head) < TAG_HEADER or head[:3] != b"ID3" or max(head[6:]) > 127:
            return at
        size = 0
        for seven_bits in head[6:]:
            size = size << 7 | seven_bits
        at += TAG_HEADER + size + (TAG_HEADER if head[5] & 0x10 else 0)


def declared_size(file: BinaryIO) -> int:
    """Bytes of a file by the Xing or Info header in its first frame; 0 without either."""
    begin = tags_end(file)
    file.seek(begin)
    head = file.read(PADDING_BYTES)
    padding = len(head) - len(head.lstrip(b"\0"))
    frame = frame_at(head, padding)
    if frame is None:
        return 0
    at = padding + frame.side
    flags = int.from_bytes(head[at + 4 : at + 8], "big")
    if head[at : at + 4] not in (b"Xing", b"Info") or not flags & 2:
        return 0
    at += 8 + 4 * (flags & 1)
    size = int.from_bytes(head[at : at + 4], "big")
    return begin + padding + size if size else 0


READ_BYTES = 2**16
"""Maximum number of bytes read at a time."""
MOST_CHUNKS = 1000
"""Chunks before the samples of a WAV file; of more, it is damaged."""
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
    read.  A file, which is seekable, is left at any place.

    stream: of bytes.  head: the first 12 bytes, already read.
    """
    layout, begun, at, chunk = None, [head], len(head), b""
    for _ in range(MOST_CHUNKS):
        if len(chunk := exactly(stream, 8)) < 8:
            break
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
    else:
        return None, b"".join(begun)
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


HEAD_BYTES = 12
"""Bytes by which a format is recognised."""
TAIL_BYTES = 2**16
"""Bytes in which the last page of an OGG file is looked for."""
READ = (
    *(b"RIFF", b"RIFX", b"RF64", b"riff", b"FORM", b".snd", b"dns.", b"caff", b"NIST_1A"),
    *(b"fLaC", b"OggS", b"ID3"),
)
UNREAD = (
    (4, b"ftyp", "MP4 or M4A"),
    (0, b"\x1aE\xdf\xa3", "WebM or Matroska"),
    (0, b"0&\xb2u\x8ef\xcf\x11", "WMA"),
    (0, b"#!AMR", "AMR"),
)


def unread_format(head: bytes) -> str | None:
    """Name of a format that soundfile does not read, from the first bytes of a file, or None."""
    for at, mark, name in UNREAD:
        if head[at : at + len(mark)] == mark:
            return name
    # AAC in ADTS frames begins with 12 set bits and a layer of 0; that of MPEG audio is never 0.
    if len(head) > 1 and head[0] == 0xFF and head[1] & 0xF6 == 0xF0:
        return "AAC"
    return None


def is_file(head: bytes) -> bool:
    """True for the first bytes of an audio file; raw samples begin with any others."""
    return head.startswith(READ) or unread_format(head) is not None or begins_with_frames(head)


def missing_share(file: Path | bytes) -> float:
    """Share of a file, from 0 to 1, that its header declares and that is not there.

    Known for WAV, AIFF, AU, and MP3 with a Xing header; 0 for others.  An OGG file, plain or Opus,
    without its last page counts as 1.
    """
    with file.open("rb") if isinstance(file, Path) else io.BytesIO(file) as opened:
        size = opened.seek(0, os.SEEK_END)
        opened.seek(0)
        head = opened.read(HEAD_BYTES)
        if head[:4] == b"OggS":
            return 0.0 if _has_last_page(opened, size) else 1.0
        declared = _declared_size(opened, head)
    return max(0.0, 1 - size / declared) if declared else 0.0


def undeclared_bytes(file: Path | bytes) -> int:
    """Bytes behind the samples of a WAV file by its header that are no chunk and no padding; 0 for
    others."""
    with file.open("rb") if isinstance(file, Path) else io.BytesIO(file) as opened:
        size = opened.seek(0, os.SEEK_END)
        opened.seek(0)
        head = opened.read(HEAD_BYTES)
        header = read_header(opened, head)[0] if is_wav(head) else None
        if header is None or not header.size:
            return 0
        opened.seek(header.start + header.size + header.size % 2)
        rest = opened.read(4)
        is_other = len(rest) < 4 or _is_name(rest) or rest == bytes(4)  # chunks, or padding
        return 0 if is_other else size - header.start - header.size


def _declared_size(file: BinaryIO, head: bytes) -> int:
    """Bytes of the whole file by its header, or 0 where it declares none."""
    if is_wav(head):
        header, _ = read_header(file, head)
        return 0 if header is None or header.size is None else header.start + header.size
    if len(head) == 12 and head[:4] == b"FORM":
        return 8 + int.from_bytes(head[4:8], "big")
    if len(head) == 12 and head[:4] == b".snd":
        start, size = struct.unpack(">II", head[4:12])
        return start + size if size < UNKNOWN_SIZE else 0
    return declared_size(file)


def _has_last_page(file: BinaryIO, size: int) -> bool:
    file.seek(max(0, size - TAIL_BYTES))
    tail = file.read()
    at = tail.rfind(b"OggS")
    return at >= 0 and at + 5 < len(tail) and bool(tail[at + 5] & 4)


EXTRA = "containers"
"""Extra with PyAV, whose wheel has its own FFmpeg."""


class ContainedSound:
    """Decoder of the first track of sound in a container."""

    def __init__(self, stream: BinaryIO, location: str) -> None:
        """Raises DataError for a container without sound."""
        self._av: Any = import_module("av")
        self._container = self._av.open(stream)
        tracks = self._container.streams.audio
        if not tracks:
            raise DataError(f"{location} has no sound")
        self.samplerate = int(tracks[0].rate)
        self.channels = int(tracks[0].codec_context.layout.nb_channels)
        self._blocks = self._decoded(tracks[0])
        self._rest = np.zeros((0, self.channels), np.float32)

    def seek(self, frame: int) -> int:
        """Stay at the beginning: containers find no sample exactly."""
        return 0

    def read(self, count: int) -> NDArray[np.float32]:
        """At most `count` samples (n, channels); none at the end."""
        parts, n = [self._rest], len(self._rest)
        while n < count and (block := next(self._blocks, None)) is not None:
            parts.append(block)
            n += len(block)
        samples = np.concatenate(parts)
        self._rest = samples[count:]
        return samples[:count]

    def _decoded(self, track: Any) -> Iterator[NDArray[np.float32]]:
        converter = self._av.AudioResampler("fltp", track.codec_context.layout, track.rate)
        for frame in self._container.decode(track):
            for planes in converter.resample(frame):
                yield planes.to_ndarray().T
        for planes in converter.resample(None):
            yield planes.to_ndarray().T


def wav_bytes(samples: NDArray[np.float32], rate: int) -> bytes:
    """Samples (n,) from -1 to 1 as the bytes of a WAV file; louder samples are clipped."""
    values = np.clip(np.round(np.asarray(samples) * 32768), -32768, 32767).astype("<i2")
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(values.tobytes())
    return buffer.getvalue()


def write_wav(path: Path, samples: NDArray[np.float32], rate: int) -> None:
    """Write a WAV file that is complete or absent.  Raises DataError if it cannot be written.

    path: of the file.  samples: (n,) from -1 to 1.  rate: in Hz.
    """
    with writing(path), whole_file(path) as file:
        file.write(wav_bytes(samples, rate))
