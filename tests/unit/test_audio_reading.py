"""Recordings as samples: formats, rates, parts, and files that are broken."""

from __future__ import annotations

import contextlib
import logging
import os
import random
import struct
import sys
import time
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import soxr
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.audio import Samples, encoded, noise, saved, tone
from transduce.errors import DataError
from transduce.speech.audio import BLOCK_VALUES, Excerpt, audio_blocks, read_audio, warn_of_rate

RATE = 16_000
ENCODINGS = [
    ("WAV", "PCM_16", RATE, 1, 1e-3),
    ("WAV", "PCM_24", 44_100, 1, 1e-3),
    ("WAV", "FLOAT", 8000, 1, 1e-3),
    ("WAV", "PCM_16", 44_100, 2, 1e-3),
    ("WAV", "ULAW", 8000, 1, 0.02),
    ("FLAC", "PCM_16", RATE, 1, 1e-3),
    ("OGG", "VORBIS", RATE, 1, 0.05),
    ("OGG", "OPUS", RATE, 1, 0.05),
    ("MP3", "MPEG_LAYER_III", RATE, 1, 0.05),
    ("AIFF", "PCM_16", RATE, 1, 1e-3),
    ("AU", "PCM_16", RATE, 1, 1e-3),
]


def tagged(content: bytes) -> bytes:
    """An ID3v2 tag with a title of these bytes."""
    frame = b"TIT2" + len(content).to_bytes(4, "big") + bytes(2) + content
    size = bytes(len(frame) >> shift & 127 for shift in (21, 14, 7, 0))
    return b"ID3\x03\0\0" + size + frame


def melody(rate: int) -> Samples:
    """Two seconds, all of it below 4 kHz and silent at both ends."""
    rise = np.sin(np.pi * np.arange(2 * rate) / (2 * rate)).astype(np.float32)
    return (tone(2, rate, 300) + tone(2, rate, 1234)) * rise


class TestReadAudio:
    @pytest.mark.parametrize(("form", "subtype", "rate", "channels", "error"), ENCODINGS)
    def test_one_recording_in_ten_encodings(
        self, tmp_path: Path, form: str, subtype: str, rate: int, channels: int, error: float
    ) -> None:
        samples = melody(rate)
        written = samples if channels == 1 else np.stack([samples * 1.5, samples * 0.5], 1)
        data = encoded(written, rate, form, subtype)
        read = read_audio(saved(tmp_path / "a", data), RATE)
        assert read.dtype == np.float32
        assert np.array_equal(read, read_audio(data, RATE, "bytes"))
        expected = melody(RATE)
        assert abs(len(read) - len(expected)) <= 1
        shared = min(len(read), len(expected))
        assert np.sqrt(np.mean((read[:shared] - expected[:shared]) ** 2)) < error

    def test_a_channel(self) -> None:
        data = encoded(np.stack([tone(0.1), noise(0.1)], 1), subtype="FLOAT")
        assert np.array_equal(read_audio(data, RATE, excerpt=Excerpt(channel=1)), noise(0.1))
        both = read_audio(data, RATE)
        assert np.allclose(both, (tone(0.1) + noise(0.1)) / 2, atol=1e-6)
        with pytest.raises(DataError, match=r"^a has 2 channels, and no channel 3$"):
            read_audio(data, RATE, "a", Excerpt(channel=2))

    @pytest.mark.parametrize(
        ("form", "subtype"), [("WAV", "FLOAT"), ("FLAC", "PCM_24"), ("MP3", None)]
    )
    def test_a_part_is_where_it_says(self, form: str, subtype: str | None) -> None:
        """Also in MP3, where decoders find other samples than those they seek."""
        data = encoded(noise(9), RATE, form, subtype)
        whole = read_audio(data, RATE)
        part = read_audio(data, RATE, excerpt=Excerpt(8.25, 0.5))
        assert np.array_equal(part, whole[132_000:140_000])
        assert len(read_audio(data, RATE, excerpt=Excerpt(8.25))) == len(whole) - 132_000

    def test_a_part_beyond_the_end_is_empty(self) -> None:
        assert not len(read_audio(encoded(noise(1)), RATE, excerpt=Excerpt(5.0)))

    def test_speed_changes_length_and_pitch(self) -> None:
        fast = read_audio(encoded(tone(2, frequency=400)), RATE, excerpt=Excerpt(speed=1.25))
        assert abs(len(fast) - 1.6 * RATE) <= 1
        spectrum = np.abs(np.fft.rfft(fast))
        assert np.argmax(spectrum) * RATE / len(fast) == pytest.approx(500, abs=1)

    @given(st.integers(1, 3000), st.sampled_from([8000, 11_025, 44_100]), st.integers(0, 9999))
    @settings(max_examples=30, deadline=None)
    def test_resampling_in_blocks_equals_one_shot(self, n: int, rate: int, block: int) -> None:
        samples = noise(n / rate, rate, n)
        read = read_audio(encoded(samples, rate, subtype="FLOAT"), RATE)
        assert np.array_equal(read, soxr.resample(samples, rate, RATE))

    def test_many_blocks_equal_one_shot(self) -> None:
        samples = noise(2.5 * BLOCK_VALUES / 44_100, 44_100)
        data = encoded(samples, 44_100, subtype="FLOAT")
        blocks = list(audio_blocks(data, RATE))
        assert len(blocks) > 2
        assert np.array_equal(np.concatenate(blocks), soxr.resample(samples, 44_100, RATE))

    def test_memory_does_not_grow_with_the_length(self, tmp_path: Path) -> None:
        path = tmp_path / "long.flac"
        minute = np.zeros(60 * 44_100, np.int16)
        with soundfile.SoundFile(path, "w", 44_100, 1, "PCM_16", format="FLAC") as file:
            for _ in range(20):
                file.write(minute)
        tracemalloc.start()
        try:
            count = sum(len(block) for block in audio_blocks(path, RATE))
            assert abs(count - 20 * 60 * RATE) <= 1
            assert tracemalloc.get_traced_memory()[1] < 5_000_000
        finally:
            tracemalloc.stop()

    def test_a_recording_that_is_too_long_for_memory(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = saved(tmp_path / "a.flac", encoded(np.zeros(61 * RATE), RATE, "FLAC"))
        monkeypatch.setenv("TRANSDUCE_LIMIT_AUDIO", "1")
        with pytest.raises(DataError, match=r"a\.flac is longer than 1 minutes; use `transduce tr"):
            read_audio(path, RATE)
        assert len(read_audio(path, RATE, excerpt=Excerpt(0.0, 59.0))) == 59 * RATE

    def test_a_lower_rate_is_one_warning(self, caplog: pytest.LogCaptureFixture) -> None:
        warn_of_rate.cache_clear()
        with caplog.at_level(logging.WARNING):
            for _ in range(3):
                read_audio(encoded(noise(0.1, 8000), 8000), RATE)
                read_audio(encoded(noise(0.1, 44_100), 44_100), RATE)
        (record,) = caplog.records
        assert "recordings of 8000 samples a second are resampled to 16000" in record.getMessage()

    def test_the_extra_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "soundfile", None)
        with pytest.raises(DataError, match="reading recordings needs the extra 'speech'"):
            read_audio(b"RIFF", RATE)


