"""Any length holds for the table of positions, not for the model (one minute).

    python examples/longer_than_trained.py

Trains on lines of 1 to 9 symbols to copy, once with each kind of positions, then asks for lines of
up to 14.  Sinusoidal and rotary positions exist for any length, and learned ones have room for 16;
but positions beyond the ninth were never seen in training.
"""

from __future__ import annotations

import torch
from _common import (
    COLOURS,
    EOS,
    FIRST,
    copied,
    copy_loss,
    greedy,
    options,
    panels,
    save,
    table,
    train,
)

from transduce.models.config import EncoderDecoderConfig
from transduce.models.encoder_decoder import build_encoder_decoder
from transduce.nn.stack_configs import TransformerConfig

KINDS = "sinusoidal", "learned", "rotary"  # ALiBi in an encoder cannot copy: see word_order.py
TRAINED, ASKED = 9, 14


def main() -> None:
    given = options(__doc__, steps=800)
    example = torch.arange(12)[None] % 10 + FIRST  # abcdefghijab
    rows, curves = [], {}
    for kind in KINDS:
        torch.manual_seed(given.seed)
        stack = TransformerConfig(
            n_layers=2,
            n_heads=2,
            d_ff=128,
            dropout=0.0,
            norm_order="pre",
            positions=kind,
            max_positions=ASKED + 2,
        )
        config = EncoderDecoderConfig(d_model=64, tie="none", encoder=stack, decoder=stack)
        model = build_encoder_decoder(config, 12, 12, joint=True)
        train(model, lambda model=model: copy_loss(model, TRAINED), given.steps, peak=5e-3)
        curves[kind] = [copied(model.eval(), n) for n in range(1, ASKED + 1)]
        answer = greedy(model, example, 16)[0].tolist()
        answer = answer[: answer.index(EOS)] if EOS in answer else answer
        spelt = "".join("?!abcdefghij"[token] for token in answer)
        asked = (f"{curves[kind][n - 1]:.0f} %" for n in (TRAINED, TRAINED + 1, 12))
        rows.append((kind, *asked, spelt))
    table(("positions", "9 symbols copied", "10", "12", "answer to abcdefghijab"), rows)
    figure, (axes,) = panels(1, width=6.4)
    axes.axvspan(0.5, TRAINED + 0.5, color="#eeeeee")
    axes.text(5, 50, "lengths of training", ha="center", color="#666666")
    for kind, colour, marker in zip(KINDS, COLOURS, "osd", strict=False):
        lengths = range(1, ASKED + 1)
        axes.plot(lengths, curves[kind], color=colour, marker=marker, label=kind, alpha=0.8)
    axes.set(xlabel="symbols in the line", ylabel="lines copied without an error, %")
    axes.set(title="Copying lines longer than those of training", ylim=(-4, 104))
    axes.legend(frameon=False)
    save(figure, given.picture)


if __name__ == "__main__":
    main()
