"""Recurrence and attention by length on a GPU: speed of training, and memory of attention."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import torch
from gpu_work import Findings, Scale, peak_mib, seconds, speed
from why_attention_costs import model_of, one_step

from transduce.models.encoder_decoder import build_encoder_decoder
from transduce.nn.attention import attention, attention_with_weights
from transduce.training.config import TrainingConfig
from transduce.training.optimizer import build_optimizer

VOCABULARY = 8000
MODELS = ("rnn-dot", "tiny")
TOKENS = 16384
HEADS, WIDTH = 8, 64


def measure(scale: Scale) -> Iterator[Findings]:
    """Target tokens a second of one step, as many tokens in fewer and longer rows; MiB of
    attention, forward and backward, fused and with its matrix."""
    device = scale.device
    tokens = min(TOKENS, 16 * scale.longest)
    lengths = [n for n in (16, 64, 256, 1024) if n <= scale.longest]
    models = {
        name: build_encoder_decoder(model_of(name), VOCABULARY, VOCABULARY, joint=True).to(device)
        for name in MODELS
    }
    optimizers = {name: build_optimizer(model, TrainingConfig()) for name, model in models.items()}
    result: dict[str, dict[str, int]] = {name: {} for name in MODELS}
    for n in lengths:
        ids = torch.randint(4, VOCABULARY, (2, max(1, tokens // n), n + 1), device=device)
        for name in MODELS:
            step = functools.partial(one_step, models[name], optimizers[name], ids)
            with torch.autocast(device.type, torch.bfloat16):
                step()
                times = [seconds(device, step) for _ in range(scale.rounds)]
            result[name][str(n)] = speed(ids.shape[1] * n, times)
            yield {"tokens_per_second_by_length": result}
    memory: dict[str, dict[str, int | None]] = {"fused": {}, "with_its_matrix": {}}
    for n in [n for n in (1024, 2048, 4096) if n <= 2 * scale.longest] or [scale.longest]:
        for name, fused in (("fused", True), ("with_its_matrix", False)):
            action = functools.partial(_attended, n, fused, device)
            memory[name][str(n)] = peak_mib(device, action)
        yield {"attention_mib_by_length": memory}


def _attended(n: int, fused: bool, device: torch.device) -> None:
    shape = (1, HEADS, n, WIDTH)
    query, key, value = (
        torch.randn(shape, device=device, dtype=torch.bfloat16, requires_grad=True)
        for _ in range(3)
    )
    made = attention(query, key, value) if fused else attention_with_weights(query, key, value)[0]
    torch.autograd.backward(made.sum())
