"""Stacks traced whole, as `training.compile` traces them, and PyTorch's settings for a GPU."""

from __future__ import annotations

import itertools
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend

from helpers.tiny_run import reversal_pairs, tiny_task, write_tsv
from transduce.data.batches import DataState
from transduce.models.config import EncoderDecoderConfig
from transduce.models.encoder_decoder import EncoderDecoder, build_encoder_decoder
from transduce.nn import positions
from transduce.nn.stack_configs import TransformerConfig
from transduce.sequence import Padded
from transduce.tasks.training import find_device
from transduce.training.distributed import Ranks
from transduce.training.optimizer import build_optimizer
from transduce.training.step import GraphedStep, compile_stacks

NARROW = ("training.precision=bf16",)
ROTARY = ("model.decoder.positions=rotary", "model.decoder.dropout=0.1", "training.r_drop=5")
SOURCE = Padded.from_rows([[5, 6, 7, 3], [5, 6, 9, 3]])
TARGET = Padded.from_rows([[2, 5, 6, 7, 8], [2, 9, 5, 6, 7]])


def passed(model: EncoderDecoder) -> tuple[Tensor, Tensor]:
    """Logits at real positions, and the gradient of the embeddings."""
    model.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(SOURCE, TARGET).float()[TARGET.real]
    logits.square().mean().backward()  # type: ignore[no-untyped-call]
    gradient = next(model.parameters()).grad
    assert gradient is not None
    return logits.detach(), gradient.clone()


@pytest.mark.system
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
def test_the_stacks_are_traced_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """The precision of autocast cannot be asked for while PyTorch traces: some releases raise."""
    stack = TransformerConfig(n_layers=1, n_heads=2, d_ff=16, dropout=0.0)
    config = EncoderDecoderConfig(d_model=8, encoder=stack, decoder=stack)
    model = build_encoder_decoder(config, 12, 12, joint=True)
    eager = passed(model)
    query = torch.is_autocast_enabled

    def asked(device: str) -> bool:
        if torch.compiler.is_compiling():
            raise IndexError("autocast asked for while tracing")
        return query(device)

    traced = SimpleNamespace(**{**vars(torch), "is_autocast_enabled": asked})
    monkeypatch.setattr(positions, "torch", traced)
    torch._dynamo.reset()
    compile_stacks(model, dynamic=True, backend="aot_eager", fullgraph=True)
    for ours, theirs in zip(passed(model), eager, strict=True):
        assert torch.allclose(ours, theirs, atol=2e-2)


@pytest.mark.system
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("settings", [NARROW, ROTARY, ("model.encoder.norm_order=post",)])
def test_the_loss_of_packed_batches_is_traced_whole_and_once(
    settings: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches of other sentences, with other numbers of tokens, are of the same shape."""
    data = write_tsv(tmp_path / "pairs.tsv", reversal_pairs(60))
    task = tiny_task(data, tmp_path, "training.batch_tokens=96", "training.compile=true", *settings)
    config, counter = task.recipe.training, CompileCounterWithBackend("aot_eager")
    torch._dynamo.reset()
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=counter))
    optimizer = build_optimizer(task.model, config)
    step = GraphedStep(task, config, optimizer, Ranks.present(), lambda _: None, None, task)
    batches = [batch for batch, _ in itertools.islice(task.batches.iterate(DataState()), 4)]
    assert len({batch.target_tokens for batch in batches}) > 1
    for number, batch in enumerate(batches, 1):
        if not config.r_drop:  # without dropout
            with step._precision():
                eager = task.packed_loss(task.pack(batch)).nll.item()
        step(number, [batch], 0.01, batch.target_tokens)
        compiled = step.read()
        assert config.r_drop or compiled == pytest.approx(eager, rel=1e-3)
    assert counter.frame_count == 1


def test_a_gpu_computes_attention_without_plans_and_float32_in_full(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = torch.backends.cuda.cudnn_sdp_enabled(), torch.backends.cudnn.allow_tf32
    try:
        torch.backends.cuda.enable_cudnn_sdp(True)
        torch.backends.cudnn.allow_tf32 = True
        assert find_device("cpu").type == "cpu"
        assert torch.backends.cuda.cudnn_sdp_enabled() and torch.backends.cudnn.allow_tf32
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        assert find_device("auto").type == "cuda"
        assert not torch.backends.cuda.cudnn_sdp_enabled()
        assert torch.backends.cuda.flash_sdp_enabled()
        assert torch.backends.cuda.mem_efficient_sdp_enabled()
        assert not torch.backends.cudnn.allow_tf32
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]
