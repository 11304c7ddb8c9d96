"""A trained run on real lines, with real stopping: ours against CTranslate2 on the same weights.

Our translator, with PyTorch and with the native engine, goes from text to text, against the bare
library.  CTranslate2 has no bf16 on most processors: its float32 stands there.

Both get token ids of the run's own tokenizer, and the search settings of its recipe as far as
CTranslate2 has the like of them.
"""

from __future__ import annotations

import argparse
import dataclasses
import gzip
import importlib
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from decoding_peers import POSITIONS
from workload import machine, median, timed

import transduce
from transduce.decoding.options import DecodingOptions
from transduce.engine.model import NativeModel
from transduce.interop.ctranslate2 import write_ctranslate2
from transduce.nn.precision import Precision
from transduce.tasks.translation.translator import Translator

PRECISIONS: tuple[Precision, ...] = ("float32", "bf16", "int8")


def main(options: argparse.Namespace) -> int:
    if options.lines is None:
        print("--run needs --lines FILE", file=sys.stderr)
        return 2
    lines = [line for line in read(options.lines) if line.strip()][: options.count]
    translator = transduce.load(options.run, "cpu", engine="pytorch").translator
    assert isinstance(translator, Translator)
    settings = DecodingOptions(
        beam_size=options.beam,
        length_penalty="mean",
        max_length_ratio=0.0,
        max_length_extra=256,
        batch_tokens=translator.options.batch_tokens,
    )
    result: dict[str, Any] = {"cold_start_seconds": round(cold_start(options.run, lines[0]), 2)}
    for precision in PRECISIONS:
        expressible = "float32" if precision == "bf16" else precision
        theirs = converted(translator, expressible, options.threads)
        model = NativeModel(translator.model, translator.recipe.model, precision)
        native = dataclasses.replace(translator, backend=translator.steps.native(model))
        name = f"{precision}, --engine native"
        result[name] = compare(native, theirs, lines, settings, options.rounds)
        if precision == "float32":
            result[precision] = compare(translator, theirs, lines, settings, options.rounds)
    if options.json:
        print(json.dumps(result))
        return 0
    print(f"{machine()}; {options.threads} thread(s); {len(lines)} lines, beam {options.beam}")
    for name, value in result.items():
        print(f"{name}: {value}")
    return 0


def read(path: Path) -> list[str]:
    """Lines of a file, plain or .gz."""
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8")
    return text.removesuffix("\n").split("\n")


def converted(translator: Translator, precision: str, threads: int) -> Any:
    """CTranslate2 with the same weights; its words are the numbers of ours."""
    library = importlib.import_module("ctranslate2")
    names = ["<pad>", "<unk>", "<s>", "</s>", *map(str, range(4, translator.target.size))]
    with tempfile.TemporaryDirectory() as directory:
        write_ctranslate2(
            translator.model,
            translator.recipe.model,
            Path(directory),
            names,
            names,
            POSITIONS,
            source_end=False,
        )
        return library.Translator(
            directory, compute_type=precision, inter_threads=1, intra_threads=threads
        )


def compare(
    ours: Translator, theirs: Any, lines: list[str], settings: DecodingOptions, rounds: int
) -> dict[str, float]:
    """Ratio of lines per CPU-second, median over rounds, and the share of equal outputs."""

    def ask_them() -> list[str]:
        tokens = [[*map(str, ids), "</s>"] for ids in ours.source.encode_batch(lines)]
        answers = theirs.translate_batch(
            tokens,
            beam_size=settings.beam_size,
            length_penalty=1,
            max_decoding_length=settings.max_length_extra,
            max_batch_size=settings.batch_tokens,
            batch_type="tokens",
        )
        ids = [[int(name) for name in answer.hypotheses[0]] for answer in answers]
        return [" ".join(ours.target.decode(row).splitlines()) for row in ids]

    def ask_us() -> list[str]:
        return [translation.text for translation in ours.translate(lines, settings)]

    ratios = []
    for turn in range(rounds):
        asked = (ask_us, ask_them) if turn % 2 == 0 else (ask_them, ask_us)
        spent = {ask: timed(ask) for ask in asked}
        ratios.append(spent[ask_them][0].cpu / spent[ask_us][0].cpu)
    pairs = list(zip(spent[ask_us][1], spent[ask_them][1], strict=True))
    same = sum(mine == other for mine, other in pairs) / len(pairs)
    return {"ratio": round(median(ratios), 3), "same_outputs": round(same, 4)}


def cold_start(run: Path, line: str) -> float:
    """Seconds from the start of `transduce translate` to its first line."""
    begin = time.perf_counter()
    command = [sys.executable, "-m", "transduce", "translate", str(run), "--device", "cpu"]
    subprocess.run(command, input=line + "\n", check=True, capture_output=True, text=True)
    return time.perf_counter() - begin
