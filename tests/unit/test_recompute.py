"""Layers computed again on the way back: the same weights, with less kept."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import transduce
from helpers.tiny_run import reversal_pairs, tiny_settings, write_tsv
from transduce.errors import SettingError
from transduce.models.config import EncoderDecoderConfig
from transduce.models.encoder_decoder import build_encoder_decoder
from transduce.nn.stack_configs import TransformerConfig
from transduce.recipes import parse_recipe
from transduce.sequence import Padded
from transduce.training.step import recompute_layers
from transduce.training.weights import read_tensors


@pytest.mark.system
@pytest.mark.parametrize(
    "overrides",
    [
        ("model.encoder.dropout=0.2", "model.decoder.dropout=0.2"),
        (
            "model.decoder.positions=rotary",
            "model.decoder.dropout=0.2",
            "training.r_drop=1",
            "training.precision=bf16",
        ),
    ],
)
def test_a_run_has_the_same_weights(tmp_path: Path, overrides: tuple[str, ...]) -> None:
    data = write_tsv(tmp_path / "pairs.tsv", reversal_pairs(60))
    plain, again = (
        transduce.train(tiny_settings(data, *overrides, *more), tmp_path / f"run{len(more)}")[0]
        for more in ((), ("training.recompute=true",))
    )
    result, expected = (read_tensors(run / "weights.safetensors") for run in (again, plain))
    for name, tensor in expected.items():
        torch.testing.assert_close(result[name], tensor, rtol=0, atol=0)


def kept_bytes(model: nn.Module, source: Padded, target: Padded) -> int:
    """What autograd keeps of a forward pass for the way back."""
    sizes: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        sizes[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        hidden = model.advance(target, model.start(source)).values
    hidden.sum().backward()
    return sum(sizes.values())


def test_less_is_kept() -> None:
    stack = TransformerConfig(n_layers=6, n_heads=2, d_ff=64, dropout=0.1)
    config = EncoderDecoderConfig(d_model=16, tie="three-way", encoder=stack, decoder=stack)
    model = build_encoder_decoder(config, 20, 20, joint=True).train()
    ids = torch.randint(4, 20, (4, 50))
    before = kept_bytes(model, Padded.unpadded(ids), Padded.unpadded(ids))
    recompute_layers(model)
    after = kept_bytes(model, Padded.unpadded(ids), Padded.unpadded(ids))
    assert after < 0.4 * before


@pytest.mark.parametrize(
    ("task", "model"),
    [
        ("translation", {"preset": "rnn-dot", "d_model": 16, "tie": "two-way"}),
        ("classification", {"encoder": {"kind": "recurrent"}}),
        ("masked-language-model", {"encoder": {"kind": "recurrent"}}),
        ("question-answering", {"encoder": {"kind": "recurrent"}}),
    ],
)
def test_a_model_without_such_layers_is_refused(task: str, model: dict[str, object]) -> None:
    data = {"train": {"kind": "tsv", "path": "a.tsv"}} if task == "translation" else {}
    settings = {"task": task, "data": data, "model": model, "training": {"recompute": True}}
    with pytest.raises(SettingError, match=r"training\.recompute: .* no Transformer layers"):
        parse_recipe(settings, "recipe")
