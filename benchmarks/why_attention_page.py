"""Draws the plots and writes the tables of docs/measurements/why-attention.md from results.json."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from transduce.errors import RunError

sys.path.insert(0, str(Path(__file__).parents[1] / "docs" / "see"))
from chinese import in_chinese

NAMES = {
    "rnn-sutskever": "LSTM, last state first (Sutskever)",
    "rnn-cho": "GRU, last state at every step (Cho)",
    "rnn-bahdanau": "GRU, context fed (Bahdanau)",
    "rnn-luong": "LSTM, input feeding (Luong)",
    "rnn-fixed": "LSTM, fixed context",
    "rnn-dot": "LSTM, dot attention",
    "rnn-general": "LSTM, general attention",
    "rnn-additive": "LSTM, additive attention",
    "gru-additive": "GRU, additive attention",
    "bytenet": "ByteNet",
    "convs2s": "ConvS2S",
    "convolution": "convolution, Transformer decoder",
    "tiny": "Transformer",
}
SHORT_NAMES = {"rnn-dot": "LSTM", "convolution": "convolution", "tiny": "Transformer"}
COLOURS = {  # told apart by the colour-blind as well (Okabe and Ito), dashed in addition
    "rnn-sutskever": "#000000",
    "rnn-cho": "#0072b2",
    "rnn-bahdanau": "#56b4e9",
    "rnn-luong": "#009e73",
    "bytenet": "#cc79a7",
    "convs2s": "#e69f00",
    "rnn-fixed": "#000000",
    "rnn-dot": "#0072b2",
    "rnn-general": "#56b4e9",
    "rnn-additive": "#009e73",
    "gru-additive": "#cc79a7",
    "convolution": "#e69f00",
    "tiny": "#d55e00",
}
DASHED = ("rnn-sutskever", "rnn-cho", "rnn-bahdanau", "rnn-luong", "bytenet", "convs2s")
MIB = 2**20


def draw(results: dict[str, Any], output: Path) -> None:
    """Plots into `output`, tables into the page beside it; parts without results are left alone.

    Raises RunError when the page is missing or lacks a place for a table.
    """
    path = output.with_suffix(".md")
    if not path.is_file():
        raise RunError(f"{path} is missing; copy docs/measurements/why-attention.md there")
    text = path.read_text(encoding="utf-8")
    for part in (part for part in FIGURES if part in results):
        for name, figure in FIGURES[part](results[part]).items():
            _save(figure, output / f"{name}.svg")
        for name, lines in TABLES[part](results[part]).items():
            text = _filled(text, name, lines, path)
    path.write_text(text, encoding="utf-8")


def _filled(text: str, name: str, lines: Iterable[str], path: Path) -> str:
    """The page with these lines between the markers of that name."""
    begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
    if begin not in text or end not in text:
        raise RunError(f"{path} has no place for a table: write {begin.strip()} and {end}")
    before, _, rest = text.partition(begin)
    return before + begin + "".join(line + "\n" for line in lines) + end + rest.partition(end)[2]


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    lines = [head, ["-"] * len(head), *rows]
    return ["| " + " | ".join(map(str, cells)) + " |" for cells in lines]


def _made(made: dict[str, Any]) -> str:
    threads = "one thread" if made["threads"] == 1 else f"{made['threads']} threads"
    return (
        f"{made['processor']}, {made['cores']} cores, {threads}, no GPU, "
        f"PyTorch {made['torch'].partition('+')[0]}, {made['date']}"
    )


# --- tables ----------------------------------------------------------------------------------


def translation_tables(part: dict[str, Any]) -> dict[str, list[str]]:
    models = part["models"]
    if not models:
        return {}
    gains = {c["b"]: c for c in part.get("comparisons", [])}
    rows = [
        (
            NAMES[name],
            f"{model['parameters']:,}",
            f"{model['target_tokens']:,}",
            f"{model['cpu_seconds']:,.0f}",
            f"{model['peak']:g}",
            f"{model['validation_loss']:.3f}",
            f"{model['bleu']:.2f}",
            f"{model['chrf']:.2f}",
            _gain_over(gains.get(name)),
        )
        for name, model in _in_order(models)
    ]
    head = (
        "model",
        "parameters",
        "target tokens seen",
        "training, CPU seconds",
        "peak rate",
        "loss, nats per token",
        "BLEU",
        "chrF",
        "BLEU over another row",
    )
    budget = part["budget"]
    signature = next(iter(models.values()))["bleu_signature"]
    facts = (
        f"{budget['steps']:,} steps of at most {budget['batch_tokens']} positions a side, joint "
        f"vocabulary of {budget['vocabulary']:,}. {_made({**part['made'], 'date': _dates(part)})}. "
        f"`{signature}`."
    )
    return {
        "translation": [*_table(head, rows), "", facts],
        "by-length": [LENGTH_PLOT, "", *_table(*_by_length(models, part.get("by_length", [])))],
    }


def _dates(part: dict[str, Any]) -> str:
    """Days on which the models were trained."""
    days = {model.get("date", part["made"]["date"]) for model in part["models"].values()}
    return " and ".join(sorted(days))


LENGTH_PLOT = "![BLEU by length of the source](why-attention/bleu-by-length.svg)"
"""Stands above its table, so that no page shows a plot that was not drawn yet."""


def _by_length(
    models: dict[str, Any], gains: Sequence[dict[str, Any]]
) -> tuple[list[str], list[list[object]]]:
    buckets = next(iter(models.values()))["by_length"]
    head = ["", *(_bucket(bucket["tokens"]) for bucket in buckets)]
    rows: list[list[object]] = [["sentences", *(bucket["sentences"] for bucket in buckets)]]
    for name, model in _in_order(models):
        rows.append([NAMES[name], *(f"{bucket['bleu']:.2f}" for bucket in model["by_length"])])
    for a, b in dict.fromkeys((gain["a"], gain["b"]) for gain in gains):
        of_pair = [gain for gain in gains if (gain["a"], gain["b"]) == (a, b)]
        rows.append([f"{NAMES[b]}, over {NAMES[a]}", *map(_gain, of_pair)])
    return head, rows


def _in_order(models: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [(name, models[name]) for name in NAMES if name in models]


def _bucket(tokens: Sequence[int]) -> str:
    return f"{tokens[0]}+ tokens" if tokens[1] >= 10_000 else f"{tokens[0]}–{tokens[1]} tokens"


def _gain_over(comparison: dict[str, Any] | None) -> str:
    return "" if comparison is None else f"{_gain(comparison)} over {NAMES[comparison['a']]}"


def _gain(comparison: dict[str, Any] | None) -> str:
    if comparison is None:
        return ""
    result = [comparison[key] for key in ("difference", "low", "high")]
    return "{:+.2f} ({:+.2f} to {:+.2f})".format(*result)


def speed_tables(part: dict[str, Any]) -> dict[str, list[str]]:
    lengths = sorted({point["length"] for point in part["points"]})
    result = {(point["model"], point["length"]): point for point in part["points"]}
    rows = [
        [
            n,
            result["tiny", n]["sentences"],
            *(f"{result[name, n]['per_cpu_second']:,.0f}" for name in _timed(part)),
            *(f"{result[name, n]['per_second']:,.0f}" for name in _timed(part)),
        ]
        for n in lengths
    ]
    head = ["length", "sentences"]
    head += [SHORT_NAMES[name] for name in _timed(part)]
    head += [f"{SHORT_NAMES[name]}, wall clock" for name in _timed(part)]
    facts = (
        f"Target tokens per CPU second, then per second by the clock on the wall; "
        f"{part['tokens']:,} in a batch, medians of {part['rounds']}. {_made(part['made'])}."
    )
    return {"speed": [*_table(head, rows), "", facts]}


def _timed(part: dict[str, Any]) -> list[str]:
    return [name for name in NAMES if any(p["model"] == name for p in part["points"])]


def memory_tables(part: dict[str, Any]) -> dict[str, list[str]]:
    rows = [
        [f"{point['length']:,}"]
        + [f"{point[kind] / MIB:,.1f}" for kind in ("predicted", "explicit", "fused")]
        for point in part["points"]
    ]
    head = ["positions", f"{part['matrices']} h n² · 4 bytes", "weights written out", "fused"]
    facts = (
        f"MiB beyond the inputs, forward and backward, h = {part['heads']} heads of width "
        f"{part['width']}, float32, one sentence. {_made(part['made'])}."
    )
    return {"memory": [*_table(head, rows), "", facts]}


def paths_tables(part: dict[str, Any]) -> dict[str, list[str]]:
    kinds = ("recurrent_steps", "convolution", "dilated", "attention")
    rows = [
        [point["distance"]] + [f"{point[kind]} ({point['predicted'][kind]})" for kind in kinds]
        for point in part["points"]
    ]
    k = part["kernel"]
    head = ["distance n", "recurrence, steps (n)", f"convolution of {k}, layers (⌈2n / (k − 1)⌉)"]
    head += ["dilated convolution, layers (⌈log₂(2n / (k − 1) + 1)⌉)", "attention, layers (1)"]
    return {"paths": [*_table(head, rows), "", "Counted, and in brackets by the formula."]}


# --- plots -----------------------------------------------------------------------------------


def translation_figures(part: dict[str, Any]) -> dict[str, Figure]:
    if not part["models"]:
        return {}
    figure, axes = _axes("BLEU by length of the source", "source tokens", "BLEU")
    for name, model in _in_order(part["models"]):
        buckets = [_bucket(bucket["tokens"]).split()[0] for bucket in model["by_length"]]
        scores = [bucket["bleu"] for bucket in model["by_length"]]
        axes.plot(
            buckets,
            scores,
            "--o" if name in DASHED else "-o",
            color=COLOURS[name],
            label=NAMES[name],
        )
    axes.set_ylim(bottom=0)
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    return {"bleu-by-length": figure}


def speed_figures(part: dict[str, Any]) -> dict[str, Figure]:
    title = f"Training, {part['tokens']:,} tokens a batch, one thread"
    figure, axes = _axes(title, "length of source and of target", "target tokens per CPU second")
    for name in _timed(part):
        points = [point for point in part["points"] if point["model"] == name]
        x, y = [p["length"] for p in points], [p["per_cpu_second"] for p in points]
        axes.plot(x, y, color=COLOURS[name], marker="o", label=NAMES[name])
    _powers_of_two(axes, [p["length"] for p in points])
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, fontsize=8)
    return {"speed": figure}


def memory_figures(part: dict[str, Any]) -> dict[str, Figure]:
    figure, axes = _axes("Memory of one self-attention", "positions", "MiB, forward and backward")
    x = [point["length"] for point in part["points"]]
    lines = (
        ("explicit", "weights written out", "#d55e00", "o-"),
        ("fused", "fused", "#0072b2", "o-"),
        ("predicted", f"{part['matrices']} h n² · 4 bytes", "#000000", "--"),
    )
    for kind, label, colour, style in lines:
        y = [point[kind] / MIB for point in part["points"]]
        axes.plot(x, y, style, color=colour, label=label)
    _powers_of_two(axes, x)
    axes.set_yscale("log")
    axes.legend(frameon=False, fontsize=8)
    return {"memory": figure}


def paths_figures(part: dict[str, Any]) -> dict[str, Figure]:
    figure, axes = _axes("From one position to another", "distance", "steps or layers")
    x = [point["distance"] for point in part["points"]]
    k = part["kernel"]
    lines = (
        ("recurrent_steps", "recurrence: steps", "#0072b2", "o-"),
        ("convolution", f"convolution of {k}: layers", "#e69f00", "o-"),
        ("dilated", f"the same, dilated 1 to {2 ** (part['dilations'] - 1)}", "#009e73", "o-"),
        ("attention", "attention: layers", "#d55e00", "o-"),
    )
    for kind, label, colour, style in lines:
        y = [point[kind] for point in part["points"]]
        axes.plot(x, y, style, color=colour, label=label)
    _powers_of_two(axes, x)
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.legend(frameon=False, fontsize=8)
    return {"paths": figure}


def _axes(title: str, x: str, y: str) -> tuple[Figure, Any]:
    figure = Figure(figsize=(6.4, 3.8), facecolor="white", layout="constrained")
    axes = figure.add_subplot(title=title, xlabel=x, ylabel=y)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#dddddd", linewidth=0.6)
    return figure, axes


def _powers_of_two(axes: Any, ticks: Sequence[int]) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    axes.minorticks_off()


def _save(figure: Figure, path: Path) -> None:
    """As SVG with real text, in English and in Chinese; the same bytes for the same figures."""
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "transduce"}):
        figure.savefig(path, metadata={"Date": None, "Creator": None})
    text = path.read_text(encoding="utf-8")
    text = re.sub(r"[ \t]+$", "", text, flags=re.MULTILINE)
    path.write_text(text, encoding="utf-8")
    path.with_suffix(".zh.svg").write_text(in_chinese(text), encoding="utf-8")


FIGURES: dict[str, Callable[[dict[str, Any]], dict[str, Figure]]] = {
    "translation": translation_figures,
    "speed": speed_figures,
    "memory": memory_figures,
    "paths": paths_figures,
}
TABLES: dict[str, Callable[[dict[str, Any]], dict[str, list[str]]]] = {
    "translation": translation_tables,
    "speed": speed_tables,
    "memory": memory_tables,
    "paths": paths_tables,
}
