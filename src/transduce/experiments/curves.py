"""Training curves of several runs as a picture."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from transduce.errors import SettingError, extra_module, writing
from transduce.training.log import Curves

COLOURS = (  # told apart by the colour-blind as well (Okabe and Ito)
    *("#000000", "#d55e00", "#0072b2", "#009e73", "#e69f00", "#56b4e9", "#cc79a7"),
)
DASHES = ("-", "--", ":", "-.")
PICTURES = (".svg", ".png")
REPRODUCIBLE: Any = {"svg.fonttype": "none", "svg.hashsalt": "transduce"}
"""Real text, and the same bytes for the same figures."""


def check_picture(path: Path) -> None:
    """Raises SettingError if a picture cannot be drawn to this file."""
    if path.suffix.lower() not in PICTURES:
        raise SettingError(f"--plot {path}: unsupported format; use {' or '.join(PICTURES)}")
    extra_module("matplotlib", "--plot", "plot", SettingError)


def draw_curves(runs: Mapping[str, Curves], path: Path) -> None:
    """Plot loss against step: validation in full colour, training faintly behind it.

    runs: curves by display name.  Raises DataError if the file cannot be written.
    """
    import matplotlib
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 4.5), layout="constrained")
    axes = figure.subplots()
    for number, (name, curves) in enumerate(runs.items()):
        colour = COLOURS[number % len(COLOURS)]
        dash = DASHES[number // len(COLOURS) % len(DASHES)]
        validation = [line for line in curves.validation if "averaged" not in line]
        axes.plot(*_points(curves.train), dash, color=colour, alpha=0.3, linewidth=0.8)
        axes.plot(*_points(validation), dash, color=colour, marker="o", markersize=3, label=name)
    axes.set_xlabel("step")
    axes.set_ylabel("loss, nats: validation; training (faint)")
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_ylim(*_window(runs))
    axes.legend(frameon=False)
    with writing(path), matplotlib.rc_context(REPRODUCIBLE):
        metadata = {"Date": None, "Creator": None} if path.suffix.lower() == ".svg" else None
        figure.savefig(path, metadata=metadata, dpi=150)


def _points(lines: Sequence[Mapping[str, Any]]) -> tuple[list[int], list[float]]:
    return [line["step"] for line in lines], [line["loss"] for line in lines]


def _window(runs: Mapping[str, Curves]) -> tuple[float | None, float | None]:
    """Range of the plot around validation; the first training steps are far above it."""
    losses = [float(line["loss"]) for curve in runs.values() for line in curve.validation]
    every = losses + [float(line["loss"]) for curve in runs.values() for line in curve.train]
    if len(losses) < 2 or max(losses) == min(losses):
        return None, None
    margin = 0.05 * (max(losses) - min(every))
    return min(every) - margin, max(losses) + margin
