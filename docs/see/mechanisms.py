"""Diagrams of one mechanism each, from a match to a text CNN."""

from __future__ import annotations

import torch
from canvas import BLUE, GREEN, GREY, ORANGE, Canvas

from transduce.nn.positions import SinusoidalPositions

SOURCE = ["机", "器", "学", "习"]
SUBSCRIPTS = "₁₂₃₄"


def match() -> Canvas:
    """A state matched with four vectors: scores, softmax, weighted sum, next state."""
    canvas = Canvas(760, 300, "A score for each position, softmax, and their weighted sum")
    scores = torch.tensor([2.0, 1.8, -0.4, -0.6])
    weights = scores.softmax(0).tolist()
    for i, token in enumerate(SOURCE):
        x = 110 + 100 * i
        canvas.text(x + 24, 290, token, size=16)
        canvas.labelled(x, 240, 48, 28, f"h{SUBSCRIPTS[i]}")
        canvas.line([(x + 24, 240), (x + 24, 222)], head=True)
        canvas.labelled(x - 6, 194, 60, 28, "match", ORANGE)
        canvas.line([(x + 24, 194), (x + 24, 172)], head=True)
        canvas.text(x + 30, 186, f"{scores[i]:.1f}", ORANGE, "start", 12)
        canvas.text(x + 30, 124, f"{weights[i]:.2f}", BLUE, "start", 12)
        canvas.line([(x + 24, 144), (x + 24, 110)], BLUE, 1 + 5 * weights[i], head=True)
    canvas.labelled(100, 144, 370, 28, "softmax")
    canvas.labelled(100, 82, 370, 28, "c₀ = Σ αᵢ hᵢ", BLUE)
    canvas.labelled(20, 194, 48, 28, "z₀", GREEN)
    for start, end in ((68, 104), (164, 204), (264, 304), (364, 404)):
        canvas.line([(start, 208), (end, 208)], GREEN, dashed=True)
    canvas.labelled(560, 82, 60, 28, "z₁", GREEN)
    canvas.line([(470, 96), (560, 96)], BLUE, head=True)
    canvas.line([(44, 194), (44, 52), (590, 52), (590, 82)], GREEN, head=True)
    canvas.line([(620, 96), (660, 96)], head=True)
    canvas.text(666, 101, "machine", anchor="start")
    canvas.text(44, 240, "query", GREEN)
    canvas.text(520, 258, "keys and values", anchor="start")
    return canvas


def addressing() -> Canvas:
    """A query compared with keys; the weights sum the values."""
    canvas = Canvas(760, 240, "Addressing by keys: a query, keys, weights, values")
    weights = (0.07, 0.75, 0.14, 0.04)
    canvas.labelled(20, 104, 80, 32, "query q", GREEN)
    canvas.labelled(620, 104, 110, 32, "Σ αᵢ vᵢ", BLUE)
    for i, weight in enumerate(weights):
        y = 20 + 56 * i
        canvas.labelled(200, y, 80, 32, f"k{SUBSCRIPTS[i]}", ORANGE)
        canvas.labelled(460, y, 80, 32, f"v{SUBSCRIPTS[i]}", BLUE)
        canvas.line([(100, 120), (200, y + 16)], GREEN, 0.8 + 3 * weight, head=True)
        canvas.line([(280, y + 16), (330, y + 16)])
        canvas.box(330, y + 6, 80 * weight, 20, BLUE, BLUE, 0.6)
        canvas.text(
            334 + 80 * weight, y + 21, f"α{SUBSCRIPTS[i]} = {weight:.2f}", BLUE, "start", 12
        )
        canvas.line([(540, y + 16), (620, 120)], BLUE, 0.8 + 5 * weight, head=True)
    canvas.text(305, 14, "q · k", size=12)
    canvas.text(240, 238, "where to look", ORANGE, size=12)
    canvas.text(500, 238, "what is read", BLUE, size=12)
    return canvas


def two_heads() -> Canvas:
    """Two inputs, their q, k, v in two heads, and one output."""
    canvas = Canvas(820, 300, "Two heads: each input has a query, a key and a value in each")
    columns = [(60 + 380 * i, f"a{SUBSCRIPTS[i]}") for i in range(2)]
    for i, (x, name) in enumerate(columns):
        canvas.labelled(x + 130, 250, 60, 30, name)
        for k, (letter, hue) in enumerate((("q", GREEN), ("k", ORANGE), ("v", BLUE))):
            left = x + 112 * k
            canvas.line([(x + 160, 250), (left + 46, 206)], head=True)
            for head in range(2):
                label = f"{letter}{SUBSCRIPTS[i]},{head + 1}"
                canvas.labelled(left + 50 * head, 176, 46, 30, label, hue)
    canvas.line([(83, 176), (83, 150), (575, 150), (575, 176)], GREEN, 1.6)
    canvas.line([(83, 150), (195, 150), (195, 176)], GREEN, 1.6)
    canvas.text(330, 143, "q₁,₁ · k₁,₁ and q₁,₁ · k₂,₁: head 1 meets head 1 only", GREEN, size=12)
    for head in range(2):
        canvas.labelled(250 + 130 * head, 88, 90, 30, f"b₁,{head + 1}", BLUE)
        canvas.line([(295 + 130 * head, 88), (360, 50)], head=True)
    canvas.labelled(280, 20, 160, 30, "b₁ = W_O [b₁,₁; b₁,₂]")
    canvas.text(560, 108, "b₁,₁ = α v₁,₁ + α′ v₂,₁", BLUE, "start", 12)
    return canvas


