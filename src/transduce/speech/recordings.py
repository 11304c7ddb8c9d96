"""Recordings with their texts: files, members of archives and rows of tables, read from
manifests, folders and Parquet."""

import dataclasses
import functools
import os
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from transduce.data.sources import FilePath, file_stamp, stamp_of_many
from transduce.data.tables import (
    Column,
    TableRecord,
    encoded_file,
    json_records,
    parquet_files,
    parquet_records,
    tsv_rows,
)
from transduce.data.text_files import read_lines
from transduce.errors import DataError, reading
from transduce.settings.sections import ByKind, section
from transduce.speech.audio import AUDIO_SUFFIXES, Excerpt
from transduce.support.files import RECORDING_LIMIT

ZIP = ".zip:"


class ZipMember(NamedTuple):
    """A file in a zip archive."""

    archive: Path
    name: str

    def read(self) -> bytes:
        """Its bytes.  Raises DataError if they are missing, damaged or above the limit."""
        with reading(self.archive):
            status = self.archive.stat()
        try:
            archive = _archive(self.archive, status.st_size, status.st_mtime_ns)
            size = archive.getinfo(self.name).file_size
            if size > RECORDING_LIMIT.most() << 20:
                raise DataError(
                    f"{self} would unpack to {size >> 20} MiB; {RECORDING_LIMIT.remedy()}"
                )
            return archive.read(self.name)
        except KeyError:
            raise DataError(f"{self.archive} has no member {self.name!r}") from None
        except (zipfile.BadZipFile, EOFError, zlib.error) as error:
            raise DataError(f"{self} is damaged ({error}); download the archive again") from None
        except (OSError, RuntimeError, NotImplementedError, UnicodeDecodeError) as error:
            raise DataError(f"{self} cannot be read: {error}; unpack the archive") from None

    def __str__(self) -> str:
        return f"{self.archive}:{self.name}"


class Recording(NamedTuple):
    """A recording, not yet read, and its texts.

    audio: path of a file, a member of an archive, or bytes.  text: the target, or blank.
    transcript: the spoken words where the text is their translation.  start, duration: see
    `Excerpt`.  name: its file as the data write it, or its key, with the start if it is a part.
    location: its name in messages.
    """

    audio: Path | ZipMember | bytes
    text: str
    name: str
    location: str
    transcript: str = ""
    speaker: str = ""
    start: float | None = None
    duration: float | None = None

    def file(self) -> Path | bytes:
        """The audio file, as `read_audio` takes it.  Raises DataError for a broken archive."""
        return self.audio.read() if isinstance(self.audio, ZipMember) else self.audio

    def excerpt(self, speed: float = 1.0) -> Excerpt:
        """Its part of the file, at another speed."""
        return Excerpt(self.start, self.duration, speed=speed)


def located(directory: Path, name: str) -> Path | ZipMember:
    """The file that data name: a path, or `archive.zip:member`, from a directory."""
    at = name.lower().find(ZIP)
    if at < 0:
        return directory / name
    return ZipMember(directory / name[: at + len(ZIP) - 1], name[at + len(ZIP) :])


@functools.lru_cache(maxsize=8)
def _archive(path: Path, size: int, changed: int) -> zipfile.ZipFile:
    """An open archive: its directory, which may be long, is read once and not for each member."""
    return zipfile.ZipFile(path)


CHUNK_ROWS = 32  # rows of Parquet taken at once; few, for recordings are large
Value = str | bool | int


@section
class RecordingManifest:
    """A file of JSON lines, one for each recording."""

    kind: Literal["manifest"] = "manifest"
    path: FilePath
    """The manifest."""
    audio_root: FilePath = Path()
    """Directory of the recordings, relative to the manifest's directory."""
    audio: str = "audio"
    """Column of the audio file: its path, or `archive.zip:member`."""
    text: str = "text"
    """Column of the text, such as "translations.es"; lines without it are left out."""
    transcript: str | None = None
    """Column of the spoken words, where `text` is their translation."""
    start: str = "start"
    """Column of the first second, in recordings of several texts; it may be absent."""
    duration: str = "duration"
    """Column of the length in seconds; it may be absent."""
    speaker: str = "speaker"
    """Column of the speaker; it may be absent."""
    where: Mapping[str, Value | tuple[Value, ...]] = dataclasses.field(default_factory=dict)
    """Values that columns must have, such as { lang = "en", split = "train" }, or lists of them."""


@section
class RecordingTable:
    """A tab-separated file with the path and the text of each recording, as of Common Voice."""

    kind: Literal["table"] = "table"
    path: FilePath
    """The table."""
    audio_root: FilePath = Path()
    """Directory of the recordings, relative to the table's directory; "clips" in Common Voice."""
    audio: Column = 0
    """Column of the audio file: a number from 0, or a name from the header line."""
    text: Column = 1
    """Column of the text: a number from 0, or a name from the header line."""
    speaker: Column | None = None
    """Column of the speaker: a number from 0, or a name from the header line."""


