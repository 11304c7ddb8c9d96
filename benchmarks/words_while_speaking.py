"""Cost and lateness of words while one speaks, beside the transcription of the whole file.

    python benchmarks/words_while_speaking.py RUN $TRANSDUCE_DATA [--precision int8] [--rounds 2]

Nine English prompts of 4 to 9 s, joined with pauses of 1 and of 0.3 s, come in blocks of 0.1 s.
Lateness is the sound after the end of a word, by the times of the whole file's transcript, until
the word is certain.
"""

import argparse
import difflib
import json
import time
import zipfile
from pathlib import Path

import numpy as np

import transduce
from transduce.metrics.error_rates import edit_distance
from transduce.speech.agreement import parts_of, plain
from transduce.speech.audio import read_audio, resampled
from transduce.speech.transcriber import Transcriber

PROMPTS, RATE, BLOCK = 9, 8000, 1600


def recording(data: Path, pause: float, rate: int) -> tuple[np.ndarray, list[str]]:
    """Samples (n,) of the prompts with faint noise between, and their words."""
    directory = data / "asterisk-prompts"
    rows = [json.loads(line) for line in (directory / "manifest.jsonl").read_text().splitlines()]
    rows = [row for row in rows if row["lang"] == "en" and row["speech"] and not row["annotated"]]
    rows = [row for row in rows if 4 <= row["seconds"] <= 9][:PROMPTS]
    random, parts = np.random.default_rng(0), []
    with zipfile.ZipFile(directory / "en.zip") as archive:
        for row in rows:
            member = row["audio"].split(":")[1]
            samples = read_audio(archive.read(member), RATE, member)
            parts += [samples, 2e-4 * random.standard_normal(round(RATE * pause))]
    whole = np.concatenate(parts).astype(np.float32)
    words = [plain(word) for row in rows for word in row["text"].split()]
    return np.concatenate([*resampled(iter([whole]), RATE, rate)]), words


def spoken(transcriber: Transcriber, samples: np.ndarray) -> tuple[list[str], list[float]]:
    """Words while the samples come, and the seconds of sound read when each was certain."""
    read, words, times, begun = 0, list[str](), list[float](), 0

    def blocks():
        nonlocal read
        for read in range(BLOCK, len(samples) + BLOCK, BLOCK):
            yield samples[read - BLOCK : read]

    for segment in transcriber.transcribe_open(blocks()):
        line = [plain(word) for word in parts_of(segment.text)]
        words, times = words[:begun] + line, times[: begun + len(line)]
        times += [read / transcriber.rate] * (len(words) - len(times))
        begun = begun if segment.partial else len(words)
    return words, times


def lateness(words: list[str], times: list[float], ends: list[tuple[str, float]]) -> np.ndarray:
    """Seconds from the end of each word to its time, of words that both texts have in a row."""
    matcher = difflib.SequenceMatcher(None, words, [word for word, _ in ends], autojunk=False)
    blocks = matcher.get_matching_blocks()
    return np.array([times[a + i] - ends[b + i][1] for a, b, n in blocks for i in range(n)])


def main() -> None:
    """Print a line for each recording."""
    parser = argparse.ArgumentParser()
    parser.add_argument("run", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--rounds", type=int, default=1)
    arguments = parser.parse_args()
    run = transduce.load(arguments.run, "cpu", arguments.precision, engine="native")
    transcriber = run.transcriber(language="en")
    timed = run.transcriber(language="en", words=True)
    for pause in (1.0, 0.3):
        samples, reference = recording(arguments.data, pause, transcriber.rate)
        seconds, clock, costs = len(samples) / transcriber.rate, time.process_time, []
        for _ in range(arguments.rounds):
            start = clock()
            whole = [*transcriber.transcribe([samples])]
            middle = clock()
            words, times = spoken(transcriber, samples)
            costs.append((middle - start, clock() - middle))
        text = [plain(word) for segment in whole for word in parts_of(segment.text)]
        ends = [(plain(w.text), w.end) for s in timed.transcribe([samples]) for w in s.words]
        late = lateness(words, times, ends)
        first, second = np.mean(costs, 0)
        errors = [edit_distance(each, reference) for each in (text, words)]
        print(
            f"pauses {pause} s, {seconds:.1f} s of sound: whole {first:.2f} CPU-s, while spoken "
            f"{second:.2f}, ratio {second / first:.2f}; word errors {errors[0]} and {errors[1]} of "
            f"{len(reference)}; late: mean "
            f"{late.mean():.2f} s, 95 % {np.percentile(late, 95):.2f}, most {late.max():.2f}, "
            f"above 3 s {(late > 3).sum()} of {len(late)}"
        )


if __name__ == "__main__":
    main()
