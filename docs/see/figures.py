"""Pictures of figures: attention by hand, variance, masks, positions, learning rate."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import torch
from canvas import BLUE, GREEN, GREY, ORANGE, RED, Canvas

from transduce.nn.attention import attention_with_weights
from transduce.nn.masks import Mask, causal, key_mask
from transduce.nn.positions import SinusoidalPositions
from transduce.sequence import Padded
from transduce.training.config import Noam, learning_rate

Matrix = Sequence[Sequence[float]]
Step = tuple[str, torch.Tensor, int, int]
"""Name of a matrix, its values, digits of a value, width of a cell."""


def matrix(
    canvas: Canvas, x: float, y: float, title: str, values: Matrix, digits: int, cell: int
) -> float:
    """A matrix of figures on a heat map, its name above; gives its right edge."""
    width = len(values[0]) * cell
    canvas.text(x + width / 2, y - 10, title, bold=True)
    canvas.heat(x, y, [[0.22 * max(value, 0) for value in row] for row in values], cell, 28)
    for i, row in enumerate(values):
        for j, value in enumerate(row):
            hidden = value == -math.inf
            text, hue = ("−∞", RED) if hidden else (f"{value:.{digits}f}", GREY)
            canvas.text(x + (j + 0.5) * cell, y + 28 * i + 19, text, hue)
    return x + width


def attention() -> Canvas:
    """The worked example of the tutorials: unscaled, scaled, and with the mask."""
    canvas = Canvas(780, 400, "Scaled dot-product attention of three tokens, by hand")
    x = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    scores = x @ x.T
    scaled = scores / math.sqrt(2)
    hidden = scaled.masked_fill(~causal(3, 3, x.device), -math.inf)
    first = [("Q = K = V", x, 0, 34), ("QKᵀ", scores, 0, 34)]
    plain = scores.softmax(-1)
    rows: list[list[Step]] = [[*first, ("softmax", plain, 4, 58), ("· V", plain @ x, 4, 58)]]
    for title, shown, mask in (
        ("÷ √2", scaled, Mask()),
        ("÷ √2, mask", hidden, Mask(causal=True)),
    ):
        output, weights = attention_with_weights(x, x, x, mask)
        last = [("softmax", weights, 4, 58), ("· V", output, 4, 58)]
        rows.append([*first, (title, shown, 2, 46), *last])
    for n, row in enumerate(rows):
        right, y = -32.0, 34 + n * 130
        for title, values, digits, cell in row:
            if right > 0:
                canvas.line([(right + 8, y + 42), (right + 32, y + 42)], head=True)
            right = matrix(canvas, right + 40, y, title, values.tolist(), digits, cell)
    return canvas


def spread(width: int, pairs: int, draw: random.Random) -> tuple[float, float]:
    """Standard deviation of q·k and of q·k/√d_k, over pairs of random vectors."""
    products = [
        sum(draw.gauss(0, 1) * draw.gauss(0, 1) for _ in range(width)) for _ in range(pairs)
    ]
    deviation = math.sqrt(sum(value * value for value in products) / pairs)
    return deviation, deviation / math.sqrt(width)


def softmax(scores: Sequence[float]) -> list[float]:
    """Weights of the scores."""
    top = max(scores)
    powers = [math.exp(score - top) for score in scores]
    return [power / sum(powers) for power in powers]


def variance() -> Canvas:
    """Dot products by the width d_k, and the softmax of eight of them."""
    canvas = Canvas(800, 290, "Variance of dot products, with and without the square root of d_k")
    draw = random.Random(1)
    widths = [4, 16, 64, 256]
    spreads = [spread(width, 1500, draw) for width in widths]
    canvas.text(180, 20, "standard deviation of q·k", bold=True)
    for n, (width, (plain, scaled)) in enumerate(zip(widths, spreads, strict=True)):
        x = 40 + 80 * n
        for k, (value, colour) in enumerate(((plain, ORANGE), (scaled, BLUE))):
            tall = value * 11
            canvas.box(x + 32 * k, 240 - tall, 26, tall, colour, colour, 0.6)
            canvas.text(x + 32 * k + 13, 234 - tall, f"{value:.1f}", size=12)
        canvas.text(x + 29, 258, f"d_k {width}")
    canvas.text(110, 282, "■ q·k", ORANGE)
    canvas.text(230, 282, "■ q·k / √d_k", BLUE)
    query = [draw.gauss(0, 1) for _ in range(256)]
    keys = [[draw.gauss(0, 1) for _ in range(256)] for _ in range(8)]
    scores = [sum(a * b for a, b in zip(query, key, strict=True)) for key in keys]
    canvas.text(590, 20, "softmax of 8 scores, d_k 256", bold=True)
    for n, score in enumerate(scores):
        canvas.text(424 + 44 * n + 20, 258, f"{score:.0f}", size=12)
    for k, (divisor, colour) in enumerate(((1.0, ORANGE), (16.0, BLUE))):
        base = 130 + 110 * k
        weights = softmax([score / divisor for score in scores])
        for n, weight in enumerate(weights):
            tall = weight * 84
            canvas.box(424 + 44 * n, base - tall, 38, tall, colour, colour, 0.6)
            canvas.text(424 + 44 * n + 19, base - tall - 4, f"{weight:.2f}", size=11)
        canvas.line([(420, base), (774, base)], width=0.6)
    canvas.text(595, 282, "scores q·k")
    return canvas


def masks() -> Canvas:
    """Masks of padding, of the future, and of the source's padding."""
    canvas = Canvas(800, 290, "Masks: of the encoder, of the decoder, and between the two")
    source = ["我", "是", "个", "学", "生", "。", "</s>", "<pad>"]
    target = ["<s>", "I", "am", "a", "student", "."]
    real = key_mask(Padded.from_rows([[1] * 7, [1] * 8])).allowed
    assert real is not None
    columns = real[0, 0, 0].float()
    whole = columns.expand(8, 8)
    future = causal(6, 6, torch.device("cpu")).float()
    panels = [
        ("encoder: hide padding", whole, source, source),
        ("decoder: hide the future", future, target, target),
        ("cross: hide source padding", columns.expand(6, 8), target, source),
    ]
    x = 56.0
    for title, allowed, rows, names in panels:
        size = 20
        width = len(names) * size
        canvas.text(x + width / 2, 18, title, bold=True)
        canvas.heat(x, 84, (allowed * 0.7).tolist(), size)
        for i, name in enumerate(rows):
            canvas.text(x - 5, 84 + i * size + 14, name, anchor="end", size=11)
        for j, name in enumerate(names):
            canvas.parts.append(
                f'<text transform="translate({x + j * size + 14:g},78) rotate(-60)" '
                f'text-anchor="start" font-size="11">{name.replace("<", "&lt;")}</text>'
            )
        for i, j in (allowed == 0).nonzero().tolist():
            canvas.text(x + j * size + 10, 84 + i * size + 14, "×", RED, size=12)
        x += width + 100
    canvas.text(320, 282, "■ score stays", BLUE)
    canvas.text(480, 282, "× score −∞, weight 0", RED)
    return canvas


