"""Features of recordings on disk: computed once by workers, then memory-mapped.

    DIRECTORY/
        features.frames, features.offsets    rows of (t, f) float16, see `data.ragged_rows`
        rows.jsonl                           texts, speaker, speed and name of each row
        manifest.json

The directory is complete or absent; after a killed process another resumes its files.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import itertools
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from transduce.data.ragged_rows import (
    NOTHING,
    ResumableDirectory,
    RowWriter,
    Written,
    map_rows,
    opened,
    read_manifest,
    resume_or_create,
    to_disk,
    write_manifest,
)
from transduce.data.workers import in_workers
from transduce.errors import DataError
from transduce.settings.sections import section
from transduce.speech.audio import audio_blocks
from transduce.speech.features import AudioConfig, FrameStream
from transduce.speech.recordings import Recording
from transduce.support.files import from_json
from transduce.support.work import chunks

VERSION = 1
DTYPE = "<f2"
NAME, ENDING, ROWS = "features", "frames", "rows.jsonl"
FILES = (f"{NAME}.{ENDING}", f"{NAME}.offsets", ROWS)
CHUNK_RECORDINGS = 8
CHUNKS_KEPT = 25
"""Chunks between two resume points, and the most lost if the process is killed."""


@section
class RecordingFilterConfig:
    """Filters for recordings.  Those without a text, or without samples, are always left out."""

    max_seconds: Annotated[float, Field(gt=0, le=3600)] = 30.0
    """Maximum length."""
    max_letters_per_second: Annotated[float, Field(gt=0)] = 40.0
    """Maximum letters per second; faster speech is implausible, so the text is misaligned."""


@dataclasses.dataclass
class RecordingReport:
    """Number of recordings read, kept, and left out by reason (the first that applied)."""

    read: int = 0
    kept: int = 0
    no_text: int = 0
    no_samples: int = 0
    too_long: int = 0
    too_fast: int = 0
    seconds: float = 0.0
    """Length of the kept recordings, at their own speed."""

    def __str__(self) -> str:
        return (
            f"{self.read} recordings read, {self.kept} kept ({self.seconds / 60:.1f} minutes), "
            f"{self.no_text} without a text, {self.no_samples} without samples, "
            f"{self.too_long} too long, {self.too_fast} with too many letters a second"
        )


class StoredRow(NamedTuple):
    """One row of a store, beside its frames: a recording at a speed."""

    text: str
    transcript: str
    speaker: str
    speed: float
    name: str


class RecordingStore:
    """Features of recordings in a memory-mapped file, with their texts.

    rows: for each recording and speed.  lengths: (n,) int64, frames of each row.
    report: counts of recordings read, kept and left out.
    """

    def __init__(self, directory: Path, manifest: dict[str, Any]) -> None:
        self.report = RecordingReport(**manifest["report"])
        self.bins = int(manifest["bins"])
        values, offsets = map_rows(directory, NAME, DTYPE, ENDING)
        self._frames = values.reshape(-1, self.bins)
        self._offsets = offsets // self.bins
        self.lengths = np.diff(self._offsets)
        with (directory / ROWS).open("rb") as file:
            self.rows = [StoredRow(*from_json(line)) for line in file]
        if len(self.rows) != len(self.lengths):
            raise ValueError("rows and frames differ in number")

    @staticmethod
    def open(directory: Path, fingerprint: str) -> RecordingStore | None:
        """Open the features; None if absent, incomplete, or with another fingerprint."""
        manifest = read_manifest(directory, fingerprint, VERSION, FILES)
        try:
            return None if manifest is None else RecordingStore(directory, manifest)
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def __len__(self) -> int:
        return len(self.rows)

    def frames(self, i: int) -> NDArray[np.float16]:
        """(t, f) frames of row i, read-only, not normalised."""
        return self._frames[self._offsets[i] : self._offsets[i + 1]]


def cached_recordings(
    recordings: Callable[[], Iterable[Recording]],
    making: FeatureMaking,
    directory: Path,
    fingerprint: str,
    progress: Callable[[int], None] | None = None,
    processes: int = 1,
) -> RecordingStore:
    """Open the features of recordings, or compute them now; `recordings` is called only if needed.

    fingerprint: identifies the inputs.  progress: called now and then with the number of recordings
    read.  processes: they change no byte of the result.  Raises DataError for the first recording
    that cannot be read, if none is kept, and if the directory cannot be written.
    """
    facts = [fingerprint, making.facts()]
    whole = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    store = RecordingStore.open(directory, whole)
    if store is not None:
        return store
    with resume_or_create(directory, FILES, whole, VERSION) as unfinished:
        if unfinished is not None:
            report = _write(unfinished, recordings(), making, progress, processes)
            manifest = {"report": dataclasses.asdict(report), "bins": making.audio.bins}
            write_manifest(unfinished.path, whole, VERSION, FILES, manifest)
    store = RecordingStore.open(directory, whole)
    assert store is not None, directory
    return store


@dataclasses.dataclass(frozen=True)
class FeatureMaking:
    """Settings by which a recording becomes rows of features, at each speed (Ko et al.
    2015)."""

    audio: AudioConfig
    filters: RecordingFilterConfig
    speeds: tuple[float, ...] = (1.0,)

    def facts(self) -> list[Any]:
        """Everything that decides the content of the store."""
        audio = self.audio
        filters = dataclasses.asdict(self.filters)
        return [audio.features, audio.rate, audio.bins, filters, list(self.speeds)]

    def of_recordings(self, recordings: list[Recording]) -> list[_Made]:
        """Features of some recordings, in their order."""
        return [self._of_recording(recording) for recording in recordings]

    def _of_recording(self, recording: Recording) -> _Made:
        if not recording.text.strip():
            return _Made(reason="no_text")
        frames: list[NDArray[np.float16]] = []
        seconds = 0.0
        try:
            file = recording.file()
            for speed in self.speeds:
                made, seconds = self._at_speed(recording, file, speed)
                if not frames:
                    reason = self._left_out(recording.text, seconds, len(made))
                    if reason:
                        return _Made(reason=reason)
                frames.append(made)
        except DataError as error:
            return _Made(error=str(error))
        return _Made(tuple(frames), seconds)

    def _at_speed(
        self, recording: Recording, file: Path | bytes, speed: float
    ) -> tuple[NDArray[np.float16], float]:
        """(t, f) frames, and the seconds of the recording at its own speed."""
        extractor = self.audio.extractor()
        stream, parts, count = FrameStream(extractor), [], 0
        most = self.filters.max_seconds * extractor.rate / speed
        excerpt, location = recording.excerpt(speed), recording.location
        blocks = audio_blocks(file, extractor.rate, location, excerpt, strict=True)
        with contextlib.closing(blocks):
            for block in blocks:
                count += len(block)
                parts.append(stream.add(block))
                if count > most:  # left out: the rest of it is not read
                    break
        frames = extractor.finish(np.concatenate([*parts, stream.end()]))
        return frames.astype(DTYPE), count / extractor.rate * speed

    def _left_out(self, text: str, seconds: float, frames: int) -> str:
        if not frames:
            return "no_samples"
        if seconds > self.filters.max_seconds:
            return "too_long"
        letters = sum(not letter.isspace() for letter in text)
        return "too_fast" if letters > self.filters.max_letters_per_second * seconds else ""


class _Made(NamedTuple):
    """Features of a recording at each speed; else the reason to leave it out, or the error."""

    frames: tuple[NDArray[np.float16], ...] = ()
    seconds: float = 0.0
    reason: str = ""
    error: str = ""


def _write(
    unfinished: ResumableDirectory,
    recordings: Iterable[Recording],
    making: FeatureMaking,
    progress: Callable[[int], None] | None,
    processes: int,
) -> RecordingReport:
    done = unfinished.progress
    report = RecordingReport(**done.get("report", {}))
    written = Written(*done.get("written", NOTHING))
    writer = RowWriter(unfinished.path, NAME, DTYPE, written, ENDING)
    rest = itertools.islice(recordings, report.read, None)
    work = functools.partial(_made_of, making)
    with writer, opened(unfinished.path / ROWS, done.get("bytes", 0)) as texts:
        with contextlib.closing(
            in_workers(work, chunks(rest, CHUNK_RECORDINGS), processes)
        ) as results:
            for number, (some, made) in enumerate(results, 1):
                for recording, features in zip(some, made, strict=True):
                    _add(recording, features, making.speeds, report, writer, texts)
                if number % CHUNKS_KEPT == 0:
                    writer.to_disk()
                    to_disk(texts)
                    facts = {"report": dataclasses.asdict(report), "written": writer.written}
                    unfinished.keep({**facts, "bytes": texts.tell()})
                if progress is not None:
                    progress(report.read)
        to_disk(texts)
    if not report.kept:
        raise DataError(f"no recordings left after filtering: {report}")
    return report


def _made_of(
    making: FeatureMaking, recordings: list[Recording]
) -> tuple[list[Recording], list[_Made]]:
    """Features, and the recordings without the bytes of their files."""
    made = making.of_recordings(recordings)
    return [recording._replace(audio=b"") for recording in recordings], made


def _add(
    recording: Recording,
    made: _Made,
    speeds: tuple[float, ...],
    report: RecordingReport,
    writer: RowWriter,
    texts: Any,
) -> None:
    if made.error:
        raise DataError(made.error)
    report.read += 1
    if made.reason:
        setattr(report, made.reason, getattr(report, made.reason) + 1)
        return
    report.kept += 1
    report.seconds += made.seconds
    lengths = np.array([frames.size for frames in made.frames], np.int64)
    writer.append(np.concatenate([frames.ravel() for frames in made.frames]), lengths)
    for speed in speeds:
        row = StoredRow(
            recording.text, recording.transcript, recording.speaker, speed, recording.name
        )
        texts.write(json.dumps(row).encode() + b"\n")