class TestBrokenFiles:
    def refused(self, file: Path | bytes, match: str, **options: Any) -> None:
        with pytest.raises(DataError, match=match) as caught:
            read_audio(file, RATE, **options)
        assert "\n" not in str(caught.value)

    def test_no_file(self, tmp_path: Path) -> None:
        self.refused(tmp_path / "a.wav", r"a\.wav: no such file$")
        self.refused(tmp_path, "is a directory; name a file in it$")
        self.refused(saved(tmp_path / "b.wav", b""), r"b\.wav is empty$")
        self.refused(Path("a\0b"), "is not the name of a file$")

    def test_a_pipe(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        self.refused(tmp_path / "pipe", "pipe is a pipe; connect it to stdin of `transduce tr")

    def test_no_audio(self, tmp_path: Path) -> None:
        self.refused(saved(tmp_path / "a.wav", b"hello world\n" * 9), "cannot be read as audio: ")
        self.refused(saved(tmp_path / "a.raw", bytes(99)), "cannot be read as audio: ")
        self.refused(b"RIFF\xff\xff\xff\xffWAVEfmt ", "^the recording cannot be read as audio: ")

    @pytest.mark.parametrize(
        ("head", "name"),
        [
            (b"\0\0\0\x20ftypM4A \0\0\0\0", "MP4 or M4A"),
            (b"\x1aE\xdf\xa3\x9fB\x86\x81\x01", "WebM or Matroska"),
            (b"\xff\xf1\x50\x80\x02\x1f\xfc", "AAC"),
            (b"0&\xb2u\x8ef\xcf\x11\xa6\xd9", "WMA"),
            (b"#!AMR\n\x3c", "AMR"),
        ],
    )
    def test_formats_that_ffmpeg_reads(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, head: bytes, name: str
    ) -> None:
        path = saved(tmp_path / "my talk.x", head + bytes(100))
        monkeypatch.setattr("transduce.speech.audio.find_spec", lambda module: None)
        needed = "needs the extra 'containers'; install it, or convert it with: ffmpeg -i '.*x' '"
        self.refused(path, f"is {name}, which {needed}")

    @pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e30])
    def test_values_that_are_no_samples(self, value: float) -> None:
        samples = noise(3)
        samples[40_000] = value
        self.refused(encoded(samples, subtype="FLOAT"), "(not finite|above 65536) near second")

    def test_a_rate_that_cannot_be(self) -> None:
        data = bytearray(encoded(noise(0.1)))
        data[24:28] = struct.pack("<I", 1)
        self.refused(bytes(data), "has 1 samples a second by its header")

    def test_a_header_of_more_than_there_is(self) -> None:
        """It takes memory for the samples that are there alone."""
        data = bytearray(encoded(noise(0.1)))
        data[40:44] = struct.pack("<I", 0x7FFFFFF0)  # as from a pipe: the length was not known
        assert len(read_audio(bytes(data), RATE)) == 1600

    def test_a_header_of_fewer_than_there_are(self, caplog: pytest.LogCaptureFixture) -> None:
        data = bytearray(encoded(noise(1)))
        data[40:44] = struct.pack("<I", 100)
        with caplog.at_level(logging.WARNING):
            assert len(read_audio(bytes(data), RATE, "a")) == 50
        assert "a has 31900 bytes behind the samples that its header declares" in caplog.text
        self.refused(bytes(data), "behind the samples", strict=True)
        caplog.clear()
        for end in (b"LIST" + struct.pack("<I", 8000), b""):
            assert len(read_audio(encoded(noise(1)) + end + bytes(8000), RATE, strict=True)) == RATE

    def test_chunks_without_end_take_no_time(self) -> None:
        """Each took a turn of a loop, several times."""
        data = encoded(noise(0.1))
        for count in (10, 2_000_000):
            chunks = b"junk\0\0\0\0" * count
            many = data[:12] + chunks + data[12:]
            start = time.process_time()
            if count == 10:
                assert len(read_audio(many, RATE)) == 1600
            else:
                self.refused(many, "cannot be read as audio")
            assert time.process_time() - start < 2

    @pytest.mark.parametrize(("kind", "dtype"), [(1, "<i4"), (3, "<f4"), (3, "<f8"), (1, "u1")])
    @pytest.mark.parametrize("extensible", [False, True])
    def test_headers_of_every_layout(self, kind: int, dtype: str, extensible: bool) -> None:
        samples = np.array([0, 0.5, -0.5, 0.25] * 400)
        size = np.dtype(dtype).itemsize
        scale = {"<i4": 2**31, "u1": 128}.get(dtype, 1)
        data = (samples * scale + 128 * (dtype == "u1")).astype(dtype).tobytes()
        form = struct.pack("<HHIIHH", 0xFFFE if extensible else kind, 1, RATE, 0, size, 8 * size)
        if extensible:
            form += struct.pack("<HHIH", 22, 8 * size, 0, kind) + bytes(14)
        chunks = b"WAVEfmt " + struct.pack("<I", len(form)) + form + b"data"
        body = chunks + struct.pack("<I", len(data)) + data
        file = b"RIFF" + struct.pack("<I", len(body)) + body
        assert np.allclose(read_audio(file, RATE), samples, atol=1e-6)
        no_channels = file[:22] + bytes(2) + file[24:]
        self.refused(no_channels, "cannot be read as audio")

    @pytest.mark.parametrize(
        ("form", "subtype"),
        [
            *(("WAV", "PCM_16"), ("AIFF", "PCM_16"), ("AU", "PCM_16")),
            *(("OGG", "VORBIS"), ("OGG", "OPUS"), ("MP3", None)),
        ],
    )
    def test_a_truncated_file(
        self, caplog: pytest.LogCaptureFixture, form: str, subtype: str | None
    ) -> None:
        data = encoded(noise(4), RATE, form, subtype)
        with caplog.at_level(logging.WARNING):
            assert 3.9 * RATE < len(read_audio(data, RATE, strict=True)) < 4.1 * RATE
        assert not caplog.records
        half = data[: len(data) // 2]
        self.refused(half, "^a is truncated: ", location="a", strict=True)
        with caplog.at_level(logging.WARNING):
            assert len(read_audio(half, RATE, "a"))
        assert "a is truncated: " in caplog.text

    @pytest.mark.parametrize("text", [b"Info for all", b"Xing", b"\xff\xfb\x90\xc4Info"])
    @pytest.mark.parametrize("length", [40, 70_000])
    def test_a_tag_before_an_mp3_file(
        self, caplog: pytest.LogCaptureFixture, text: bytes, length: int
    ) -> None:
        """Its size is no part of the declared one, and its text is no header."""
        data = encoded(noise(4), RATE, "MP3")
        tag = tagged(text.ljust(length, b"\xff"))
        with caplog.at_level(logging.WARNING):
            samples = read_audio(tag + data, RATE, strict=True)
        assert not caplog.records
        assert abs(len(samples) - 4 * RATE) < 0.1 * RATE
        self.refused(
            tag + data[: len(data) // 2], "is truncated: (50|9) % of its bytes", strict=True
        )

    @pytest.mark.parametrize(("form", "at", "size"), [("AIFF", b"SSND", 8), ("AU", b".snd", 0)])
    def test_a_header_without_samples(
        self, caplog: pytest.LogCaptureFixture, form: str, at: bytes, size: int
    ) -> None:
        """A recorder that was interrupted never wrote their number."""
        data = bytearray(encoded(noise(1), RATE, form))
        place = data.index(at) + (4 if form == "AIFF" else 8)
        data[place : place + 4] = size.to_bytes(4, "big")
        with caplog.at_level(logging.WARNING):
            assert not len(read_audio(bytes(data), RATE, "a"))
            assert not len(read_audio(encoded(noise(0), RATE, form), RATE, "b"))
        assert ["a has no samples by its header" in r.getMessage() for r in caplog.records] == [
            True
        ]
        self.refused(bytes(data), "has no samples by its header, and 32", strict=True)

    def test_a_truncated_flac_file(self) -> None:
        data = encoded(noise(4), RATE, "FLAC")
        self.refused(data[: len(data) // 2], "^the recording cannot be read as audio: ")

    def test_a_file_shorter_than_its_manifest_says(self, caplog: pytest.LogCaptureFixture) -> None:
        data = encoded(noise(4))
        assert len(read_audio(data, RATE, "a", Excerpt(duration=4.05), strict=True)) == 4 * RATE
        declared = Excerpt(duration=5)
        message = r"^a lasts 4\.00 s and not 5 s as declared"
        self.refused(data, message, location="a", excerpt=declared, strict=True)
        with caplog.at_level(logging.WARNING):
            read_audio(data, RATE, "a", declared)
        assert "a lasts 4.00 s" in caplog.text
        # At another speed the recording is as long as it was.
        read_audio(data, RATE, "a", Excerpt(duration=4, speed=1.1), strict=True)

    @pytest.mark.parametrize("form", ["WAV", "AIFF", "AU", "FLAC", "OGG", "CAF", "W64"])
    def test_changed_headers_are_read_or_refused(self, form: str) -> None:
        """Bytes of the first 80 changed, left out or put in: one line, and no other exception."""
        data, chance = encoded(noise(0.2), RATE, form), random.Random(form)
        for _ in range(60):
            changed = bytearray(data)
            for _ in range(chance.randint(1, 4)):
                at = chance.randrange(80)
                put = chance.choice([b"", bytes([chance.randrange(256)]), b"\xff" * 4, bytes(4)])
                changed[at : at + chance.randint(0, 4)] = put
            with contextlib.suppress(DataError):
                samples = read_audio(bytes(changed), RATE)
                assert np.isfinite(samples).all()


@pytest.mark.parametrize(("form", "codec"), [("mp4", "aac"), ("webm", "libopus")])
def test_containers(tmp_path: Path, form: str, codec: str) -> None:
    """A tone in each channel of a phone's or a browser's recording, by PyAV."""
    av = pytest.importorskip("av", reason="NOT CHECKED: the extra `containers` is missing")
    rate, path = 48_000, tmp_path / f"talk.{form}"
    both = np.stack([tone(1.0, rate, frequency=440.0), tone(1.0, rate, frequency=880.0)])
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=rate, layout="stereo")
        frame = av.AudioFrame.from_ndarray(both.astype(np.float32), "fltp", "stereo")
        frame.sample_rate = rate
        for packet in [*stream.encode(frame), *stream.encode(None)]:
            container.mux(packet)
    for source in (path, path.read_bytes()):
        for channel, frequency in enumerate((440, 880)):
            samples = np.concatenate(
                list(audio_blocks(source, 16_000, excerpt=Excerpt(channel=channel)))
            )
            assert len(samples) == pytest.approx(16_000, abs=1600)
            heights = np.abs(np.fft.rfft(samples[4000:12_000]))
            assert int(heights.argmax()) * 2 == pytest.approx(frequency, abs=4)
    broken = saved(tmp_path / f"broken.{form}", path.read_bytes()[:40])
    with pytest.raises(DataError, match=r"cannot be read as audio|has no sound"):
        read_audio(broken, 16_000)
