"""Recordings and their texts from every kind of data, and their features in the store."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from pydantic import TypeAdapter

from helpers.audio import encoded, manifest, noise, saved, tone
from transduce.errors import DataError
from transduce.speech.audio import read_audio
from transduce.speech.features import AudioConfig
from transduce.speech.recording_store import (
    FeatureMaking,
    RecordingFilterConfig,
    RecordingStore,
    cached_recordings,
)
from transduce.speech.recordings import Recording, RecordingsConfig, fingerprint, read_recordings

KINDS: TypeAdapter[Any] = TypeAdapter(RecordingsConfig)


def read(directory: Path, **settings: Any) -> list[Recording]:
    return list(read_recordings(KINDS.validate_python(settings), directory))


def length(recording: Recording) -> int:
    return len(read_audio(recording.file(), 16_000, excerpt=recording.excerpt()))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Three recordings of 1, 2 and 3 tenths of a second, also in an archive."""
    for i in (1, 2, 3):
        saved(tmp_path / f"wavs/{i}.wav", encoded(tone(i / 10)))
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        for i in (1, 2, 3):
            archive.write(tmp_path / f"wavs/{i}.wav", f"in/{i}.wav")
    return tmp_path


RECORDS = [
    {"audio": "wavs/1.wav", "text": "one", "lang": "en", "to": {"es": "uno"}, "id": 7},
    {"audio": "all.zip:in/2.wav", "text": "two", "lang": "en", "to": {}, "duration": 0.2},
    {"audio": "wavs/3.wav", "text": "drei", "lang": "de", "to": None, "start": 0.1, "n": 3},
]


