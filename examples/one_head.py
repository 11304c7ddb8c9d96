"""Why several heads: a head gives one weighted mean of what it looks at (one minute).

    python examples/one_head.py

Each position has to name its neighbours: the symbol before it, or the two before and the two after
it.  One layer of the same width and number of parameters each time, cut into 1, 2, 4 or 8 heads;
at last two layers of one head.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from _common import COLOURS, options, panels, save, smooth, table, train
from torch import Tensor, nn

from transduce.nn.front_ends.text import TextFrontEnd
from transduce.nn.initialise import initialise
from transduce.nn.stack_configs import TransformerConfig
from transduce.nn.transformer import TransformerEncoder
from transduce.sequence import Padded

N_SYMBOLS, LENGTH, D_MODEL = 8, 16, 64
NEIGHBOURS = {"one neighbour": [-1], "four neighbours": [-2, -1, 1, 2]}
SHAPES = ((1, 1), (2, 1), (4, 1), (8, 1), (1, 2))  # heads, layers


class Tagger(nn.Module):
    """Embeddings, encoder, and at each position a softmax over symbols for each neighbour."""

    def __init__(self, n_heads: int, n_layers: int, offsets: list[int]) -> None:
        super().__init__()
        config = TransformerConfig(
            n_layers=n_layers, n_heads=n_heads, d_ff=128, dropout=0.0, norm_order="pre"
        )
        self.offsets = offsets
        self.front_end = TextFrontEnd(N_SYMBOLS, D_MODEL)
        self.encoder = TransformerEncoder(config, D_MODEL)
        self.output = nn.Linear(D_MODEL, len(offsets) * N_SYMBOLS)
        initialise(self, D_MODEL)

    def forward(self, rows: int) -> tuple[Tensor, Tensor]:
        """Logits (rows, t, offsets, v) for random lines, and the symbols wanted."""
        lines = torch.randint(N_SYMBOLS, (rows, LENGTH))
        wanted = torch.stack([lines.roll(-k, 1) for k in self.offsets], -1)  # a ring: no ends
        vectors = self.encoder(self.front_end(Padded.unpadded(lines))).values
        return self.output(vectors).view(*wanted.shape, N_SYMBOLS), wanted


def learn(model: Tagger, steps: int) -> tuple[list[float], float]:
    """Loss of each step; percentage of positions of 500 new lines with all neighbours right."""

    def loss() -> Tensor:
        logits, wanted = model(rows=64)
        return F.cross_entropy(logits.flatten(0, 2), wanted.flatten())

    losses = train(model, loss, steps, peak=3e-3)
    logits, wanted = model(rows=500)
    return losses, 100 * (logits.argmax(-1) == wanted).all(-1).double().mean().item()


def main() -> None:
    given = options(__doc__, steps=400)
    rows, curves = [], {}
    for n_heads, n_layers in SHAPES:
        name = f"{n_heads} × {D_MODEL // n_heads}, {n_layers} layer" + "s" * (n_layers > 1)
        found = []
        for offsets in NEIGHBOURS.values():
            torch.manual_seed(given.seed)
            model = Tagger(n_heads, n_layers, offsets)
            curves[name], right = learn(model, given.steps)  # keeps the curve of the last task
            found.append(f"{right:.1f} %")
        parameters = sum(p.numel() for p in model.parameters())
        rows.append((name, f"{parameters:,}", *found))
    table(("heads × width", "parameters", *(f"{name} right" for name in NEIGHBOURS)), rows)
    figure, (axes,) = panels(1, width=6.4)
    for (name, losses), colour in zip(curves.items(), COLOURS, strict=False):
        style = "--" if name.endswith("layers") else "-"
        axes.plot(*smooth(losses), style, color=colour, label=name)
    axes.set(xlabel="training step", ylabel="loss, nats per neighbour", ylim=(0, None))
    axes.set(title="Naming four neighbours: heads × width of a head")
    axes.legend(frameon=False)
    save(figure, given.picture)


if __name__ == "__main__":
    main()
