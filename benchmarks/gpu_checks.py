"""Agreement of a GPU with the CPU: logits, attention kernels, outputs, resume."""

from __future__ import annotations

import copy
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
from decoding_peers import Question, marian_shaped, translated
from gpu_training import OurTask
from gpu_work import Findings, Scale, counted_waits
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from workload import LENGTHS, Batch, random_pairs

import transduce
from transduce.decoding import search
from transduce.decoding.options import DecodingOptions
from transduce.decoding.step_search import EncoderDecoderSearch, padded_ids
from transduce.decoding.window import Block
from transduce.errors import TransduceError
from transduce.models.config import PRESETS
from transduce.models.encoder_decoder import build_encoder_decoder
from transduce.nn.attention import attention, attention_with_weights
from transduce.nn.masks import Mask, causal
from transduce.nn.repeated_work import RepeatedWork
from transduce.sequence import Borders, Padded
from transduce.tasks.training import find_device
from transduce.training.step import GraphedStep, OptimizerStep

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
    yield {"packed_kernel_to_float64": packed_kernel(scale.device)}
    yield {"packed_loss_to_cpu": packed_loss(scale)}
    yield {"steps": steps(scale)}
    yield {"same_outputs_as_cpu": outputs(scale)}
    yield {"same_outputs_in_any_batch": any_batch(scale)}
    yield {"blocks": blocks(scale)}
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


def packed_kernel(device: torch.device) -> dict[str, float | bool]:
    """Largest difference of attention by borders, in bfloat16, from equation (1) in float64.

    Forward, and the gradient of queries.  Sequences of 0 to 48 positions; across, one of queries
    has no keys, for which any finite values will do, and one of keys no queries.
    """
    torch.manual_seed(1)
    sides = {"queries": torch.tensor([48, 1, 0, 31, 16]), "keys": torch.tensor([31, 0, 7, 48, 10])}
    starts = {name: F.pad(n.cumsum(0), (1, 0)).int() for name, n in sides.items()}
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float64
    result: dict[str, float | bool] = {}
    for name, keys, is_causal in (
        ("whole", "queries", False),
        ("causal", "queries", True),
        ("across", "keys", False),
    ):
        t, s = (int(starts[side][-1]) for side in ("queries", keys))
        inputs = [torch.randn(1, 4, n, 64, dtype=torch.float64) for n in (t, s, s)]
        attended = torch.arange(t) != 48 if keys == "keys" else torch.ones(t, dtype=torch.bool)
        outputs = []
        for where, kind in ((torch.device("cpu"), torch.float64), (device, dtype)):
            borders = (Borders(starts[side].to(where), 48) for side in ("queries", keys))
            mask = Mask(causal=is_causal, queries=next(borders), keys=next(borders))
            here = [x.to(where, kind).requires_grad_() for x in inputs]
            mixed = attention(*here, mask)
            (mixed[:, :, attended.to(where)].square().sum() + 0 * mixed.sum()).backward()
            assert here[0].grad is not None
            outputs.append((mixed.detach().double().cpu(), here[0].grad.double().cpu()))
            gradients = [x.grad for x in here if x.grad is not None]
            result[f"{name}, finite"] = all(bool(g.isfinite().all()) for g in (mixed, *gradients))
        for what, first, second in zip((name, f"{name}, gradient"), *outputs, strict=True):
            result[what] = _apart(first[:, :, attended], second[:, :, attended])
    return result


