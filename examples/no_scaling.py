"""Why scores are divided by √d: without it, wide heads begin with a saturated softmax (one minute).

    python examples/no_scaling.py

First measured: the softmax over 16 scores of random queries and keys, and the gradient that passes
through it, by the width d of a head.  Then learnt: copying, with one head of width d, with and
without the division.
"""

from __future__ import annotations

import math

import torch
from _common import (
    BLUE,
    ORANGE,
    VOCABULARY,
    copied,
    copy_loss,
    options,
    panels,
    save,
    smooth,
    table,
    train,
)
from torch import Tensor

from transduce.models.config import EncoderDecoderConfig
from transduce.models.encoder_decoder import EncoderDecoder, build_encoder_decoder
from transduce.nn.attention import MultiHeadAttention
from transduce.nn.masks import Mask
from transduce.nn.stack_configs import TransformerConfig
from transduce.nn.state import KeyValue

WIDTHS, LEARNT = (4, 16, 64, 256, 1024), (16, 64, 256)


def saturation(d: int, scaled: bool) -> tuple[float, float]:
    """Entropy in nats of the mean softmax, and the mean size of its gradient by a score."""
    query, key = torch.randn(1000, 1, d), torch.randn(1000, 16, d)  # variance 1, as after a norm
    scores = (query * key).sum(-1) / (math.sqrt(d) if scaled else 1)
    weights = scores.softmax(-1)
    entropy = -(weights * scores.log_softmax(-1)).sum(-1).mean()
    slope = (weights * (1 - weights)).mean()  # of a weight by its own score
    return entropy.item(), slope.item()


def unscaled(attention: MultiHeadAttention) -> None:
    """Undo the division of an attention: multiply its queries by √d."""
    attend = attention.attend

    def without(query: Tensor, memory: KeyValue, mask: Mask) -> Tensor:
        return attend(query * math.sqrt(query.shape[-1]), memory, mask)

    attention.attend = without


def build(d: int, scaled: bool) -> EncoderDecoder:
    """A model of width 64 with one head of width d."""
    stack = TransformerConfig(
        n_layers=1, n_heads=1, d_head=d, d_ff=128, dropout=0.0, norm_order="pre"
    )
    config = EncoderDecoderConfig(d_model=64, tie="none", encoder=stack, decoder=stack)
    model = build_encoder_decoder(config, VOCABULARY, VOCABULARY, joint=True)
    for module in model.modules():
        if isinstance(module, MultiHeadAttention) and not scaled:
            unscaled(module)
    return model


def main() -> None:
    given = options(__doc__, steps=400)
    rows, entropies, slopes, curves = [], {}, {}, {}
    for d in WIDTHS:
        cells: list[str] = [str(d)]
        for scaled in (True, False):
            entropies[d, scaled], slopes[d, scaled] = saturation(d, scaled)
            cells += [f"{entropies[d, scaled]:.2f}", f"{slopes[d, scaled]:.4f}"]
        for scaled in (True, False) if d in LEARNT else ():
            torch.manual_seed(given.seed)
            model = build(d, scaled)
            curves[d, scaled] = train(model, lambda m=model: copy_loss(m), given.steps, peak=5e-3)
            cells.append(f"{copied(model, 8):.0f} %")
        rows.append((*cells, *[""] * (7 - len(cells))))
    measured = [f"{what}, {how}" for how in ("÷ √d", "not") for what in ("entropy", "slope")]
    table(("d", *measured, "copied, ÷ √d", "copied, not"), rows)

    figure, (left, middle, right) = panels(3, width=3.8)
    for scaled, colour, label in ((True, BLUE, "÷ √d"), (False, ORANGE, "not scaled")):
        left.plot(WIDTHS, [entropies[d, scaled] for d in WIDTHS], "o-", color=colour, label=label)
        middle.plot(WIDTHS, [slopes[d, scaled] for d in WIDTHS], "o-", color=colour)
        for d, style in zip(LEARNT, (":", "--", "-"), strict=True):
            right.plot(*smooth(curves[d, scaled]), style, color=colour, label=f"d = {d}, {label}")
    left.axhline(math.log(16), color="#999999", linewidth=0.8)
    left.text(WIDTHS[-1], math.log(16), "uniform over 16", ha="right", va="bottom", fontsize=8)
    left.set(xscale="log", xlabel="width d of a head", ylabel="entropy of the weights, nats")
    middle.set(xscale="log", xlabel="width d of a head", ylabel="mean slope of the softmax")
    right.set(xlabel="training step", ylabel="loss, nats per symbol", title="copying")
    left.set(ylim=(0, 3.1))
    middle.set(ylim=(0, None))
    left.legend(frameon=False, loc="lower left")
    right.set(ylim=(0, 3.9))
    right.legend(frameon=False, fontsize=7, ncols=2, loc="upper center")
    save(figure, given.picture)


if __name__ == "__main__":
    main()
