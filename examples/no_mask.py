"""Why the causal mask: without it the loss goes to 0 by copying the answer (one minute).

    python examples/no_mask.py

The decoder is trained to copy lines with and without the mask.  Without it, position t reads token
t + 1 among its inputs, which is what it is to predict; in decoding that token is not there yet.
A second training shows the leak: nine random targets that no source announces.  With the mask no
loss below ln 10 is possible; without it all but the last of the nine are among the inputs.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from _common import (
    BLUE,
    BOS,
    EOS,
    N_SYMBOLS,
    ORANGE,
    VOCABULARY,
    copied,
    copy_loss,
    greedy,
    options,
    panels,
    random_lines,
    save,
    smooth,
    table,
    train,
)
from torch import Tensor

from transduce.models.config import EncoderDecoderConfig
from transduce.models.encoder_decoder import EncoderDecoder, build_encoder_decoder
from transduce.nn.attention import SelfAttention
from transduce.nn.masks import Mask
from transduce.nn.stack_configs import TransformerConfig
from transduce.nn.state import KeyValue
from transduce.nn.transformer import DecoderLayer
from transduce.sequence import Padded


def unmask(attention: SelfAttention) -> None:
    """Let an attention look at all positions that it is given."""
    attend = attention.attend

    def without(query: Tensor, memory: KeyValue, mask: Mask) -> Tensor:
        return attend(query, memory, Mask())

    attention.attend = without


def build(masked: bool) -> EncoderDecoder:
    """A model of two layers, its decoder with or without the causal mask."""
    stack = TransformerConfig(n_layers=2, n_heads=4, d_ff=128, dropout=0.0, norm_order="pre")
    config = EncoderDecoderConfig(d_model=64, tie="none", encoder=stack, decoder=stack)
    model = build_encoder_decoder(config, VOCABULARY, VOCABULARY, joint=True)
    for module in model.modules():
        if isinstance(module, DecoderLayer) and not masked:
            unmask(module.self_attention)
    return model


def noise_loss(model: EncoderDecoder) -> Tensor:
    """Cross-entropy of nine random symbols, given nine others."""
    source, target = random_lines(9), random_lines(9)
    logits = model(Padded.unpadded(source), Padded.unpadded(F.pad(target, (1, -1), value=BOS)))
    return F.cross_entropy(logits.flatten(0, 1), target.flatten())


def main() -> None:
    given = options(__doc__, steps=600)
    rows, copying, guessing = [], {}, {}
    for masked in (True, False):
        torch.manual_seed(given.seed)
        model = build(masked)
        copying[masked] = train(model, lambda m=model: copy_loss(m), given.steps, peak=5e-3)
        answer = greedy(model, torch.arange(8)[None] + 2, 9)[0].tolist()
        answer = answer[: answer.index(EOS)] if EOS in answer else answer
        other = build(masked)
        guessing[masked] = train(other, lambda m=other: noise_loss(m), given.steps, peak=5e-3)
        last = (smooth(losses, 20)[1][-1] for losses in (copying[masked], guessing[masked]))
        name = "masked" if masked else "not masked"
        spelt = "".join("?!abcdefghij"[token] for token in answer) or "(nothing)"
        rows.append((name, *(f"{x:.3f}" for x in last), f"{copied(model, 8):.0f} %", spelt))
    head = ("self-attention of the decoder", "loss, copying", "loss, random targets")
    table((*head, "lines of 8 copied", "answer to abcdefgh"), rows)
    figure, axes = panels(2)
    for one, curves in zip(axes, (copying, guessing), strict=True):
        for masked, colour in ((True, BLUE), (False, ORANGE)):
            label = "masked" if masked else "not masked"
            one.plot(*smooth(curves[masked]), color=colour, label=label)
        one.set(xlabel="training step", ylabel="loss, nats per symbol", ylim=(0, 2.7))
        one.legend(frameon=False, loc="center right")
    axes[0].set(title="copying")
    axes[1].set(title="random targets")
    axes[1].axhline(math.log(N_SYMBOLS), color="#999999", linewidth=0.8)
    axes[1].text(given.steps, math.log(N_SYMBOLS) + 0.05, "ln 10: nothing known", ha="right")
    axes[1].text(given.steps, math.log(N_SYMBOLS) / 9 + 0.05, "ln 10 / 9: the last", ha="right")
    save(figure, given.picture)


if __name__ == "__main__":
    main()
