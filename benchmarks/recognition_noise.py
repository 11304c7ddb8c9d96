"""Word error rate of a recognition run with digital silence and noise in its recordings.

    python benchmarks/recognition_noise.py RUN corpus/test.jsonl --count 60

Prints a line for each kind of change, by greedy search, with and without the floor that features
have (`speech/normalisation.py`).  Gated recordings are zero wherever they are faint.  The
manifest has paths `archive.zip:member` beside it, as `benchmarks/synthetic_speech.py` writes it.
Needs the extra `speech`.
"""

from __future__ import annotations

import argparse
import json
import zipfile
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

import transduce
from transduce.metrics.measure import measure
from transduce.speech.audio import read_audio
from transduce.speech.recogniser import Recogniser

Samples = NDArray[np.float32]
ZEROS = 0.3
"""Seconds of digital silence before and after."""
FAINT = 0.004
"""Mean magnitude over 20 ms below which a gate closes."""


def changes(rate: int) -> dict[str, Callable[[Samples], Samples]]:
    """Kinds of change, by name."""
    zeros = np.zeros(round(ZEROS * rate), np.float32)
    window = np.ones(rate // 50) / (rate // 50)
    generator = np.random.default_rng(1)

    def gated(samples: Samples) -> Samples:
        faint = np.convolve(np.abs(samples), window, "same") < FAINT
        return np.where(faint, np.float32(0), samples)

    def noisy(level: float) -> Callable[[Samples], Samples]:
        gain = 10 ** (level / 20)
        return lambda x: (x + gain * generator.standard_normal(len(x))).astype(np.float32)

    return {
        "as they are": lambda samples: samples,
        "gated": gated,
        "zeros around them": lambda samples: np.concatenate([zeros, samples, zeros]),
        **{f"noise at {level} dB": noisy(level) for level in (-50, -40, -30)},
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("manifest", type=Path)
    parser.add_argument("--count", type=int, default=60, help="recordings")
    parser.add_argument("--split", help="take the lines with this `split` alone")
    options = parser.parse_args()
    torch.set_num_threads(1)
    recogniser = transduce.load(options.run, "cpu").predictor
    assert isinstance(recogniser, Recogniser), "a run of speech recognition"
    with options.manifest.open(encoding="utf-8") as file:
        lines = (json.loads(line) for line in file)
        of_split = (line for line in lines if options.split in (None, line.get("split")))
        records = list(islice(of_split, options.count))
    rate, root = recogniser.recipe.audio.rate, options.manifest.parent
    samples = [read_audio(audio_of(root, record["audio"]), rate) for record in records]
    texts = [[record.get("transcript") or record["text"]] for record in records]
    greedy = replace(recogniser.options, beam_size=1, n_best=1)
    normalisation = recogniser.backend.normalisation
    for name, change in changes(rate).items():
        frames = [recogniser.extractor(change(sample)) for sample in samples]
        rates = []
        for floor in (normalisation.floor, None):
            search = replace(recogniser.backend, normalisation=normalisation._replace(floor=floor))
            changed = replace(recogniser, backend=search)
            written = [transcript.text for transcript in changed.recognise(frames, greedy)]
            score = measure(("word-error-rate",), written, texts, "")
            rates.append(f"{score['word-error-rate']:5.1f}")
        print(f"{name:20} {rates[0]}  without the floor {rates[1]}", flush=True)


def audio_of(root: Path, name: str) -> bytes:
    """Bytes of `archive.zip:member`."""
    archive, member = name.split(":")
    with zipfile.ZipFile(root / archive) as opened:
        return opened.read(member)


if __name__ == "__main__":
    main()
