"""Word errors of pocketsphinx on the speech of a run, beside recordings of the same texts.

    DIGITS="zero one two three four five six seven eight nine"
    python benchmarks/judge_speech.py runs/spoken-digits --words $DIGITS
    python benchmarks/judge_speech.py runs/read --count 100

speaks the test texts of a run and prints the word error rate of an independent recogniser on it, on
the frames of the recordings through Griffin-Lim, and on the recordings' own samples where they are
files; with the scores of `transduce evaluate` that need no recogniser.  --words limits the
recogniser to a loop of these words; by default it has its model of English.  Needs pocketsphinx
(`pip install pocketsphinx`, its model is in the wheel) and the extra `speech`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import soxr
import torch
from pocketsphinx import Decoder

import transduce
from transduce.speech.audio import Samples, read_audio
from transduce.speech.recipe import read_recordings_of
from transduce.speech.recogniser import every
from transduce.speech.recordings import read_recordings
from transduce.speech.spoken import Speech
from transduce.speech.synthesiser import error_rates, free_scores, recorded_scores

RATE = 16_000
EDGE = np.zeros(6000, np.float32)
"""Silence around each recording, which the recogniser expects."""


def decoder(words: Sequence[str]) -> Decoder:
    """The recogniser of English, or of a loop of some words."""
    if not words:
        return Decoder(samprate=RATE, loglevel="FATAL")
    result = Decoder(samprate=RATE, loglevel="FATAL", lm=None)
    result.add_jsgf_string(
        "words", f"#JSGF V1.0; grammar words; public <words> = ({' | '.join(words)})+;"
    )
    result.activate_search("words")
    return result


def heard(judge: Decoder, samples: Samples, rate: int) -> str:
    """Output of the recogniser."""
    at_rate = samples if rate == RATE else soxr.resample(samples, rate, RATE)
    whole = np.concatenate([EDGE, at_rate, EDGE])
    judge.start_utt()
    judge.process_raw((np.clip(whole, -1, 1) * 32767).astype(np.int16).tobytes(), full_utt=True)
    judge.end_utt()
    result = judge.hyp()
    return result.hypstr if result else ""


def error_rate(texts: Sequence[str], references: Sequence[str]) -> float:
    """Word error rate in percent."""
    return error_rates(texts, references)["word-error-rate"]


def main() -> None:
    """Print the scores as one JSON object."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("run", type=Path)
    parser.add_argument("--words", nargs="+", default=[], help="the only words there are")
    parser.add_argument("--count", type=int, help="most texts")
    parser.add_argument("--speaker", help="texts of this speaker alone, of a run with several")
    parser.add_argument("--show", type=int, default=0, help="print so many texts as heard")
    options = parser.parse_args()
    run = transduce.load(options.run)
    synthesiser = run.synthesiser
    recipe = synthesiser.recipe
    data = read_recordings_of(recipe.data, recipe.audio, "test", synthesiser.cache)
    chosen = [options.speaker in (None, speaker) for speaker in data.speakers]
    data = data.select(np.flatnonzero(chosen)[: options.count])
    texts, features = data.texts, synthesiser.features
    judge = decoder(options.words)
    spoken = list(synthesiser.speak(texts, speakers=data.speakers))
    recorded = [Speech(torch.from_numpy(frames), features) for frames in every(data)]
    ours = [heard(judge, one.samples, one.rate) for one in spoken]
    inverted = [heard(judge, one.samples, one.rate) for one in recorded]
    result = {
        "texts": len(texts),
        "word-error-rate": error_rate(ours, texts),
        "recorded-through-griffin-lim": error_rate(inverted, texts),
    }
    if recipe.data.test is not None and options.speaker is None:
        root = Path(recipe.data.root)
        originals = [
            heard(
                judge,
                read_audio(recording.file(), RATE, recording.location, recording.excerpt()),
                RATE,
            )
            for recording, _ in zip(read_recordings(recipe.data.test, root), texts, strict=False)
        ]
        result["recorded"] = error_rate(originals, texts)
    print(json.dumps(result | free_scores(spoken) | recorded_scores(spoken, recorded)))
    for text, one in list(zip(texts, ours, strict=True))[: options.show]:
        print(f"{text}\t{one}")


if __name__ == "__main__":
    main()
