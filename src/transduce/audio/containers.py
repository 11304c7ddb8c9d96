"""Recordings in MP4, WebM and other containers that soundfile does not read, by PyAV."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from transduce.errors import DataError

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
