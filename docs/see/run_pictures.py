"""Pictures of a real run, from the data of finished explain pages: heads, search, training."""

from __future__ import annotations

import base64
import json
import string
import subprocess
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from canvas import BLUE, GREEN, GREY, RED, Canvas
from pages import content_of

from transduce.explain.page import ENGINE, static

Data = dict[str, Any]
DIGITS = string.ascii_uppercase + string.ascii_lowercase + string.digits + "+/"
FRAMES = 7
SHARP = ("previous token", "next token", "focused")
SHORT = {
    "previous token": "previous",
    "current token": "current",
    "next token": "next",
    "first token": "first",
    "punctuation": "punct.",
}


COMPUTE = """
const { readFileSync } = require("fs");
const { model, texts } = JSON.parse(readFileSync(0, "utf8"));
const live = new LiveModel(model, Uint8Array.from(Buffer.from(model.bytes, "base64")));
process.stdout.write(JSON.stringify(published(live.explain(texts))));
"""


def data_of(page: Path) -> Data:
    """The first explanation in a page of `transduce explain --html`."""
    data, _ = content_of(page)
    return data[0]


def computed(page: Path) -> Data:
    """The explanation of the first text of a page that computes, by the page's own code in Node."""
    data, model = content_of(page)
    case = json.dumps({"model": model, "texts": list(data[0]["inputs"].values())})
    code = "\n".join(static("transduce.explain", f"{name}.js") for name in ENGINE) + COMPUTE
    with tempfile.TemporaryDirectory() as directory:
        script = Path(directory) / "page.js"
        script.write_text(code, encoding="utf-8")
        made = subprocess.run(
            ["node", script], input=case.encode(), check=True, capture_output=True
        )
    one: Data = json.loads(made.stdout)
    one["search"]["nodes"] = [list(node.values()) for node in one["search"]["nodes"]]
    return one


def weights_of(attention: Data) -> list[list[list[float]]]:
    """Weights [head][row][column]; a page has one byte each, of causal ones the visible part."""
    if not isinstance(attention["weights"], str):
        weights: list[list[list[float]]] = attention["weights"]
        return weights
    packed = np.frombuffer(base64.b64decode(attention["weights"]), np.uint8) / 255
    values = np.zeros(tuple(attention["shape"]))
    if attention["causal"]:
        values[:, *np.tril_indices(values.shape[1])] = packed.reshape(len(values), -1)
    else:
        values[:] = packed.reshape(values.shape)
    return [[[float(weight) for weight in row] for row in head] for head in values]


def plain(token: str) -> str:
    """A token without the mark of a word's beginning."""
    return token.removeprefix("▁") or token


def heads(one: Data) -> Canvas:
    """Every head of every layer, with its measured name; three of them enlarged."""
    kinds = ["encoder", "decoder self", "cross"]
    groups: dict[str, list[Data]] = defaultdict(list)
    for attention in one["attention"]:
        side, cross = attention["name"].split(".")[0], "cross" in attention["name"]
        groups["cross" if cross else "decoder self" if side == "decoder" else side].append(
            attention
        )
    canvas = Canvas(880, 640, "All attention heads of one translation, by layer")
    cell, gap = 7.0, 65
    for k, kind in enumerate(kinds):
        x = 36 + k * 285
        canvas.text(x + 126, 18, kind, bold=True)
        for layer, attention in enumerate(groups[kind]):
            y = 34 + layer * 78
            if k == 0:
                canvas.text(18, y + 28, str(layer + 1))
            patterns = zip(weights_of(attention), attention["patterns"], strict=True)
            for head, (values, (name, value)) in enumerate(patterns):
                canvas.heat(x + head * gap, y, values, cell)
                canvas.text(
                    x + head * gap + 25, y + 61, f"{SHORT.get(name, name)} {value:.1f}", size=9
                )
        *_, layer, head = max(
            (
                name in ("previous token", "next token", "focused"),
                name != "spread",
                value,
                layer,
                head,
            )
            for layer, attention in enumerate(groups[kind])
            for head, (name, value) in enumerate(attention["patterns"])
        )
        enlarged(canvas, one, groups[kind][layer], head, x, 390, layer)
    return canvas


def enlarged(
    canvas: Canvas, one: Data, attention: Data, head: int, x: float, y: float, layer: int
) -> None:
    """One head with its tokens."""
    columns = [plain(token) for token in one["sequences"][attention["columns"]]]
    rows = [plain(token) for token in one["sequences"][attention["rows"]]]
    name, value = attention["patterns"][head]
    canvas.text(x + 126, y - 4, f"layer {layer + 1}, head {head + 1}: {name} {value:.2f}", BLUE)
    values, cell, left = weights_of(attention)[head], 26, x + 64
    canvas.heat(left, y + 54, values, cell)
    for i, token in enumerate(rows):
        canvas.text(left - 5, y + 54 + i * cell + 17, token, anchor="end", size=12)
    for j, token in enumerate(columns):
        canvas.parts.append(
            f'<text transform="translate({left + j * cell + 16:g},{y + 48:g}) rotate(-50)" '
            f'text-anchor="start" font-size="12">{token.replace("<", "&lt;")}</text>'
        )
    for i, row in enumerate(values):
        for j, weight in enumerate(row):
            if weight >= 0.1:
                text = f"{weight:.1f}".removeprefix("0")
                hue = "#fff" if weight > 0.55 else GREY
                canvas.text(left + (j + 0.5) * cell, y + 54 + i * cell + 17, text, hue, size=10)


