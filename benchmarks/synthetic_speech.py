"""Synthetic speech of lines by espeak-ng: recordings, transcripts and translations.

    T=$TRANSDUCE_DATA/tatoeba-de-en
    python benchmarks/synthetic_speech.py $T/train.de.gz $T/train.en.gz OUT/train
    python benchmarks/synthetic_speech.py $T/test.de.gz $T/test.en.gz OUT/test --count 300
    python benchmarks/synthetic_speech.py $T/test.de.gz $T/test.en.gz OUT/unheard --count 300 \\
        --voices de+f4 de+f5 de+klatt
    python benchmarks/synthetic_speech.py lines.txt lines.txt OUT/many --languages languages.txt

writes OUT/train.zip with a FLAC file for each line and OUT/train.jsonl, a manifest with `audio`,
`text` (of the second file), `transcript` (of the first), `speaker` and `duration`; prints their
checksums.  Voice, rate and pitch change from line to line.  `--languages` names a file with the
language of each line, as espeak-ng calls it (de, es-419), which the manifest has as `lang`; without
it all are German.  espeak-ng adds noise of its own, so that two calls give other bytes: make a
corpus once.  Needs libespeak-ng and the extra `speech`.  `flite_speech.py` makes a corpus to learn
speaking from.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import io
import json
import random
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import soundfile
import soxr
from numpy.typing import NDArray

from transduce.data.text_files import read_lines

HEARD = ("", *(f"+m{i}" for i in range(1, 8)), *(f"+f{i}" for i in range(1, 4)))
"""Variants of a language's voice."""
SYNCHRONOUS, UTF8 = 2, 1
RATE, PITCH, RANGE = 1, 3, 4  # parameters of espeak-ng
SHORTEST = 0.1
"""Seconds below which a line is left out, as one of signs alone."""


class Spoken(NamedTuple):
    """Samples (n,) of a line at `rate` a second, with its fields of the manifest."""

    samples: NDArray[np.float32]
    rate: int
    voice: str
    fields: dict[str, str]


class Espeak:
    """Samples of texts from libespeak-ng, at `rate` a second."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libespeak-ng.so.1")
        self.rate: int = self._library.espeak_Initialize(SYNCHRONOUS, 500, None, 0)
        self._blocks: list[NDArray[np.int16]] = []
        kind = ctypes.CFUNCTYPE(
            ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p
        )
        self._callback = kind(self._take)  # kept, as the library calls it
        self._library.espeak_SetSynthCallback(self._callback)

    def say(self, text: str, voice: str, settings: dict[int, int]) -> NDArray[np.float32]:
        """Samples (n,) from -1 to 1."""
        if self._library.espeak_SetVoiceByName(voice.encode()):
            raise SystemExit(f"espeak-ng has no voice {voice!r}; see espeak-ng --voices")
        for parameter, value in settings.items():
            self._library.espeak_SetParameter(parameter, value, 0)
        self._blocks = []
        line = text.encode() + b"\0"
        self._library.espeak_Synth(line, len(line), 0, 0, 0, UTF8, None, None)
        self._library.espeak_Synchronize()
        samples = np.concatenate([np.zeros(0, np.int16), *self._blocks])
        return samples.astype(np.float32) / 32768

    def _take(self, samples: Any, count: int, events: Any) -> int:
        if samples and count > 0:
            self._blocks.append(np.ctypeslib.as_array(samples, shape=(count,)).copy())
        return 0


class Line(NamedTuple):
    """A line to speak, its translation, and its language."""

    spoken: str
    text: str
    language: str


def chosen_lines(options: argparse.Namespace) -> list[Line]:
    """Lines in a random order, the long ones left out."""
    spoken = [line.strip() for line in read_lines(options.spoken)]
    texts = [line.strip() for line in read_lines(options.text)]
    languages = ["de"] * len(spoken)
    if options.languages:
        languages = [line.strip() for line in read_lines(options.languages)]
    lines = [Line(*line) for line in zip(spoken, texts, languages, strict=True)]
    lines = [line for line in lines if 0 < len(line.spoken) <= options.longest]
    random.Random(options.seed).shuffle(lines)
    return lines[: options.count]


def by_espeak(options: argparse.Namespace) -> Iterator[Spoken]:
    """Each line by one of the voices, at another rate and pitch, in a little noise."""
    espeak, chance = Espeak(), random.Random(options.seed)
    noise = np.random.default_rng(options.seed)
    for spoken, text, language in chosen_lines(options):
        voice = chance.choice(options.voices or [language + variant for variant in HEARD])
        settings = {
            RATE: chance.randint(140, 200),
            PITCH: chance.randint(30, 70),
            RANGE: chance.randint(30, 70),
        }
        samples = soxr.resample(espeak.say(spoken, voice, settings), espeak.rate, options.rate)
        samples = samples + noise.normal(0, 0.001, len(samples)).astype(np.float32)
        fields = {"text": text, "transcript": spoken, "lang": language}
        yield Spoken(samples, options.rate, voice, fields)


def write_corpus(out: Path, lines: Iterable[Spoken], rate: int) -> None:
    """Write OUT.zip and OUT.jsonl at `rate` samples a second; print their checksums."""
    out.parent.mkdir(parents=True, exist_ok=True)
    archive, manifest = (out.with_suffix(ending) for ending in (".zip", ".jsonl"))
    total = 0.0
    with zipfile.ZipFile(archive, "w") as opened, manifest.open("w", encoding="utf-8") as written:
        for number, line in enumerate(lines):
            samples = line.samples
            if line.rate != rate:
                samples = soxr.resample(samples, line.rate, rate)
            seconds = len(samples) / rate
            if seconds < SHORTEST:
                continue
            file, name = io.BytesIO(), f"{number:06}.flac"
            soundfile.write(file, samples, rate, format="FLAC", subtype="PCM_16")
            opened.writestr(name, file.getvalue())
            total += seconds
            place = {"audio": f"{out.name}.zip:{name}"}
            more = {"speaker": line.voice, "duration": round(seconds, 3)}
            record = {**place, **line.fields, **more}
            written.write(json.dumps(record, ensure_ascii=False) + "\n")
    print(f"{total / 3600:.2f} hours")
    for path in (archive, manifest):
        with path.open("rb") as made:
            print(f"{hashlib.file_digest(made, 'sha256').hexdigest()}  {path}")


def main() -> None:
    """Write the archive and its manifest."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("spoken", type=Path, help="lines to speak, plain or compressed")
    parser.add_argument("text", type=Path, help="their translations, line by line")
    parser.add_argument("out", type=Path, help="path of archive and manifest, without an ending")
    parser.add_argument("--count", type=int, default=30_000, help="most recordings")
    parser.add_argument("--longest", type=int, default=60, help="most characters of a spoken line")
    parser.add_argument("--languages", type=Path, help="the language of each line; de without it")
    parser.add_argument("--voices", nargs="+", help="voices of espeak-ng, instead of a language's")
    parser.add_argument("--rate", type=int, default=8000, help="samples a second")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    write_corpus(options.out, by_espeak(options), options.rate)


if __name__ == "__main__":
    main()