class TestManifest:
    def test_as_it_comes(self, data: Path) -> None:
        path = manifest(data / "a.jsonl", RECORDS)
        result = read(data, kind="manifest", path=path.name, speaker="id")
        assert [r.text for r in result] == ["one", "two", "drei"]
        assert [length(r) for r in result] == [1600, 3200, 3200]
        assert [r.speaker for r in result] == ["7", "", ""]
        assert [r.name for r in result] == ["wavs/1.wav", "all.zip:in/2.wav", "wavs/3.wav 0.1"]

    def test_columns_of_nemo(self, data: Path) -> None:
        records = [
            {"audio_filepath": "3.wav", "offset": 0.05, "duration": 0.1, "text": "dr"},
            {"audio_filepath": str(data / "wavs/1.wav"), "duration": 0.1, "text": "one"},
        ]
        path = manifest(data / "a.jsonl", records)
        result = read(
            *[data],
            kind="manifest",
            path=path.name,
            audio_root="wavs",
            audio="audio_filepath",
            start="offset",
        )
        assert [length(r) for r in result] == [1600, 1600]

    def test_texts_of_another_language_and_the_spoken_words(self, data: Path) -> None:
        path = manifest(data / "a.jsonl", RECORDS)
        result = read(data, kind="manifest", path=path.name, text="to.es", transcript="text")
        assert [(r.text, r.transcript) for r in result] == [
            ("uno", "one"),
            ("", "two"),
            ("", "drei"),
        ]

    @pytest.mark.parametrize(
        ("where", "texts"),
        [
            ({"lang": "en"}, ["one", "two"]),
            ({"lang": ["de", "fr"]}, ["drei"]),
            ({"lang": "en", "id": 7}, ["one"]),
            ({"n": 3}, ["drei"]),
        ],
    )
    def test_some_lines(self, data: Path, where: dict[str, Any], texts: list[str]) -> None:
        path = manifest(data / "a.jsonl", RECORDS)
        result = read(data, kind="manifest", path=path.name, where=where)
        assert [r.text for r in result] == texts

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"where": {"lang": "fr"}}, "no recording matches where = {'lang': 'fr'} .*'audio'"),
            ({"text": "txt"}, "none of 3 recordings has a text .*columns are 'audio', 'text'"),
            ({"audio": "file"}, "a.jsonl: line 1 has no column 'file'"),
            ({"text": "lang.x"}, "none of 3 recordings has a text"),
            ({"text": "id"}, "line 1: 'id' must be text, not int"),
            ({"start": "text"}, "line 1: 'text' must be seconds, not 'one'"),
        ],
    )
    def test_mistakes(self, data: Path, settings: dict[str, Any], message: str) -> None:
        path = manifest(data / "a.jsonl", RECORDS)
        with pytest.raises(DataError, match=message):
            read(data, kind="manifest", path=path.name, **settings)

    @pytest.mark.parametrize(
        ("name", "message"),
        [
            ("no.zip:a", r"no\.zip: no such file"),
            ("all.zip:in/4.wav", r"all\.zip has no member 'in/4\.wav'"),
            ("wavs/1.wav.zip:x", r"x is damaged \(File is not a zip file\)"),
        ],
    )
    def test_broken_archives(self, data: Path, name: str, message: str) -> None:
        saved(data / "wavs/1.wav.zip", b"no archive")
        path = manifest(data / "a.jsonl", [{"audio": name, "text": "x"}])
        (result,) = read(data, kind="manifest", path=path.name)
        with pytest.raises(DataError, match=message):
            result.file()

    def test_a_member_that_unpacks_to_too_much(
        self, data: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with zipfile.ZipFile(data / "big.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("a.wav", bytes(2 << 20))
        monkeypatch.setenv("TRANSDUCE_LIMIT_RECORDING", "1")
        path = manifest(data / "a.jsonl", [{"audio": "big.zip:a.wav", "text": "x"}])
        (result,) = read(data, kind="manifest", path=path.name)
        with pytest.raises(DataError, match="would unpack to 2 MiB; if you trust it"):
            result.file()


class TestOtherKinds:
    def test_a_table(self, data: Path) -> None:
        saved(data / "a.tsv", b"client_id\tpath\tsentence\nx\t1.wav\tone\ny\t2.wav\ttwo words\n")
        common = {"kind": "table", "path": "a.tsv", "audio_root": "wavs"}
        names = {"audio": "path", "text": "sentence", "speaker": "client_id"}
        for columns in (names, {}):
            if not columns:
                saved(data / "a.tsv", b"1.wav\tone\n2.wav\ttwo words\n")
            result = read(data, **common, **columns)
            assert [r.text for r in result] == ["one", "two words"]
            assert [length(r) for r in result] == [1600, 3200]
            assert [r.speaker for r in result] == (["x", "y"] if columns else ["", ""])

    def test_a_folder_with_metadata(self, data: Path) -> None:
        records = [{"file_name": "2.wav", "transcription": "two"}]
        manifest(data / "wavs/metadata.jsonl", records)
        (result,) = read(data, kind="folder", path="wavs", text="transcription")
        assert (result.text, length(result)) == ("two", 3200)

    def test_a_folder_with_texts(self, data: Path) -> None:
        saved(data / "wavs/1.txt", b"one\n")
        saved(data / "wavs/b/4.flac", encoded(tone(0.4), form="FLAC"))
        saved(data / "wavs/b/4.txt", "vier f\u00fcnf\nsechs".encode())
        saved(data / "wavs/.hidden/5.wav", encoded(tone(0.4)))
        result = read(data, kind="folder", path="wavs")
        assert [(r.name, r.text) for r in result] == [
            *[("1.wav", "one"), ("2.wav", ""), ("3.wav", "")],
            ("b/4.flac", "vier f\u00fcnf sechs"),
        ]
        with pytest.raises(DataError, match="no: no such directory"):
            read(data, kind="folder", path="no")

    def test_parquet(self, data: Path) -> None:
        rows = [
            {"audio": {"bytes": encoded(tone(0.1)), "path": "x"}, "text": "one", "by": "a"},
            {"audio": {"bytes": None, "path": "wavs/2.wav"}, "text": "two", "by": "b"},
            {"audio": None, "text": None, "by": "b"},
        ]
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), data / "a.parquet")
        result = read(data, kind="parquet", path="a.parquet", speaker="by")
        assert [(r.text, r.speaker) for r in result] == [("one", "a"), ("two", "b"), ("", "b")]
        assert [length(r) for r in result[:2]] == [1600, 3200]
        with pytest.raises(DataError, match="has no column 'words'"):
            read(data, kind="parquet", path="a.parquet", text="words")

    def test_kaldi(self, data: Path) -> None:
        saved(data / "k/wav.scp", b"r1 ../wavs/3.wav\nr2 ../wavs/1.wav\n")
        saved(data / "k/text", b"r1 drei\nu1 dr ei\nu2\n")
        result = read(data, kind="kaldi", path="k")
        assert [(r.name, r.text, length(r)) for r in result] == [
            ("r1", "drei", 4800),
            ("r2", "", 1600),
        ]
        saved(data / "k/segments", b"u1 r1 0.1 0.2\nu2 r1 0.2 -1\n")
        saved(data / "k/utt2spk", b"u1 anna\n")
        result = read(data, kind="kaldi", path="k")
        assert [(r.text, r.speaker, length(r)) for r in result] == [
            ("dr ei", "anna", 1600),
            ("", "", 1600),
        ]

    @pytest.mark.parametrize(
        ("name", "content", "message"),
        [
            ("wav.scp", b"r1 flac -dc a.flac |\n", "'r1' is a command, which is not run here"),
            ("segments", b"u1 r9 0 1\n", "'r9' is not in wav.scp"),
            ("segments", b"u1 r1 1 0.5\n", "'u1' needs a recording, its start and its end"),
            ("segments", b"u1 r1\n", "'u1' needs a recording, its start and its end"),
        ],
    )
    def test_mistakes_in_kaldi(self, data: Path, name: str, content: bytes, message: str) -> None:
        saved(data / "wav.scp", b"r1 wavs/1.wav\n")
        saved(data / "text", b"r1 one\n")
        saved(data / name, content)
        with pytest.raises(DataError, match=message):
            read(data, kind="kaldi", path=".")