def curve(
    canvas: Canvas, x: float, y: float, values: Sequence[float], step: float, tall: float, hue: str
) -> None:
    """A line of values from 0 at y upwards."""
    canvas.line([(x + n * step, y - tall * v) for n, v in enumerate(values)], hue, 1.6)


def positions() -> Canvas:
    """Sinusoids: four dimensions as waves, the whole table, products of two positions."""
    canvas = Canvas(850, 352, "Sinusoidal positions: waves, table, and products")
    table = SinusoidalPositions().embed(torch.zeros(1, 48, 32), torch.arange(48))[0]
    canvas.text(130, 18, "waves of 4 dimensions (of 32)", bold=True)
    for n, (dimension, hue) in enumerate(((0, BLUE), (4, ORANGE), (8, GREEN), (12, RED))):
        y = 68 + 64 * n
        curve(canvas, 20, y, table[:, dimension].tolist(), 4.7, 24, hue)
        canvas.line([(20, y), (242, y)], width=0.4)
        canvas.text(246, y + 4, f"2i = {dimension}", hue, "start", 11)
    canvas.text(130, 342, "position 0 … 47")
    canvas.text(414, 18, "table (48 × 32)", bold=True)
    canvas.heat(318, 34, table.tolist(), 6)
    canvas.text(310, 44, "0", anchor="end", size=11)
    canvas.text(310, 320, "47", anchor="end", size=11)
    canvas.text(414, 342, "dimension 0 … 31")
    products = table @ table.T / 16
    canvas.text(692, 18, "product of two positions", bold=True)
    canvas.heat(548, 34, products.clamp(-1, 1).pow(3).tolist(), 6)
    canvas.text(692, 342, "depends on the distance alone")
    return canvas