@section
class RecordingFolder:
    """A directory with `metadata.jsonl`, or with `x.txt` beside each `x.wav`."""

    kind: Literal["folder"] = "folder"
    path: FilePath
    """The directory; recordings may be in folders below it."""
    audio: str = "file_name"
    """Column of `metadata.jsonl` with the audio file."""
    text: str = "text"
    """Column of `metadata.jsonl` with the text."""


@section
class ParquetRecordings:
    """A Parquet file, or a directory of them, with encoded recordings (needs `parquet`)."""

    kind: Literal["parquet"] = "parquet"
    path: FilePath
    """The file or directory."""
    audio: str = "audio"
    """Column of recordings: file bytes, or the struct written by `datasets`."""
    text: str = "text"
    """Column of the text."""
    transcript: str | None = None
    """Column of the spoken words, where `text` is their translation."""
    speaker: str | None = None
    """Column of the speaker."""


@section
class KaldiDirectory:
    """A data directory of Kaldi: `wav.scp`, `text`, and possibly `segments` and `utt2spk`."""

    kind: Literal["kaldi"] = "kaldi"
    path: FilePath
    """The directory."""
    audio_root: FilePath = Path()
    """Directory that relative paths in `wav.scp` start from, relative to this one."""


RecordingsConfig = Annotated[
    RecordingManifest | RecordingTable | RecordingFolder | ParquetRecordings | KaldiDirectory,
    ByKind(),
]


def read_recordings(config: RecordingsConfig, root: Path) -> Iterator[Recording]:
    """Stream all recordings, those with a blank text too, in the order of the input or of the
    sorted folders.  Raises DataError if no recording has a text, too."""
    total = with_text = 0
    for recording in _recordings(config, root):
        total += 1
        with_text += bool(recording.text.strip())
        yield recording
    if not with_text:
        where = dict(config.where) if isinstance(config, RecordingManifest) else {}
        condition = f"matches where = {where}" if where else "is there"
        none = f"none of {total} recordings has a text" if total else f"no recording {condition}"
        raise DataError(f"{root / config.path}: {none}{_known_columns(config, root)}")


def fingerprint(config: RecordingsConfig, root: Path) -> str:
    """Hash of the settings and of the place, size and dates of all files.  Raises DataError for
    a missing file."""
    return stamp_of_many(config, _stamps(config, root), root / config.path)


def _stamps(config: RecordingsConfig, root: Path) -> Iterator[bytes]:
    for file in dict.fromkeys(_files_behind(config, root)):
        yield file_stamp(file)


def _files_behind(config: RecordingsConfig, root: Path) -> Iterator[str]:
    path = root / config.path
    if isinstance(config, ParquetRecordings):
        yield from map(str, parquet_files(path))
        return
    yield str(path.resolve())
    if isinstance(config, KaldiDirectory):
        yield from (str(path / name) for name in KALDI_FILES if (path / name).exists())
    for recording in read_recordings(config, root):
        if recording.text.strip():
            audio = recording.audio
            yield str(audio.archive if isinstance(audio, ZipMember) else audio)


def _recordings(config: RecordingsConfig, root: Path) -> Iterator[Recording]:
    path = root / config.path
    match config:
        case RecordingManifest():
            return _from_manifest(path, config)
        case RecordingTable():
            return _from_table(path, config)
        case RecordingFolder():
            return _from_folder(path, config)
        case ParquetRecordings():
            return _from_parquet(path, config)
        case KaldiDirectory():
            return _from_kaldi(path, config)


def _from_manifest(path: Path, config: RecordingManifest) -> Iterator[Recording]:
    directory = path.parent / config.audio_root
    for record in json_records(path):
        if not _matches(record, config.where):
            continue
        text = _text(record, config.text)
        name = record.text(config.audio) if text else str(_given(record, config.audio) or "")
        if text and not name:
            raise DataError(f"{record.location} has no audio file")
        start = _seconds(record, config.start)
        yield Recording(
            located(directory, name),
            text,
            name if start is None else f"{name} {start:g}",
            f"{directory / name} ({record.location})",
            _text(record, config.transcript),
            _speaker(record, config.speaker),
            start,
            _seconds(record, config.duration),
        )


def _from_table(path: Path, config: RecordingTable) -> Iterator[Recording]:
    named = [c for c in (config.audio, config.text, config.speaker) if c is not None]
    header = any(isinstance(column, str) for column in named)
    directory = path.parent / config.audio_root
    for number, (name, text, *speaker) in enumerate(tsv_rows(path, named), 2 if header else 1):
        if not name:
            raise DataError(f"{path}: line {number} has no audio file")
        location = f"{directory / name} ({path}: line {number})"
        yield Recording(located(directory, name), text, name, location, speaker="".join(speaker))


