"""Corpus of English by flite, to learn speaking from: digits, or sentences of a file.

    python benchmarks/flite_speech.py OUT
    python benchmarks/flite_speech.py OUT/others --voices rms awb kal16
    python benchmarks/flite_speech.py OUT/slt --train 8000 \\
        --sentences $TRANSDUCE_DATA/tatoeba-de-en/train.en.gz

writes OUT/train.zip and OUT/test.zip with a FLAC file for each line, a manifest OUT/NAME.jsonl for
each with `audio`, `text`, `speaker` and `duration`, and OUT/NAME.txt with the texts; prints hours
and checksums.  Lines are of one to four digits, such as "three one four", or sentences of three to
twelve words in a random order, in letters, with no digits.  No line is in both parts, in any case
or punctuation.  Silence before and after is cut to 30 ms.  Needs libflite with its voices, and the
extra `speech`.
"""

from __future__ import annotations

import argparse
import ctypes
import random
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from synthetic_speech import Spoken, write_corpus

from transduce.data.text_files import read_lines

DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
SENTENCE = re.compile(r"[A-Za-z][A-Za-z',?! -]*[A-Za-z][.?!]?")
"""Letters and common signs; abbreviations and figures have a full stop or a digit inside."""
WORDS = range(3, 13)
"""Words of a sentence."""
QUIET = 150 / 32768
"""Samples below it are silence, at the edges of flite's output."""
EDGE = 0.03
"""Seconds of silence left there."""


class Flite:
    """Samples of texts from libflite."""

    class _Wave(ctypes.Structure):
        _fields_ = (
            ("type", ctypes.c_char_p),
            ("rate", ctypes.c_int),
            ("count", ctypes.c_int),
            ("channels", ctypes.c_int),
            ("samples", ctypes.POINTER(ctypes.c_short)),
        )

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libflite.so.1", ctypes.RTLD_GLOBAL)
        for name in ("usenglish", "cmulex"):
            ctypes.CDLL(f"libflite_{name}.so.1", ctypes.RTLD_GLOBAL)
        self._library.flite_init()
        self._library.flite_text_to_wave.restype = ctypes.POINTER(Flite._Wave)
        self._library.flite_text_to_wave.argtypes = (ctypes.c_char_p, ctypes.c_void_p)
        self._voices: dict[str, int] = {}

    def say(self, text: str, voice: str) -> tuple[NDArray[np.float32], int]:
        """Samples (n,) from -1 to 1, and how many are a second."""
        wave = self._library.flite_text_to_wave(text.encode(), self._voice(voice))
        result = wave.contents
        samples = np.ctypeslib.as_array(result.samples, shape=(result.count,)).astype(np.float32)
        rate = int(result.rate)
        self._library.delete_wave(wave)
        return trimmed(samples / 32768, round(EDGE * rate)), rate

    def _voice(self, name: str) -> int:
        if name not in self._voices:
            full = f"cmu_us_{name}"
            try:
                library = ctypes.CDLL(f"libflite_{full}.so.1", ctypes.RTLD_GLOBAL)
            except OSError:
                raise SystemExit(f"flite has no voice {name!r}; see flite -lv") from None
            register = getattr(library, f"register_{full}")
            register.restype, register.argtypes = ctypes.c_void_p, (ctypes.c_char_p,)
            self._voices[name] = register(None)
        return self._voices[name]


def trimmed(samples: NDArray[np.float32], edge: int) -> NDArray[np.float32]:
    """Samples (n,) with at most `edge` silent ones at either end."""
    loud = np.flatnonzero(np.abs(samples) > QUIET)
    return samples[max(0, loud[0] - edge) : loud[-1] + edge] if len(loud) else samples[:0]


def digit_lines(count: int, seed: int) -> list[str]:
    """Different lines of one to four digits, in a random order; all single digits come first."""
    chance = random.Random(seed)
    lines = dict.fromkeys(DIGITS)
    while len(lines) < count:
        lines[" ".join(chance.choices(DIGITS, k=chance.randint(1, 4)))] = None
    rest = list(lines)[len(DIGITS) :]
    chance.shuffle(rest)
    return [*DIGITS, *rest]


def sentences(file: Path, count: int, seed: int) -> list[str]:
    """Different sentences of a file, plain or compressed, in a random order."""
    result: dict[tuple[str, ...], str] = {}
    for line in map(str.strip, read_lines(file)):
        words = tuple(re.findall(r"[a-z']+", line.lower()))
        if len(words) in WORDS and SENTENCE.fullmatch(line):
            result.setdefault(words, line)
    if len(result) < count:
        raise SystemExit(f"{file} has {len(result):,} such sentences; {count:,} are needed")
    return random.Random(seed).sample(list(result.values()), count)


def spoken(lines: list[str], voices: list[str], seed: int) -> Iterator[Spoken]:
    """Each line by one of the voices."""
    flite, chance = Flite(), random.Random(seed)
    for line in lines:
        voice = chance.choice(voices)
        samples, rate = flite.say(line, voice)
        yield Spoken(samples, rate, voice, {"text": line})


def main() -> None:
    """Write both archives and their manifests."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("out", type=Path, help="directory of the corpus")
    parser.add_argument("--sentences", type=Path, help="file of lines to speak; default: digits")
    parser.add_argument("--train", type=int, default=1500, help="lines to learn from")
    parser.add_argument("--test", type=int, default=200, help="lines to test with")
    parser.add_argument("--voices", nargs="+", default=["slt"], help="voices of flite")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    count = options.train + options.test
    if options.sentences is None:
        lines = digit_lines(count, options.seed)
    else:
        lines = sentences(options.sentences, count, options.seed)
    parts = {"train": lines[: options.train], "test": lines[options.train :]}
    for name, part in parts.items():
        write_corpus(options.out / name, spoken(part, options.voices, options.seed), 16_000)
        text = "".join(f"{line}\n" for line in part)
        (options.out / f"{name}.txt").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
