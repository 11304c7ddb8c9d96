"""Muon: what it makes of a gradient, what it moves, and that PyTorch's own moves it so."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from transduce.errors import SettingError
from transduce.models.config import PRESETS, EncoderDecoderConfig
from transduce.models.encoder_decoder import EncoderDecoder, build_encoder_decoder
from transduce.nn.stack_configs import TransformerConfig
from transduce.settings.sections import parse
from transduce.training.config import AdamConfig, Constant, MuonConfig, TrainingConfig
from transduce.training.fine_tuning import is_of_layer
from transduce.training.optimizer import Muon, build_optimizer, matrices_in, orthogonalised

RATE = 1e-2


def seeded(*shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


@given(
    st.integers(1, 12),
    st.integers(1, 12),
    st.floats(-12, 12),
    st.lists(st.floats(0.02, 1), min_size=12, max_size=12),
)
def test_turns_nothing_and_evens_out(
    rows: int, columns: int, exponent: float, values: list[float]
) -> None:
    """Singular vectors stay, in their order; singular values come near to 1, whatever the scale."""
    u, _, vh = torch.linalg.svd(seeded(2, rows, columns), full_matrices=False)
    singular_values = torch.tensor(values[: min(rows, columns)], dtype=torch.float64)
    matrices = u * singular_values @ vh * 10**exponent
    result = u.mT @ orthogonalised(matrices) @ vh.mT
    diagonal = result.diagonal(dim1=-2, dim2=-1)
    assert ((diagonal > 0.5) & (diagonal < 1.3)).all()
    assert (result - torch.diag_embed(diagonal)).abs().max() < 1e-9


def test_zeros_stay_zeros() -> None:
    assert not orthogonalised(torch.zeros(2, 3, 5)).any()


@pytest.mark.parametrize("scale", [1e-18, 1e-23, 1e-30, 1e-36])
def test_small_gradients_are_finite_and_of_full_size(scale: float) -> None:
    """In float32 their squares are zero, and so was their norm."""
    matrix = seeded(5, 3).float()
    expected = orthogonalised(matrix)
    torch.testing.assert_close(orthogonalised(matrix * scale), expected, rtol=1e-3, atol=1e-3)


def networks() -> list[EncoderDecoder]:
    """Two with the same weights, of a kind with everything that stands side by side."""
    stack = TransformerConfig(n_layers=2, n_heads=2, d_ff=24, activation="swiglu")
    config = EncoderDecoderConfig(d_model=16, tie="three-way", encoder=stack, decoder=stack)
    torch.manual_seed(1)
    network = build_encoder_decoder(config, 20, 20, joint=True).double()
    return [network, copy.deepcopy(network)]


def learn(network: nn.Module, optimizer: torch.optim.Optimizer, seed: int) -> None:
    """A step by gradients of chance, so that two networks get the same."""
    generator = torch.Generator().manual_seed(seed)
    for group in optimizer.param_groups:
        group["lr"] = RATE
    for parameter in network.parameters():
        noise = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
        parameter.grad = noise if parameter.requires_grad else None
    optimizer.step()


def test_moves_matrices_of_layers_and_adam_the_rest() -> None:
    ours, theirs = networks()
    first = copy.deepcopy(ours)
    muon = build_optimizer(ours, TrainingConfig(optimizer=MuonConfig(weight_decay=0.1)))
    adam = build_optimizer(theirs, TrainingConfig(optimizer=AdamConfig(weight_decay=0.1)))
    for seed in range(3):
        learn(ours, muon, seed)
        learn(theirs, adam, seed)
    plain, before = dict(theirs.named_parameters()), dict(first.named_parameters())
    names = {True: 0, False: 0}
    for name, parameter in ours.named_parameters():
        assert not torch.equal(parameter, before[name]), name
        differs = parameter.dim() == 2 and "embedding" not in name
        assert torch.equal(parameter, plain[name]) != differs, name
        assert is_of_layer(name) or not differs
        names[differs] += 1
    assert names[True] == 2 * 4 + 2 * 7 and names[False] > 20


def test_agrees_with_pytorchs() -> None:
    """Each projection as a parameter of its own; PyTorch's products are in bfloat16."""
    ours, _ = networks()
    counts = matrices_in(ours)
    assert sorted(counts.values()) == [2] * 6 + [3] * 4  # W of two gates in each layer
    matrices = {n: p for n, p in ours.named_parameters() if p.dim() == 2 and is_of_layer(n)}
    apart = {
        name: [part.detach().clone().requires_grad_() for part in p.chunk(counts.get(p, 1))]
        for name, p in matrices.items()
    }
    before = {name: p.detach().clone() for name, p in matrices.items()}
    config = TrainingConfig(optimizer=MuonConfig(momentum=0.9, rms=0.2, weight_decay=0.1))
    muon = build_optimizer(ours, config)
    theirs = torch.optim.Muon(
        [part for parts in apart.values() for part in parts],
        lr=RATE,
        momentum=0.9,
        weight_decay=0.1,
        adjust_lr_fn="match_rms_adamw",
    )
    for seed in range(3):
        learn(ours, muon, seed)
        for name, parts in apart.items():
            gradient = matrices[name].grad
            assert gradient is not None
            for part, of_part in zip(parts, gradient.chunk(len(parts)), strict=True):
                part.grad = of_part.clone()
        theirs.step()  # type: ignore[no-untyped-call]
    for name, parts in apart.items():
        moved = matrices[name] - before[name]
        assert (matrices[name] - torch.cat(parts)).norm() < 0.02 * moved.norm(), name


