"""Error rate of who spoke: dialogues of voices that the encoder has not heard.

    python benchmarks/speakers.py make DIALOGUES
    python benchmarks/speakers.py hear DIALOGUES ENCODER [RUN]
    python benchmarks/speakers.py score DIALOGUES        # with pyannote.metrics

Turns of half of the dialogues are recorded prompts in four languages, the others digits and voices
of flite and espeak-ng; a pause of 0.15 to 0.9 s, levels by 8 dB.  Half of the pairs are of one sex.
With RUN, an imported Whisper, speakers are those of its segments; else of the sound alone.
"""

import io
import json
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

RATE = 16_000
DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
FAINT = 1e-4
PROMPTS = {"allison": "en", "june": "fr", "carlo": "it", "maxim": "ru"}
DIGITS = ("george", "jackson", "lucas", "nicolas", "theo", "yweweler")
SPOKEN = dict.fromkeys(("slt", "awb", "rms", "kal16"), "flite")
SPOKEN |= dict.fromkeys(("en-us+f2", "en-us+f4", "en-gb+m3", "en-us+m7"), "espeak-ng")
PAIRS = """allison june,carlo maxim,allison carlo,june maxim,allison maxim,june carlo,
george jackson,theo yweweler,awb rms,slt en-us+f2,slt rms,en-us+f4 en-gb+m3,
allison june,carlo maxim,allison carlo,june maxim"""
THREES = """allison june carlo,june carlo maxim,allison carlo maxim,
george jackson lucas,awb slt rms,en-us+f2 en-us+m7 awb"""
ONES = "allison,carlo,jackson,slt"

Samples = NDArray[np.float32]


def read(content: bytes) -> Samples:
    """Samples of a recording at the common rate, without silence at its ends."""
    import soundfile
    import soxr

    samples, rate = soundfile.read(io.BytesIO(content), dtype="float32")
    samples = soxr.resample(samples, rate, RATE)
    power = np.convolve(samples**2, np.full(400, 1 / 400), "same")
    (loud,) = np.nonzero(power > power.max() * 1e-3)
    return samples[loud[0] : loud[-1] + 1]


def of_data(name: str, archive: str, chosen: Callable[[dict[str, Any]], bool]) -> Iterator[Samples]:
    """Recordings of a data set, in a fixed random order."""
    rows = [json.loads(line) for line in (DATA / name / "manifest.jsonl").open()]
    rows = [row for row in rows if chosen(row)]
    np.random.default_rng(1).shuffle(rows)  # type: ignore[arg-type]
    with zipfile.ZipFile(DATA / name / archive) as files:
        for row in rows:
            yield read(files.read(row["audio"].partition(":")[2]))


def turns_of(voice: str) -> Iterator[Samples]:
    """Turns of a voice, of 1 to 8 s."""
    if language := PROMPTS.get(voice):

        def spoken(row: dict[str, Any]) -> bool:
            return bool(row["lang"] == language and row["speech"] and 1.5 <= row["seconds"] <= 8)

        yield from of_data("asterisk-prompts", f"{language}.zip", spoken)
    elif voice in DIGITS:
        digits = of_data("fsdd", "recordings.zip", lambda row: row["speaker"] == voice)
        while some := [*islice(digits, 6)]:
            yield np.concatenate(some)
    else:
        lines = (DATA / "asterisk-prompts" / "manifest.jsonl").read_text().splitlines()
        texts = [row["text"] for row in map(json.loads, lines) if row["lang"] == "en"]
        with tempfile.NamedTemporaryFile(suffix=".wav") as file:
            for text in [text for text in texts if 20 < len(text) < 90][len(voice) :: 9]:
                command = ["flite", "-voice", voice, "-t", text, "-o", file.name]
                if SPOKEN[voice] != "flite":
                    command = ["espeak-ng", "-v", voice, "-w", file.name, text]
                subprocess.run(command, check=True)
                yield read(Path(file.name).read_bytes())


