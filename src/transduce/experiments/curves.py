"""What a run logged while it was trained, and the curves of several runs as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transduce.errors import DataError, SettingError
from transduce.limits import from_json
from transduce.training.checkpoints import best_scores_of

COLOURS = (  # told apart by the colour-blind as well (Okabe and Ito)
    *("#000000", "#d55e00", "#0072b2", "#009e73", "#e69f00", "#56b4e9", "#cc79a7"),
)
DASHES = ("-", "--", ":", "-.")
PICTURES = (".svg", ".png")


@dataclass(frozen=True)
class Curves:
    """The lines of a run's `metrics.jsonl`, in order."""

    train: Sequence[Mapping[str, Any]]
    validation: Sequence[Mapping[str, Any]]

    @property
    def step(self) -> int | None:
        """The last step that is known of."""
        return max((int(line["step"]) for line in (*self.train, *self.validation)), default=None)

    @property
    def seconds(self) -> float | None:
        """Wall-clock time up to there."""
        lines = (*self.train, *self.validation)
        return max((float(line.get("seconds", 0.0)) for line in lines), default=None)


def read_curves(run: Path) -> Curves:
    """What a run logged; nothing where it was not trained here."""
    path = run / "metrics.jsonl"
    kinds: dict[str, list[dict[str, Any]]] = {"train": [], "validation": []}
    text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    for line in text.splitlines():
        try:
            record = from_json(line)
            float(record["step"]), float(record["loss"])
            kinds[record["kind"]].append(record)
        except (ValueError, KeyError, TypeError):
            continue  # damaged, or being written when the run was killed
    return Curves(kinds["train"], kinds["validation"])


def kept_validation(run: Path, curves: Curves) -> Mapping[str, Any]:
    """The line of the validation whose weights the run kept; empty if there was none.

    A run whose checkpoints were deleted no longer says which one that was: then it is the one
    with the least loss.
    """
    averaged = [line for line in curves.validation if "averaged" in line]
    if averaged:
        return averaged[-1]
    best = best_scores_of(run)
    for line in curves.validation:
        if best and all(line.get(name) == score for name, score in best.items()):
            return line
    return min(curves.validation, key=lambda line: float(line["loss"]), default={})


def check_picture(path: Path) -> None:
    """Raises SettingError where no picture can be drawn into this file."""
    if path.suffix.lower() not in PICTURES:
        raise SettingError(f"--plot {path}: a picture is a file in {' or '.join(PICTURES)}")
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise SettingError("--plot needs the extra: pip install 'transduce[plot]'") from None


def draw_curves(runs: Mapping[str, Curves], path: Path) -> None:
    """Loss against step: of validation in full colour, of training faintly behind it.

    runs: curves by the name to show.  Raises DataError when the file cannot be written.
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
    try:
        # Real text, and the same bytes for the same figures.
        with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "transduce"}):
            metadata = {"Date": None, "Creator": None} if path.suffix.lower() == ".svg" else None
            figure.savefig(path, metadata=metadata, dpi=150)
    except OSError as error:
        raise DataError(f"{path} cannot be written: {error.strerror or error}") from None


def _points(lines: Sequence[Mapping[str, Any]]) -> tuple[list[int], list[float]]:
    return [line["step"] for line in lines], [line["loss"] for line in lines]


def _window(runs: Mapping[str, Curves]) -> tuple[float | None, float | None]:
    """Where validation is to be seen; the first steps of training are far above it."""
    losses = [float(line["loss"]) for one in runs.values() for line in one.validation]
    every = losses + [float(line["loss"]) for one in runs.values() for line in one.train]
    if len(losses) < 2 or max(losses) == min(losses):
        return None, None
    margin = 0.05 * (max(losses) - min(every))
    return min(every) - margin, max(losses) + margin