def packed_loss(scale: Scale) -> dict[str, float]:
    """Loss and gradient of packed pairs in bfloat16 against those of padded ones on the CPU."""
    batch = Batch(random_pairs(max(4, scale.sentences // 10), LENGTHS["captions"]))
    torch.manual_seed(1)
    here = OurTask(scale.size("tiny"), torch.device("cpu"), [batch])
    there = OurTask(scale.size("tiny"), scale.device, [batch])
    there.model.load_state_dict(here.model.state_dict())
    pairs = here.prepare(batch)
    right = here.model.eval(), here.loss(pairs)
    with torch.autocast(scale.device.type, torch.bfloat16):
        sums = there.model.eval() and there.packed_loss(there.pack(pairs).to(scale.device))
    for total in (right[1].total, sums.total):
        (total / batch.target_tokens).backward()
    gradients = [
        torch.cat([p.grad.flatten().float().cpu() for p in task.model.parameters()])
        for task in (here, there)
    ]
    return {
        "loss": round(float(sums.total / batch.target_tokens), 4),
        "loss_of_cpu": round(float(right[1].total / batch.target_tokens), 4),
        "cosine_of_gradients": round(float(torch.cosine_similarity(*gradients, dim=0)), 5),
    }


def steps(scale: Scale) -> dict[str, Any]:
    """Losses of twelve repeated steps against those of plain ones, and waits of repeated ones."""
    n = max(4, scale.sentences // 10)
    work = [Batch(random_pairs(n, LENGTHS["captions"], seed)) for seed in range(12)]
    losses, places = [], []
    for kind in (OptimizerStep, GraphedStep):
        torch.manual_seed(1)
        task = OurTask(scale.size("tiny"), scale.device, work)
        for module in task.model.modules():
            module.p = 0.0  # no dropout
        step, prepared = task.stepper(False, kind), [task.prepare(batch) for batch in work]
        for batch in prepared[:-4]:
            step(batch)
        nll = task.steps.read()
        with counted_waits(scale.device) as waits:
            for batch in prepared[-4:]:
                step(batch)
        losses.append([nll, task.steps.read()])
        places.append(len(waits))
    count = sum(batch.target_tokens for batch in work)
    plain, repeated = (sum(pair) / count for pair in losses)
    return {"plain": plain, "repeated": repeated, "waits": places[1], "plain_waits": places[0]}


def any_batch(scale: Scale) -> dict[str, float]:
    """Share of outputs that are the same alone and among others, in float32, on the device."""
    rows = [source for source, _ in random_pairs(max(8, scale.sentences // 8), LENGTHS["news"])]
    model, _ = marian_shaped(scale.size("tiny"), 1)
    moved = model.to(scale.device)
    decode = translated(moved, EncoderDecoderSearch(moved, padded_ids))
    asked = Question(4, 24, DecodingOptions())
    together = decode(rows, asked)
    alone = [decode([row], asked)[0] for row in rows[:8]]
    same = [one == other for one, other in zip(alone, together[:8], strict=True)]
    return {"beam 4": sum(same) / len(same)}


def blocks(scale: Scale) -> dict[str, Any]:
    """Steps of decoding in blocks, each forbidden to wait, and reads and recordings of them.

    Outputs are those of steps that are read one by one, as they are on a CPU."""
    rows = [source for source, _ in random_pairs(max(8, scale.sentences // 8), LENGTHS["news"])]
    model, _ = marian_shaped(scale.size("tiny"), 1)
    moved = model.to(scale.device)
    decode = translated(moved, EncoderDecoderSearch(moved, padded_ids))
    asked = Question(4, 24, DecodingOptions())
    decode(rows, asked)
    steps, reads, recorded = [], [], []
    launch, run = RepeatedWork.launch, Block.run

    def forbidden(work: RepeatedWork) -> None:
        if scale.device.type == "cuda":
            torch.cuda.set_sync_debug_mode("error")
        try:
            launch(work)
        finally:
            if scale.device.type == "cuda":
                torch.cuda.set_sync_debug_mode("default")
        steps.append(True)
        recorded.append(work.is_recorded)

    def counted(block: Block) -> Iterator[Any]:
        reads.append(True)
        return run(block)

    with (
        mock.patch.object(RepeatedWork, "launch", forbidden),
        mock.patch.object(Block, "run", counted),
    ):
        in_blocks = decode(rows, asked)
    with mock.patch.object(search, "_block", lambda step, active: None):
        one_by_one = decode(rows, asked)
    same = sum(a == b for a, b in zip(in_blocks, one_by_one, strict=True)) / len(rows)
    counts = {"steps": len(steps), "reads": len(reads), "replayed": sum(recorded)}
    return counts | {"same_outputs": round(same, 3)}


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
