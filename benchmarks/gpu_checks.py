"""Agreement of a GPU with the CPU: logits, attention kernels, outputs, resume."""

from __future__ import annotations

import copy
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from decoding_peers import Question, marian_shaped, translated
from gpu_work import Findings, Scale
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from workload import LENGTHS, random_pairs

import transduce
from transduce.decoding.options import DecodingOptions
from transduce.decoding.step_search import EncoderDecoderSearch, padded_ids
from transduce.errors import TransduceError
from transduce.models.encoder_decoder import build_encoder_decoder
from transduce.models.presets import PRESETS
from transduce.nn.attention import attention_with_weights
from transduce.nn.masks import Mask, causal
from transduce.sequence import Padded
from transduce.tasks.common import find_device

STEPS = 20
KERNELS = (
    SDPBackend.MATH,
    SDPBackend.EFFICIENT_ATTENTION,
    SDPBackend.FLASH_ATTENTION,
    SDPBackend.CUDNN_ATTENTION,
)


def measure(scale: Scale) -> Iterator[Findings]:
    """The checks, cheapest first, each complete before the next begins."""
    yield {"logits_to_cpu": logits(scale.device)}
    yield {"kernels_to_float64": kernels(scale.device)}
    yield {"same_outputs_as_cpu": outputs(scale)}
    with tempfile.TemporaryDirectory() as directory:
        yield from trained(scale, Path(directory))


def logits(device: torch.device) -> dict[str, dict[str, float]]:
    """Largest difference of logits from the CPU's in float32, by preset and precision."""
    find_device(device.type)  # with PyTorch's settings for it, as every run has them
    result: dict[str, dict[str, float]] = {}
    pairs = random_pairs(8, LENGTHS["news"])
    source = Padded.from_rows([row for row, _ in pairs])
    target = Padded.from_rows([row for _, row in pairs])
    for preset in ("tiny", "rnn-dot", "convolution"):
        torch.manual_seed(1)
        model = build_encoder_decoder(PRESETS[preset], 8000, 8000, joint=True).eval()
        with torch.inference_mode():
            right = model(source, target)[target.real]
            there = copy.deepcopy(model).to(device)
            given = source.to(device), target.to(device)
            wide = there(*given).float().cpu()[target.real]
            with torch.autocast(device.type, torch.bfloat16):
                narrow = there(*given).float().cpu()[target.real]
        result[preset] = {
            "float32": _apart(wide, right),
            "bf16": _apart(narrow, right),
            "size": round(float(right.abs().mean()), 3),
        }
    return result


def _apart(a: Tensor, b: Tensor) -> float:
    return float(f"{float((a - b).abs().max()):.3g}")


def kernels(device: torch.device) -> dict[str, float | str]:
    """Largest difference of each fused kernel, in bfloat16, from equation (1) in float64."""
    torch.manual_seed(1)
    query, key, value = (torch.randn(2, 4, 48, 64, dtype=torch.float64) for _ in range(3))
    padding = torch.arange(48)[None, None, None, :] < torch.tensor([48, 31])[:, None, None, None]
    cases = {
        "unmasked": (Mask(), None),
        "causal": (Mask(causal=True), None),
        "padded": (Mask(allowed=padding), padding.to(device)),
        "both": (
            Mask(allowed=padding & causal(48, 48, torch.device("cpu"))),
            (padding & causal(48, 48, torch.device("cpu"))).to(device),
        ),
    }
    given = [x.to(device, torch.bfloat16) for x in (query, key, value)]
    result: dict[str, float | str] = {}
    for name, (mask, allowed) in cases.items():
        right = attention_with_weights(query, key, value, mask)[0]
        for kernel in KERNELS:
            try:
                with warnings.catch_warnings(), sdpa_kernel(kernel):
                    warnings.simplefilter("ignore")  # a refusal gives its reasons in warnings too
                    made = torch.nn.functional.scaled_dot_product_attention(
                        *given, attn_mask=allowed, is_causal=mask.causal
                    )
                result[f"{name}, {kernel.name}"] = _apart(made.double().cpu(), right)
            except RuntimeError:
                result[f"{name}, {kernel.name}"] = "refused"
    return result


def outputs(scale: Scale) -> dict[str, float]:
    """Share of outputs that equal the CPU's, in float32; random weights are near to ties."""
    rows = [source for source, _ in random_pairs(max(8, scale.sentences // 8), LENGTHS["news"])]
    model, _ = marian_shaped(scale.size("tiny"), 1)
    moved = copy.deepcopy(model).to(scale.device)
    here, there = (translated(m, EncoderDecoderSearch(m, padded_ids)) for m in (model, moved))
    result = {}
    for beam in (1, 4):
        asked = Question(beam, 24, DecodingOptions())
        pairs = list(zip(here(rows, asked), there(rows, asked), strict=True))
        result[f"beam {beam}"] = round(sum(a == b for a, b in pairs) / len(pairs), 3)
    return result


def trained(scale: Scale, directory: Path) -> Iterator[Findings]:
    """A short training: resumed half way it ends in the same bytes."""
    data = directory / "pairs.tsv"
    pairs = random_pairs(400, LENGTHS["captions"])
    lines = ("\t".join(" ".join(map(str, side)) for side in pair) for pair in pairs)
    data.write_text("\n".join(lines) + "\n", encoding="utf-8")
    whole, half = directory / "whole", directory / "half"
    recipe = _recipe(data, scale, {"validate_every": STEPS // 2, "keep_last": 2})
    transduce.train(recipe, whole)
    yield {"trained_steps": STEPS}
    shutil.copytree(whole, half)
    newest = max((half / "checkpoints").iterdir(), key=lambda path: path.name)
    shutil.rmtree(newest)
    transduce.train(recipe, half, resume=True)
    weights = [(run / "weights.safetensors").read_bytes() for run in (whole, half)]
    yield {"resumed_to_the_bit": weights[0] == weights[1]}
    yield {"refusals": refusals(whole, scale.device)}
    yield {"cudnn_attention": torch.backends.cuda.cudnn_sdp_enabled()}
    if scale.device.type == "cuda":  # a CPU would spend minutes in its own compiler
        transduce.train(_recipe(data, scale, {"compile": True}), directory / "compiled")
        yield {"compile": "trained"}


def _recipe(data: Path, scale: Scale, training: dict[str, Any]) -> dict[str, Any]:
    common = {"steps": STEPS, "batch_tokens": 1024, "device": scale.device.type}
    return {
        "task": "translation",
        "text": {"source": {"kind": "symbols"}, "target": {"kind": "symbols"}},
        "data": {
            "train": {"kind": "tsv", "path": str(data)},
            "valid": {"kind": "tsv", "path": str(data)},
        },
        "model": {"preset": "speller"},
        "training": {**common, "precision": "bf16", **training},
    }


def refusals(run: Path, device: torch.device) -> dict[str, str]:
    """Support of each engine and precision on this device: "yes", or the message."""
    result = {}
    for engine, precision in (("pytorch", "bf16"), ("pytorch", "int8"), ("native", "float32")):
        try:
            loaded = transduce.load(run, device.type, precision, engine)
            list(loaded.predict(["4 5 6"]))
            result[f"{engine} {precision}"] = "yes"
        except TransduceError as error:
            result[f"{engine} {precision}"] = str(error)
    return result
