"""Diagrams: one vector and attention, heads, residual sums, Figure 1 with the shapes it has."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from canvas import BLUE, GREEN, GREY, ORANGE, Canvas
from torch import nn

from transduce.models.config import PRESETS
from transduce.models.encoder_decoder import build_encoder_decoder
from transduce.nn.stack_configs import TransformerConfig
from transduce.sequence import Padded

SOURCE = ["机", "器", "学", "习"]
LEARNING = ["machine", "learning"]
WEIGHTS = ((0.45, 0.45, 0.05, 0.05), (0.05, 0.05, 0.45, 0.45))
"""Of the sketch, not of a model."""
HEIGHT = 730
"""Of Figure 1."""


def recurrence() -> Canvas:
    """A recurrent network with one vector, with attention, and self-attention."""
    canvas = Canvas(860, 250, "One vector for all steps, attention at each step, self-attention")
    titles = ["RNN: one vector c", "RNN with attention: c₁, c₂", "self-attention"]
    for n, title in enumerate(titles):
        x = 20 + 290 * n
        canvas.text(x + 120, 18, title, bold=True)
        for i, token in enumerate(SOURCE):
            canvas.text(x + 30 + 60 * i, 240, token, size=16)
            canvas.labelled(x + 10 + 60 * i, 190, 40, 28, f"h{'₁₂₃₄'[i]}")
            if n < 2 and i:
                canvas.line([(x - 10 + 60 * i, 204), (x + 10 + 60 * i, 204)], head=True)
        if n < 2:
            recurrent_decoder(canvas, x, n == 1)
        else:
            self_attention(canvas, x)
    return canvas


def recurrent_decoder(canvas: Canvas, x: float, attends: bool) -> None:
    """Two steps of a decoder, over one vector or over weighted sums."""
    for j, word in enumerate(LEARNING):
        middle = x + 65 + 110 * j
        canvas.labelled(middle - 20, 58, 40, 28, f"z{'₁₂'[j]}")
        canvas.line([(middle, 58), (middle, 46)], head=True)
        canvas.text(middle, 40, word)
        if attends:
            canvas.labelled(middle - 20, 112, 40, 26, f"c{'₁₂'[j]}", BLUE)
            canvas.line([(middle, 112), (middle, 86)], BLUE, head=True)
            for i, weight in enumerate(WEIGHTS[j]):
                ends = [(x + 30 + 60 * i, 190), (middle, 138)]
                canvas.line(ends, BLUE, 1 + 5 * weight, opacity=0.25 + 1.5 * weight)
        else:
            canvas.line([(x + 120, 124), (middle, 86)], ORANGE, head=True)
    canvas.line([(x + 85, 72), (x + 155, 72)], head=True)
    if not attends:
        canvas.labelled(x + 100, 124, 40, 26, "c", ORANGE)
        canvas.line([(x + 210, 190), (x + 140, 146)], ORANGE, head=True)


def self_attention(canvas: Canvas, x: float) -> None:
    """Every position sees every other in one step."""
    for i in range(4):
        canvas.labelled(x + 10 + 60 * i, 58, 40, 28, f"b{'₁₂₃₄'[i]}", BLUE)
        for j in range(4):
            near = i == 1
            ends = [(x + 30 + 60 * j, 190), (x + 30 + 60 * i, 86)]
            canvas.line(ends, BLUE, 1.8 if near else 0.8, opacity=0.9 if near else 0.3)


def multi_head() -> Canvas:
    """Eight heads of 64 side by side, concatenated and projected."""
    canvas = Canvas(860, 250, "Multi-head attention: project, attend per head, concatenate")
    canvas.labelled(10, 104, 90, 34, "X (n, 512)")
    for k, (name, hue) in enumerate((("Q", BLUE), ("K", ORANGE), ("V", GREEN))):
        y = 30 + 78 * k
        canvas.line([(100, 121), (150, y + 16)], hue, head=True)
        canvas.text(122, (66, 114, 186)[k], f"W_{name}", hue, size=12)
        for head in range(8):
            canvas.box(152 + 20 * head, y, 20, 32, hue, hue, 0.5 if head == 2 else 0.1)
        canvas.text(232, y + 48, f"{name} (n, 512) = 8 heads × 64", hue, size=12)
    canvas.line([(318, 121), (352, 121)], head=True)
    for head in reversed(range(8)):
        hue, opacity = (BLUE, 0.3) if head == 2 else (GREY, 0.08)
        canvas.box(362 + 10 * head, 108 - 8 * head, 66, 66, hue, hue, opacity)
    canvas.text(430, 222, "softmax(QKᵀ / √64)", size=12)
    canvas.text(430, 239, "(8, n, n)", size=12)
    canvas.line([(314, 202), (529, 202), (529, 128)], GREEN, head=True)
    canvas.line([(512, 121), (546, 121)], head=True)
    canvas.text(529, 112, "· V", size=12)
    for head in range(8):
        canvas.box(552 + 14 * head, 96, 14, 50, BLUE, BLUE, 0.5 if head == 2 else 0.15)
    canvas.text(608, 84, "Concat: 8 × 64", size=12)
    canvas.text(608, 164, "(n, 512)", size=12)
    canvas.line([(666, 121), (720, 121)], head=True)
    canvas.text(692, 112, "Wᴼ", size=13)
    canvas.labelled(724, 104, 116, 34, "output (n, 512)")
    return canvas


def residual() -> Canvas:
    """The sublayer of the paper and the sublayer of most programs."""
    canvas = Canvas(880, 130, "Post-norm and pre-norm")
    post, pre = ["Sublayer", "+", "LayerNorm"], ["LayerNorm", "Sublayer", "+"]
    titles = [
        "post-norm (paper): LayerNorm(x + Dropout(Sublayer(x)))",
        "pre-norm: x + Dropout(Sublayer(LayerNorm(x)))",
    ]
    for n, (title, boxes) in enumerate(zip(titles, (post, pre), strict=True)):
        x = 10 + 440 * n
        canvas.text(x + 205, 20, title, bold=True)
        canvas.text(x + 8, 100, "x")
        at, plus = x + 56.0, 0.0
        canvas.line([(x + 18, 96), (at, 96)], head=True)
        for box in boxes:
            width = 28 if box == "+" else 86
            canvas.labelled(at, 80, width, 32, box, ORANGE if box == "+" else GREY)
            plus = at + 14 if box == "+" else plus
            canvas.line([(at + width, 96), (at + width + 34, 96)], head=True)
            at += width + 34
        canvas.text(at + 4, 100, "output", anchor="start")
        canvas.line([(x + 34, 96), (x + 34, 48), (plus, 48), (plus, 80)], ORANGE, head=True)
        canvas.text((x + 34 + plus) / 2, 42, "residual", ORANGE, size=12)
    return canvas


def shapes() -> dict[str, tuple[int, ...]]:
    """Shapes in one pass of the paper's base model: 7 source tokens, 6 target tokens.

    One layer of each stack; all six have the same shapes.
    """
    one = TransformerConfig(n_layers=1)  # in the rest the base model's
    config = dataclasses.replace(PRESETS["paper-base"], encoder=one, decoder=one)
    model = build_encoder_decoder(config, 37_000, 37_000, joint=True).eval()
    found: dict[str, tuple[int, ...]] = {}

    def note(name: str) -> Any:
        def hook(_module: nn.Module, _inputs: object, output: Any) -> None:
            values = output.values if isinstance(output, Padded) else output
            if isinstance(values, torch.Tensor):
                found[name] = tuple(values.shape)

        return hook

    for name, module in model.named_modules():
        module.register_forward_hook(note(name))
    source, target = torch.full((1, 7), 5), torch.full((1, 6), 5)
    with torch.no_grad():
        model(Padded.unpadded(source), Padded.unpadded(target))
    return found


def figure_1() -> Canvas:
    """Figure 1 of the paper with the shape on every arrow."""
    size = {name: f"({', '.join(map(str, shape))})" for name, shape in shapes().items()}
    canvas = Canvas(760, HEIGHT, "The Transformer, Figure 1, with the shapes of the base model")
    memory = stack(canvas, 60, "encoder", size, "front_end", "我 是 个 学 生 。 </s>", "(1, 7)")
    stack(canvas, 480, "decoder", size, "target_front_end", "<s> I am a student .", "(1, 6)")
    layer = size["encoder.layers.0.feed_forward"]
    canvas.text(165, memory - 46, f"memory {layer}", BLUE)
    cross = HEIGHT - 40 - 5 * 62 + 6
    points = [(240, memory - 50), (400, memory - 50), (400, cross), (480, cross)]
    canvas.line(points, BLUE, 2, head=True)
    canvas.text(404, cross - 8, "K, V", BLUE, "start")
    return canvas


def stack(
    canvas: Canvas, x: float, side: str, size: dict[str, str], front: str, text: str, ids: str
) -> float:
    """One stack from the bottom up; gives the top of its layer."""
    layer, given = f"{side}.layers.0", "Output" if side == "decoder" else "Input"
    boxes = [(text, ids, ""), (f"{given} Embedding × √512", size[front], "")]
    boxes += [("+ positions", size[front], "")]
    own = "Masked Multi-Head Attention" if side == "decoder" else "Multi-Head Attention"
    boxes += [(own, size[f"{layer}.self_attention"], "a"), ("Add & Norm", size[front], "")]
    if side == "decoder":
        name = f"{layer}.cross_attention"
        boxes += [("Multi-Head Attention (cross)", size[name], "a"), ("Add & Norm", size[name], "")]
    inner = size[f"{layer}.feed_forward.inner"]
    boxes += [(f"Feed Forward {inner}", size[f"{layer}.feed_forward"], "a")]
    boxes += [("Add & Norm", size[f"{layer}.feed_forward"], "")]
    top = len(boxes) - 1
    if side == "decoder":
        boxes += [("Linear", size["head"], ""), ("Softmax", size["head"], "")]
    bottom, step = HEIGHT - 40, 62
    for k, (label, shape, kind) in enumerate(boxes):
        y = bottom - k * step
        if k == 0:
            canvas.text(x + 105, y + 14, label, size=15)
        else:
            canvas.labelled(x, y - 10, 210, 32, label, ORANGE if label == "Add & Norm" else GREY)
        canvas.line([(x + 105, y if k == 0 else y - 10), (x + 105, y - 40)], head=True)
        canvas.text(x + 112, y - 20, shape, BLUE, "start", 12)
        if kind:
            above = y - step + 6
            points = [(x + 105, y + 32), (x - 16, y + 32), (x - 16, above), (x, above)]
            canvas.line(points, ORANGE, head=True)
    end = "P(I), P(am), … : one row per position"
    if side == "decoder":
        canvas.text(x + 105, bottom - len(boxes) * step + 14, end)
    first, last = bottom - 3 * step + 48, bottom - top * step - 14
    canvas.box(x - 28, last, 252, first - last, GREY, dashed=True)
    canvas.text(x + 230, (first + last) / 2, "× 6", anchor="start", size=16)
    return last
