"""Who spoke: the imported encoder, clusters, and speakers of segments."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from helpers.audio import encoded, noise, saved
from helpers.speakers import weights_file
from helpers.tunes import RATE, tune
from transduce import load
from transduce.cli.main import main
from transduce.decoding.options import DecodingOptions
from transduce.errors import DataError, RunError, SettingError
from transduce.interop.new_language import NewLanguage
from transduce.runs.importing import import_run
from transduce.speech.features import VoiceMel
from transduce.speech.segments import Segment, Word, written
from transduce.speech.speakers import (
    Diarizer,
    SpeakerEncoder,
    Speakers,
    SpeakerTurn,
    clusters_of,
)
from transduce.speech.transcriber import TOGETHER
from transduce.speech.windows import AudioPiece


class Pitches:
    """An encoder that hears the louder half of the spectrum."""

    mel = VoiceMel()

    def windows_of(self, piece: AudioPiece, rate: int) -> tuple[list[int], Any]:
        n = max(1, round((piece.end - piece.start) * 100))
        firsts = [*range(0, max(1, n - 159), 40)]
        rows = []
        for first in firsts:
            part = piece.samples[first * rate // 100 : (first + 160) * rate // 100]
            power = np.abs(np.fft.rfft(part)) ** 2
            edge = len(power) * 2 * 800 // rate
            rows.append([power[:edge].sum(), power[edge:].sum()])
        vectors = np.array(rows, np.float32)
        return firsts, vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


LLD = NewLanguage("lld")


def told_apart(number: int = 0) -> Speakers:
    encoder: Any = Pitches()
    return Speakers(encoder, number)


def voice(pitch: float, seconds: float, start: float) -> AudioPiece:
    times = np.arange(round(seconds * RATE)) / RATE
    samples = np.sin(2 * np.pi * pitch * times).astype(np.float32)
    return AudioPiece(start, start + seconds, samples)


def test_an_imported_encoder_computes_as_in_pytorch(tmp_path: Path) -> None:
    file = weights_file(tmp_path / "pretrained.pt")
    encoder = SpeakerEncoder(import_run(file, tmp_path / "voices"))
    state = torch.load(file)["model_state"]
    lstm, linear = torch.nn.LSTM(40, 256, 3), torch.nn.Linear(256, 256)
    lstm.load_state_dict({k[5:]: v for k, v in state.items() if k.startswith("lstm")})
    linear.load_state_dict({k[7:]: v for k, v in state.items() if k.startswith("linear")})
    windows = np.random.default_rng(0).standard_normal((3, 20, 40)).astype(np.float32)
    with torch.inference_mode():
        (_, (hidden, _)) = lstm(torch.from_numpy(windows).transpose(0, 1))
        expected = torch.nn.functional.normalize(linear(hidden[-1]).relu(), dim=-1)
    assert np.allclose(encoder(windows), expected.numpy(), atol=1e-5)
    piece = AudioPiece(0.0, 0.5, np.random.default_rng(1).standard_normal(4000).astype("f4"))
    firsts, vectors = encoder.windows_of(piece, 8000)
    assert firsts == [0] and np.linalg.norm(vectors) == pytest.approx(1, abs=1e-4)


def test_what_is_no_encoder_is_refused(tmp_path: Path) -> None:
    odd = weights_file(tmp_path / "odd.pt", **{"linear.bias": torch.zeros(3)})
    with pytest.raises(DataError, match=r"linear.bias has shape \(3,\), not \(256,\)"):
        import_run(odd, tmp_path / "voices")
    assert not (tmp_path / "voices").exists()
    with pytest.raises(RunError, match="import an encoder of speakers"):
        SpeakerEncoder(tmp_path)
    with pytest.raises(SettingError, match="give 1 to 26"):
        told_apart(27)


def test_what_an_encoder_does_not_take_is_refused(tmp_path: Path) -> None:
    file = weights_file(tmp_path / "pretrained.pt")
    for ignored in ({"overrides": ["seed=2"]}, {"languages": ("en", "pt")}, {"language": LLD}):
        with pytest.raises(SettingError, match="an encoder of speakers has no settings"):
            import_run(file, tmp_path / "voices", **ignored)
        assert not (tmp_path / "voices").exists()


def test_clusters() -> None:
    angles = np.array([0.0, 0.1, 1.2, 1.3, 0.05])
    alike = np.cos(angles[:, None] - angles)
    assert sorted(map(sorted, clusters_of(alike, 0.9))) == [[0, 1, 4], [2, 3]]
    assert len(clusters_of(alike, 0.9, 4)) == 4
    assert [sorted(c) for c in clusters_of(alike, -1)] == [[0, 1, 2, 3, 4]]
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((40, 3))
    alike = vectors @ vectors.T
    for cluster in clusters_of(alike, 0.5):  # every pair of clusters is less alike
        others = [other for other in clusters_of(alike, 0.5) if other != cluster]
        assert all(alike[np.ix_(cluster, other)].mean() < 0.5 for other in others)


@pytest.mark.parametrize("number", [0, 2])
def test_speakers_take_turns(number: int) -> None:
    diarizer = Diarizer(told_apart(number), RATE)
    pieces = [voice(200, 5, 0), voice(1500, 5, 6), voice(210, 5, 12)]
    assert [*diarizer.embed(pieces)] == pieces
    assert [turn.speaker for turn in diarizer.turns()] == [0, 1, 0]
    assert [turn.end for turn in diarizer.turns()] == [5, 11, 17]
    words = (Word("one", 0.5, 3, 0.0), Word("two,", 6.5, 8, 0.0), Word("three", 8.1, 9, 0.0))
    segments = [
        Segment(0, 9, "One two, three", words=words),
        Segment(12, 17, "four"),
        Segment(14, 15, "", guard="made-up", dropped="x"),
    ]
    named = [*diarizer.named(segments)]
    assert [(s.speaker, s.text) for s in named] == [
        ("A", "One"), ("B", "two, three"), ("A", "four"), ("", ""),
    ]  # fmt: skip
    assert [(s.start, s.end) for s in named[:2]] == [(0, 3), (6.5, 9)]
    assert not Diarizer(told_apart(), RATE).turns()


class Counted(Sequence[SpeakerTurn]):
    """Turns that count how often they are read."""

    def __init__(self, turns: list[SpeakerTurn]) -> None:
        self._turns = turns
        self.reads = 0

    def __len__(self) -> int:
        return len(self._turns)

    def __getitem__(self, at: Any) -> Any:
        self.reads += 1
        return self._turns[at]


def test_words_are_looked_up_among_the_turns_of_their_time(monkeypatch: pytest.MonkeyPatch) -> None:
    n = 2000
    turns = Counted([SpeakerTurn(2 * i, 2 * i + 1, i % 3) for i in range(n)])
    words = tuple(Word("a", 2 * i - 0.4, 2 * i + 0.5, 0.0) for i in range(n))
    between = tuple(Word("a", 2 * n + i, 2 * n + i + 0.1, 0.0) for i in range(3))
    text = " ".join("a" for _ in range(n + 3))
    diarizer = Diarizer(told_apart(), RATE)
    monkeypatch.setattr(diarizer, "turns", lambda: turns)
    named = [*diarizer.named([Segment(0, 2 * n + 4, text, words=words + between)])]
    assert [segment.speaker for segment in named] == ["ABC"[i % 3] for i in range(n)]
    assert len(named[-1].words) == 4  # those behind the last turn are of its speaker
    assert turns.reads < 20 * n


def test_a_single_speaker_is_one() -> None:
    diarizer = Diarizer(told_apart(), RATE)
    list(diarizer.embed([voice(200, 0.5, 0), voice(220, 3, 1)]))
    assert {turn.speaker for turn in diarizer.turns()} == {0}


def test_speakers_in_every_format() -> None:
    segments = [Segment(0, 1, "So & so.", speaker="A"), Segment(1, 2, "Yes.", speaker="B")]
    texts = {form: "".join(written(segments, form, "")) for form in ("txt", "srt", "vtt", "jsonl")}  # type: ignore[arg-type]
    assert texts["txt"] == "A: So & so.\nB: Yes.\n"
    assert "\nA: So & so.\n" in texts["srt"]
    assert "\n<v A>So &amp; so.\n" in texts["vtt"]
    records = [json.loads(line) for line in texts["jsonl"].splitlines()]
    assert [record["speaker"] for record in records] == ["A", "B"]


def test_transcripts_have_speakers(tunes_path: Path, tmp_path: Path) -> None:
    quiet = noise(1, RATE, 3, 0.003)
    samples = np.concatenate([quiet, tune("abe" * 3, 0), quiet, tune("dca" * 3, 1), quiet])
    run = load(tunes_path, "cpu")
    plain = run.transcriber(DecodingOptions(beam_size=1))
    transcriber = run.transcriber(DecodingOptions(beam_size=1), speakers=told_apart(1))
    expected = [(s.start, s.text) for s in plain.transcribe([samples])]
    named = [*transcriber.transcribe([samples])]
    assert [(s.start, s.text) for s in named] == expected
    assert {s.speaker for s in named} == {"A"}
    file = saved(tmp_path / "a.wav", encoded(samples, RATE))
    with pytest.raises(SettingError, match="channels are transcribed in turn"):
        list(transcriber.transcribe_channels(file))
    voices = import_run(weights_file(tmp_path / "pretrained.pt"), tmp_path / "voices")
    common = ["transcribe", str(tunes_path), str(file)]
    assert main([*common, "--speakers", str(voices), "--n-speakers", "2"]) == 0
    assert main([*common, "--n-speakers", "2"]) == 2
    assert main([*common, "--speakers", str(tmp_path)]) == 1
    assert main([*common, "--speakers", str(voices), "--channel", "each"]) == 2


def test_a_recording_that_ends_in_damage_keeps_what_was_read(tunes_path: Path) -> None:
    quiet = noise(1, RATE, 3, 0.003)
    sound = np.concatenate([quiet, tune("abe" * 3, 0), quiet, tune("dca" * 3, 1), quiet])

    def blocks() -> Iterator[Any]:
        for _ in range(TOGETHER):
            yield sound
        raise DataError("damaged")

    transcriber = load(tunes_path, "cpu").transcriber(
        DecodingOptions(beam_size=1), speakers=told_apart(1)
    )
    named = []
    with pytest.raises(DataError, match="damaged"):
        for segment in transcriber.transcribe(blocks()):
            named.append(segment)
    assert named and {segment.speaker for segment in named} == {"A"}