def make(directory: Path) -> None:
    """Write the dialogues, and who speaks when."""
    from transduce.speech.audio_files import wav_bytes

    directory.mkdir(parents=True)
    known: dict[str, list[Samples]] = {}
    for number, names in enumerate(f"{PAIRS},{THREES},{ONES}".replace("\n", "").split(",")):
        rng = np.random.default_rng(number)
        order, turns = names.split() * 6, []
        rng.shuffle(order)
        parts, at = [FAINT * rng.standard_normal(RATE // 2)], RATE // 2
        for voice in order:
            texts = known.setdefault(voice, [*islice(turns_of(voice), 60)])
            turn = texts[rng.integers(len(texts))]
            turn = turn * 0.08 / np.sqrt((turn**2).mean()) * 10 ** (rng.uniform(-4, 4) / 20)
            pause = FAINT * rng.standard_normal(int(rng.uniform(0.15, 0.9) * RATE))
            turns.append((at / RATE, (at + len(turn)) / RATE, voice))
            parts += [turn + FAINT * rng.standard_normal(len(turn)), pause]
            at += len(turn) + len(pause)
        samples = np.concatenate(parts).astype(np.float32)
        (directory / f"{number:02}.wav").write_bytes(wav_bytes(samples, RATE))
        (directory / f"{number:02}.json").write_text(json.dumps(turns))


def hear(directory: Path, encoder: Path, run: Path | None) -> None:
    """Write who is heard when."""
    import transduce
    from transduce.speech.audio import read_audio
    from transduce.speech.speakers import Diarizer, SpeakerEncoder, Speakers
    from transduce.speech.windows import sound_pieces

    speakers = Speakers(SpeakerEncoder(encoder))
    model = None if run is None else transduce.load(run, "cpu", "int8", engine="native")
    begun, seconds = time.process_time(), 0.0
    for file in sorted(directory.glob("*.wav")):
        samples = read_audio(file, RATE)
        seconds += len(samples) / RATE
        if model is None:
            diarizer = Diarizer(speakers, RATE)
            list(diarizer.embed(sound_pieces([samples], RATE)))
            heard = [(start, end, str(speaker)) for start, end, speaker in diarizer.turns()]
        else:
            segments = model.transcribe(file, words=True, speakers=speakers)
            heard = [(part.start, part.end, part.speaker) for part in segments if part.text]
        file.with_suffix(".heard").write_text(json.dumps(heard))
    print(f"{time.process_time() - begun:.1f} CPU-s for {seconds:.0f} s of sound")


def score(directory: Path) -> None:
    """Print error rates by the number of voices, with a collar of 0.25 s in all."""
    from pyannote.core import Annotation, Segment
    from pyannote.metrics.diarization import DiarizationErrorRate

    def annotation(turns: list[tuple[float, float, str]]) -> Any:
        annotated = Annotation()
        for number, (start, end, speaker) in enumerate(turns):
            annotated[Segment(start, end), number] = speaker
        return annotated

    rates: dict[str, Any] = {}
    for file in sorted(directory.glob("*.json")):
        turns, heard = (json.loads(f.read_text()) for f in (file, file.with_suffix(".heard")))
        voices, n_heard = {voice for *_, voice in turns}, len({name for *_, name in heard})
        kind = "prompts" if voices <= {*PROMPTS} else "others"
        for group in (f"{len(voices)} voices", f"{len(voices)} voices, {kind}"):
            rate = rates.setdefault(group, DiarizationErrorRate(collar=0.25))
            error = rate(annotation(turns), annotation(heard))
        print(file.stem, *sorted(voices), f"{n_heard} heard {error:.1%}")
    for group, rate in sorted(rates.items()):
        print(f"{group}: {abs(rate):.1%}")


if __name__ == "__main__":
    verb, directory, *rest = sys.argv[1:]
    match verb, list(map(Path, rest)):
        case "make", []:
            make(Path(directory))
        case "hear", [encoder, *runs]:
            hear(Path(directory), encoder, runs[0] if runs else None)
        case "score", []:
            score(Path(directory))
        case _:
            sys.exit(__doc__)
