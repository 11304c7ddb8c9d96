"""Memory of `transduce serve` over a folder of runs, which are loaded when needed and leave.

    python benchmarks/serving_folder.py FOLDER LINES --memory 45 [--requests 2000]

Every pair of the folder gets 10 lines in turn, in requests of one line each, until all requests are
sent; resident memory of the server is read after each turn.
"""

from __future__ import annotations

import argparse
import itertools
import re
import subprocess
import sys
from pathlib import Path

import httpx

TURN = 10
"""Requests to a pair in a row."""


def main() -> None:
    """Print memory before the first request, its maximum and its end, and the failures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("lines", type=Path)
    parser.add_argument("--memory", type=int, help="of the server, in MB")
    parser.add_argument("--requests", type=int, default=2000)
    options = parser.parse_args()
    bound = [] if options.memory is None else ["--memory", str(options.memory)]
    server = ["serve", str(options.folder), "--port", "0", "--engine", "native", *bound]
    process = subprocess.Popen(
        [sys.executable, "-m", "transduce", *server, "--precision", "int8", "--threads", "1"],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        log = iter(process.stderr.readline, "")
        url = next(m[0] for line in log if (m := re.search(r"http://\S+", line)))
        with httpx.Client(base_url=url, timeout=120) as client:
            languages = client.get("/languages").json()
            pairs = [(a["code"], b) for a in languages for b in a["targets"] if b != a["code"]]
            lines = itertools.cycle(options.lines.read_text(encoding="utf-8").splitlines())
            turns = itertools.cycle(pairs)
            memory, statuses = [resident(process.pid)], list[int]()
            while len(statuses) < options.requests:
                source, target = next(turns)
                for line in itertools.islice(lines, TURN):
                    body = {"q": line, "source": source, "target": target}
                    statuses.append(client.post("/translate", json=body).status_code)
                memory.append(resident(process.pid))
    finally:
        process.terminate()
        process.wait()
    begin, early = memory[0], memory[len(memory) // 10]
    failed = sum(status != 200 for status in statuses)
    print(f"{len(pairs)} pairs, {len(statuses)} requests, {failed} failed")
    print(f"MB: {begin} at first, {early} after a tenth, {max(memory)} at most, {memory[-1]} last")


def resident(pid: int) -> int:
    """Resident memory of a process in MB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) // 1024


if __name__ == "__main__":
    main()
