"""Weights of format 1, which named the front ends `source` and `target`, are read under today's."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from transduce.models.config import EncoderDecoderConfig, EncoderOnlyConfig
from transduce.models.decoder_only import DecoderOnlyConfig, build_decoder_only
from transduce.models.encoder_decoder import build_encoder_decoder
from transduce.models.encoder_only import build_text_encoder
from transduce.nn.heads.label import LabelHead
from transduce.settings.sections import parse
from transduce.training.config import FineTuneConfig, LoraConfig
from transduce.training.fine_tuning import (
    Adapter,
    BaseRun,
    add_low_rank_updates,
    apply_adapter,
    fingerprint,
    learning_rate_scales,
    start_from,
)
from transduce.training.weight_files import names_in_format_1, names_today, read_weights_header
from transduce.training.weights import load_weights, read_tensors, weights_of, write_weights
from transduce.vision.vit import CaptioningConfig, build_captioning

TRANSFORMER = {"n_layers": 1, "n_heads": 2, "d_ff": 8}


def encoder_decoder(tie: str = "three-way", kind: str = "transformer") -> nn.Module:
    recurrent = {"kind": "recurrent", "n_layers": 1}
    stack = TRANSFORMER if kind == "transformer" else recurrent
    settings = {"d_model": 8, "tie": tie, "encoder": stack, "decoder": stack}
    config = parse(EncoderDecoderConfig, settings)
    return build_encoder_decoder(config, 7, 7, joint=True)


def decoder_only() -> nn.Module:
    config = parse(DecoderOnlyConfig, {"d_model": 8, "decoder": TRANSFORMER})
    return build_decoder_only(config, 7)


def encoder_only() -> nn.Module:
    config = parse(EncoderOnlyConfig, {"d_model": 8, "encoder": TRANSFORMER})
    return build_text_encoder(config, 7, LabelHead(8, 3, "mean", False, 0.0))


def captioner() -> nn.Module:
    vision = {"d_model": 8, "encoder": TRANSFORMER}
    config = parse(CaptioningConfig, {"vision": vision, "decoder": TRANSFORMER})
    return build_captioning(config, 8, 1, 7)


MODELS = {
    "three-way": encoder_decoder,
    "two-way": lambda: encoder_decoder("two-way"),
    "untied": lambda: encoder_decoder("none"),
    "recurrent": lambda: encoder_decoder("two-way", "recurrent"),
    "decoder only": decoder_only,
    "encoder only": encoder_only,
    "captioning": captioner,
}


def stored(model: nn.Module) -> dict[str, torch.Tensor]:
    """Weights as format 1 named them."""
    own = weights_of(model)
    old = names_in_format_1(own)
    return {old[name]: tensor for name, tensor in own.items()}


@pytest.mark.parametrize("kind", MODELS)
def test_weights_of_format_1_load(kind: str, tmp_path: Path) -> None:
    model, other = MODELS[kind](), MODELS[kind]()
    old = stored(model)
    tops = {name.partition(".")[0] for name in old}
    assert "target_front_end" not in tops
    assert ("front_end" in tops) == (kind == "encoder only")
    write_weights(tmp_path / "weights.safetensors", old)
    tensors = read_tensors(tmp_path / "weights.safetensors")
    assert list(names_today(old).values()) == list(weights_of(model))
    assert set(read_weights_header(tmp_path / "weights.safetensors").shapes) == set(tensors)
    load_weights(other, tensors, "there")
    for ours, theirs in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("kind", MODELS)
def test_names_of_today_stay(kind: str) -> None:
    names = list(weights_of(MODELS[kind]()))
    assert names_today(names) == {name: name for name in names}


@pytest.mark.parametrize("kind", ["two-way", "decoder only", "encoder only"])
@pytest.mark.parametrize("base_is_old", [False, True])
def test_an_adapter_of_format_1_fits_its_base(kind: str, base_is_old: bool, tmp_path: Path) -> None:
    model = MODELS[kind]()
    base = {name: tensor.clone() for name, tensor in weights_of(model).items()}
    add_low_rank_updates(model, LoraConfig())
    for name, parameter in model.named_parameters():
        if name.endswith("lora_b"):
            nn.init.ones_(parameter)
    own = weights_of(model)
    new = frozenset(own.keys() - base.keys())
    Adapter(new, (), fingerprint(_old(base))).write(tmp_path, own)
    write_weights(tmp_path / "base.safetensors", _old(base) if base_is_old else base)
    result = apply_adapter(
        read_tensors(tmp_path / "base.safetensors"), tmp_path / "adapter.safetensors"
    )
    assert result.keys() == base.keys()
    changed = {name for name in base if not torch.equal(result[name], base[name])}
    assert changed == {name.replace("lora_b", "weight") for name in new if "lora_b" in name}


def _old(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    names = names_in_format_1(weights)
    return {names[name]: tensor for name, tensor in weights.items()}


@pytest.mark.parametrize(
    ("kind", "pattern", "today"),
    [
        ("two-way", "source.*", "front_end.*"),
        ("two-way", "target.*", "target_front_end.*"),
        ("decoder only", "target.*", "front_end.*"),
    ],
)
def test_a_pattern_of_format_1_is_read_with_a_warning(
    kind: str, pattern: str, today: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = MODELS[kind]()
    write_weights(tmp_path / "weights.safetensors", stored(model))
    base = BaseRun(FineTuneConfig(run=str(tmp_path), freeze=(pattern,)))
    start_from(model, base, tmp_path, False)
    frozen = {name for name, p in model.named_parameters() if not p.requires_grad}
    assert frozen == {f"{today.rstrip('*')}embedding.weight"}
    assert caplog.messages[-1] == f"fine_tune.freeze: use {today!r} instead of {pattern!r}"


def test_the_front_end_of_a_decoder_goes_with_the_decoder() -> None:
    scales = learning_rate_scales(decoder_only(), 0.5)
    assert scales["front_end.embedding.weight"] == 1 / 4