def test_the_fingerprint_holds_settings_and_recordings(data: Path) -> None:
    path = manifest(data / "a.jsonl", RECORDS[:2])
    config = KINDS.validate_python({"kind": "manifest", "path": path.name})
    other = KINDS.validate_python({"kind": "manifest", "path": path.name, "where": {"id": 7}})
    first = fingerprint(config, data)
    assert first == fingerprint(config, data) != fingerprint(other, data)
    saved(data / "wavs/1.wav", encoded(tone(0.5)))
    assert fingerprint(config, data) != first
    (data / "wavs/1.wav").unlink()
    with pytest.raises(DataError, match=r"1\.wav cannot be read: No such file"):
        fingerprint(config, data)


class TestStore:
    AUDIO = AudioConfig(rate=8000, bins=20)

    def made(
        self, data: Path, recordings: list[Recording], processes: int = 1, **options: Any
    ) -> RecordingStore:
        making = FeatureMaking(self.AUDIO, RecordingFilterConfig(), **options)
        place = data / f"store{processes}"
        return cached_recordings(lambda: recordings, making, place, "x", None, processes)

    def recordings(self, data: Path, count: int = 5) -> list[Recording]:
        return [
            Recording(
                saved(data / f"{i}.wav", encoded(noise(0.1 * (i + 1), seed=i))),
                f"t{i}",
                f"{i}",
                f"{i}.wav",
                speaker=f"s{i % 2}",
            )
            for i in range(count)
        ]

    def test_rows_are_features(self, tmp_path: Path) -> None:
        recordings = self.recordings(tmp_path)
        store = self.made(tmp_path, recordings)
        assert [row.text for row in store.rows] == ["t0", "t1", "t2", "t3", "t4"]
        assert (store.report.read, store.report.kept) == (5, 5)
        assert store.report.seconds == pytest.approx(1.5)
        for i, recording in enumerate(recordings):
            frames = self.AUDIO.extractor()(read_audio(recording.file(), 8000))
            assert np.array_equal(store.frames(i), frames.astype(np.float16))
            assert store.lengths[i] == len(frames)

    def test_speeds(self, tmp_path: Path) -> None:
        store = self.made(tmp_path, self.recordings(tmp_path), speeds=(1.0, 0.8, 1.25))
        assert [row.speed for row in store.rows[:4]] == [1.0, 0.8, 1.25, 1.0]
        assert [row.name for row in store.rows[:4]] == ["0", "0", "0", "1"]
        slow, fast = store.lengths[13], store.lengths[14]
        assert slow / store.lengths[12] == pytest.approx(1.25, abs=0.05)
        assert fast / store.lengths[12] == pytest.approx(0.8, abs=0.05)

    @pytest.mark.system
    def test_workers_change_no_byte(self, tmp_path: Path) -> None:
        recordings = self.recordings(tmp_path, 80)
        self.made(tmp_path, recordings)
        self.made(tmp_path, recordings, 2)
        for name in ("features.frames", "features.offsets", "rows.jsonl"):
            one = (tmp_path / "store1" / name).read_bytes()
            assert one == (tmp_path / "store2" / name).read_bytes()

    def test_a_killed_process_is_resumed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        recordings = self.recordings(tmp_path, 40)
        whole = self.made(tmp_path, recordings)
        monkeypatch.setattr("transduce.speech.recording_store.CHUNKS_KEPT", 1)
        broken = [*recordings[:20], recordings[0]._replace(audio=tmp_path / "no.wav")]
        with pytest.raises(DataError, match=r"0\.wav: no such file"):
            self.made(tmp_path, broken, 0)

        def rest() -> Any:
            yield from (r._replace(audio=tmp_path / "gone") for r in recordings[:16])
            yield from recordings[16:]

        resumed = self.made(tmp_path, rest(), 0)  # type: ignore[arg-type]
        assert resumed.rows == whole.rows
        assert resumed.report == whole.report
        assert np.array_equal(resumed.frames(39), whole.frames(39))

    def test_it_is_made_once(self, tmp_path: Path) -> None:
        recordings = self.recordings(tmp_path)
        self.made(tmp_path, recordings)
        assert len(self.made(tmp_path, [])) == 5
        other = FeatureMaking(AudioConfig(rate=8000, bins=21), RecordingFilterConfig())
        store = cached_recordings(lambda: recordings, other, tmp_path / "store1", "x")
        assert store.bins == 21

    def test_filters_count_what_they_leave_out(self, tmp_path: Path) -> None:
        first, *_ = self.recordings(tmp_path, 1)
        long = saved(tmp_path / "long.wav", encoded(noise(31)))
        empty = saved(tmp_path / "empty.wav", encoded(noise(0)))
        given = [
            first,
            first._replace(text="  "),
            first._replace(audio=long),
            first._replace(audio=empty),
            first._replace(text="far too many letters"),
            first._replace(audio=tmp_path / "missing", text=""),
        ]
        report = self.made(tmp_path, given).report
        assert str(report) == (
            "6 recordings read, 1 kept (0.0 minutes), 2 without a text, 1 without samples, "
            "1 too long, 1 with too many letters a second"
        )
        with pytest.raises(DataError, match="no recordings left after filtering: 1 recordings"):
            self.made(tmp_path, [first._replace(text="")], 0)

    def test_a_truncated_recording_is_an_error(self, tmp_path: Path) -> None:
        data = encoded(noise(2))
        recording = Recording(saved(tmp_path / "a.wav", data[:20_000]), "x", "a", "a.wav (line 3)")
        with pytest.raises(
            DataError, match=r"a\.wav \(line 3\) is truncated: 69 % of its bytes are"
        ):
            self.made(tmp_path, [recording])
        short = recording._replace(audio=data, duration=3.0)
        with pytest.raises(DataError, match=r"lasts 2\.00 s and not 3 s as declared"):
            self.made(tmp_path, [short])
