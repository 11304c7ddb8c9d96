"""Parts shared by the experiments: options, copy task, training, greedy decoding, table, picture.

The copy task is the first example of The Annotated Transformer: a line of random symbols, to be
written again.  All lines of a batch have one length, so that nothing needs padding.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transduce.errors import needs_extra
from transduce.models.encoder_decoder import EncoderDecoder
from transduce.sequence import Padded

BOS, EOS, FIRST = 0, 1, 2
N_SYMBOLS = 10
VOCABULARY = FIRST + N_SYMBOLS
BLUE, ORANGE, GREEN, PINK, SKY, BLACK = COLOURS = (  # Okabe and Ito: safe for the colour-blind
    ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#000000")
)


def options(description: str, steps: int) -> argparse.Namespace:
    """Options of the command line; seeds PyTorch, on one thread."""
    name = Path(sys.argv[0]).stem
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--steps", type=int, default=steps, help=f"default: {steps}")
    parser.add_argument("--seed", type=int, default=1, help="of all random numbers; default: 1")
    file = Path(f"{name}.svg")
    parser.add_argument("--picture", type=Path, default=file, help=f".svg, .png; default: {file}")
    given = parser.parse_args()
    if given.steps < 1:
        parser.error("--steps is at least 1")
    torch.manual_seed(given.seed)
    torch.set_num_threads(1)
    return given


def random_lines(length: int, rows: int = 64) -> Tensor:
    """Random symbols (rows, length)."""
    return torch.randint(FIRST, VOCABULARY, (rows, length))


def copy_loss(model: EncoderDecoder, longest: int = 9) -> Tensor:
    """Mean cross-entropy of a fresh batch of lines to copy, of 1 to `longest` symbols."""
    lines = random_lines(int(torch.randint(1, longest + 1, ())))
    given = F.pad(lines, (1, 0), value=BOS)  # what the decoder reads: one place to the right
    wanted = F.pad(lines, (0, 1), value=EOS)
    logits = model(Padded.unpadded(lines), Padded.unpadded(given))
    return F.cross_entropy(logits.flatten(0, 1), wanted.flatten())


def train(model: nn.Module, loss: Callable[[], Tensor], steps: int, peak: float) -> list[float]:
    """Train with Adam, a tenth of the steps for warm-up, then half a cosine; the loss of each."""
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98))
    warmup = max(steps // 10, 1)
    losses = []
    for step in range(steps):
        rate = peak * min((step + 1) / warmup, (1 + math.cos(math.pi * step / steps)) / 2)
        for group in optimizer.param_groups:
            group["lr"] = rate
        value = loss()
        optimizer.zero_grad()
        value.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(value.item())
    return losses


@torch.no_grad()
def greedy(model: EncoderDecoder, lines: Tensor, longest: int) -> Tensor:
    """The likeliest token `longest` times, each read before the next: (rows, longest) ids."""
    state = model.start(Padded.unpadded(lines))
    tokens = [lines.new_full((len(lines), 1), BOS)]
    for _ in range(longest):
        tokens.append(model.step(Padded.unpadded(tokens[-1]), state)[:, -1:].argmax(-1))
    return torch.cat(tokens[1:], 1)


def copied(model: EncoderDecoder, length: int) -> float:
    """Percentage of 200 lines of this length that are copied without an error."""
    lines = random_lines(length, 200)
    right = greedy(model, lines, length + 1) == F.pad(lines, (0, 1), value=EOS)
    return 100 * right.all(1).double().mean().item()


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a Markdown table."""
    for cells in (head, ["-"] * len(head), *rows):
        print("|", " | ".join(map(str, cells)), "|")
    sys.stdout.flush()


def smooth(values: Sequence[float], window: int = 10) -> tuple[list[int], list[float]]:
    """Steps and means of `window` losses each, for curves."""
    starts = range(0, len(values), window)
    means = [sum(part) / len(part) for part in (values[i : i + window] for i in starts)]
    return [i + 1 for i in starts], means


def panels(count: int, width: float = 4.2, height: float = 3.4) -> tuple[Any, list[Any]]:
    """A matplotlib figure and its axes, side by side."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise SystemExit(needs_extra("the picture", "plot")) from None
    figure = Figure(figsize=(count * width, height), layout="constrained", facecolor="white")
    axes = figure.subplots(1, count, squeeze=False)[0]
    for one in axes:
        one.spines[["top", "right"]].set_visible(False)
    return figure, list(axes)


def save(figure: Any, file: Path) -> None:
    """Write the picture: the same bytes for the same figures."""
    import matplotlib

    metadata = {"Date": None, "Creator": None} if file.suffix == ".svg" else None
    try:
        with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "transduce"}):
            figure.savefig(file, metadata=metadata, dpi=120)
    except (OSError, ValueError) as error:
        raise SystemExit(f"{file} cannot be written: {error}") from None
    print(f"picture: {file}", file=sys.stderr)
