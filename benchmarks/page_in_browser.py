"""Lines a CPU-second of an exported page in Chromium, beside the native engine.

    python benchmarks/page_in_browser.py RUN [LINES] [--rounds 3]

RUN is exported as a page in int8, which is opened from disk.  LINES is a file of texts, by default
`firefox_lines.txt`, translated one by one.  Rounds alternate with the native engine in a process of
its own, on one thread; the median counts.  CPU-seconds of the page are those of all processes of
the browser and what drives it.  Prints how many lines have the same text, tokens and score.
`TRANSDUCE_ENGINE_INSTRUCTIONS=avx2` names the engine's instructions.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from corpus import children
from playwright.sync_api import sync_playwright

from transduce.runs.exporting import export_run

PAGE = """async (lines) => {
  const answers = [];
  for (const line of lines) {
    const { text, tokens, score } = await transduce.translate(line);
    answers.push([text, tokens, score]);
  }
  return answers;
}"""
NATIVE = """
import json, sys, time
import transduce
run, file = sys.argv[1:]
lines = open(file, encoding="utf-8").read().splitlines()
translator = transduce.load(run, engine="native", precision="int8", threads=1)
translator(lines[0])
begin = time.process_time()
answers = [translator(line) for line in lines]
seconds = time.process_time() - begin
print(json.dumps([seconds, [[a.text, list(a.tokens), a.score] for a in answers]]))
"""
LINES = Path(__file__).with_name("firefox_lines.txt")


def descendants(process: int) -> Iterator[int]:
    """Processes that a process started, and theirs."""
    for child in children(process):
        yield child
        yield from descendants(child)


def cpu_seconds() -> float:
    """CPU-seconds of all that this process started, until now."""
    ticks = 0
    for pid in descendants(os.getpid()):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("lines", type=Path, nargs="?", default=LINES)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    lines = options.lines.read_text(encoding="utf-8").splitlines()
    command = [sys.executable, "-c", NATIVE, str(options.run), str(options.lines)]
    rates: dict[str, list[float]] = {"page": [], "native": []}
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        file = export_run(options.run, Path(folder) / "page.html", "int8", "html")
        begin = cpu_seconds()
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"))
        page = browser.new_page()
        page.goto(file.absolute().as_uri())
        page.evaluate(PAGE, lines[:1])
        print(f"{file.stat().st_size / 1e6:.1f} MB, first line: {cpu_seconds() - begin:.1f} CPU-s")
        page.evaluate(PAGE, lines[:100])
        for _ in range(options.rounds):
            begin = cpu_seconds()
            answers = page.evaluate(PAGE, lines)
            rates["page"].append(len(lines) / (cpu_seconds() - begin))
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            seconds, expected = json.loads(done.stdout)
            rates["native"].append(len(lines) / seconds)
            equal = sum(a == b for a, b in zip(answers, expected, strict=True))
        browser.close()
    medians = {name: round(statistics.median(values)) for name, values in rates.items()}
    print(f"lines a CPU-second {medians}; {equal} of {len(lines)} equal")


if __name__ == "__main__":
    main()
