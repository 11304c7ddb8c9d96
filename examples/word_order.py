"""Attention ignores order: without positions, 我打你 and 你打我 are one sentence (ten seconds).

    python examples/word_order.py

First measured on random weights: encode 我打你 and the same words in another order, and compare the
vectors of equal words.  Then learnt: of "A hits B", A and B among twelve people, who hits?
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from _common import options, panels, save, table, train
from torch import Tensor

from transduce.models.config import EncoderOnlyConfig
from transduce.models.encoder_only import EncoderOnly, build_text_encoder
from transduce.nn.heads.label import LabelHead
from transduce.nn.stack_configs import TransformerConfig
from transduce.sequence import Padded

KINDS = "none", "alibi", "sinusoidal", "learned", "rotary"
SENTENCE = "我打你"  # I hit you
REVERSED, ROTATED = [2, 1, 0], [1, 2, 0]  # 你打我: you hit me; 打你我
PINYIN = ["wǒ", "dǎ", "nǐ"]
PEOPLE, HITS = 12, 12  # ids 0 to 11, and the verb


def build(kind: str) -> EncoderOnly:
    """An encoder with that kind of positions, and a head with a score for each person."""
    stack = TransformerConfig(n_layers=2, n_heads=4, d_ff=64, positions=kind, dropout=0.0)
    head = LabelHead(32, PEOPLE, pooling="mean", hidden=False, dropout=0.0)
    return build_text_encoder(EncoderOnlyConfig(d_model=32, encoder=stack), PEOPLE + 1, head)


@torch.no_grad()
def differences(model: EncoderOnly, order: list[int]) -> Tensor:
    """(3, 3): largest difference of each vector of 我打你 from each of the reordered sentence."""
    words = torch.tensor([[0, HITS, 1]])
    one = model.encode(Padded.unpadded(words)).values[0]
    other = model.encode(Padded.unpadded(words[:, order])).values[0]
    return (one[:, None] - other[None]).abs().amax(-1)


def moved(found: Tensor, order: list[int]) -> float:
    """Largest difference between the vectors of equal words."""
    return max(found[word, place].item() for place, word in enumerate(order))


def batch(rows: int = 64) -> tuple[Padded, Tensor]:
    """Sentences "A hits B" of two different people, and A."""
    a = torch.randint(PEOPLE, (rows,))
    b = (a + torch.randint(1, PEOPLE, (rows,))) % PEOPLE
    return Padded.unpadded(torch.stack([a, torch.full_like(a, HITS), b], 1)), a


def learn(model: EncoderOnly, steps: int) -> float:
    """Percentage of 1,000 sentences whose A is found after training."""

    def loss() -> Tensor:
        sentences, hitter = batch()
        return F.cross_entropy(model(sentences), hitter)

    train(model, loss, steps, peak=5e-3)
    sentences, hitter = batch(1000)
    return 100 * (model(sentences).argmax(-1) == hitter).double().mean().item()


def main() -> None:
    given = options(__doc__, steps=300)
    rows, squares = [], []
    for kind in KINDS:
        model = build(kind).double()
        squares.append(differences(model, REVERSED))
        rotated = moved(differences(model, ROTATED), ROTATED)
        reverse = moved(squares[-1], REVERSED)
        found = learn(model.float(), given.steps)
        rows.append((kind, f"{reverse:.1e}", f"{rotated:.1e}", f"{found:.0f} %"))
    table(("positions", "你打我 moves by", "打你我 moves by", "who hits: right"), rows)
    figure, axes = panels(len(KINDS), width=2.3, height=2.9)
    for one, kind, square in zip(axes, KINDS, squares, strict=True):
        one.imshow(square, cmap="Blues", vmin=0, vmax=5)
        for i, j in torch.cartesian_prod(torch.arange(3), torch.arange(3)).tolist():
            value = square[i, j].item()
            one.text(j, i, f"{value:.1f}" if value > 1e-9 else "0", ha="center", va="center")
        one.set_xticks(range(3), [PINYIN[i] for i in REVERSED])
        one.set_yticks(range(3), PINYIN)
        one.set(title=kind, xlabel="nǐ dǎ wǒ (you hit me)")
    axes[0].set_ylabel("wǒ dǎ nǐ (I hit you)")
    figure.suptitle("Difference of encoder outputs: 0 where a word does not notice its place")
    save(figure, given.picture)


if __name__ == "__main__":
    main()
