"""Load on `transduce serve`: many clients against one, a short request beside a long one, memory.

    python benchmarks/serving.py RUN --lines FILE                  all measurements
    python benchmarks/serving.py RUN --lines FILE --requests 10000 --minutes 10
    python benchmarks/serving.py RUN --lines FILE --engine native --latency

RUN names its languages, or --pair does.  The server runs in a process of its own on loopback.
On a busy machine only ratios are meaningful: clients and server share its cores.

one, many     requests per second, and per second of the server's processor time, of 1 and of 32
              connections, one line each; the outputs are compared with the library's
overhead      median time of one short request over that of the library call
beside        median time of short requests beside one of 256 lines, in batches of 16
memory        resident memory after 500 mixed requests and at the end, clients that hang up included

With --workers N, instead: requests per second, and per second of processor time, of --connections
clients, which send one line after another over connections of their own, to a server of one process
and to one of N, by turns; medians over the rounds, their ratio, and each round's connections of
each worker.

With --latency, instead: times of a request (one line) with 1 and with 8 clients, each of which
waits for its answer, and resident memory.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gzip
import json
import random
import re
import selectors
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
from corpus import children

import transduce
from transduce.localise.sentences import split_sentences
from transduce.serve.queue import SHARE

ROUNDS = 5
LONG = 256
"""Lines of a long request."""
CLIENTS = (1, 8)
"""Of the latency."""
QUANTILES = (0.5, 0.99)


def main() -> int:
    """Start a server, measure, print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--lines", type=Path, required=True)
    parser.add_argument("--pair", default="", help="such as de-en, where the recipe has none")
    parser.add_argument("--engine", default="auto", help="of the server")
    parser.add_argument("--precision", default="float32", help="of the server")
    parser.add_argument("--latency", action="store_true", help="latency alone")
    parser.add_argument("--workers", type=int, default=0, help="ratio to one process alone")
    parser.add_argument("--seconds", type=float, default=3.0, help="of a round of --workers")
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--count", type=int, default=400, help="lines of one, many")
    parser.add_argument("--requests", type=int, default=2000, help="requests of memory")
    parser.add_argument("--minutes", type=float, default=10.0, help="most time for memory")
    options = parser.parse_args()
    lines = [line for line in read(options.lines) if line.strip()]
    named = ["--pair", f"{options.pair}={options.run}"] if options.pair else [str(options.run)]
    command = [sys.executable, "-m", "transduce", "serve", *named, "--port", "0", "--threads", "1"]
    command += ["--engine", options.engine, "--precision", options.precision, "--device", "cpu"]
    if options.workers:
        more = ["--workers", str(options.workers)]
        with started(command) as one, started([*command, *more]) as several:
            print(json.dumps(by_turns(one, several, lines, options)))
        return 0
    with started(command) as (url, pid):
        print(json.dumps(asyncio.run(measured(url, pid, lines, options))))
    return 0


