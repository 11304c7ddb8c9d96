"""Why residual connections: without them, two layers do not learn any more (one minute).

    python examples/no_residual.py

Copying, by the number of layers of each stack: as in the paper, LayerNorm(x + Sublayer(x)), and
with the x left out of the sum.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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
from transduce.nn.residual import PostNorm
from transduce.nn.stack_configs import TransformerConfig

DEPTHS = (1, 2, 4)


class NoResidual(PostNorm):
    """LayerNorm(Sublayer(x))."""

    def forward(self, x: Tensor, sublayer: Callable[..., Tensor], *context: Any) -> Tensor:
        """(b, t, m) -> (b, t, m); the sublayer takes x and its context."""
        return self.norm(self.dropout(sublayer(x, *context)))


def build(n_layers: int, residual: bool) -> EncoderDecoder:
    """A post-norm model, with or without its residual connections."""
    stack = TransformerConfig(n_layers=n_layers, n_heads=4, d_ff=128, dropout=0.0)
    config = EncoderDecoderConfig(d_model=64, tie="none", encoder=stack, decoder=stack)
    model = build_encoder_decoder(config, VOCABULARY, VOCABULARY, joint=True)
    for module in list(model.modules()):
        for name, child in module.named_children():
            if isinstance(child, PostNorm) and not residual:
                setattr(module, name, NoResidual(64, dropout=0.0))
    return model


def main() -> None:
    given = options(__doc__, steps=500)
    rows, curves = [], {}
    for n_layers in DEPTHS:
        cells: list[str] = [str(n_layers)]
        for residual in (True, False):
            torch.manual_seed(given.seed)
            model = build(n_layers, residual)
            losses = train(model, lambda m=model: copy_loss(m), given.steps, peak=3e-3)
            curves[n_layers, residual] = losses
            cells += [f"{smooth(losses, 20)[1][-1]:.3f}", f"{copied(model, 5):.0f} %"]
        rows.append(cells)
    columns = [f"{what}, {how}" for how in ("x + F(x)", "F(x)") for what in ("loss", "copied")]
    table(("layers", *columns), rows)
    figure, axes = panels(len(DEPTHS), width=3.4)
    for one, n_layers in zip(axes, DEPTHS, strict=True):
        for residual, colour in ((True, BLUE), (False, ORANGE)):
            label = "with residual" if residual else "without"
            one.plot(*smooth(curves[n_layers, residual]), color=colour, label=label)
        title = f"{n_layers} layer" + "s" * (n_layers > 1)
        one.set(title=title, xlabel="training step", ylim=(0, 2.7))
    axes[0].set_ylabel("loss, nats per symbol")
    axes[0].legend(frameon=False)
    save(figure, given.picture)


if __name__ == "__main__":
    main()
