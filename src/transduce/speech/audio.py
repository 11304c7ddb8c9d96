"""Recordings as mono samples of one rate, in blocks, from files or from a pipe."""

import functools
import io
import logging
import os
import re
import shlex
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np
from numpy.typing import NDArray

from transduce.errors import DataError, extra_module, first_line, reading
from transduce.speech.audio_files import (
    EXTRA,
    HEAD_BYTES,
    LONGEST_FRAME,
    ContainedSound,
    Layout,
    PlainSamples,
    exactly,
    finished,
    frame_at,
    is_file,
    is_wav,
    missing_share,
    read_header,
    undeclared_bytes,
    unread_format,
)
from transduce.support.files import AUDIO_LIMIT

logger = logging.getLogger("transduce")

Samples = NDArray[np.float32]

AUDIO_SUFFIXES = (
    *(".wav", ".flac", ".ogg", ".oga", ".opus", ".mp3", ".aiff", ".aif", ".aifc", ".au", ".snd"),
    *(".caf", ".w64", ".rf64", ".sph"),
)
SEEKABLE = ("WAV", "WAVEX", "RF64", "W64", "FLAC", "AIFF", "AU", "CAF", "NIST")
"""Formats in which a sample is found exactly; in MP3, a decoder lands at other samples."""
BLOCK_VALUES = 2**17
"""Values of all channels that are decoded at a time."""
AUDIO_RATES = (1000, 768_000)
"""Samples a second; others are a broken header, and would grow without bound in resampling."""
LARGEST = 2.0**16
"""Magnitude of samples, which run from -1 to 1: beyond 16-bit integers as floats, a file is
broken."""
EMPTY_BYTES = 4096
"""Maximum size of a file without samples; a larger file has some, though its header has none."""
MISSING_SECONDS = 0.1
MISSING_SHARE = 0.02
"""Tolerated difference of a recording from its length in a manifest, as encoders round."""


@dataclass(frozen=True)
class Excerpt:
    """Part of a recording."""

    start: float | None = None
    """Seconds from its beginning; None for the whole recording."""
    duration: float | None = None
    """Seconds, with a start; without one, the expected length of the whole recording."""
    channel: int | None = None
    """Number of a channel from 0; by default the mean of all."""
    speed: float = 1.0
    """Factor of tempo and pitch (Ko et al. 2015)."""


WHOLE = Excerpt()


def read_audio(
    file: Path | bytes,
    rate: int,
    location: str = "",
    excerpt: Excerpt = WHOLE,
    strict: bool = False,
) -> Samples:
    """Samples (n,) of a recording, as `audio_blocks` gives them.  Also raises DataError for a
    recording above the limit of length.

    file: path or bytes.  rate: in Hz.  location: for messages.  excerpt: part of the recording.
    strict: raise an error for a truncated recording.
    """
    blocks, count = [], 0
    for block in audio_blocks(file, rate, location, excerpt, strict):
        blocks.append(block)
        count += len(block)
        if count > AUDIO_LIMIT.most() * 60 * rate:
            raise DataError(
                f"{location or _name_of(file)} is longer than {AUDIO_LIMIT.most()} minutes; use "
                f"`transduce transcribe`, which reads it in parts, or {AUDIO_LIMIT.remedy()}"
            )
    return np.concatenate(blocks) if blocks else np.zeros(0, np.float32)


def audio_blocks(
    file: Path | bytes,
    rate: int,
    location: str = "",
    excerpt: Excerpt = WHOLE,
    strict: bool = False,
) -> Generator[Samples, None, None]:
    """Stream a recording as blocks (n,) of float32 samples from -1 to 1, mono, `rate` a second.

    Formats are WAV, FLAC, OGG, Opus, MP3, AIFF, AU and others of libsndfile.  Neither memory nor
    samples depend on the blocks.  location: in messages, by default the path.  strict: a truncated
    file is an error; else it is read to its end, with a warning.  Raises DataError, while reading,
    for a file that is missing, broken or of another format, for a missing channel, and for samples
    that are not finite.
    """
    location = location or _name_of(file)
    with _opened(file, location) as sound:
        blocks, read = sound_blocks(sound, rate, location, excerpt), 0
        _check_whole(file, location, strict)
        for block in blocks:
            read += len(block)
            yield block
    if not read and excerpt.start is None:
        _check_empty(file, location, strict)
    _check_duration(read / rate * excerpt.speed, excerpt, location, strict)


class Sound(Protocol):
    """Decoder of a recording."""

    samplerate: int
    channels: int

    def seek(self, frame: int) -> int:
        """Go to a sample at most that far from the beginning; returns its number."""

    def read(self, count: int) -> NDArray[np.float32]:
        """At most `count` samples (n, channels); none at the end."""