def film(one: Data) -> Canvas:
    """The clearest head of each kind of attention at some points of training."""
    film = one["film"]
    chosen = np.linspace(0, len(film["points"]) - 1, FRAMES).round().astype(int).tolist()
    canvas = Canvas(880, 400, "Three attention heads at seven points of training")
    gap, cell = 118, 9.4
    for k, point in enumerate(chosen):
        step, share = film["points"][point]
        canvas.text(113 + k * gap, 18, f"step {step:,}", size=12)
        canvas.text(113 + k * gap, 34, f"{100 * share:.3g} %", GREY, size=10)
    scene = film["scenes"][0]
    for k, kind in enumerate(("encoder", "decoder", "cross")):
        attention, head = clearest(scene["attention"], kind)
        place = attention["name"].split(".")[2]
        canvas.text(8, 92 + k * 126, kind, anchor="start", size=12)
        canvas.text(8, 108 + k * 126, f"layer {int(place) + 1}", GREY, anchor="start", size=10)
        for column, point in enumerate(chosen):
            values = frame_of(attention, point)[head]
            canvas.heat(66 + column * gap, 44 + k * 126, values.tolist(), cell)
    return canvas


def clearest(attention: list[Data], kind: str) -> tuple[Data, int]:
    """The attention and the head of a kind with the greatest mean of row maxima in the end."""
    of_kind = [
        one for one in attention if kind == ("cross" if "cross" in one["name"] else one["name"][:7])
    ]
    return max(
        ((one, head) for one in of_kind for head in range(one["shape"][0])),
        key=lambda found: float(frame_of(found[0], -1)[found[1]].max(1).mean()),
    )


def frame_of(attention: Data, point: int) -> Any:
    """Weights (h, t, s) at a point of a film; the page has one character each."""
    packed = np.array([DIGITS.index(character) for character in attention["frames"][point]]) / 63
    values = np.zeros(tuple(attention["shape"]))
    if attention["causal"]:
        values[:, *np.tril_indices(values.shape[1])] = packed.reshape(len(values), -1)
    else:
        values[:] = packed.reshape(values.shape)
    return values


def beam(one: Data) -> Canvas:
    """The search tree, from left to right; cut branches end in a cross."""
    nodes = one["search"]["nodes"]
    depth = [0] * len(nodes)
    columns: dict[int, list[int]] = defaultdict(list)
    for n, (parent, *_) in enumerate(nodes):
        depth[n] = depth[parent] + 1 if n else 0
        columns[depth[n]].append(n)
    shown = {d: [n for n in ns if not cut_late(nodes, ns, n)] for d, ns in columns.items()}
    kept = {n for ns in shown.values() for n in ns}
    height = 50 + 37 * max(map(len, shown.values()))
    canvas = Canvas(930, height, "The tree of a beam search with its cut branches")
    place = {n: (14 + d * 116, 40 + i * 37) for d, ns in shown.items() for i, n in enumerate(ns)}
    best = path_of(nodes, next(n for n in kept if nodes[n][3] == "won"))
    colours = {"won": GREEN, "ended": BLUE, "cut": RED, "kept": GREY}
    for n, (x, y) in place.items():
        parent, token, log_prob, fate, score = nodes[n]
        total = f"{log_prob:.2f}" if score is None else f"{log_prob:.2f} ÷ {depth[n]} = {score:.2f}"
        colour = GREEN if n in best else colours[fate]
        if parent in place:
            px, py = place[parent]
            points = [(px + 84, py + 12), (x, y + 12)]
            canvas.line(points, colour, 2.2 if n in best else 1, dashed=fate == "cut")
        canvas.box(x, y, 84, 25, colour, dashed=fate == "cut")
        mark = {"cut": "× ", "won": "★ "}.get(fate, "")
        canvas.text(x + 42, y + 17, mark + plain(token), colour, size=12)
        if n:
            canvas.text(x + 42, y + 35, total, colour if score else GREY, size=9)
    for d in range(1, len(shown)):
        canvas.text(14 + d * 116 + 42, 22, f"step {d}", size=12)
    return canvas


def cut_late(nodes: list[Any], column: list[int], n: int) -> bool:
    """Cut, and neither among the first two cut branches of its step."""
    return nodes[n][3] == "cut" and n not in [m for m in column if nodes[m][3] == "cut"][:2]


def path_of(nodes: list[Any], n: int) -> set[int]:
    """The node and all above it."""
    path = {n}
    while n:
        n = nodes[n][0]
        path.add(n)
    return path
