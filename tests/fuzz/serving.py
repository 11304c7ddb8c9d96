"""Sends hostile requests of all dialects to a server, and doubles inputs of every parser.

    python tests/fuzz/serving.py                     10,000 requests, then all costly inputs
    python tests/fuzz/serving.py --count 500 --seed 7
    python tests/fuzz/serving.py --count 0           costs alone

The server has a tiny run and a deadline of `TIMEOUT` seconds.  Fails at an answer of status 500 or
above other than 503, at one that comes later, at a traceback, where a client beside it waits for
more than a second, or 20 times as long as before on a busy machine, where work goes on two seconds
after status 503, where a request blocks the event loop, and at an input whose CPU-seconds or
memory grow faster than its length.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import random
import sys
import tempfile
import threading
import time
import urllib.parse
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from helpers.served import Served

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "end_to_end")]

TIMEOUT = 20
GRACE = 5.0
"""Seconds that an answer may need on a busy machine beyond the deadline."""
LONGEST = 4000
"""Parts of a costly input in a request."""
MULTIPART = "multipart/form-data; boundary=b"
LEAST_SECONDS, LEAST_BYTES = 0.2, 8_000_000
"""CPU-seconds and memory from which a ratio says something."""
MAX_RATIO = 2.8
MAX_CHARACTERS = 2_000_000
MAX_PING, BUSY = 1.0, 20
"""Seconds of a short text beside an attack, and factor to those before it."""
FILES = ("/translate_file", "/v2/document")
LANGUAGES = {"source": "de", "target": "en", "source_lang": "DE", "target_lang": "EN"}


def multipart(fields: Mapping[str, object], file: tuple[str, str] | None = None) -> bytes:
    """Fields, and a file as (name, text), as a multipart form."""
    named = [(f'"{name}"', value) for name, value in fields.items()]
    named += [(f'"file"; filename="{file[0]}"', file[1])] if file else []
    head = "--b\r\nContent-Disposition: form-data; name="
    parts = [f"{head}{name}\r\n\r\n{value}\r\n" for name, value in named]
    return "".join([*parts, "--b--\r\n"]).encode(errors="replace")


def body_of(chance: random.Random, fields: Mapping[str, object]) -> tuple[bytes, str]:
    """Fields as JSON, as a form, or as a multipart form, with its type; sometimes broken."""
    kind = chance.choice(("json", "json", "form", "multipart"))
    if kind == "json":
        body, media = json.dumps(fields).encode(), "application/json"
    elif kind == "form":
        pairs = [(name, str(value).encode(errors="replace")) for name, value in fields.items()]
        body, media = urllib.parse.urlencode(pairs).encode(), "application/x-www-form-urlencoded"
    else:
        body, media = multipart(fields), MULTIPART
    if chance.random() < 0.1:
        cut = chance.randrange(len(body) + 1)
        body = body[:cut] + chance.randbytes(chance.randrange(8)) + body[cut + 1 :]
    return body, media


def request(chance: random.Random, bodies: Mapping[str, Any]) -> tuple[str, bytes, str]:
    """Path, body and type of a hostile request."""
    from helpers.costly import COSTLY
    from helpers.hostile_requests import ODD_VALUES

    path = chance.choice([*bodies, *FILES])
    size = int(LONGEST ** chance.random())
    text = chance.choice(list(COSTLY.values())).make(size)
    if path in FILES:
        suffix = chance.choice(("txt", "srt", "vtt", "html", "xhtml", "pdf", ""))
        body, media = multipart(LANGUAGES, (f"a.{suffix}", text)), MULTIPART
    else:
        fields = dict(bodies[path])
        for name in chance.sample(list(fields), min(2, len(fields))):
            fields[name] = chance.choice((*ODD_VALUES, text, [text], {text[:9]: text}))
        body, media = body_of(chance, fields)
    if chance.random() < 0.1:
        path += "?" + "&".join(f"{i}={i}" for i in range(size // 4))
    return path, body, media


def attack(count: int, seed: int) -> Counter[int]:
    """Statuses of the answers to hostile requests.  Raises AssertionError at a fault."""
    from test_serve_dialects_hostile import BODIES as OTHERS
    from test_serve_hostile import BODIES

    from helpers.event_loop import BLOCKED
    from helpers.served import served, small_run

    bodies = {**OTHERS, **BODIES}
    chance = random.Random(seed)
    statuses: Counter[int] = Counter()
    with tempfile.TemporaryDirectory() as directory:
        run = small_run(Path(directory), "de", "en")
        with served(run, "--metrics", "--timeout", TIMEOUT) as server:
            with Beside(server) as before:
                time.sleep(2)
            most_ping = max(MAX_PING, BUSY * before.slowest)
            for number in range(count):
                path, body, media = request(chance, bodies)
                began = time.monotonic()
                with Beside(server) as beside:
                    status, answer = server.send(path, body, Content_Type=media)
                seconds = time.monotonic() - began
                statuses[status] += 1
                case = (number, path[:60], status, round(seconds, 1), body[:200], str(answer)[:200])
                assert status < 500 or status == 503, case
                assert seconds < TIMEOUT + GRACE, case
                assert beside.slowest < most_ping, (beside.slowest, before.slowest, case)
                assert status != 503 or not goes_on(server), case
                blocked = [line for line in server.lines if BLOCKED in line]
                assert not blocked, (blocked, case)
            assert "Traceback" not in "".join(server.lines), server.lines
            assert 'status="500"' not in server.ask("/metrics")[1]
    return statuses


class Beside:
    """A client that sends short texts beside an attack.

    slowest: seconds of the slowest answer.
    """

    def __init__(self, server: Served) -> None:
        self._server = server
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._ask)
        self.slowest = 0.0

    def _ask(self) -> None:
        while not self._over.is_set():
            began = time.monotonic()
            self._server.translated("Rot.")
            self.slowest = max(self.slowest, time.monotonic() - began)
            self._over.wait(0.05)

    def __enter__(self) -> Beside:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def processor_seconds(root: int) -> float:
    """CPU-seconds of a process and all below it, on Linux."""
    rows = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = file.read_text().rpartition(")")[2].split()
            rows[int(file.parent.name)] = (int(fields[1]), sum(map(int, fields[11:15])))
    family = {root}
    while more := {pid for pid, (parent, _) in rows.items() if parent in family} - family:
        family |= more
    return sum(rows[pid][1] for pid in family if pid in rows) / os.sysconf("SC_CLK_TCK")


def goes_on(server: Served) -> bool:
    """True where the server works two seconds after an answer of status 503."""
    time.sleep(2)
    before = processor_seconds(server.process.pid)
    time.sleep(1)
    return processor_seconds(server.process.pid) - before > 0.3


def peak_bytes(work: Callable[[], object]) -> int:
    """Memory that work takes beyond what is there, in a process of its own, on Linux."""

    def status(name: str) -> int:
        return int(Path("/proc/self/status").read_text().partition(f"{name}:")[2].split()[0]) * 1024

    ours, theirs = os.pipe()
    if (child := os.fork()) == 0:
        Path("/proc/self/clear_refs").write_text("5")  # forgets the peak
        before = status("VmRSS")
        with contextlib.suppress(Exception):
            work()
        os.write(theirs, str(status("VmHWM") - before).encode())
        os._exit(0)
    os.close(theirs)
    with os.fdopen(ours) as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    return int(answer)


def costs() -> list[str]:
    """Names of the costly inputs whose CPU-seconds or memory grow faster than their length."""
    from helpers.costly import COSTLY
    from helpers.costly_families import FAMILIES
    from transduce.errors import DataError

    steep = []
    for name, costly in {**COSTLY, **FAMILIES}.items():
        size, ratio, seconds = 1000, 0.0, 0.0
        while seconds < 4 * LEAST_SECONDS and len(text := costly.make(size)) <= MAX_CHARACTERS:
            before, began = seconds, time.process_time()
            with contextlib.suppress(DataError):
                costly.work(text)
            seconds = time.process_time() - began
            ratio = seconds / before if before > LEAST_SECONDS else 0.0
            size *= 2
        texts = costly.make(size // 4), costly.make(size // 2)
        half, whole = (peak_bytes(functools.partial(costly.work, text)) for text in texts)
        growth = whole / half if half > LEAST_BYTES else 0.0
        sys.stderr.write(
            f"{name:26} {size // 2:9,} parts {seconds:6.2f} s  x {ratio:.1f}  "
            f"{whole / len(texts[1].encode()):5.0f} bytes a byte  x {growth:.1f}\n"
        )
        if max(ratio, growth) > MAX_RATIO:
            steep.append(name)
    return steep


def main() -> int:
    """Read the command line; the number of inputs that cost too much."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=10_000, help="requests")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if options.count:
        sys.stderr.write(f"{dict(sorted(attack(options.count, options.seed).items()))}\n")
    steep = costs()
    sys.stderr.write(f"{len(steep)} inputs cost too much {steep}\n")
    return len(steep)


if __name__ == "__main__":
    sys.exit(main())