def sound_blocks(sound: Sound, rate: int, location: str, excerpt: Excerpt) -> Iterator[Samples]:
    """Blocks of an opened recording, as `audio_blocks` gives them.

    sound: the opened recording.  rate: in Hz.  location: for messages.  excerpt: part of the
    recording.
    """
    _check_header(sound, excerpt.channel, location)
    if sound.samplerate < rate:
        warn_of_rate(sound.samplerate, rate)
    blocks = _own_rate(sound, excerpt, location)
    return resampled(blocks, sound.samplerate * excerpt.speed, rate)


def channels_of(file: Path | bytes, location: str = "") -> int:
    """Number of channels of a recording.  Raises the errors of `audio_blocks`."""
    with _opened(file, location or _name_of(file)) as sound:
        return int(sound.channels)


def _name_of(file: Path | bytes) -> str:
    return str(file) if isinstance(file, Path) else "the recording"


def _check_header(sound: Any, channel: int | None, location: str) -> None:
    if not AUDIO_RATES[0] <= sound.samplerate <= AUDIO_RATES[1]:
        raise DataError(
            f"{location} has {sound.samplerate} samples a second by its header; "
            f"recordings have {AUDIO_RATES[0]} to {AUDIO_RATES[1]}"
        )
    check_channel(channel, sound.channels, location)


@functools.lru_cache
def warn_of_rate(before: int, after: int) -> None:
    """Warn once about recordings below the rate of the model."""
    logger.warning(
        "recordings of %d samples a second are resampled to %d, and have nothing in the upper "
        "bins; a model with audio.rate = %d suits them better",
        *(before, after, before),
    )


def _check_whole(file: Path | bytes, location: str, strict: bool) -> None:
    with reading(location):
        missing = missing_share(file)
    if missing > MISSING_SHARE:
        warn_truncated(location, missing, strict)
    elif (undeclared := undeclared_bytes(file)) > EMPTY_BYTES:
        _truncated(
            f"{location} has {undeclared} bytes behind the samples that its header declares; copy "
            "or record it again",
            strict,
        )


def warn_truncated(location: str, missing: float, strict: bool = False) -> None:
    """Warn of a recording without a share of its bytes; strict: raise DataError.

    location: for messages.  missing: share of the bytes, from 0 to 1.
    """
    share = f"{max(1, round(100 * missing))} % of its bytes are"
    part = "its end is" if missing == 1 else share
    _truncated(f"{location} is truncated: {part} missing; copy it again", strict)


def _check_empty(file: Path | bytes, location: str, strict: bool) -> None:
    """A recorder that is interrupted leaves a header of no samples before those it wrote."""
    size = file.stat().st_size if isinstance(file, Path) else len(file)
    if size > EMPTY_BYTES:
        _truncated(
            f"{location} has no samples by its header, and {size} bytes; if its recorder was "
            f"interrupted, {_conversion(file)}",
            strict,
        )


def _check_duration(seconds: float, excerpt: Excerpt, location: str, strict: bool) -> None:
    expected = excerpt.duration
    if expected is None or seconds >= expected * (1 - MISSING_SHARE) - MISSING_SECONDS:
        return
    begin = "" if excerpt.start is None else f" after second {excerpt.start:g}"
    _truncated(
        f"{location} lasts {seconds:.2f} s{begin} and not {expected:g} s as declared; copy it "
        "again, or correct its duration",
        strict,
    )


def _truncated(message: str, strict: bool) -> None:
    if strict:
        raise DataError(message)
    logger.warning("%s", message)


