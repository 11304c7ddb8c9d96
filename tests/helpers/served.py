"""Tiny translation runs, and a server for them in a process of its own on loopback."""

from __future__ import annotations

import contextlib
import json
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import transduce
from helpers import event_loop
from helpers.command_line import environment
from helpers.tiny_run import train_tiny, write_tsv
from helpers.waiting import wait_for
from transduce.training.weights import read_tensors, write_weights

WATCHED = (sys.executable, event_loop.__file__)
WORDS = ["ab", "cde", "fa", "hallo", "Baum", "Tür", "rot", "gehen", "müde", "Dank"]


def some_sentences(count: int, seed: int = 0) -> list[str]:
    """Of one to four words, with an end."""
    chance = random.Random(seed)
    ends = ".!?"
    return [
        " ".join(chance.choices(WORDS, k=chance.randint(1, 4))).capitalize() + chance.choice(ends)
        for _ in range(count)
    ]


def small_run(directory: Path, source: str = "", target: str = "") -> Path:
    """A run that has seen sentences and their words in reverse order, for a few steps."""
    directory.mkdir(parents=True, exist_ok=True)
    texts = dict.fromkeys(some_sentences(400))
    rows = [(text, " ".join(reversed(text[:-1].split())) + text[-1]) for text in texts]
    data = write_tsv(directory / "pairs.tsv", rows)
    settings = [
        "text.source.kind=characters",
        "text.target.kind=characters",
        "training.steps=40",
        "training.schedule.peak=0.02",
        "training.validate_every=40",
        "evaluation.validation_pairs=0",
        "decoding.max_length_ratio=1",
        "decoding.max_length_extra=4",
    ]
    if source:
        settings += [f"languages.source={source}", f"languages.target={target}"]
    return train_tiny(data, directory / "run", *settings)[0]


def sibling_run(run: Path, source: str, target: str) -> Path:
    """A copy of a run with somewhat other weights and other languages."""
    copied = shutil.copytree(run, run.with_name(f"{source}-{target}"))
    recipe = (copied / "recipe.toml").read_text(encoding="utf-8")
    for side, code in (("source", source), ("target", target)):
        recipe = re.sub(rf'(?<=\n{side} = )"\w+"', f'"{code}"', recipe)
    (copied / "recipe.toml").write_text(recipe, encoding="utf-8")
    tensors = read_tensors(copied / "weights.safetensors")
    chance = torch.Generator().manual_seed(1)
    for tensor in tensors.values():
        tensor.add_(0.05 * torch.randn(tensor.shape, generator=chance))
    write_weights(copied / "weights.safetensors", tensors)
    return copied


@dataclass
class Served:
    """A running `transduce serve`."""

    url: str
    process: subprocess.Popen[str]
    lines: list[str]
    """Its messages so far."""

    @property
    def port(self) -> int:
        return int(self.url.split("/")[2].rpartition(":")[2])

    def ask(
        self, path: str, body: object = None, method: str | None = None, **headers: str
    ) -> tuple[int, Any]:
        """Status and JSON of an answer; a body is sent as JSON."""
        data = None if body is None else json.dumps(body).encode()
        if data is not None:
            headers.setdefault("Content-Type", "application/json")
        return self.send(path, data, method, **headers)

    def send(
        self, path: str, data: bytes | None, method: str | None = None, **headers: str
    ) -> tuple[int, Any]:
        """The same for a body of bytes."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        request = urllib.request.Request(self.url + path, data, named, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, _decoded(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, _decoded(error.read())

    def is_ready(self) -> bool:
        """True once all runs are loaded; False while it ends, too."""
        with contextlib.suppress(urllib.error.URLError):
            return self.ask("/health/ready")[0] == 200
        return False

    def translated(self, q: object, **fields: object) -> Any:
        """`translatedText` of a good request from de to en."""
        status, answer = self.ask("/translate", {"q": q, "source": "de", "target": "en", **fields})
        assert status == 200, answer
        return answer["translatedText"]

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send a signal; the exit code."""
        self.process.send_signal(number)
        return self.process.wait(60)


def _decoded(content: bytes) -> Any:
    try:
        return json.loads(content)
    except ValueError:
        return content.decode()


@contextlib.contextmanager
def served(*arguments: object) -> Iterator[Served]:
    """`transduce serve` with these arguments on a free port, ready; ended at the end.

    Its messages name callbacks that block the event loop (`helpers.event_loop`).
    """
    process = subprocess.Popen(
        [*WATCHED, "serve", *map(str, arguments), "--port", "0", "--threads", "1"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    lines: list[str] = []

    def read() -> None:
        assert process.stderr is not None
        for line in process.stderr:
            lines.append(line)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        wait_for(lambda: process.poll() is not None or any("serving at" in one for one in lines))
        assert process.poll() is None, lines
        url = next(m[1] for one in lines if (m := re.search(r"serving at (\S+)", one)))
        result = Served(url, process, lines)
        wait_for(lambda: process.poll() is not None or result.is_ready(), lambda: "".join(lines))
        assert process.poll() is None, lines
        yield result
    finally:
        process.kill()
        process.wait()
        reader.join()
        assert process.stderr is not None
        process.stderr.close()


def library(path: Path) -> transduce.Run:
    """The run as the library has it."""
    return transduce.load(path, device="cpu")
