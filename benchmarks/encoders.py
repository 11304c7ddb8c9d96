"""Texts per CPU-second of an encoder with random weights: the native engine, ONNX Runtime, PyTorch.

    python benchmarks/encoders.py --layers 6 --width 384 --batch 32 --tokens 32

The same BERT of transformers, exported for ONNX Runtime (its int8: `quantize_dynamic`) and imported
here; pooled vectors of texts of equal length, so that nobody pads.  Engines take turns on one
thread; a ratio is the median of neighbours in time.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import onnxruntime
import torch
import transformers
from onnxruntime.quantization import QuantType, quantize_dynamic

from transduce.engine.encoder import EngineEncoder
from transduce.engine.model import plain_weight
from transduce.engine.pair_shape import EncoderHead, encoder_shape
from transduce.interop.models import import_directory
from transduce.models.config import EncoderOnlyConfig
from transduce.settings.sections import parse


class Mean(torch.nn.Module):
    """A BERT under the mean of its vectors."""

    def __init__(self, bert: Any) -> None:
        super().__init__()
        self.bert = bert

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Ids (b, t) -> (b, m)."""
        return self.bert(ids).last_hidden_state.mean(1)  # type: ignore[no-any-return]


def session(path: Path) -> onnxruntime.InferenceSession:
    """A model in ONNX Runtime, on one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def native(
    bert: Any, directory: Path, precision: Any, ids: torch.Tensor
) -> tuple[EngineEncoder, list[tuple[list[int], list[int]]]]:
    """The model in the engine, and ids of transformers as it numbers them."""
    bert.save_pretrained(directory / "bert")
    size = bert.config.vocab_size
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = [*special, *(f"w{i}" for i in range(size - len(special)))]
    (directory / "bert" / "vocab.txt").write_text("\n".join(words), encoding="utf-8")
    imported = import_directory(directory / "bert")
    config = parse(EncoderOnlyConfig, imported.recipe["model"])
    weights = {
        name: plain_weight(tensor)
        for name, tensor in imported.weights.items()
        if not name.startswith("head.")
    }
    rows = weights["front_end.embedding.weight"].shape[0]
    shape = encoder_shape(config, rows, EncoderHead("mean"), precision)
    places = {row: i for i, row in enumerate(imported.tokenizers["tokenizer"].numbering.rows)}
    texts = [([places[i] for i in row], [0] * len(row)) for row in ids.tolist()]
    return EngineEncoder(shape, weights, lambda: 1), texts


def main() -> None:
    """Print a line for each precision."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("layers", 6), ("width", 384), ("batch", 32), ("tokens", 32)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    settings = transformers.BertConfig(
        vocab_size=1000,
        hidden_size=given.width,
        num_hidden_layers=given.layers,
        num_attention_heads=given.width // 32 if given.width < 768 else given.width // 64,
        intermediate_size=4 * given.width,
        attn_implementation="eager",
    )
    bert = Mean(transformers.BertModel(settings, add_pooling_layer=False)).eval()
    ids = torch.randint(5, 999, (given.batch, given.tokens))
    with tempfile.TemporaryDirectory() as name, torch.inference_mode():
        directory = Path(name)
        names = {"input_names": ["ids"], "dynamo": False}
        torch.onnx.export(bert, (ids,), str(directory / "model.onnx"), **names)
        quantize_dynamic(
            directory / "model.onnx", directory / "int8.onnx", weight_type=QuantType.QInt8
        )
        feed = {"ids": ids.numpy()}
        for precision, file in (
            ("float32", "model.onnx"),
            ("int8", "int8.onnx"),
            ("bf16", "model.onnx"),
        ):
            theirs = session(directory / file)
            ours, rows = native(bert.bert, directory, precision, ids)
            runs: dict[str, Callable[[], Any]] = {
                "native": lambda ours=ours, rows=rows: ours.outputs(rows),
                "onnxruntime": lambda theirs=theirs: theirs.run(None, feed)[0],
                "pytorch": lambda: bert(ids),
            }
            report(precision, runs, given.rounds, given.batch)


def report(precision: str, runs: dict[str, Callable[[], Any]], rounds: int, batch: int) -> None:
    """Measure in turns and print."""
    results = {name: np.asarray(run()) for name, run in runs.items()}
    repeats = {}
    for name, run in runs.items():
        began = time.process_time()
        run()
        repeats[name] = max(1, round(0.3 / (time.process_time() - began)))
    costs: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            began = time.process_time()
            for _ in range(repeats[name]):
                run()
            costs[name].append((time.process_time() - began) / repeats[name] / batch)
    ratio = statistics.median(
        other / own for own, other in zip(costs["native"], costs["onnxruntime"], strict=True)
    )
    speeds = ", ".join(f"{name} {1 / statistics.median(c):.0f}" for name, c in costs.items())
    away = {n: float(np.abs(results[n] - results["pytorch"]).max()) for n in runs}
    print(
        f"{precision}: texts a CPU-second {speeds}; to ONNX Runtime {ratio:.2f}; difference "
        f"from PyTorch {away['native']:.1e}, ONNX Runtime {away['onnxruntime']:.1e}",
        flush=True,
    )


if __name__ == "__main__":
    main()