def test_moves_each_gate_of_a_recurrent_layer_by_itself() -> None:
    """The step of one is the same whatever the gradients of the others are."""
    steps = []
    for others in (1.0, 100.0):
        torch.manual_seed(1)
        network = build_encoder_decoder(
            replace(PRESETS["rnn-additive"], d_model=16), 20, 20, joint=True
        )
        optimizer = build_optimizer(network, TrainingConfig(optimizer=MuonConfig()))
        name = "decoder.layers.cells.weight_hh_l1"
        weight = network.get_parameter(name)
        before = weight.detach().clone()
        for group in optimizer.param_groups:
            group["lr"] = RATE
        weight.grad = seeded(*weight.shape).float() * others
        weight.grad[16:32] = seeded(16, 16).float()
        optimizer.step()
        steps.append((weight - before).detach())
    assert torch.equal(steps[0][16:32], steps[1][16:32]) and steps[0][16:32].any()


def test_frozen_weights_stay_and_adam_may_have_nothing() -> None:
    network = networks()[0]
    for name, parameter in network.named_parameters():
        parameter.requires_grad = is_of_layer(name) and parameter.dim() == 2
    before = copy.deepcopy(network)
    optimizer = build_optimizer(network, TrainingConfig(optimizer=MuonConfig()))
    learn(network, optimizer, 1)
    for (name, new), old in zip(network.named_parameters(), before.parameters(), strict=True):
        assert torch.equal(new, old) != new.requires_grad, name


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_products_are_in_the_precision_of_the_training(precision: str) -> None:
    ours, other = networks()
    for network, precise in ((ours, precision), (other, "float32")):
        config = parse(TrainingConfig, {"precision": precise, "optimizer": {"kind": "muon"}})
        optimizer = build_optimizer(network.float(), config)
        assert isinstance(optimizer, Muon)
        learn(network, optimizer, 1)
    for parameter, two in zip(ours.parameters(), other.parameters(), strict=True):
        assert (parameter - two).norm() < 0.1 * RATE * parameter.numel() ** 0.5
    same = all(map(torch.equal, ours.parameters(), other.parameters()))
    assert same == (precision == "float32")


def test_settings() -> None:
    """What names no kind is Adam, as before there was another."""
    result = parse(TrainingConfig, {"optimizer": {"weight_decay": 0.1}})
    assert result.optimizer == AdamConfig(weight_decay=0.1)
    result = parse(TrainingConfig, {"optimizer": {"kind": "muon", "rms": 0.8}})
    assert result.optimizer == MuonConfig(rms=0.8)
    assert result.schedule == TrainingConfig().schedule != Constant()
    with pytest.raises(SettingError, match="rms"):
        parse(TrainingConfig, {"optimizer": {"rms": 0.8}})
