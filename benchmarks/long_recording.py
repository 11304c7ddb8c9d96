"""Make a long recording of short ones, and measure how it is read and cut into pieces.

    python benchmarks/long_recording.py prompts.zip long.flac --hours 2

The recordings of the archive follow each other in random order, with pauses of 0.5 to 4 s and a
little noise.  Prints the pieces, processor seconds and the most memory used.
"""

from __future__ import annotations

import argparse
import io
import resource
import time
import zipfile
from pathlib import Path

import numpy as np
import soundfile

from transduce.audio.read import audio_blocks
from transduce.audio.silence import sound_pieces

NOISE = 0.0005


def write(archive: Path, target: Path, hours: float) -> int:
    """Write the recording; returns its samples a second."""
    chance = np.random.default_rng(0)
    with zipfile.ZipFile(archive) as members:
        names = [name for name in members.namelist() if not name.endswith("/")]
        rate = soundfile.info(io.BytesIO(members.read(names[0]))).samplerate
        with soundfile.SoundFile(target, "w", rate, 1, "PCM_16", format="FLAC") as file:
            while file.frames < hours * 3600 * rate:
                data = members.read(names[chance.integers(len(names))])
                samples, _ = soundfile.read(io.BytesIO(data), dtype="float32")
                pause = np.zeros(int(chance.uniform(0.5, 4) * rate), np.float32)
                for part in (samples, pause):
                    file.write(part + NOISE * chance.standard_normal(len(part)))
    return int(rate)


def main() -> None:
    """Write the recording if it is missing, and cut it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("archive", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--hours", type=float, default=2.0)
    given = parser.parse_args()
    if not given.target.exists():
        write(given.archive, given.target, given.hours)
    rate = soundfile.info(given.target).samplerate
    begun, count, seconds = time.process_time(), 0, 0.0
    for piece in sound_pieces(audio_blocks(given.target, rate), rate):
        count, seconds = count + 1, seconds + piece.end - piece.start
    taken = time.process_time() - begun
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{count} pieces, {seconds:.0f} s of sound, {taken:.1f} s of processor, {memory:.0f} MB")


if __name__ == "__main__":
    main()
