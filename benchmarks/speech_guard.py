"""Gain of a text: what a recording adds to its probability, of spoken texts and of made-up ones.

    python benchmarks/speech_guard.py RUN DATA results.jsonl --minutes 10
    python benchmarks/speech_guard.py RUN DATA results.jsonl --minutes 0      # the table alone

RUN is an imported Whisper, DATA has the folders `asterisk-prompts`, `fsdd`, `multi30k` and
`tatoeba-zh-en`.  Clips are prompts, digits, voices of flite and espeak-ng, and noises of sox; each
is in one of two halves, `choose` and `test`, that share no voice, no noise and no language of a
recording.  A line is appended for each clip and language; a second call goes on where the first
stopped.  The table has errors at thresholds of the gain and of the two scores in use before;
choose one by the first half, read the second.
"""

import argparse
import gzip
import json
import subprocess
import time
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import transduce
from transduce.metrics.error_rates import edit_distance
from transduce.speech.audio import read_audio
from transduce.speech.guards import Attempt, mean_gain, outputs_of
from transduce.speech.windows import FILLED, sound_pieces, windows_of

Samples = NDArray[np.float32]
RATE = 16_000
HALVES = ("choose", "test")
PROMPTS = ({"en": "", "it": ""}, {"es": "", "fr": "", "ru": ""})
SPEAKERS = (("george", "jackson", "lucas"), ("nicolas", "theo", "yweweler"))
FLITE = (("slt", "awb"), ("kal", "rms"))
ESPEAK = (
    {"de": "multi30k/val.de.gz"},
    {"cs": "multi30k/val.cs.gz", "zh": "tatoeba-zh-en/dev.zh.gz"},
)
VOICES = {"zh": "cmn"}
DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
LANGUAGES = (("en", "de", "it", "pt"), ("fr", "ru", "zh", "es"))
"""In which noise is decoded."""
PLUCKS = "pluck E2 pluck B2 pluck E3 delay 0 0.7 1.5 remix - repeat 3"
NOISES = (
    {
        "white": "synth 12 whitenoise vol 0.1",
        "pink": "synth 12 pinknoise tremolo 3 90 vol 0.3",
        "saw": "synth 10 sawtooth 110:440 tremolo 2 80 vol 0.2",
        "plucks": f"synth 4 {PLUCKS} vol 0.5",
        "bursts": "synth 0.2 whitenoise fade 0 0.2 0.15 pad 0 0.6 repeat 12 vol 0.4",
        "bell": "synth 2 sine 880 sine 1320 fade 0 2 1.9 remix - repeat 4 vol 0.4",
        "tones": "synth 0.4 sine 697 sine 1209 pad 0 0.4 remix - repeat 10 vol 0.4",
        "wind": "synth 14 pinknoise lowpass 500 tremolo 0.4 95 vol 0.5",
    },
    {
        "brown": "synth 12 brownnoise tremolo 2 90 vol 0.4",
        "drums": "synth 0.1 sine 90:40 fade 0 0.1 0.08 pad 0 0.4 repeat 20 vol 0.8",
        "chords": "synth 2 triangle C3 triangle E3 triangle G3 fade 0.1 2 0.5 remix - repeat 5",
        "square": "synth 10 square 200:50 tremolo 4 90 vol 0.2",
        "clicks": "synth 0.01 whitenoise pad 0 0.13 repeat 60 vol 0.6",
        "siren": "synth 3 sine 500-1200 repeat 3 vol 0.3",
        "breath": "synth 1.2 whitenoise bandpass 1500 800 fade 0.5 1.2 0.6 pad 0 1 repeat 6",
        "engine": "synth 12 brownnoise synth 12 sine fmod 60 overdrive 20 vol 0.2 tremolo 7 60",
    },
)


class Clip(NamedTuple):
    """A recording, made when it is needed.  text: what is said; empty for none."""

    name: str
    half: int
    kind: str
    languages: tuple[str, ...]
    text: str
    make: Callable[[], Samples]


def sox(effects: str) -> Samples:
    """A sound of sox."""
    form = ["-r", str(RATE), "-c", "1", "-e", "float", "-b", "32", "-t", "raw", "-"]
    made = subprocess.run(
        ["sox", "-R", "-n", *form, *effects.split()], capture_output=True, check=True
    )
    return np.frombuffer(made.stdout, np.float32)


def said(command: list[str]) -> Samples:
    """A voice; the command writes a WAV file to stdout."""
    return read_audio(
        subprocess.run(command, capture_output=True, check=True).stdout, RATE, "voice"
    )


def archived(archive: Path, member: str) -> Samples:
    """A recording in a zip file."""
    with zipfile.ZipFile(archive) as file:
        return read_audio(file.read(member), RATE, member)


