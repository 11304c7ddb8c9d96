"""Transcription of long recordings: pieces, times, guards, formats and the command."""

from __future__ import annotations

import dataclasses
import io
import itertools
import json
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import transduce
from helpers.audio import Samples, encoded, noise, saved, tone
from helpers.tunes import RATE, melodies, tune
from transduce.cli.main import main
from transduce.cli.output import open_output
from transduce.cli.speech import _Writing
from transduce.decoding.backend import Decoded
from transduce.decoding.hypotheses import Hypothesis
from transduce.decoding.options import DecodingOptions
from transduce.errors import DataError, RunError
from transduce.loading import Run
from transduce.metrics.error_rates import edit_distance
from transduce.speech.guards import once, outputs_of, repeats
from transduce.speech.segments import FORMATS, Segment, SubtitleLayout, Word, clock, written
from transduce.speech.transcriber import Transcriber
from transduce.speech.windows import AudioPiece, Window

GREEDY = DecodingOptions(beam_size=1)


def quiet(seconds: float) -> Samples:
    return noise(seconds, RATE, 3, 0.003)


@pytest.fixture(scope="module")
def run(tunes_path: Path) -> Run:
    return transduce.load(tunes_path, "cpu")


def song(texts: list[str], pause: float = 1.0) -> tuple[Samples, list[float]]:
    """Tunes after each other, each after a pause, and where each begins."""
    parts, starts, at = [], [], 0
    for number, text in enumerate(texts):
        parts += [quiet(pause), tune(text, 900 + number)]
        starts.append((at + len(parts[-2])) / RATE)
        at += len(parts[-2]) + len(parts[-1])
    return np.concatenate([*parts, quiet(pause)]), starts


TEXTS = melodies(12, seed=77)