def embedding_sum() -> Canvas:
    """Vectors of words, vectors of positions, and their sum."""
    canvas = Canvas(820, 190, "Embedding plus position: one vector for each token")
    words = torch.randn(4, 12, generator=torch.Generator().manual_seed(3)).mul(0.5).clamp(-1, 1)
    places = SinusoidalPositions().embed(torch.zeros(1, 4, 12), torch.arange(4))[0]
    panels = (("embedding of the token", words), ("position 0 … 3", places), ("X", words + places))
    for n, (title, table) in enumerate(panels):
        x = 40 + 270 * n
        canvas.text(x + 108, 20, title, bold=True)
        canvas.heat(x, 36, (table / 1.5).clamp(-1, 1).tolist(), 18, 30)
        if n < 2:
            canvas.text(x + 243, 102, "+="[n], size=22)
    for i, token in enumerate("我打你。"):
        canvas.text(24, 57 + 30 * i, token, size=15)
    canvas.text(
        410, 180, "rows are tokens, columns dimensions; blue is above 0, red below", size=12
    )
    return canvas


def scaled_dot() -> Canvas:
    """The blocks of scaled dot-product attention, from the inputs up."""
    canvas = Canvas(620, 330, "Scaled dot-product attention, block by block")
    blocks = [("MatMul  QKᵀ", "(n, n)"), ("Scale  ÷ √d_k", "(n, n)"), ("Mask (optional)", "(n, n)")]
    blocks += [("softmax, row by row", "(n, n)"), ("MatMul  · V", "(n, d_v)")]
    for k, (label, shape) in enumerate(blocks):
        y = 250 - 54 * k
        canvas.labelled(130, y, 190, 30, label, BLUE if "MatMul" in label else GREY)
        canvas.line([(225, y), (225, y - 24)], head=True)
        canvas.text(120, y + 20, shape, GREY, "end", 12)
    for x, name in ((170, "Q (n, d_k)"), (280, "K (n, d_k)")):
        canvas.line([(x, 300), (x, 280)], head=True)
        canvas.text(x, 320, name)
    canvas.line([(440, 300), (440, 49), (320, 49)], head=True)
    canvas.text(440, 320, "V (n, d_v)")
    return canvas


def text_cnn() -> Canvas:
    """Windows of several widths over a text, max pooling, concatenation."""
    canvas = Canvas(820, 300, "A text CNN: windows, max pooling, one vector of fixed length")
    values = torch.rand(7, 5, generator=torch.Generator().manual_seed(1))
    tokens = ["这", "家", "店", "真", "好", "吃", "。"]
    canvas.heat(60, 50, (0.6 * values).tolist(), 24, 30)
    canvas.text(120, 36, "n × d", bold=True)
    for i, token in enumerate(tokens):
        canvas.text(44, 71 + 30 * i, token, size=15)
    for k, (width, hue) in enumerate(((2, BLUE), (3, ORANGE), (4, GREEN))):
        x, count = 280 + 70 * k, 8 - width
        outputs = values.unfold(0, width, 1).mean((1, 2))[:, None]
        shown = (outputs - outputs.min()) / (outputs.max() - outputs.min())
        canvas.heat(x, 50, (0.8 * shown).tolist(), 26, 26)
        canvas.text(x + 13, 36, f"width {width}", hue, size=12)
        best = int(outputs.argmax())
        top = 50 + 30 * best
        canvas.box(58 - 3 * k, top, 124 + 6 * k, 30 * width, hue, hue, 0.12)
        canvas.line([(182 + 3 * k, top + 15 * width), (x, 63 + 26 * best)], hue, 0.8)
        canvas.box(x, 50 + 26 * best, 26, 26, hue)
        canvas.line([(x + 26, 63 + 26 * best), (560, 126 + 26 * k)], hue, head=True)
        canvas.text(x + 13, 64 + 26 * count, f"n − {width - 1}", size=11)
    canvas.heat(562, 113, [[0.8], [0.8], [0.8]], 26, 26)
    canvas.text(575, 98, "max pooling", bold=True)
    canvas.line([(590, 152), (660, 152)], head=True)
    canvas.labelled(664, 136, 130, 32, "linear, softmax")
    canvas.text(
        410, 290, "each window gives one number per place; only the greatest is kept", size=12
    )
    return canvas