def schedule() -> Canvas:
    """The learning rate of equation (3), and the target of label smoothing."""
    canvas = Canvas(800, 250, "Warm-up of the learning rate, and label smoothing")
    canvas.text(210, 18, "learning rate, d_model 512", bold=True)
    steps = [1, *range(250, 20_001, 250)]
    for warmup, hue in ((4000, BLUE), (8000, ORANGE)):
        rates = [learning_rate(Noam(warmup_steps=warmup), step, 0.0, 512) for step in steps]
        curve(canvas, 40, 210, rates, 4.5, 240_000, hue)
        top = max(rates)
        at = 40 + rates.index(top) * 4.5
        canvas.text(at + 16, 212 - top * 240_000, f"{top:.2e} at step {warmup:,}", hue, "start", 12)
    canvas.line([(40, 30), (40, 210), (405, 210)])
    for step in (0, 10_000, 20_000):
        canvas.text(40 + step / 250 * 4.5, 228, f"{step:,}", size=12)
    canvas.text(620, 18, "target of the loss, ε 0.1, v 10", bold=True)
    for n in range(10):
        value = 0.01 + (0.9 if n == 3 else 0)
        x = 450 + 34 * n
        canvas.box(x, 210 - value * 170, 28, value * 170, BLUE, BLUE, 0.6)
        canvas.text(x + 14, 204 - value * 170, f"{value:.2f}", size=11)
    canvas.line([(444, 210), (792, 210)], width=0.6)
    canvas.text(450 + 34 * 3 + 14, 228, "right token")
    return canvas


def convolution() -> Canvas:
    """Nine heads of a pixel with quadratic position encoding, at three degrees of sharpness."""
    side, cell, middle = 7, 9, 24
    places = torch.cartesian_prod(torch.arange(side), torch.arange(side)).float()
    shifts = torch.cartesian_prod(torch.arange(-1, 2), torch.arange(-1, 2)).float()
    apart = places - places[middle]
    distance = (apart - shifts[:, None]).square().sum(-1)[:, None]  # (h, 1, n)
    nothing = torch.zeros(9, 1, 1)
    canvas = Canvas(780, 262, "Nine heads of a pixel: blurred, leaking, one pixel each")
    for block, alpha in enumerate((0.5, 2.0, 30.0)):
        left = 20 + block * 258
        canvas.text(left + 108, 16, f"α = {alpha:g}", bold=True)
        keys = torch.zeros(9, side**2, 1)
        _, weights = attention_with_weights(nothing, keys, keys, Mask(bias=-alpha * distance))
        for head, map_ in enumerate(weights.view(9, side, side).tolist()):
            x, y = left + head % 3 * 74, 28 + head // 3 * 76
            canvas.heat(x, y, map_, cell)
            canvas.box(x + 3 * cell, y + 3 * cell, cell, cell, RED)
    return canvas