def _from_folder(path: Path, config: RecordingFolder) -> Iterator[Recording]:
    metadata = path / "metadata.jsonl"
    if metadata.exists():
        manifest = RecordingManifest(path=metadata, audio=config.audio, text=config.text)
        yield from _from_manifest(metadata, manifest)
        return
    if not path.is_dir():
        raise DataError(f"{path}: no such directory")
    for directory, folders, names in os.walk(path, onerror=_fail):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            file = Path(directory) / name
            if file.suffix.lower() in AUDIO_SUFFIXES and not name.startswith("."):
                text = file.with_suffix(".txt")
                lines = " ".join(read_lines(text)) if text.exists() else ""
                yield Recording(file, lines, file.relative_to(path).as_posix(), str(file))


def _fail(error: OSError) -> None:
    raise DataError(f"{error.filename} cannot be read: {error.strerror}")


def _from_parquet(path: Path, config: ParquetRecordings) -> Iterator[Recording]:
    columns = [config.audio, config.text, config.transcript, config.speaker]
    for shard in parquet_files(path):
        for record in parquet_records(shard, filter(None, columns), CHUNK_ROWS):
            yield _parquet_row(record, shard, config)


def _parquet_row(record: TableRecord, shard: Path, config: ParquetRecordings) -> Recording:
    audio = encoded_file(record.value(config.audio), shard.parent)
    text = _text(record, config.text)
    if text and not audio:
        raise DataError(
            f"{record.location} has no recording; expected the bytes of a file or its path"
        )
    return Recording(
        audio or b"",
        text,
        record.location.removeprefix(f"{shard.parent}{os.sep}"),
        record.location,
        _text(record, config.transcript),
        _speaker(record, config.speaker),
    )


KALDI_FILES = ("wav.scp", "text", "segments", "utt2spk")


def _from_kaldi(path: Path, config: KaldiDirectory) -> Iterator[Recording]:
    places, texts = _kaldi_table(path / "wav.scp"), _kaldi_table(path / "text")
    optional = {name: path / name for name in KALDI_FILES[2:] if (path / name).exists()}
    speakers = _kaldi_table(optional["utt2spk"]) if "utt2spk" in optional else {}
    for key, value in places.items():
        if value.endswith("|") or value.startswith("|"):
            raise DataError(
                f"{path / 'wav.scp'}: {key!r} is a command, which is not run here; write its "
                "output to a file, and name that"
            )
    directory = path / config.audio_root

    def recording(utterance: str, name: str, *span: float | None) -> Recording:
        value = places.get(name)
        if value is None:
            raise DataError(f"{path / 'segments'}: {name!r} is not in wav.scp")
        start, duration = span or (None, None)
        text, speaker = texts.get(utterance, ""), speakers.get(utterance, "")
        location, audio = f"{directory / value} ({utterance})", located(directory, value)
        return Recording(audio, text, utterance, location, "", speaker, start, duration)

    if "segments" not in optional:
        yield from (recording(name, name) for name in places)
        return
    for utterance, value in _kaldi_table(optional["segments"]).items():
        try:
            name, begin, end = value.split()
            start, stop = float(begin), float(end)
            if not 0 <= start < (stop if stop >= 0 else start + 1):
                raise ValueError
        except ValueError:
            raise DataError(
                f"{optional['segments']}: {utterance!r} needs a recording, its start and its end "
                f"in seconds, not {value!r}"
            ) from None
        yield recording(utterance, name, start, None if stop < 0 else stop - start)


def _kaldi_table(path: Path) -> dict[str, str]:
    """Key and value of each line, separated by the first white space."""
    lines = (line.strip().split(maxsplit=1) for line in read_lines(path))
    return {line[0]: line[1] if len(line) > 1 else "" for line in lines if line}


def _given(record: TableRecord, column: str | None) -> Any:
    if column is None or column in record.values or "." not in column:
        return record.values.get(column or "")
    try:
        return record.value(column)
    except DataError:
        return None


def _text(record: TableRecord, column: str | None) -> str:
    return "" if column is None or _given(record, column) is None else record.text(column)


def _speaker(record: TableRecord, column: str | None) -> str:
    value = _given(record, column)
    return "" if value is None else str(value)


def _seconds(record: TableRecord, column: str) -> float | None:
    value = _given(record, column)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e9:
        raise DataError(f"{record.location}: {column!r} must be seconds, not {value!r}")
    return float(value)


def _matches(record: TableRecord, where: Mapping[str, Value | tuple[Value, ...]]) -> bool:
    for column, expected in where.items():
        value = _given(record, column)
        allowed: Sequence[Value] = expected if isinstance(expected, tuple) else (expected,)
        # By type too, as True == 1.
        if not any(type(value) is type(candidate) and value == candidate for candidate in allowed):
            return False
    return True


def _known_columns(config: RecordingsConfig, root: Path) -> str:
    if not isinstance(config, RecordingManifest):
        return ""
    first = next(json_records(root / config.path), None)
    return f" (columns are {', '.join(map(repr, first.values))})" if first else ""
