"""Headers of audio files: formats that are not read, and files shorter than they declare.

Decoders return the beginning of a truncated WAV, OGG or MP3 file without an error, so the length
in its header is compared with the file's.
"""

from __future__ import annotations

import io
import os
import struct
from pathlib import Path
from typing import BinaryIO

HEADER_BYTES = 2**16
"""Bytes in which the header of an MP3 file is looked for, and the last page of an OGG file."""
UNKNOWN_SIZE = 0x7FFFF000
"""Sizes from here on, and 0, are written to a pipe, where the length is not known yet."""
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


def missing_share(file: Path | bytes) -> float:
    """Share of a file, from 0 to 1, that its header declares and that is not there.

    Known for WAV, AIFF, AU, and MP3 with a Xing header; 0 for others, and for files without a
    declared length.  An OGG file, plain or Opus, without its last page counts as 1.
    """
    with file.open("rb") if isinstance(file, Path) else io.BytesIO(file) as opened:
        size = opened.seek(0, os.SEEK_END)
        opened.seek(0)
        head = opened.read(12)
        if head[:4] == b"OggS":
            return 0.0 if _has_last_page(opened, size) else 1.0
        declared = _declared_size(opened, head)
    return max(0.0, 1 - size / declared) if declared else 0.0


def _declared_size(file: BinaryIO, head: bytes) -> int:
    """Bytes of the whole file by its header, or 0 where it declares none."""
    if head[:4] == b"RIFF" and head[8:12] == b"WAVE":
        return _wav_size(file)
    if len(head) == 12 and head[:4] == b"FORM":
        return 8 + int.from_bytes(head[4:8], "big")
    if len(head) == 12 and head[:4] == b".snd":
        start, size = struct.unpack(">II", head[4:12])
        return start + size if size < UNKNOWN_SIZE else 0
    file.seek(0)
    return _mp3_size(file.read(HEADER_BYTES))


def _wav_size(file: BinaryIO) -> int:
    """Bytes up to the end of the samples, of a WAV file that is read up to its first chunk."""
    while len(chunk := file.read(8)) == 8:
        size = int.from_bytes(chunk[4:], "little")
        if chunk[:4] == b"data":
            return file.tell() + size if 0 < size < UNKNOWN_SIZE else 0
        file.seek(size + size % 2, os.SEEK_CUR)
    return 0


def _mp3_size(head: bytes) -> int:
    """Bytes by the Xing or Info header in the first frame of an MP3 file."""
    found = [at for mark in (b"Xing", b"Info") if (at := head.find(mark)) >= 0]
    if not found or not (head[:3] == b"ID3" or head[:1] == b"\xff"):
        return 0
    at = min(found) + 4
    flags = int.from_bytes(head[at : at + 4], "big")
    if not flags & 2 or len(head) < at + 12:
        return 0
    at += 4 + 4 * (flags & 1)
    return int.from_bytes(head[at : at + 4], "big")


def _has_last_page(file: BinaryIO, size: int) -> bool:
    """True if the last page of an OGG file is marked as the last one of its stream."""
    file.seek(max(0, size - HEADER_BYTES))
    tail = file.read()
    at = tail.rfind(b"OggS")
    return at >= 0 and at + 5 < len(tail) and bool(tail[at + 5] & 4)
