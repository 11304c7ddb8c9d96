"""`transduce speak`: lines to files, to one file, and to a pipe."""

from __future__ import annotations

import io
import sys
import wave
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from helpers.served_runs import speaking_run
from helpers.tunes import AUDIO
from transduce.cli import main as cli
from transduce.speech.synthesis_models import SpokenFrames
from transduce.speech.synthesiser import Synthesiser

RATE = int(AUDIO["rate"])


class Answer(NamedTuple):
    """Exit status and output of a command."""

    status: int
    out: bytes
    err: str


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return speaking_run(tmp_path_factory.mktemp("speak") / "run")


Command = Callable[..., Answer]


@pytest.fixture
def speak(
    run: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
    tmp_path: Path,
) -> Command:
    """Runs `speak` in this process, with a text as stdin."""

    def command(*arguments: object, text: str = "") -> Answer:
        file = tmp_path / "stdin"
        file.write_text(text, encoding="utf-8")
        with file.open(encoding="utf-8") as stdin:
            monkeypatch.setattr(sys, "stdin", stdin)
            status = cli.main(["speak", str(run), *map(str, arguments)])
        result = capfdbinary.readouterr()
        return Answer(status, result.out, result.err.decode())

    return command


def seconds(file: Path | bytes) -> float:
    with wave.open(io.BytesIO(file) if isinstance(file, bytes) else str(file)) as opened:
        assert (opened.getnchannels(), opened.getframerate()) == (1, RATE)
        return opened.getnframes() / RATE


def test_a_line_is_a_file_and_its_path(speak: Command, tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = speak("-o", out, text="ab\n\ncabbedabed\n \nab\n")
    assert result.status == 0
    paths = result.out.decode().split("\n")[:-1]
    assert paths == [f"{out}/1.wav", "", f"{out}/3.wav", "", f"{out}/5.wav"]
    assert {path.name for path in out.iterdir()} == {"1.wav", "3.wav", "5.wav"}
    assert seconds(out / "3.wav") > seconds(out / "1.wav") > 0
    assert (out / "1.wav").read_bytes() == (out / "5.wav").read_bytes()
    assert result.err.count("line 2 is empty") == result.err.count("is empty") == 1


def test_existing_files_are_kept_without_again(speak: Command, tmp_path: Path) -> None:
    out = tmp_path / "out"
    speak("-o", out, text="ab\n")
    (out / "1.wav").write_bytes(b"kept")
    result = speak("-o", out, text="ab\nc\n")
    assert result.status == 1 and f"line 1: {out}/1.wav exists; --again replaces it" in result.err
    assert result.out.decode() == f"\n{out}/2.wav\n"
    assert (out / "1.wav").read_bytes() == b"kept" and seconds(out / "2.wav") > 0
    assert speak("-o", out, "--again", text="ab\n").status == 0
    assert seconds(out / "1.wav") > 0
    one = tmp_path / "one.wav"
    one.write_bytes(b"kept")
    result = speak("-o", one, text="ab\n")
    assert result.status == 1 and result.err == f"transduce: {one} exists; --again replaces it\n"
    assert one.read_bytes() == b"kept"


def test_existing_files_cost_no_synthesis(
    speak: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("1.wav", "2.wav"):
        (tmp_path / name).write_bytes(b"kept")
    decoded: list[int] = []
    decode = Synthesiser.decode

    def counted(
        self: Synthesiser, rows: Sequence[Sequence[int]], speakers: Sequence[int]
    ) -> list[SpokenFrames]:
        decoded.append(len(rows))
        return decode(self, rows, speakers)

    monkeypatch.setattr(Synthesiser, "decode", counted)
    result = speak("-o", tmp_path, text="ab\n\ncab\n")
    assert result.status == 1 and result.out.decode() == f"\n\n{tmp_path}/3.wav\n"
    assert result.err.count("exists; --again") == 1, "a blank line has no file to refuse"
    assert "line 2 is empty" in result.err and decoded == [1]


def test_all_lines_fit_into_one_file_and_a_pipe(speak: Command, tmp_path: Path) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text("ab\n\ncab\n", encoding="utf-8")
    one = tmp_path / "one.WAV"
    assert speak(lines, "--output", one).out == b""
    piped = speak(lines, "-o", "-")
    assert piped.out == one.read_bytes()
    apart = [seconds(speak("-o", "-", text=f"{text}\n").out) for text in ("ab", "cab")]
    assert seconds(one) == pytest.approx(sum(apart) + 0.4, abs=0.01)
    assert speak("-", "-o", "-", text="ab\n").out == speak("-o", "-", text="ab\n").out


@pytest.mark.parametrize("text", ["", "\n \n"])
def test_nothing_to_speak_is_no_file(speak: Command, tmp_path: Path, text: str) -> None:
    result = speak("-o", tmp_path / "a.wav", text=text)
    assert result.status == 1 and "stdin has no text to speak" in result.err
    assert not (tmp_path / "a.wav").exists()
    assert speak("-o", tmp_path / "out", text=text).status == 0


def test_a_long_line_is_spoken_whole(speak: Command, tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = speak("-o", out, text=f"ab\n{'cabde, ' * 2000}\ncab\n")
    assert result.status == 0 and len(list(out.iterdir())) == 3
    assert seconds(out / "2.wav") > 1000 * seconds(out / "3.wav")


def test_a_speaker_is_chosen_by_name(speak: Command) -> None:
    first, ann, bob = (
        speak("-o", "-", *chosen, text="cab\n").out
        for chosen in ((), ("--speaker", "ann"), ("--speaker", "bob"))
    )
    assert first == ann != bob
    result = speak("-o", "-", "--speaker", "x", text="cab\n")
    expected = "transduce: speaker 'x' is unknown; the run has 'ann', 'bob'\n"
    assert (result.status, result.err) == (2, expected)


def test_what_cannot_be_written_is_one_line(speak: Command, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for output in (tmp_path / "no" / "a.wav", tmp_path / "file" / "out"):
        result = speak("-o", output, text="ab\n")
        assert result.status == 1 and "cannot be written" in result.err.strip()
        assert result.out == b""
    assert speak(text="ab\n").status == 2
