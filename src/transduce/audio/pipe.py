"""Read recordings from a pipe as they come: WAV, or raw samples of 16 bits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

import numpy as np

from transduce.audio.container import HEAD_BYTES, is_file
from transduce.audio.mpeg import LONGEST_FRAME, frame_at
from transduce.audio.read import Excerpt, Samples, audio_blocks, sound_blocks, warn_truncated
from transduce.audio.wav import Layout, PlainSamples, exactly, is_wav, read_header


def pipe_blocks(
    pipe: BinaryIO, rate: int, raw_rate: int, location: str, channel: int | None = None
) -> Iterator[Samples]:
    """Stream a recording from a pipe as blocks (n,) of float32 samples, mono, `rate` a second.

    A WAV file is recognised by its header; other known formats are read to their end first.
    Anything else is raw: little-endian integers of 16 bits, one channel, `raw_rate` a second.
    Raises the errors of `audio_blocks`.
    """
    head, excerpt = exactly(pipe, HEAD_BYTES), Excerpt(channel=channel)
    if is_wav(head):
        header, head = read_header(pipe, head, seekable=False)
        if header is not None and header.layout is not None:
            begun = head[header.start :] if header.size is None else b""
            sound = PlainSamples(pipe, header.layout, header.size, begun)
            yield from sound_blocks(sound, rate, location, excerpt)
            if sound.missing:
                warn_truncated(location, sound.missing / (header.size or 1))
            return
    elif frame_at(head) is not None:
        head += exactly(pipe, LONGEST_FRAME)  # raw samples may begin like one frame
    if is_file(head):
        yield from audio_blocks(head + pipe.read(), rate, location, excerpt)
        return
    raw = PlainSamples(pipe, Layout(np.dtype("<i2"), 1, raw_rate), None, head)
    yield from sound_blocks(raw, rate, location, excerpt)