class TestTranscribe:
    def test_each_tune_is_a_segment_at_its_time(self, run: Run) -> None:
        samples, starts = song(TEXTS)
        found = list(run.transcribe(encoded(samples, RATE), GREEDY))
        assert len(found) == len(TEXTS)
        edits = sum(edit_distance(a.text, b) for a, b in zip(found, TEXTS, strict=True))
        assert edits < 0.3 * sum(map(len, TEXTS))
        for one, start, text in zip(found, starts, TEXTS, strict=True):
            assert start - 0.12 < one.start < start + 0.07
            assert one.end > start + 0.09 * len(text)
            assert one.text.split() == [word.text for word in one.words]
            for word in one.words:
                assert one.start <= word.start < word.end <= one.end
                assert word.score <= 0

    def test_times_of_words(self, run: Run) -> None:
        """Two tunes with a short gap are one piece of two words."""
        samples = np.concatenate([quiet(1), tune("abe", 1), quiet(1)])
        (one,) = run.transcribe(encoded(samples, RATE), GREEDY)
        (word,) = one.words
        assert abs(word.start - 1.05) < 0.12
        assert abs(word.end - (1 + len(tune("abe", 1)) / RATE)) < 0.15

    @pytest.mark.parametrize("seconds", [1, 30])
    def test_nothing_is_heard_in_nothing(self, run: Run, seconds: int) -> None:
        for samples in (np.zeros(seconds * RATE), noise(seconds, RATE), tone(seconds, RATE)):
            assert not list(run.transcribe(encoded(samples, RATE)))
        assert not list(run.transcribe(encoded(np.zeros(0), RATE)))

    @pytest.mark.system
    def test_it_is_lazy_and_memory_does_not_grow(self, run: Run) -> None:
        samples, _ = song(TEXTS[:6], 2.0)
        transcriber = run.transcriber(GREEDY)
        read = 0

        def blocks(count: int) -> Iterator[Samples]:
            nonlocal read
            for _ in range(count):
                read += 1
                yield from np.split(samples, range(RATE, len(samples), RATE))

        next(iter(transcriber.transcribe(blocks(99))))
        assert read <= 4

        def most(count: int) -> int:
            tracemalloc.start()
            found = sum(1 for _ in transcriber.transcribe(blocks(count)))
            assert found == 6 * count
            size = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            return size

        assert most(12) < 1.2 * most(4)

    def test_live_pieces_are_answered_one_by_one(self, run: Run) -> None:
        samples, starts = song(TEXTS[:3])
        heard: list[int] = []

        def blocks() -> Iterator[Samples]:
            for i in range(0, len(samples), 800):
                heard.append(i)
                yield samples[i : i + 800]

        segments = run.transcriber(GREEDY).transcribe(blocks(), live=True)
        next(segments)
        assert heard[-1] / RATE < starts[1] + 0.9
        assert len(list(segments)) == 2

    def test_the_same_alone_and_together(self, run: Run) -> None:
        samples, _ = song(TEXTS)
        data = encoded(samples, RATE, subtype="FLOAT")
        together = list(run.transcribe(data, GREEDY))
        live = list(run.transcriber(GREEDY).transcribe([samples], live=True))
        assert [(s.start, s.end, s.text) for s in together] == [
            (s.start, s.end, s.text) for s in live
        ]

    def test_a_run_of_another_task(self, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(run, "predictor", object())
        with pytest.raises(RunError, match="'speech-recognition', which does not take recordings"):
            run.transcribe(b"")


def scored(run: Run, text: str, blanks: int = 1) -> torch.Tensor:
    """CTC's log-probabilities (t, v) of letters, each at a position before some blanks."""
    tokenizer = run.predictor.tokenizer  # type: ignore[attr-defined]
    ids = [x for token in tokenizer.encode(text) for x in (token, *[0] * blanks)]
    probabilities = torch.full((len(ids) or 4, tokenizer.size), 1e-4)
    probabilities[range(len(ids)), ids] = 1.0
    if not ids:
        probabilities[:, 0] = 1.0
    return probabilities.log().log_softmax(-1)


class TestGuards:
    def heard(self, run: Run, written: str, spoken: str | torch.Tensor | None) -> Segment | None:
        tokens = run.predictor.tokenizer.encode(written)  # type: ignore[attr-defined]
        hypothesis = Hypothesis(tokens, -1.0, -1.0, True)
        if isinstance(spoken, str):
            spoken = scored(run, spoken)
        recogniser: Any = run.predictor
        transcriber = Transcriber(recogniser)
        (best,) = outputs_of(Decoded([hypothesis], spoken), transcriber.text_of, 0.0)
        window = Window([AudioPiece(0.0, 9.0, quiet(9.0))], RATE)
        found = transcriber._segments(recogniser, torch.zeros(9, 1), best, window)
        return found[0] if found else None

    def test_both_agree(self, run: Run) -> None:
        found = self.heard(run, "abc", "abc")
        assert found is not None and (found.text, found.guard) == ("abc", "")
        near = self.heard(run, "abcde", "abce")
        assert near is not None and (near.text, near.guard) == ("abcde", "")

    def test_ctc_hears_nothing(self, run: Run) -> None:
        found = self.heard(run, "abc", "")
        assert found is not None and (found.text, found.guard) == ("", "made-up")
        assert found.fields()["dropped"] == "abc"
        assert not "".join(written([found], "srt", "a.wav"))

    def test_the_decoder_repeats_itself(self, run: Run) -> None:
        loop = self.heard(run, "bcabcabcabcabcabcabca", "abcde")
        assert loop is not None and (loop.text, loop.guard) == ("abcde", "repeated")
        said = self.heard(run, "abababababab", "abababababab")
        assert said is not None and (said.text, said.guard) == ("abababababab", "")
        alone = self.heard(run, "ababababababab", None)
        assert alone is not None and (alone.text, alone.guard) == ("ab", "repeated")

    def test_the_decoder_says_something_else(self, run: Run) -> None:
        found = self.heard(run, "eeddeb", "abcabc")
        assert found is not None and (found.text, found.guard) == ("abcabc", "disagreement")
        assert found.fields()["guard"] == "disagreement"
        assert "".join(word.text for word in found.words) == "abcabc"

    def test_ctc_that_is_unsure_is_not_taken(self, run: Run) -> None:
        """It prefers a blank by a little, and the decoder hears a letter."""
        unsure = scored(run, "abcd").exp()
        letters = unsure[::2].clone()
        unsure[2::2] = letters[1:] * 0.4
        unsure[2::2, 0] = 0.5
        found = self.heard(run, "abcd", unsure.log())
        assert found is not None and (found.text, found.guard) == ("abcd", "")

    def test_a_model_that_translates(self, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        predictor: Any = run.predictor
        monkeypatch.setattr(predictor, "transcript_tokenizer", predictor.tokenizer)
        found = self.heard(run, "eed", "abcabc")
        assert found is not None and (found.text, found.guard) == ("eed", "")
        assert found.transcript == "abcabc" == found.fields()["transcript"]
        assert [word.text for word in found.words] == ["abcabc"]
        loop = self.heard(run, "ededededededed", "abcabc")
        assert loop is not None and (loop.text, loop.guard) == ("ed", "repeated")

    @pytest.mark.parametrize(
        ("text", "found", "short"),
        [
            ("no no no no no", True, "no"),
            ("no no no no", False, "no no no no"),
            (
                "so thank you. thank you. thank you. thank you. thank you. bye",
                True,
                "so thank you. bye",
            ),
            ("1 1 2 1 1", False, "1 1 2 1 1"),
            ("", False, ""),
            ("哈哈你好你好你好你好你好", True, "哈哈你好"),
        ],
    )
    def test_repetition(self, text: str, found: bool, short: str) -> None:
        assert repeats(text) == found
        assert once(text) == short


SEGMENTS = [
    Segment(0.5, 1.25, "a <b> & c", -0.5, (Word("a", 0.5, 0.7, -0.1), Word("<b>", 0.8, 1, -0.2))),
    Segment(3661.0, 3662.0, "tab\there", guard="repeated", channel=2, transcript="so"),
]


class TestFormats:
    def text(self, form: Any, words: bool = False) -> str:
        return "".join(written(SEGMENTS, form, "x.wav", words))

    def test_text(self) -> None:
        assert self.text("txt") == "a <b> & c\n2: tab here\n"

    def test_subtitles(self) -> None:
        assert self.text("srt") == (
            "1\n00:00:00,500 --> 00:00:01,250\na <b> & c\n\n"
            "2\n01:01:01,000 --> 01:01:02,000\n2: tab here\n\n"
        )
        assert self.text("vtt") == (
            "WEBVTT\n\n00:00:00.500 --> 00:00:01.250\na &lt;b&gt; &amp; c\n\n"
            "01:01:01.000 --> 01:01:02.000\n2: tab here\n\n"
        )
        assert clock(59.9996, ",") == "00:01:00,000"

    def test_long_segments_are_several_subtitles(self) -> None:
        texts = [f"word{n}" + "," * (n % 9 == 8) for n in range(60)]
        words = tuple(Word(text, n / 2, n / 2 + 0.4, 0) for n, text in enumerate(texts))
        timed = Segment(0.0, 30.0, " ".join(texts), words=words)
        for segment in (timed, dataclasses.replace(timed, words=())):
            blocks = "".join(written([segment], "srt", "x.wav")).split("\n\n")[:-1]
            assert " ".join(" ".join(block.split("\n")[2:]) for block in blocks) == segment.text
            for block in blocks:
                _, times, *lines = block.split("\n")
                start, end = (float(time[-6:].replace(",", ".")) for time in times.split(" --> "))
                assert end - start <= 7
                assert len(lines) <= 2
                assert max(map(len, lines)) <= 42
                if segment.words == words:
                    first, last = lines[0].split()[0], lines[-1].split()[-1]
                    assert start == words[texts.index(first)].start
                    assert end in (30, words[texts.index(last)].end)

    @pytest.mark.parametrize(("columns", "lines"), [(20, 1), (30, 3), (84, 2)])
    def test_a_layout_of_subtitles(self, columns: int, lines: int) -> None:
        texts = [f"word{n}" for n in range(40)]
        words = tuple(Word(text, n / 4, n / 4 + 0.2, 0) for n, text in enumerate(texts))
        segment = Segment(0.0, 10.0, " ".join(texts), words=words)
        layout = SubtitleLayout(columns, lines)
        blocks = "".join(written([segment], "srt", "x.wav", layout=layout)).split("\n\n")[:-1]
        rows = [block.split("\n")[2:] for block in blocks]
        assert " ".join(" ".join(block) for block in rows) == segment.text
        assert max(map(len, rows)) <= lines
        assert columns / 2 < max(len(row) for block in rows for row in block) <= columns

    def test_a_long_word_is_one_subtitle(self) -> None:
        text = "".join(written([Segment(0.0, 9.0, "a" * 100)], "srt", "x.wav"))
        assert text == f"1\n00:00:00,000 --> 00:00:09,000\n{'a' * 100}\n\n"

    def test_a_table(self) -> None:
        assert self.text("tsv") == (
            "start\tend\ttext\n500\t1250\ta <b> & c\n3661000\t3662000\t2: tab here\n"
        )
        assert self.text("tsv", words=True).splitlines()[1:3] == ["500\t700\ta", "800\t1000\t<b>"]

    def test_records(self) -> None:
        whole = json.loads(self.text("json", words=True))
        assert whole["audio"] == "x.wav"
        assert whole["text"] == "a <b> & c tab\there"
        first, second = whole["segments"]
        assert first["words"][0] == {"word": "a", "start": 0.5, "end": 0.7, "score": -0.1}
        assert second == {
            "start": 3661.0,
            "end": 3662.0,
            "text": "tab\there",
            "score": 0.0,
            "transcript": "so",
            "guard": "repeated",
            "channel": 2,
        }
        lines = self.text("jsonl").splitlines()
        assert [json.loads(line)["start"] for line in lines] == [0.5, 3661.0]
        assert "words" not in json.loads(lines[0])

    @pytest.mark.parametrize("form", FORMATS)
    def test_nothing(self, form: Any) -> None:
        empty = "".join(written([], form, "x.wav"))
        assert empty.count("\n") == {"vtt": 2, "tsv": 1, "json": 1}.get(form, 0)


class TestCommand:
    @pytest.fixture
    def files(self, tmp_path: Path) -> list[str]:
        """Two recordings with the tunes of `TEXTS`, and one that is broken between them."""
        good = [
            saved(tmp_path / f"{name}.wav", encoded(song(texts)[0], RATE))
            for name, texts in (("a", TEXTS[:2]), ("b", TEXTS[2:5]))
        ]
        bad = saved(tmp_path / "bad.wav", b"no recording")
        return [str(good[0]), str(bad), str(good[1])]

    def test_a_faulty_file_stops_no_other(
        self, tunes_path: Path, files: list[str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["transcribe", str(tunes_path), *files]) == 1
        found = capsys.readouterr()
        assert len(found.out.splitlines()) == 5
        assert found.err.count("\n") == 1
        assert "bad.wav cannot be read as audio" in found.err

    def test_files_of_their_own(
        self, tunes_path: Path, files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        out = tmp_path / "out"
        command = ["transcribe", str(tunes_path), *files, "--output-directory", str(out)]
        assert main([*command, "--format", "srt", "--words"]) == 1
        assert sorted(file.name for file in out.iterdir()) == ["a.srt", "b.srt"]
        assert (out / "b.srt").read_text().count("-->") == 3
        assert main([*command, "--format", "json"]) == 1
        capsys.readouterr()
        (out / "a.json").write_text("mine")
        assert main([*command[:3], *command[5:], "--format", "json"]) == 0
        assert "a.json exists; --again replaces it" in capsys.readouterr().err
        assert (out / "a.json").read_text() == "mine"
        assert main([*command[:3], *command[5:], "--format", "json", "--again"]) == 0
        assert len(json.loads((out / "a.json").read_text())["segments"]) == 2

    def test_a_cascade_translates_each_segment(
        self, tunes_path: Path, trained: Run, files: list[str], capsys: Any
    ) -> None:
        command = ["transcribe", str(tunes_path), files[0], "--format", "jsonl"]
        assert main(command) == 0
        spoken = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert main([*command, "--then", str(trained.path)]) == 0
        segments = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        translator = trained
        assert len(segments) == len(spoken) > 1
        for segment, plain in zip(segments, spoken, strict=True):
            text = translator.translate(plain["text"]).text
            assert segment == {**plain, "text": text, "transcript": plain["text"]}
        assert any(segment["text"] != segment["transcript"] for segment in segments)
        assert main([*command, "--then", str(tunes_path)]) == 1
        assert "does not turn text into text" in capsys.readouterr().err

    @pytest.mark.parametrize("raw", [True, False])
    def test_standard_input(
        self,
        tunes_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        raw: bool,
    ) -> None:
        samples = song(TEXTS[:3])[0]
        data = (samples * 32767).astype("<i2").tobytes() if raw else encoded(samples, RATE)
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        for arguments in (["-"], []):
            sys.stdin.buffer.seek(0)
            assert main(["transcribe", str(tunes_path), *arguments]) == 0
            assert len(capsys.readouterr().out.splitlines()) == 3

    def test_channels_one_by_one(
        self, tunes_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        first, second = song(TEXTS[:2])[0], song(TEXTS[2:4], 1.5)[0]
        size = max(len(first), len(second))
        both = np.stack([np.pad(one, (0, size - len(one))) for one in (first, second)], 1)
        file = str(saved(tmp_path / "s.wav", encoded(both, RATE)))
        assert (
            main(["transcribe", str(tunes_path), file, "--channel", "each", "--format", "jsonl"])
            == 0
        )
        found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert sorted(one["channel"] for one in found) == [1, 1, 2, 2]
        assert all(a["start"] <= b["start"] for a, b in itertools.pairwise(found))
        assert main(["transcribe", str(tunes_path), file, "--channel", "2"]) == 0
        assert len(capsys.readouterr().out.splitlines()) == 2
        assert main(["transcribe", str(tunes_path), file, "--channel", "3"]) == 1
        assert "has 2 channels, and no channel 3" in capsys.readouterr().err

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["a.wav", "--words"], "--words needs a format with times"),
            (["a.wav", "b.wav", "--format", "srt"], "add --output-directory"),
            (["a.wav", "b/a.wav", "--output-directory", "x"], "a.wav and b/a.wav would both be"),
            (["--output-directory", "x"], "--output-directory needs recordings"),
            (
                ["a.wav", "--channel", "0"],
                "--channel must be a number from 1, or \"each\", not '0'",
            ),
            (["--channel", "each"], "--channel must be a number from 1, not 'each'"),
            (["a.wav", "--max-lines", "3"], "--max-lines applies to --format srt and vtt"),
            (["a.wav", "--rate", "8000"], "--rate applies to raw samples from stdin"),
        ],
    )
    def test_mistakes_are_one_line(
        self,
        tunes_path: Path,
        capsys: pytest.CaptureFixture[str],
        arguments: list[str],
        message: str,
    ) -> None:
        assert main(["transcribe", str(tunes_path), *arguments]) == 2
        found = capsys.readouterr()
        assert message in found.err
        assert found.err.count("\n") == 1 and not found.out


def test_a_file_that_breaks_off_is_an_error_after_its_segments(run: Run) -> None:
    data = encoded(np.concatenate([song(TEXTS[:8])[0], noise(9, RATE, level=0.001)]), RATE, "FLAC")
    with pytest.raises(DataError, match="cannot be read as audio"):
        list(run.transcribe(data[:-4000]))


@pytest.mark.parametrize("form", ["txt", "vtt", "jsonl"])
def test_a_recording_without_speech_is_named(
    form: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    writing = _Writing(Any, form, False, False, (None, None))  # type: ignore[arg-type]
    for segments in ([Segment(0.0, 1.0, "ta")], []):
        with open_output(str(tmp_path / f"{len(segments)}")) as out:
            writing.write(out, iter(segments), "quiet.wav")
    (record,) = caplog.records
    assert record.getMessage().startswith("quiet.wav: no speech was heard")
