"""Runs that start from another one, and a model small enough to be taken apart."""

from pathlib import Path
from typing import Any

import torch
from torch import nn

import transduce
from helpers.tiny_run import tiny_settings
from transduce.models.config import EncoderOnlyConfig
from transduce.models.encoder_only import build_text_encoder
from transduce.nn.heads.label import LabelHead
from transduce.nn.stack_configs import TransformerConfig
from transduce.sequence import Padded
from transduce.settings.sections import apply_overrides
from transduce.training.config import FineTuneConfig
from transduce.training.fine_tuning import BaseRun, start_from
from transduce.training.weights import read_tensors, weights_of, write_tensors

Tensors = dict[str, torch.Tensor]
LORA = ("fine_tune.lora={rank=2}",)


def train_base(data: Path, run: Path) -> Path:
    """A trained run."""
    settings = tiny_settings(
        data, "training.steps=150", "training.validate_every=150", "training.schedule.peak=1e-2"
    )
    return transduce.train(settings, run)[0]


def tune(base: Path, data: Path, run: Path, *overrides: str, resume: bool = False) -> Path:
    """Train from `base`; model and text are left for it to say."""
    settings = tiny_settings(data)
    del settings["model"], settings["text"]
    settings = apply_overrides(settings, [f"fine_tune.run={base}", *overrides])
    return transduce.train(settings, run, resume=resume)[0]


def weights(run: Path) -> Tensors:
    """The weights that a run serves."""
    return read_tensors(run / "weights.safetensors")


def changed(a: Tensors, b: Tensors) -> set[str]:
    """Names of the tensors that differ; both have the same names."""
    assert a.keys() == b.keys()
    return {name for name in a if not torch.equal(a[name], b[name])}


def classifier(n_labels: int = 3, d_ff: int = 32, vocabulary: int = 11) -> nn.Module:
    """A text classifier with first weights, drawn with `n_labels` as seed."""
    torch.manual_seed(n_labels)
    stack = TransformerConfig(n_layers=2, n_heads=2, d_ff=d_ff, positions="learned")
    config = EncoderOnlyConfig(d_model=16, encoder=stack)
    return build_text_encoder(config, vocabulary, LabelHead(16, n_labels, "mean", True, 0.0)).eval()


def saved(model: nn.Module, path: Path) -> Path:
    """`path`, as a run with the model's weights only."""
    path.mkdir()
    write_tensors(path / "weights.safetensors", weights_of(model))
    return path


def begin(model: nn.Module, base: Path, run: Path, **changes: Any) -> Any:
    """Start the model from `base` as the training in `run` would; gives the adapter, if any."""
    run.mkdir(exist_ok=True)
    return start_from(model, BaseRun(FineTuneConfig(run=str(base), **changes)), run, resuming=False)


def learn(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """One step towards right answers."""
    optimizer.zero_grad()
    for group in optimizer.param_groups:
        group["lr"] = 0.01
    ids = torch.arange(12).view(3, 4) % 11
    scores: torch.Tensor = model(Padded.unpadded(ids))
    loss = nn.functional.cross_entropy(scores, torch.tensor([0, 1, 2]))
    torch.autograd.backward(loss)
    optimizer.step()