def in_a_row(archive: Path, members: list[str]) -> Samples:
    """Recordings with pauses of 0.1 s between."""
    pause = np.zeros(RATE // 10, np.float32)
    return np.concatenate([part for one in members for part in (archived(archive, one), pause)])


def mixed(speech: Callable[[], Samples], effects: str, decibels: float) -> Samples:
    """Speech with a noise, at a ratio of their powers."""
    clean = speech()
    noise = np.resize(sox(effects), len(clean))
    power = np.square(clean).mean() / max(1e-9, np.square(noise).mean())
    loud = clean + noise * np.sqrt(power / 10 ** (decibels / 10))
    return (loud / max(1.0, np.abs(loud).max())).astype(np.float32)


def clips(data: Path) -> Iterator[Clip]:
    """All clips, in an order that mixes their kinds."""
    every = [*prompts_of(data), *digits_of(data), *synthesised(data), *noises()]
    yield from (every[i] for i in np.random.default_rng(1).permutation(len(every)))


def prompts_of(data: Path) -> Iterator[Clip]:
    """Prompts of five languages, clean, and with noise as loud as they are."""
    folder = data / "asterisk-prompts"
    lines = (folder / "manifest.jsonl").read_text(encoding="utf-8").splitlines()
    records = [r for r in map(json.loads, lines) if r["speech"] and not r["annotated"]]
    for half, languages in enumerate(PROMPTS):
        for language in languages:
            own = [r for r in records if r["lang"] == language and r["seconds"] < 12]
            chosen = [own[i] for i in np.random.default_rng(2).permutation(len(own))[:33]]
            for number, record in enumerate(chosen):
                archive, member = record["audio"].split(":")
                clean = partial(archived, folder / archive, member)
                name, said_in = record["id"], (language,)
                if number % 2:
                    yield Clip(name, half, "prompt", said_in, record["text"], clean)
                    continue
                noise, effects = [*NOISES[half].items()][number // 2 % 8]
                ratio = (0, 5, -3)[number // 2 % 3]
                noisy = partial(mixed, clean, effects, ratio)
                name = f"{name} in {noise} at {ratio} dB"
                yield Clip(name, half, "prompt in noise", said_in, record["text"], noisy)


def digits_of(data: Path) -> Iterator[Clip]:
    """A digit alone, and said several times."""
    folder = data / "fsdd"
    lines = (folder / "manifest.jsonl").read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    for half, speakers in enumerate(SPEAKERS):
        for number, speaker in enumerate(speakers * 6):
            digit, times = (3 * number + half) % 10, (1, 5 + number % 4)[number % 2]
            own = [r for r in records if (r["speaker"], r["digit"]) == (speaker, digit)]
            members = [record["audio"].split(":")[1] for record in own[:times]]
            make = partial(in_a_row, folder / "recordings.zip", members)
            kind = "digit" if times == 1 else "repeated digit"
            text = " ".join([DIGITS[digit]] * times)
            yield Clip(f"{digit} x {times} by {speaker}", half, kind, ("en",), text, make)


def synthesised(data: Path) -> Iterator[Clip]:
    """Lines by flite and espeak-ng."""
    english = texts_of(data / "multi30k/val.en.gz")
    for half in range(2):
        for voice in FLITE[half]:
            for text in english[8 * half : 8 * half + 8]:
                flite = ["flite", "-voice", voice, "-t", text, "-o", "/dev/stdout"]
                name = f"{voice}: {text}"
                yield Clip(name, half, "flite", ("en",), text, partial(said, flite))
        for language, file in ESPEAK[half].items():
            voice = VOICES.get(language, language)
            for text in texts_of(data / file)[:8]:
                espeak = ["espeak-ng", "-v", voice, "--stdout", text]
                name, said_in = f"{language}: {text}", (language,)
                yield Clip(name, half, "espeak-ng", said_in, text, partial(said, espeak))


def noises() -> Iterator[Clip]:
    """Sounds without speech, at two speeds."""
    for half, kinds in enumerate(NOISES):
        for name, effects in kinds.items():
            for speed in (1.0, 1.3, 0.8):
                make = partial(sox, f"{effects} speed {speed}")
                yield Clip(f"{name} at {speed}", half, "noise", LANGUAGES[half], "", make)


def texts_of(file: Path) -> list[str]:
    """Lines of medium length."""
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        return [line.strip() for line in lines if 12 < len(line) < 90]


def letters(text: str) -> str:
    """Letters and digits in lower case."""
    return "".join(filter(str.isalnum, text.lower()))


class Judge:
    """Searches for the text of clips, and gains of the texts."""

    def __init__(self, run: Path) -> None:
        self.run = transduce.load(run, "cpu", "int8", engine="native")

    def records(self, clip: Clip) -> Iterator[dict[str, Any]]:
        """A record for each language."""
        pieces = sound_pieces([clip.make()], RATE)
        window = next(windows_of(pieces, FILLED, RATE), None)
        source = None
        for language in clip.languages:
            record: dict[str, Any] = {**clip._asdict(), "language": language}
            del record["make"], record["languages"]
            transcriber = self.run.transcriber(language=language)
            if window is not None:
                source = source or transcriber.recogniser.sources([window.samples])[0]
                record |= self.scores(transcriber, source)
            yield record

    def scores(self, transcriber: Any, source: Any) -> dict[str, Any]:
        """The text of a window by a search, its scores and the gain of each token."""
        recogniser = transcriber.recogniser

        def answer(prepared: Any, decoded: Any) -> Attempt:
            outputs = outputs_of(decoded[0], transcriber.text_of, 0.0)
            return max(outputs, key=lambda output: (not output.is_repetitive, output.log_prob))

        (best,) = recogniser.each([source], transcriber.options, 0, answer)
        gains = recogniser.gains(best.decoded, source)
        return {
            "output": best.text,
            "log_prob": best.log_prob,
            "no_speech": best.decoded.no_speech,
            "finished": best.decoded.hypotheses[0].finished,
            "repetitive": best.is_repetitive,
            "tokens": gains.tokens,
            "gains": [round(x, 3) for x in gains.gains],
            "end": round(gains.end, 3),
        }


def is_spoken(record: dict[str, Any]) -> bool | None:
    """True for a text near that which is said, False for one of a noise, None between."""
    output, text = letters(record["output"]), letters(record["text"])
    if not text:
        return False
    if "digit" in record["kind"]:
        output = "".join(DIGITS[int(c)] if c.isdigit() else c for c in output)
    return True if edit_distance(output, text) < 0.5 * max(len(output), len(text)) else None


def table(records: list[dict[str, Any]]) -> Iterator[str]:
    """Errors of each rule in each half."""
    with_text = [r for r in records if letters(r.get("output", ""))]
    for half, name in enumerate(HALVES):
        own = [r for r in records if r["half"] == half]
        texts = [(r, is_spoken(r)) for r in with_text if r["half"] == half]
        spoken = [r for r, truth in texts if truth]
        made_up = [r for r, truth in texts if truth is False]
        clips = len({r["name"] for r in own})
        counts = f"{len(spoken)} texts spoken, {len(made_up)} made up"
        yield f"{name}: {clips} clips, {len(own)} trials; {counts}"
        for rule, keeps in RULES.items():
            lost = [r for r in spoken if not keeps(r)]
            false = [r for r in made_up if keeps(r)]
            yield f"  {rule:34} spoken, dropped {len(lost):3}   made up, written {len(false):3}"


def by_gain(least: float, silent: float) -> Callable[[dict[str, Any]], bool]:
    """Rule that keeps what is not doubtful, and of the rest what the sound adds to.

    least: mean gain.  silent: what the probability of no speech adds to it.
    """

    def keeps(r: dict[str, Any]) -> bool:
        clear = r["log_prob"] > -0.5 and not r["repetitive"] and r["no_speech"] < 0.1
        return clear or mean_gain(r["tokens"], r["gains"]) > least + silent * r["no_speech"]

    return keeps


def by_scores(no_speech: float, log_prob: float) -> Callable[[dict[str, Any]], bool]:
    """Whisper's rule: dropped where no speech is probable and the text is not."""
    return lambda r: not (r["no_speech"] > no_speech and r["log_prob"] < log_prob)


RULES = {
    "Whisper's: no speech 0.6, -1": by_scores(0.6, -1.0),
    "no speech 0.4, -0.5": by_scores(0.4, -0.5),
    **{f"gain {a} + {b} p": by_gain(a, b) for a in (1.0, 1.5, 2.0) for b in (0, 1, 2)},
}


def main() -> None:
    """Measure clips, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("results", type=Path)
    parser.add_argument("--minutes", type=float, default=10.0, help="of the processor")
    arguments = parser.parse_args()
    results: Path = arguments.results
    known = results.read_text(encoding="utf-8").splitlines() if results.is_file() else []
    records = [json.loads(line) for line in known]
    measured = {record["name"] for record in records}
    judge = Judge(arguments.run) if arguments.minutes else None
    with results.open("a", encoding="utf-8") as file:
        for clip in clips(arguments.data):
            if judge is None or time.process_time() > 60 * arguments.minutes:
                break
            if clip.name not in measured:
                found = list(judge.records(clip))
                records += found
                file.write("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in found))
                file.flush()
    print("\n".join(table(records)))


if __name__ == "__main__":
    main()