def _own_rate(sound: Sound, excerpt: Excerpt, location: str) -> Iterator[Samples]:
    rate = sound.samplerate
    skipped = round((excerpt.start or 0.0) * rate)
    end: int | None = None
    if excerpt.start is not None and excerpt.duration is not None:
        end = skipped + round(excerpt.duration * rate)
    at = 0
    if skipped:
        at = sound.seek(skipped)
    size = max(1, BLOCK_VALUES // sound.channels)
    while end is None or at < end:
        block = sound.read(size)
        if not len(block):
            return
        check_values(block, at / rate, location)
        stop = len(block) if end is None else end - at
        yield mono(block[max(0, skipped - at) : stop], excerpt.channel)
        at += len(block)


def mono(block: NDArray[np.float32], channel: int | None) -> Samples:
    """One channel of a block (n, channels), or the mean of all: (n,)."""
    return np.ascontiguousarray(block.mean(1) if channel is None else block[:, channel])


def check_channel(channel: int | None, count: int, location: str) -> None:
    """Raise DataError for a channel (from 0) that the recording does not have.

    count: channels of the recording.  location: for messages.
    """
    if channel is not None and not 0 <= channel < count:
        has = "1 channel" if count == 1 else f"{count} channels"
        raise DataError(f"{location} has {has}, and no channel {channel + 1}")


def check_values(block: NDArray[np.float32], second: float, location: str) -> None:
    """Raise DataError for samples, from this second on, that are not finite, or not samples.

    block: (n,) samples.  location: for messages.
    """
    # One maximum finds both, as a comparison with a value that is not a number is false.
    if np.abs(block).max() <= LARGEST:
        return
    kind = "that are not finite" if not np.isfinite(block).all() else f"above {LARGEST:.0f}"
    raise DataError(
        f"{location} has samples {kind} near second {second:.0f}; samples run from -1 to 1"
    )


def resampled(blocks: Iterator[Samples], before: float, after: int) -> Iterator[Samples]:
    """Blocks (n,) at another rate; the result does not depend on their sizes.

    blocks: (n,) samples.  before, after: rates in Hz.
    """
    if before == after:
        yield from (block for block in blocks if len(block))
        return
    soxr = extra_module("soxr", "reading recordings", "speech")
    stream = soxr.ResampleStream(before, after, 1, dtype="float32")
    for block in blocks:
        if len(changed := stream.resample_chunk(block)):
            yield changed
    if len(changed := stream.resample_chunk(np.zeros(0, np.float32), last=True)):
        yield changed


@contextmanager
def _opened(file: Path | bytes, location: str) -> Iterator[Sound]:
    """The decoder of a file; errors of the library become a DataError."""
    with ExitStack() as stack, _decoding(location):
        stream: BinaryIO
        with reading(location):
            if isinstance(file, Path):
                if "\0" in str(file):
                    raise DataError(f"{location} is not the name of a file")
                if file.is_fifo():
                    raise DataError(
                        f"{location} is a pipe; connect it to stdin of `transduce transcribe`"
                    )
                stream = stack.enter_context(file.open("rb"))
            else:
                stream = _Bytes(file)
            head = stream.read(HEAD_BYTES)
            header = read_header(stream, head)[0] if is_wav(head) else None
            if header is not None and header.unfinished and header.layout is None:
                stream.seek(0)
                stream = _Bytes(finished(stream.read(), header))
        if not head:
            raise DataError(f"{location} is empty")
        name = unread_format(head)
        if name is not None:
            if find_spec("av") is None:
                raise DataError(
                    f"{location} is {name}, which needs the extra {EXTRA!r}; install it, or "
                    f"{_conversion(file)}"
                )
            stream.seek(0)
            yield ContainedSound(stream, location)
            return
        if header is not None and header.layout is not None:
            stream.seek(header.start)
            yield PlainSamples(stream, header.layout, header.size, start=header.start)
            return
        stream.seek(0)
        source = stream if isinstance(stream, _Bytes) else str(file)
        library = extra_module("soundfile", "reading recordings", "speech")
        yield _Decoder(stack.enter_context(library.SoundFile(source)))


OPENING = re.compile(r"^Error opening ('.*'|<.*>): ")
"""Beginning of messages of soundfile."""


@contextmanager
def _decoding(location: str) -> Iterator[None]:
    try:
        yield
    except DataError:
        raise
    except Exception as error:
        # A broken file may raise any error of its decoder or of the numbers in its header.
        reason = OPENING.sub("", first_line(error)).rstrip(".")
        raise DataError(f"{location} cannot be read as audio: {reason}") from None


class _Decoder:
    def __init__(self, sound: Any) -> None:
        self.samplerate: int = sound.samplerate
        self.channels: int = sound.channels
        self._sound = sound

    def seek(self, frame: int) -> int:
        """Go to a sample where the format finds it exactly; returns its number, else 0."""
        exact = self._sound.format in SEEKABLE
        return int(self._sound.seek(min(frame, self._sound.frames))) if exact else 0

    def read(self, count: int) -> NDArray[np.float32]:
        block: NDArray[np.float32] = self._sound.read(count, dtype="float32", always_2d=True)
        return block


class _Bytes(io.BytesIO):
    """Bytes of a file for libsndfile, which seeks before their beginning in a broken file: an
    exception in its callback would be printed, as it could not be caught here."""

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return super().seek(max(0, offset) if whence == os.SEEK_SET else offset, whence)


def _conversion(file: Path | bytes) -> str:
    name = file if isinstance(file, Path) else Path("recording")
    target = name.with_suffix(".flac")
    return f"convert it with: ffmpeg -i {shlex.quote(str(name))} {shlex.quote(str(target))}"


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
