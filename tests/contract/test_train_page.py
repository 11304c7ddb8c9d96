"""The training of docs/book/train.js, in Node: its losses and gradients are those of PyTorch."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from helpers.node import run_node
from transduce.models.config import EncoderDecoderConfig
from transduce.models.encoder_decoder import EncoderDecoder, build_encoder_decoder
from transduce.nn.attention import MultiHeadAttention, SelfAttention
from transduce.nn.masks import Mask
from transduce.nn.positions import Positions
from transduce.nn.residual import PreNorm
from transduce.nn.stack_configs import TransformerConfig
from transduce.nn.state import KeyValue
from transduce.nn.transformer import DecoderLayer
from transduce.sequence import Padded

TRAINER = Path(__file__).parents[2] / "docs" / "book" / "train.js"
BOS, EOS, VOCABULARY, HEAD_WIDTH = 0, 1, 12, 16
needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
pytestmark = [pytest.mark.system, needs_node]

GRADIENTS = """
const { readFileSync } = require("fs");
const { arrays, lines, leftOut } = JSON.parse(readFileSync("case.json", "utf8"));
const parameters = newParameters(randomNumbers(1));
if (String(Object.keys(parameters).sort()) !== String(Object.keys(arrays).sort())) throw "names";
for (const [name, numbers] of Object.entries(arrays)) parameters[name].numbers.set(numbers);
const model = new CopyModel(parameters, leftOut), loss = model.loss(lines), gradients = {};
for (const name of Object.keys(arrays)) gradients[name] = [...parameters[name].gradient];
process.stdout.write(JSON.stringify({ loss, gradients, copy: model.copy(lines[0]) }));
"""
TRAIN = """
const training = new Training({ seed: 3, leftOut: %s });
while (training.losses.length < training.steps) training.step();
const end = training.losses.slice(-20).reduce((a, b) => a + b) / 20;
process.stdout.write(JSON.stringify({ end, copied: training.copied() }));
"""
STEPS = """
const { readFileSync } = require("fs");
const { start, gradients, rates } = JSON.parse(readFileSync("case.json", "utf8"));
const parameters = { w: new Matrix(1, start.length, Float32Array.from(start)) };
const optimizer = new Adam(parameters);
gradients.forEach((gradient, i) => {
  parameters.w.gradient.set(gradient);
  optimizer.step(rates[i]);
});
process.stdout.write(JSON.stringify([...parameters.w.numbers]));
"""


class NoResidual(PreNorm):
    def forward(self, x: Tensor, sublayer: Callable[..., Tensor], *context: Any) -> Tensor:
        return sublayer(self.norm(x), *context)


def wrap_attend(attention: MultiHeadAttention, scale: float, masked: bool) -> None:
    """Multiply queries, and hide nothing where not masked."""
    attend = attention.attend

    def changed(query: Tensor, memory: KeyValue, mask: Mask) -> Tensor:
        return attend(query * scale, memory, mask if masked else Mask())

    attention.attend = changed  # type: ignore[method-assign]


def reference(left_out: str) -> EncoderDecoder:
    """The model of the package, without a part."""
    torch.manual_seed(7)
    stack = TransformerConfig(n_layers=1, n_heads=2, d_ff=64, dropout=0.0, norm_order="pre")
    config = EncoderDecoderConfig(d_model=32, tie="two-way", encoder=stack, decoder=stack)
    model = build_encoder_decoder(config, VOCABULARY, VOCABULARY, joint=False)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    for module in list(model.modules()):
        if isinstance(module, PreNorm) and left_out == "residual":
            module.__class__ = NoResidual
        if isinstance(module, MultiHeadAttention) and left_out == "scale":
            wrap_attend(module, HEAD_WIDTH**0.5, masked=True)
        if isinstance(module, DecoderLayer) and left_out == "mask":
            assert isinstance(module.self_attention, SelfAttention)
            wrap_attend(module.self_attention, 1.0, masked=False)
        for name, child in module.named_children():
            if isinstance(child, nn.LayerNorm) and left_out == "norm":
                child.forward = lambda x: x  # type: ignore[method-assign]
            if isinstance(child, Positions) and left_out == "positions":
                setattr(module, name, Positions())
    return model


def logits_of(model: EncoderDecoder, lines: Tensor, inputs: Tensor) -> Tensor:
    return model(Padded.unpadded(lines), Padded.unpadded(inputs))


@pytest.mark.parametrize("left_out", ["", "residual", "norm", "scale", "mask", "positions"])
def test_losses_and_gradients_are_those_of_pytorch(tmp_path: Path, left_out: str) -> None:
    model = reference(left_out)
    lines = torch.randint(2, VOCABULARY, (6, 5), generator=torch.Generator().manual_seed(2))
    logits = logits_of(model, lines, F.pad(lines, (1, 0), value=BOS))
    targets = F.pad(lines, (0, 1), value=EOS)
    loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
    loss.backward()
    parameters = dict(model.named_parameters())
    content = {
        "arrays": {name: p.detach().flatten().tolist() for name, p in parameters.items()},
        "lines": lines.tolist(),
        "leftOut": [left_out] if left_out else [],
    }
    (tmp_path / "case.json").write_text(json.dumps(content))
    answer = run_node(tmp_path, TRAINER.read_text(encoding="utf-8") + GRADIENTS)
    assert answer["loss"] == pytest.approx(loss.item(), abs=1e-5)
    for name, parameter in parameters.items():
        gradient = torch.tensor(answer["gradients"][name], dtype=torch.float32).view_as(parameter)
        expected = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        torch.testing.assert_close(
            gradient, expected, atol=1e-5, rtol=1e-4, msg=lambda text, name=name: f"{name}: {text}"
        )
    written = [BOS]
    while len(written) < 9:
        last = logits_of(model, lines[:1], torch.tensor([written]))[0, -1]
        if int(last.argmax()) == EOS:
            break
        written.append(int(last.argmax()))
    assert answer["copy"] == written[1:]


def test_adam_is_that_of_pytorch(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(5)
    start = torch.randn(7, generator=generator)
    gradients = torch.randn(4, 7, generator=generator) * torch.tensor([[0.1], [3.0], [0.2], [1.0]])
    rates = [1e-3, 1e-2, 5e-3, 1e-3]
    weight = nn.Parameter(start.clone())
    optimizer = torch.optim.Adam([weight], betas=(0.9, 0.98))
    for gradient, rate in zip(gradients, rates, strict=True):
        optimizer.param_groups[0]["lr"] = rate
        weight.grad = gradient.clone()
        nn.utils.clip_grad_norm_([weight], 1.0)
        optimizer.step()
    content = {"start": start.tolist(), "gradients": gradients.tolist(), "rates": rates}
    (tmp_path / "case.json").write_text(json.dumps(content))
    numbers = run_node(tmp_path, TRAINER.read_text(encoding="utf-8") + STEPS)
    torch.testing.assert_close(torch.tensor(numbers), weight.detach(), atol=1e-6, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("left_out", "loss", "copied"),
    [
        ([], (0, 0.05), (0.8, 1)),
        (["mask"], (0, 0.05), (0, 0.02)),
        (["positions"], (0.3, 2), (0, 0.1)),
    ],
)
def test_what_400_steps_teach(
    tmp_path: Path,
    left_out: list[str],
    loss: tuple[float, float],
    copied: tuple[float, float],
) -> None:
    script = TRAINER.read_text(encoding="utf-8") + TRAIN % json.dumps(left_out)
    learned = run_node(tmp_path, script)
    assert loss[0] <= learned["end"] <= loss[1]
    assert copied[0] <= learned["copied"] <= copied[1]
