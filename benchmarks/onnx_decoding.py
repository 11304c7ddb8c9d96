"""Greedy decoding with random weights: the native engine, and the ONNX graphs in ONNX Runtime.

    python benchmarks/onnx_decoding.py --layers 6 --width 512 --batch 1 8

Both on one thread, float32, take turns; sources of 24 tokens, outputs of 64, whose end is ignored.
Prints tokens per CPU-second, the median of the ratios, and sizes of the files.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import onnxruntime
import torch

from transduce.decoding.options import DecodingOptions
from transduce.engine.model import NativeModel
from transduce.runs.exporting import write_onnx
from transduce.tasks.translation.recipe import TranslationRecipe
from transduce.tasks.translation.training import new_translator
from transduce.text import BOS, EOS, Normalizer, SymbolTokenizer

SOURCE, OUTPUT = 24, 64


def translator(layers: int, width: int, words: int) -> Any:
    """A post-norm model of the paper's form."""
    stack = {"n_layers": layers, "n_heads": width // 64, "d_ff": 4 * width, "dropout": 0.0}
    settings = {
        "task": "translation",
        "data": {"train": {"kind": "tsv", "path": "none.tsv"}},
        "text": {"source": {"kind": "symbols"}},
        "model": {"d_model": width, "tie": "three-way", "encoder": stack, "decoder": stack},
    }
    torch.manual_seed(1)
    tokenizer = SymbolTokenizer([f"w{i}" for i in range(words)], Normalizer())
    made = new_translator(TranslationRecipe.parse(settings, "recipe"), tokenizer, tokenizer)
    made.model.eval()
    return made


class Graphs:
    """Both graphs in ONNX Runtime, on one thread."""

    def __init__(self, directory: Path) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        names = ("encoder_model", "decoder_model_merged")
        self.encoder, self.decoder = (
            onnxruntime.InferenceSession(str(directory / "onnx" / f"{name}.onnx"), options)
            for name in names
        )

    def greedy(self, ids: Any) -> int:
        """Tokens decoded."""
        mask = np.ones_like(ids)
        (memory,) = self.encoder.run(None, {"input_ids": ids, "attention_mask": mask})
        fixed = {"encoder_hidden_states": memory, "encoder_attention_mask": mask}
        parts = self.decoder.get_inputs()[3:]
        empty = [np.zeros((len(ids), p.shape[1], 0, p.shape[3]), np.float32) for p in parts]
        cache = {part.name: array for part, array in zip(parts, empty, strict=True)}
        new = np.full((len(ids), 1), BOS)
        for _ in range(OUTPUT):
            logits, *present = self.decoder.run(None, {"input_ids": new, **fixed, **cache})
            new, cache = logits[:, -1:].argmax(-1), dict(zip(cache, present, strict=True))
        return OUTPUT * len(ids)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("layers", 6), ("width", 512), ("words", 8000), ("rounds", 5)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--batch", type=int, nargs="+", default=[1])
    given = parser.parse_args()
    torch.set_num_threads(1)
    made = translator(given.layers, given.width, given.words)
    backend = made.steps.native(NativeModel(made.model, made.recipe.model, "float32"))
    engine = dataclasses.replace(made, backend=backend)
    weights = sum(parameter.nbytes for parameter in made.model.parameters())
    with tempfile.TemporaryDirectory() as place:
        write_onnx(made, "translation", Path(place), 1024)
        size = sum(file.stat().st_size for file in Path(place).glob("onnx/*"))
        print(f"weights {weights / 1e6:.0f} MB, graphs {size / 1e6:.0f} MB", flush=True)
        graphs = Graphs(Path(place))
        for batch in given.batch:
            compare(engine, graphs, batch, given.words, given.rounds)


def compare(engine: Any, graphs: Graphs, batch: int, words: int, rounds: int) -> None:
    """Print tokens per CPU-second of both."""
    rows = [[(97 * i + j) % words + 4 for j in range(SOURCE)] for i in range(batch)]
    lines = [engine.source.decode(row) for row in rows]
    ids = np.array([[*row, EOS] for row in rows])
    options = DecodingOptions(
        beam_size=1, min_length=OUTPUT, max_length_ratio=0.0, max_length_extra=OUTPUT
    )

    def native() -> int:
        return sum(len(line.text.split()) for line in engine.translate(lines, options))

    spent: dict[str, list[float]] = {"native": [], "onnxruntime": []}
    for _ in range(rounds):
        for name, ask in (("native", native), ("onnxruntime", lambda: graphs.greedy(ids))):
            begun = time.process_time()
            tokens = ask()
            spent[name].append((time.process_time() - begun) / tokens)
    ratio = statistics.median(
        theirs / ours for ours, theirs in zip(spent["native"], spent["onnxruntime"], strict=True)
    )
    speeds = {name: round(1 / statistics.median(costs)) for name, costs in spent.items()}
    print(f"batch {batch}: tokens a CPU-second {speeds}, ratio {ratio:.2f}", flush=True)


if __name__ == "__main__":
    main()
