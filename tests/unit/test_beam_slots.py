"""Hypotheses that share rows of the cache see what they would see alone."""

import random

import pytest
import torch

from transduce.nn import state as states
from transduce.nn.stack_configs import PositionKind, TransformerConfig
from transduce.nn.transformer import TransformerDecoder
from transduce.sequence import Padded

M = 16
CLOSE = {"rtol": 0.0, "atol": 1e-10}


def decoder(positions: PositionKind) -> TransformerDecoder:
    torch.manual_seed(1)
    config = TransformerConfig(
        n_layers=2, n_heads=4, d_ff=24, positions=positions, dropout=0.0, norm_order="pre"
    )
    return TransformerDecoder(config, M).double().eval()


def vectors(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, M, dtype=torch.float64)


@pytest.mark.parametrize(
    ("positions", "padded", "forget", "spread"),
    [
        (positions, (i + j) % 2 == 0, forget, spread)  # every pair of two
        for i, positions in enumerate(("sinusoidal", "rotary", "alibi"))
        for j, (forget, spread) in enumerate([(10**6, 4), (8, 10**6), (8, 0.5)])
    ],
)
def test_reordered_beams_agree_with_one_pass(
    positions: PositionKind,
    padded: bool,
    forget: int,
    spread: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whether slots are all kept, forgotten often, or not shared at all."""
    monkeypatch.setattr(states, "FORGET", forget)
    monkeypatch.setattr(states, "SPREAD", spread)
    stack, chance = decoder(positions), random.Random(2)
    sentences, width = 3, 4
    memory = Padded(vectors(sentences, 5), torch.arange(5) < torch.tensor([[5], [2], [4]]), "right")
    first = torch.tensor([[True] * 3, [False, True, True], [True] * 3])
    prefix = Padded(vectors(sentences, 3), first if padded else torch.ones_like(first), "any")
    if not padded:
        prefix = Padded.unpadded(prefix.values)
    with torch.inference_mode():
        state = stack.start(memory)
        stack(prefix, state)
        pasts = [prefix.values[i][prefix.real[i]] for i in range(sentences) for _ in range(width)]
        owners = [i for i in range(sentences) for _ in range(width)]
        state.select(torch.tensor(owners))
        for step in range(12):
            new = vectors(len(pasts), 1)
            result = stack(Padded.unpadded(new), state).values[:, 0]
            pasts = [torch.cat([past, one]) for past, one in zip(pasts, new, strict=True)]
            for row, (past, owner) in enumerate(zip(pasts, owners, strict=True)):
                alone = stack.start(memory.select(torch.tensor([owner])))
                whole = stack(Padded.unpadded(past[None]), alone).values[0, -1]
                assert torch.allclose(result[row], whole, **CLOSE), (step, row)
            groups = list(range(0, len(pasts), width))
            if step == 5:  # one sentence leaves, and the last takes its place
                groups = [groups[2], groups[1]]
            rows = [group + chance.randrange(width) for group in groups for _ in range(width)]
            state.select(torch.tensor(rows))
            pasts, owners = [pasts[i] for i in rows], [owners[i] for i in rows]


def test_what_beams_share_is_there_once() -> None:
    stack = decoder("sinusoidal")
    with torch.inference_mode():
        state = stack.start(Padded.unpadded(vectors(2, 3)))
        stack(Padded.unpadded(vectors(2, 1)), state)
        state.select(torch.tensor([0, 0, 0, 0, 1, 1, 1, 1]))
        for _ in range(200):
            stack(Padded.unpadded(vectors(8, 1)), state)
            state.select(torch.tensor([0, 0, 1, 1, 4, 4, 5, 5]))  # all from a few
    assert state.caches[0].length < 1.5 * 256  # not the 801 of each for itself