@contextlib.contextmanager
def started(command: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Address and process of a server, ready; ended at the end."""
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        url = next(m[1] for line in process.stderr if (m := re.search(r"serving at (\S+)", line)))
        yield url, process.pid
    finally:
        process.terminate()
        process.wait()


Server = tuple[str, int]
"""Address and process."""


def by_turns(
    one: Server, several: Server, lines: Sequence[str], options: argparse.Namespace
) -> dict[str, Any]:
    """Requests per second of two servers, by turns, so that both meet the same machine."""
    with httpx.Client() as http:
        (pair,) = http.get(f"{one[0]}/api/models").json()["models"][0]["pairs"]
    rates: dict[str, list[tuple[float, float]]] = {"one": [], "workers": []}
    answers: dict[str, list[float]] = {"one": [], "workers": []}
    shares: dict[str, list[list[int]]] = {"one": [], "workers": []}
    for _ in range(ROUNDS):
        for name, server in zip(rates, (one, several), strict=True):
            times, seconds, cpu, connections = crowd_of_processes(server, pair, lines, options)
            rates[name].append((len(times) / seconds, len(times) / cpu))
            answers[name] += times
            shares[name].append(connections)
    ratios = [
        [b / a for a, b in zip(*pair, strict=True)] for pair in zip(*rates.values(), strict=True)
    ]
    (one_rate, one_cpu), (rate, cpu_rate) = (
        [statistics.median(values) for values in zip(*of_server, strict=True)]
        for of_server in rates.values()
    )
    return {
        "clients": options.connections,
        "one_per_second": round(one_rate, 1),
        "workers_per_second": round(rate, 1),
        "ratios": [round(ratio, 2) for ratio, _ in ratios],
        "one_per_cpu_second": round(one_cpu, 1),
        "workers_per_cpu_second": round(cpu_rate, 1),
        "cpu_ratios": [round(ratio, 2) for _, ratio in ratios],
        "connections_of_workers": shares["workers"],
        "one_p50_ms": round(1000 * statistics.median(answers["one"])),
        "workers_p50_ms": round(1000 * statistics.median(answers["workers"])),
    }


def crowd_of_processes(
    server: Server, pair: dict[str, str], lines: Sequence[str], options: argparse.Namespace
) -> tuple[list[float], float, float, list[int]]:
    """As `crowd`; with processor seconds, and the connections of each process that answers."""
    url, pid = server
    processes = workers_of(pid) or [pid]
    idle = connected = sockets_of(processes)
    cpu = 0.0

    def begin() -> None:
        nonlocal cpu, connected
        cpu, connected = sum(map(cpu_seconds, processes)), sockets_of(processes)

    times, seconds = crowd(url, pair, lines, options.connections, options.seconds, begin)
    cpu = sum(map(cpu_seconds, processes)) - cpu
    return times, seconds, cpu, [now - before for before, now in zip(idle, connected, strict=True)]


def workers_of(pid: int) -> list[int]:
    """The worker processes of a server."""
    return [n for n in children(pid) if b"spawn_main" in Path(f"/proc/{n}/cmdline").read_bytes()]


def sockets_of(pids: Sequence[int]) -> list[int]:
    """Number of open sockets of each process."""
    return [
        sum(
            str(link.readlink()).startswith("socket:") for link in Path(f"/proc/{pid}/fd").iterdir()
        )
        for pid in pids
    ]


def crowd(
    url: str,
    pair: dict[str, str],
    lines: Sequence[str],
    n_clients: int,
    seconds: float,
    connected: Callable[[], None],
) -> tuple[list[float], float]:
    """Times of the answers to many clients within some seconds, and these; their first answers, of
    the time in which all connect, do not count.  A loop over plain sockets, as cheap as Python
    allows, since it takes its share of the cores."""
    host, _, port = url.removeprefix("http://").partition(":")
    bodies = [json.dumps({"q": line, **pair}).encode() for line in lines]
    head = (
        "POST /translate HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: "
    )
    requests = [f"{head}{len(body)}\r\n\r\n".encode() + body for body in bodies]
    times: list[float] = []
    with contextlib.ExitStack() as stack:
        waiting = stack.enter_context(selectors.DefaultSelector())
        sent: dict[socket.socket, float] = {}
        for number in range(n_clients):
            client = stack.enter_context(socket.create_connection((host, int(port))))
            client.sendall(requests[number % len(requests)])
            waiting.register(client, selectors.EVENT_READ)
        began = 0.0
        count = 0
        while not began or time.perf_counter() < began + seconds:
            for key, _ in waiting.select(1):
                client = key.fileobj
                assert isinstance(client, socket.socket)
                answer = client.recv(2**16)
                if not answer.endswith(b"}"):
                    continue  # the body follows
                now = time.perf_counter()
                if began and client in sent:
                    times.append(now - sent[client])
                sent[client] = now
                if not began and len(sent) == n_clients:
                    connected()
                    began = time.perf_counter()
                client.sendall(requests[(count := count + 1) % len(requests)])
        return times, time.perf_counter() - began


def read(path: Path) -> list[str]:
    """Lines of a file, plain or compressed."""
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as file:
        return file.read().splitlines()


class Client:
    """Requests from source to target, and the time that each took."""

    def __init__(self, http: httpx.AsyncClient, source: str, target: str) -> None:
        self._http = http
        self._pair = {"source": source, "target": target}
        self.seconds: list[float] = []

    async def translate(self, q: Any) -> Any:
        began = time.perf_counter()
        answer = await self._http.post("/translate", json={"q": q, **self._pair})
        self.seconds.append(time.perf_counter() - began)
        answer.raise_for_status()
        return answer.json()["translatedText"]


async def measured(
    url: str, pid: int, lines: Sequence[str], options: argparse.Namespace
) -> dict[str, Any]:
    limits = httpx.Limits(max_connections=options.connections + 1)
    async with httpx.AsyncClient(base_url=url, timeout=600, limits=limits) as http:
        while (await http.get("/health/ready")).status_code != 200:
            await asyncio.sleep(0.1)
        (pair,) = (await http.get("/api/models")).json()["models"][0]["pairs"]

        def client() -> Client:
            return Client(http, pair["source"], pair["target"])

        if options.latency:
            return await latency(client, pid, lines[: options.count])
        run = transduce.load(options.run, "cpu", options.precision, options.engine)
        lines_of_both = lines[: options.count]
        found = await one_and_many(client, pid, run, lines_of_both, options.connections)
        found |= await overhead(client(), run, lines)
        found |= await beside(client, run, lines)
        return found | await memory(client, pid, lines, options)


async def latency(client: Any, pid: int, lines: Sequence[str]) -> dict[str, Any]:
    """Clients that send one line after another; each line is sent once."""
    for line in lines[: len(lines) // 10]:  # to begin with
        await client().translate(line)
    found: dict[str, Any] = {}
    for count in CLIENTS:
        clients = [client() for _ in range(count)]

        async def work(one: Client, own: Sequence[str]) -> None:
            for line in own:
                await one.translate(line)

        began, cpu = time.perf_counter(), cpu_seconds(pid)
        shares = [lines[place::count] for place in range(count)]
        await asyncio.gather(*map(work, clients, shares))
        spent, used = time.perf_counter() - began, cpu_seconds(pid) - cpu
        times = sorted(second for one in clients for second in one.seconds)
        quantiles = [times[int(share * len(times))] for share in QUANTILES]
        found[f"clients_{count}"] = {
            "p50_ms": round(1000 * quantiles[0], 1),
            "p99_ms": round(1000 * quantiles[1], 1),
            "per_second": round(len(lines) / spent, 1),
            "cpu_ms": round(1000 * used / len(lines), 2),
        }
    return found | {"memory_mb": resident(pid) // 1000}


async def one_and_many(
    client: Any, pid: int, run: transduce.Run, lines: Sequence[str], connections: int
) -> dict[str, Any]:
    """In turn, a few lines one at a time and many together; medians over the rounds."""
    free = asyncio.Semaphore(connections)
    outputs: dict[str, str] = {}

    async def translated(line: str) -> None:
        async with free:
            outputs[line] = await client().translate(line)

    rates: dict[str, list[tuple[float, float]]] = {"one": [], "many": []}
    size = len(lines) // ROUNDS
    for place in range(0, ROUNDS * size, size):
        for name, part in (
            ("one", lines[place : place + size // 4]),
            ("many", lines[place:][:size]),
        ):
            began, cpu = time.perf_counter(), cpu_seconds(pid)
            if name == "one":
                for line in part:
                    await translated(line)
            else:
                await asyncio.gather(*map(translated, part))
            seconds = time.perf_counter() - began
            rates[name].append((len(part) / seconds, len(part) / (cpu_seconds(pid) - cpu)))
    (one, one_cpu), (many, many_cpu) = (
        [statistics.median(values) for values in zip(*rates[name], strict=True)] for name in rates
    )
    return {
        "one_per_second": round(one, 1),
        "many_per_second": round(many, 1),
        "many_over_one": round(many / one, 2),
        "one_per_cpu_second": round(one_cpu, 1),
        "many_per_cpu_second": round(many_cpu, 1),
        "cpu_many_over_one": round(many_cpu / one_cpu, 2),
        "outputs_unlike_library": sum(by_library(run, line) != outputs[line] for line in outputs),
    }


def cpu_seconds(pid: int) -> float:
    """Processor time of the threads of a process so far, in nanoseconds' resolution."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(path.read_text(encoding="ascii").split()[0]) for path in threads) / 1e9


def by_library(run: transduce.Run, line: str) -> str:
    """The translation of a line, sentence by sentence as the server has it."""
    sentences = split_sentences(line, "")
    return sentences.joined([translation.text for translation in run.translate(sentences.texts)])


async def overhead(client: Client, run: transduce.Run, lines: Sequence[str]) -> dict[str, Any]:
    """The same line by turns, so that both meet the same machine."""
    line = min(lines[:200], key=lambda text: abs(len(text) - 40))
    called = []
    for _ in range(30):
        began = time.perf_counter()
        run.translate(line)
        called.append(time.perf_counter() - began)
        await client.translate(line)
    library, served = statistics.median(called), statistics.median(client.seconds)
    return {"library_ms": round(1000 * library, 1), "request_ms": round(1000 * served, 1)}


async def beside(client: Any, run: transduce.Run, lines: Sequence[str]) -> dict[str, Any]:
    long, rest = lines[-LONG:], lines
    times = []
    for place in range(0, 5 * SHARE, SHARE):
        began = time.perf_counter()
        run.translate_batch(long[place : place + SHARE])
        times.append(time.perf_counter() - began)
    batch = statistics.median(times)
    whole = asyncio.create_task(client().translate(list(long)))
    short = client()
    for line in rest:
        await short.translate(line)
        if whole.done():
            break
    await whole
    waited = statistics.median(short.seconds)
    return {
        "batch_of_16_s": round(batch, 3),
        "beside_long_s": round(waited, 3),
        "beside_in_batches": round(waited / batch, 2),
        "short_requests": len(short.seconds),
    }


async def memory(
    client: Any, pid: int, lines: Sequence[str], options: argparse.Namespace
) -> dict[str, Any]:
    chance = random.Random(1)
    free = asyncio.Semaphore(options.connections)
    end = time.monotonic() + 60 * options.minutes
    done = 0

    async def some() -> None:
        nonlocal done
        async with free:
            if time.monotonic() > end:
                return
            kind = chance.randrange(10)
            wanted: Any = chance.choice(lines)
            if kind == 0:
                wanted = chance.sample(list(lines), 20)
            asked = client().translate(wanted)
            if kind == 1:  # hangs up
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(asked, chance.random() / 20)
            else:
                await asked
            done += 1

    await asyncio.gather(*(some() for _ in range(500)))
    before = resident(pid)
    await asyncio.gather(*(some() for _ in range(options.requests - 500)))
    after = resident(pid)
    grown = {"growth": round(after / before - 1, 4), "mixed_requests": done}
    return {"memory_500_mb": before // 1000, "memory_end_mb": after // 1000, **grown}


def resident(pid: int) -> int:
    """Resident memory in kB."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])


if __name__ == "__main__":
    sys.exit(main())
