"""Frames of MPEG audio: place of the first, and how many bytes it declares."""

from __future__ import annotations

from typing import BinaryIO, NamedTuple

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
