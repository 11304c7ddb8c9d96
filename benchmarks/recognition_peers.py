"""CPU-seconds of `transduce transcribe` and faster-whisper, of the same Whisper and recording.

    python benchmarks/recognition_peers.py RUN DIRECTORY RECORDING [--peer PYTHON] [--rounds 3]

RUN is imported from DIRECTORY, a Whisper of CTranslate2; PYTHON has faster-whisper.  Each program
is a process with one thread, its start and the loading of the model included, with the beam of 5 of
the recipe; they take turns.  Prints the least of the rounds, and what each wrote.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys

PEER = """
import sys
from faster_whisper import WhisperModel
model = WhisperModel(sys.argv[1], device="cpu", compute_type=sys.argv[3], cpu_threads=1)
segments, _ = model.transcribe(
    sys.argv[2], beam_size=5, vad_filter=False, condition_on_previous_text=False
)
for segment in segments:
    print(segment.text.strip())
"""


def cpu_seconds(command: list[str]) -> tuple[float, str]:
    """CPU-seconds of a process with one thread, and its output."""

    def spent() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    before, environment = spent(), {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return spent() - before, done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run")
    parser.add_argument("directory")
    parser.add_argument("recording")
    parser.add_argument("--peer", default=sys.executable)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    ours = [sys.executable, "-m", "transduce", "transcribe", given.run, given.recording]
    ours += ["--device", "cpu", "--threads", "1"]
    theirs = [given.peer, "-c", PEER, given.directory, given.recording]
    programs = {
        "transduce, PyTorch": [*ours, "--engine", "pytorch"],
        **{
            f"transduce, native {precision}": [*ours, "--precision", precision]
            for precision in ("float32", "bf16", "int8")
        },
        **{f"faster-whisper {kind}": [*theirs, kind] for kind in ("float32", "int8")},
    }
    least = dict.fromkeys(programs, float("inf"))
    outputs = {}
    for _ in range(given.rounds):
        for name, command in programs.items():
            seconds, outputs[name] = cpu_seconds(command)
            least[name] = min(least[name], seconds)
    for name, seconds in least.items():
        print(f"{name:28} {seconds:6.2f}  {seconds / least['faster-whisper int8']:5.2f}")
    for name, output in outputs.items():
        print(f"\n{name}\n{output.strip()}")


if __name__ == "__main__":
    main()
