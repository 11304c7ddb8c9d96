"""The loss of a training, step by step, beside that of the same model from PyTorch's own parts.

Packed heads, padding left out, a loss in chunks and a fused optimizer must not change a figure:
`torch.nn.Transformer`, whole logits, `torch.nn.functional.cross_entropy` and plain Adam tell.
"""

import math
from collections.abc import Iterator
from typing import Literal

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from transduce.data.batches import PairBatch
from transduce.models.config import EncoderDecoderConfig
from transduce.models.encoder_decoder import EncoderDecoder, build_encoder_decoder
from transduce.nn.stack_configs import TransformerConfig
from transduce.sequence import Padded
from transduce.tasks.translation.training import pair_loss
from transduce.text.tokenizer import BOS, EOS, PAD
from transduce.training.config import TrainingConfig
from transduce.training.optimizer import build_optimizer

V, M, HEADS, INNER, LAYERS = 57, 24, 3, 40, 2
STEPS, RATE, SMOOTHING = 40, 3e-3, 0.1
Order = Literal["pre", "post"]


def ours(order: Order) -> EncoderDecoder:
    torch.manual_seed(1)
    stack = TransformerConfig(
        n_layers=LAYERS, n_heads=HEADS, d_ff=INNER, norm_order=order, dropout=0.0
    )
    config = EncoderDecoderConfig(d_model=M, encoder=stack, decoder=stack)
    return build_encoder_decoder(config, V, V, joint=True).double().train()


class Plain(nn.Module):
    """The same network as PyTorch has it, with one matrix for both embeddings and the output."""

    def __init__(self, order: Order) -> None:
        super().__init__()
        pre = order == "pre"
        self.embedding = nn.Embedding(V, M)
        self.transformer = nn.Transformer(
            M, HEADS, LAYERS, LAYERS, INNER, 0.0, batch_first=True, norm_first=pre
        )
        if not pre:  # the paper has no norm after the last layer's own
            self.transformer.encoder.norm = None
            self.transformer.decoder.norm = None

    def embed(self, ids: Tensor) -> Tensor:
        at = torch.arange(ids.shape[1], dtype=torch.float64)[:, None]
        angles = at / 10000 ** (torch.arange(0, M, 2, dtype=torch.float64) / M)
        positions = torch.stack([angles.sin(), angles.cos()], 2).flatten(1)
        vectors: Tensor = self.embedding(ids) * math.sqrt(M) + positions
        return vectors

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        hidden = source == PAD
        future = torch.ones(target.shape[1], target.shape[1], dtype=torch.bool).triu(1)
        output: Tensor = self.transformer(
            self.embed(source),
            self.embed(target),
            tgt_mask=future,
            src_key_padding_mask=hidden,
            memory_key_padding_mask=hidden,
        )
        return output @ self.embedding.weight.t()


@torch.no_grad()
def with_weights_of(model: EncoderDecoder, order: Order) -> Plain:
    """The plain network with the same weights, under PyTorch's names."""
    plain = Plain(order).double().train()
    result = model.state_dict()
    renamed = {"embedding.weight": result["front_end.embedding.weight"]}
    for side in ("encoder", "decoder"):
        names = {
            "self_attention_residual.norm": "norm1",
            "cross_attention_residual.norm": "norm2",
            "feed_forward_residual.norm": "norm3" if side == "decoder" else "norm2",
            "self_attention.output": "self_attn.out_proj",
            "cross_attention.output": "multihead_attn.out_proj",
            "feed_forward.inner": "linear1",
            "feed_forward.outer": "linear2",
        }
        for i, kind in ((i, kind) for i in range(LAYERS) for kind in ("weight", "bias")):
            layer = f"{side}.layers.{i}."
            to = f"transformer.{layer}"
            renamed[f"{to}self_attn.in_proj_{kind}"] = result[
                f"{layer}self_attention.query_key_value.{kind}"
            ]
            if side == "decoder":
                renamed[f"{to}multihead_attn.in_proj_{kind}"] = torch.cat(
                    [
                        result[f"{layer}cross_attention.{part}.{kind}"]
                        for part in ("query", "key_value")
                    ]
                )
            for ours_, theirs in names.items():
                if f"{layer}{ours_}.{kind}" in result:
                    renamed[f"{to}{theirs}.{kind}"] = result[f"{layer}{ours_}.{kind}"]
        if order == "pre":
            for kind in ("weight", "bias"):
                renamed[f"transformer.{side}.norm.{kind}"] = result[f"{side}.norm.{kind}"]
    plain.load_state_dict(renamed)
    return plain


def batches() -> Iterator[tuple[list[list[int]], list[list[int]]]]:
    """Pairs of uneven lengths to be learnt: the source, turned round and each id one higher."""
    generator = torch.Generator().manual_seed(5)
    for _ in range(STEPS):
        lengths = torch.randint(1, 12, (6,), generator=generator).tolist()
        sources = [torch.randint(4, V - 1, (n,), generator=generator).tolist() for n in lengths]
        yield sources, [[1 + token for token in reversed(source)] for source in sources]


def our_losses(model: EncoderDecoder) -> list[float]:
    optimizer = build_optimizer(model, TrainingConfig())
    for group in optimizer.param_groups:
        group["lr"] = RATE
    losses = []
    for sources, targets in batches():
        batch = PairBatch(
            Padded.from_rows([[*row, EOS] for row in sources]),
            Padded.from_rows([[BOS, *row, EOS] for row in targets]),
            torch.arange(len(sources)).numpy(),
            sum(len(row) + 1 for row in targets),
        )
        sums = pair_loss(model, batch, SMOOTHING)
        loss = sums.total / sums.tokens
        losses.append(loss.item())
        torch.autograd.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    return losses


def plain_losses(model: Plain) -> list[float]:
    adam = TrainingConfig().optimizer
    assert not adam.weight_decay
    optimizer = torch.optim.Adam(
        model.parameters(), RATE, (adam.beta1, adam.beta2), adam.epsilon, foreach=False
    )
    losses = []
    for sources, targets in batches():
        source = padded([[*row, EOS] for row in sources])
        target = padded([[BOS, *row, EOS] for row in targets])
        logits = model(source, target[:, :-1])
        loss = functional.cross_entropy(
            logits.flatten(0, 1),
            target[:, 1:].flatten(),
            ignore_index=PAD,
            label_smoothing=SMOOTHING,
        )
        losses.append(loss.item())
        torch.autograd.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    return losses


def padded(rows: list[list[int]]) -> Tensor:
    longest = max(map(len, rows))
    return torch.tensor([row + [PAD] * (longest - len(row)) for row in rows])


@pytest.mark.parametrize("order", ["pre", "post"])
@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_loss_curve_is_that_of_a_plain_implementation(order: Order) -> None:
    model = ours(order)
    plain = with_weights_of(model, order)
    mine, theirs = our_losses(model), plain_losses(plain)
    assert mine[-1] < 0.9 * mine[0], "a curve that does not fall says little"
    # In float64 rounding stays far below what any other difference would make of forty steps.
    torch.testing.assert_close(torch.tensor(mine), torch.tensor(theirs), rtol=0, atol=1e-8)
