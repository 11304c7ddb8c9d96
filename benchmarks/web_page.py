"""Words per CPU-second of the engine in WebAssembly, in Node, beside the native engine's.

    python benchmarks/web_page.py --run runs/demo words.txt

One line at a time, one thread, in both; the best of some rounds after a first one.  Prints how many
outputs are equal.  Further options are node's: --experimental-wasm-relaxed-simd before node 21.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import transduce
from transduce.engine.build import VARIABLE, WASM, library_path
from transduce.explain.page import static
from transduce.web.page import SCRIPTS, model_file

MEASURE = """
const { readFileSync } = require("fs");
const [directory, rounds] = process.argv.slice(2);
const read = (name) => readFileSync(`${directory}/${name}`);
const lines = JSON.parse(read("lines.json"));
const modules = { relaxed: read("wasm-relaxed"), plain: read("wasm") };
Translator.load(read("model.bin"), modules).then((translator) => {
  const spent = [];
  let texts;
  for (let k = 0; k <= rounds; k++) {
    const began = process.cpuUsage();
    texts = lines.map((line) => translator.translate(line).text);
    const { user, system } = process.cpuUsage(began);
    if (k) spent.push((user + system) / 1e6);
  }
  process.stdout.write(JSON.stringify({ texts, seconds: Math.min(...spent), relaxed: canRelax() }));
});
"""


def in_node(file: bytes, lines: list[str], rounds: int, options: list[str]) -> dict[str, Any]:
    """Outputs, and CPU-seconds of the best round."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        (directory / "model.bin").write_bytes(file)
        (directory / "lines.json").write_text(json.dumps(lines), encoding="utf-8")
        for instructions in WASM:
            module = library_path(instructions).read_bytes()
            (directory / instructions.name).write_bytes(module)
        code = "".join(static(*script) for script in SCRIPTS[:-1]) + MEASURE
        (directory / "measure.js").write_text(code, encoding="utf-8")
        command = ["node", *options, str(directory / "measure.js"), name, str(rounds)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    answers: dict[str, Any] = json.loads(done.stdout)
    return answers


def natively(run: str, precision: Any, lines: list[str], rounds: int) -> tuple[list[str], float]:
    """Outputs of the native engine, and CPU-seconds of the best round."""
    model = transduce.load(run, engine="native", precision=precision, threads=1)
    spent = []
    texts: list[str] = []
    for _ in range(rounds + 1):
        began = time.process_time()
        texts = [model(line).text for line in lines]
        spent.append(time.process_time() - began)
    return texts, min(spent[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("lines", type=Path)
    arguments, options = parser.parse_known_args()
    os.environ.setdefault(VARIABLE, "avx2")
    lines = arguments.lines.read_text(encoding="utf-8").splitlines()
    translator = transduce.load(arguments.run, "cpu").translator
    for precision in ("float32", "int8"):
        file = model_file(translator, "run", precision)
        web = in_node(file, lines, arguments.rounds, options)
        texts, seconds = natively(arguments.run, precision, lines, arguments.rounds)
        same = sum(a == b for a, b in zip(web["texts"], texts, strict=True))
        speeds = len(lines) / web["seconds"], len(lines) / seconds
        vectors = "relaxed" if web["relaxed"] else "plain"
        print(
            f"{precision}, {vectors} vectors: {speeds[0]:.0f} lines per CPU-second, native "
            f"{os.environ[VARIABLE]} {speeds[1]:.0f}, ratio {speeds[0] / speeds[1]:.2f}; "
            f"{same} of {len(lines)} outputs equal"
        )


if __name__ == "__main__":
    main()
