"""Headers of audio files: formats that are read and not read, and files shorter than they declare.

Decoders return the beginning of a truncated WAV, OGG or MP3 file without an error, so the length
in its header is compared with the file's.
"""

from __future__ import annotations

import io
import os
import struct
from pathlib import Path
from typing import BinaryIO

from transduce.audio.mpeg import begins_with_frames, declared_size
from transduce.audio.wav import UNKNOWN_SIZE, is_wav, read_header

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
