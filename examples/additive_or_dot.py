"""Additive, dot-product and scaled dot-product attention, by width (one minute).

    python examples/additive_or_dot.py

Section 3.2.1 of the paper: additive attention does better than the dot product for large d unless
the dot product is divided by √d (after Britz et al. 2017).  The task: eight pairs of a key and a
value, then a key; answer with its value.
"""

from __future__ import annotations

import math
import time

import torch
import torch.nn.functional as F
from _common import BLUE, GREEN, ORANGE, options, panels, save, table, train
from torch import Tensor, nn

from transduce.nn.masks import Mask
from transduce.nn.recurrent import AdditiveScore, ContextAttention, DotScore

N_KEYS, N_VALUES, PAIRS = 32, 16, 8
WIDTHS = (16, 64, 256, 512)


class ScaledDotScore(DotScore):
    """h · z / √d."""

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        """Scores (…, q, s) for queries (…, q, d)."""
        return super().forward(query, keys) / math.sqrt(query.shape[-1])


class Projected(nn.Module):
    """A dot product after the matrices W_Q and W_K, as in a head of the Transformer."""

    def __init__(self, d: int, score: DotScore) -> None:
        super().__init__()
        self.query, self.key, self.score = nn.Linear(d, d), nn.Linear(d, d), score
        for matrix in (self.query, self.key):
            nn.init.xavier_uniform_(matrix.weight)

    def keys(self, memory: Tensor) -> Tensor:
        """(…, s, d) -> (…, s, d)."""
        return self.key(memory)

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        """Scores (…, q, s) for queries (…, q, d)."""
        return self.score(self.query(query), keys)


SCORES = {
    "additive": lambda d: AdditiveScore(d, d),
    "dot": lambda d: Projected(d, DotScore()),
    "scaled dot": lambda d: Projected(d, ScaledDotScore()),
}


class Lookup(nn.Module):
    """Vectors of variance 1 for keys and values, one attention, a softmax over values."""

    def __init__(self, d: int, kind: str) -> None:
        super().__init__()
        self.key, self.value = nn.Embedding(N_KEYS, d), nn.Embedding(N_VALUES, d)
        self.attention = ContextAttention(SCORES[kind](d))
        self.output = nn.Linear(d, N_VALUES)

    def forward(self, rows: int) -> tuple[Tensor, Tensor]:
        """Logits (rows, values) for random pairs and queries, and the values wanted."""
        keys = torch.rand(rows, N_KEYS).argsort(1)[:, :PAIRS]  # all different
        values = torch.randint(N_VALUES, (rows, PAIRS))
        wanted = torch.randint(PAIRS, (rows, 1))
        memory = self.attention.project(self.key(keys) + self.value(values))
        query = self.key(keys.gather(1, wanted))
        context = self.attention(query, memory, Mask())[:, 0]
        return self.output(context), values.gather(1, wanted)[:, 0]


def learn(d: int, kind: str, steps: int) -> float:
    """Percentage of 2,000 queries answered rightly after training."""
    model = Lookup(d, kind)
    train(model, lambda: F.cross_entropy(*model(rows=64)), steps, peak=1e-3)
    logits, wanted = model(rows=2000)
    return 100 * (logits.argmax(-1) == wanted).double().mean().item()


@torch.no_grad()
def cost(d: int, kind: str) -> float:
    """CPU milliseconds of the scores of 256 queries and 256 keys, the fastest of five."""
    score, vectors = SCORES[kind](d), torch.randn(1, 256, d)
    found = []
    for _ in range(5):
        begin = time.process_time()
        score(vectors, score.keys(vectors))
        found.append(1000 * (time.process_time() - begin))
    return min(found)


def main() -> None:
    given = options(__doc__, steps=500)
    found = {}
    for d in WIDTHS:
        for kind in SCORES:
            torch.manual_seed(given.seed)
            found[d, kind] = learn(d, kind, given.steps), cost(d, kind)
    rows = [
        (d, *(f"{found[d, kind][0]:.1f} %, {found[d, kind][1]:.1f} ms" for kind in SCORES))
        for d in WIDTHS
    ]
    table(("d", *SCORES), rows)
    figure, axes = panels(2)
    for kind, colour in zip(SCORES, (GREEN, ORANGE, BLUE), strict=True):
        for one, part in zip(axes, (0, 1), strict=True):
            points = [found[d, kind][part] for d in WIDTHS]
            one.plot(WIDTHS, points, "o-", color=colour, label=kind)
    for one, label in zip(axes, ("right answers, %", "CPU ms of 256 × 256 scores"), strict=True):
        one.set(xlabel="width d", ylabel=label)
        one.set_xscale("log", base=2)
        one.set_xticks(WIDTHS, WIDTHS)
    axes[0].set_ylim(0, 104)
    axes[1].set_yscale("log")
    axes[0].legend(frameon=False, loc="lower right")
    save(figure, given.picture)


if __name__ == "__main__":
    main()
