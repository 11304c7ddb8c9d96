"""Multi30k from English to German as shipped: steps a second, and BLEU of both test sets."""

from __future__ import annotations

import gzip
import itertools
import json
import os
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from gpu_training import SHIPPED
from gpu_work import Findings, Scale, against
from workload import LENGTHS, median, random_pairs

import transduce
from transduce.training.signals import InterruptedTraining
from transduce.training.weight_files import checkpoints_of

FILES = ("train", "val", "test_2016_flickr", "test_2017_flickr")
LATEST = 60.0
"""Seconds after which a training without a new checkpoint is interrupted, and resumed."""
BLEU = "bleu_tokenised_lowercased"


def measure(scale: Scale) -> Iterator[Findings]:
    """Training in bfloat16, continued from an earlier call's checkpoints, and both test sets."""
    if scale.device.type == "cuda":
        if "TRANSDUCE_DATA" not in os.environ:
            yield {"left_out": "TRANSDUCE_DATA names no directory of data"}
            return
        data = Path(os.environ["TRANSDUCE_DATA"]) / "multi30k"
        yield from measured(scale, scale.runs / "gpu-multi30k", data, ())
        return
    with tempfile.TemporaryDirectory() as directory:  # a dry run
        data = Path(directory) / "data"
        write_pairs(data, scale.pairs)
        few = "training.steps=4", "training.log_every=1", "training.validate_every=2"
        settings = *few, "text.source.size=300", "evaluation.validation_metrics=[]"
        yield from measured(scale, Path(directory) / "run", data, settings)


def measured(scale: Scale, run: Path, data: Path, settings: tuple[str, ...]) -> Iterator[Findings]:
    """Findings of a run, from the files of `data`."""
    device = scale.device.type
    began = time.monotonic()
    train(
        run,
        (f"data.root={data}", f"training.device={device}", "training.precision=bf16", *settings),
    )
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    logged = [r for r in map(json.loads, lines) if r["kind"] == "train"]
    pairs = [
        (b["step"] - a["step"], b["seconds"] - a["seconds"]) for a, b in itertools.pairwise(logged)
    ]
    rates = [steps / seconds for steps, seconds in pairs if steps > 0 and seconds > 0]
    rate = sum(steps for steps, _ in pairs) / sum(seconds for _, seconds in pairs)
    yield {
        "steps": logged[-1]["step"],
        "seconds_of_training": round(time.monotonic() - began, 1),
        "steps_per_second": against(round(rate, 1), 60, 150),
        "steps_per_second_between_validations": round(median(rates), 1),
    }
    model = transduce.load(run, device=device)
    for name in FILES[2:]:
        began = time.monotonic()
        scores = model.evaluate(examples=examples(data, name)).scores
        result = dict.fromkeys((BLEU, "chrf"), scores[BLEU])
        yield {name: result | {"seconds": round(time.monotonic() - began, 1)}}


def train(run: Path, settings: tuple[str, ...], latest: float = LATEST) -> None:
    """Train to the end, from the newest checkpoint, with another after `latest` seconds at most."""
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)  # outside the steps of the training
    try:
        while True:
            over = threading.Event()
            watch = threading.Thread(target=interrupt, args=(run, over, latest), daemon=True)
            watch.start()
            try:
                transduce.train(SHIPPED, run, settings, resume=run.exists())
                return
            except InterruptedTraining:
                pass
            finally:
                over.set()
                watch.join()
    finally:
        signal.signal(signal.SIGTERM, before)


def interrupt(run: Path, over: threading.Event, latest: float) -> None:
    """Interrupt a training, which then writes a checkpoint, where the newest is too old."""
    last = time.time()
    while not over.wait(min(1.0, latest)):
        last = max([last, *(path.stat().st_mtime for path in checkpoints_of(run))])
        if time.time() - last > latest:
            last = time.time()
            os.kill(os.getpid(), signal.SIGTERM)


def examples(data: Path, name: str) -> list[tuple[str, str]]:
    """Pairs of a test set."""
    files = (data / f"{name}.{side}.gz" for side in ("en", "de"))
    sides = (gzip.decompress(file.read_bytes()).decode().splitlines() for file in files)
    return list(zip(*sides, strict=True))


def write_pairs(data: Path, count: int) -> None:
    """Files of random pairs, named as those of Multi30k."""
    data.mkdir()
    for name in FILES:
        pairs = random_pairs(count, LENGTHS["captions"])
        for side, rows in zip(("en", "de"), zip(*pairs, strict=True), strict=True):
            text = "".join(" ".join(map(str, row)) + "\n" for row in rows)
            (data / f"{name}.{side}.gz").write_bytes(gzip.compress(text.encode()))
