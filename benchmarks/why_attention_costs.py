"""Costs of recurrence, convolution and attention: time, memory, layers between positions."""

from __future__ import annotations

import contextlib
import json
import math
import statistics
import subprocess
import sys
import time
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from workload import peak_memory

from transduce.models.config import PRESETS, EncoderDecoderConfig
from transduce.models.encoder_decoder import EncoderDecoder, build_encoder_decoder
from transduce.models.stacks import build_encoder
from transduce.nn.attention import attention, attention_with_weights
from transduce.nn.convolution import DILATIONS
from transduce.nn.recurrent import Recurrence
from transduce.nn.stack_configs import (
    ConvolutionEncoderConfig,
    EncoderConfig,
    RecurrentEncoderConfig,
    TransformerConfig,
)
from transduce.sequence import Padded
from transduce.training.config import TrainingConfig
from transduce.training.loss import cross_entropy
from transduce.training.optimizer import build_optimizer

# --- speed -----------------------------------------------------------------------------------

TIMED = ("rnn-dot", "convolution", "tiny")
LENGTHS = (16, 32, 64, 128, 256, 512)
FIRST_ID = 4  # below are PAD, UNK, BOS and EOS


def model_of(name: str) -> EncoderDecoderConfig:
    """The preset; for `tiny` its former form, the decoder of `convolution` on both sides."""
    if name != "tiny":
        return PRESETS[name]
    convolution = PRESETS["convolution"]
    return replace(convolution, encoder=convolution.decoder)


def training_speed(vocabulary: int, tokens: int, rounds: int, longest: int) -> dict[str, Any]:
    """Target tokens per second of training, for batches of as many tokens but longer sentences.

    Forward, backward and optimizer, on random ids.  Models and lengths take turns, so that
    whatever else the machine does meets them all alike; medians of the rounds.
    """
    models = {
        name: build_encoder_decoder(model_of(name), vocabulary, vocabulary, joint=True)
        for name in TIMED
    }
    optimizers = {name: build_optimizer(models[name], TrainingConfig()) for name in TIMED}
    cases = [(name, n) for n in LENGTHS if n <= min(longest, tokens) for name in TIMED]
    cpu: dict[tuple[str, int], list[float]] = {case: [] for case in cases}
    wall: dict[tuple[str, int], list[float]] = {case: [] for case in cases}
    for turn in range(rounds + 1):
        for name, n in cases if turn % 2 else cases[::-1]:
            ids = torch.randint(FIRST_ID, vocabulary, (2, tokens // n, n + 1))
            started = time.process_time(), time.perf_counter()
            one_step(models[name], optimizers[name], ids)
            if turn:  # the first is to warm up
                cpu[name, n].append(time.process_time() - started[0])
                wall[name, n].append(time.perf_counter() - started[1])
    points = [
        {
            "model": name,
            "length": n,
            "sentences": tokens // n,
            "per_cpu_second": tokens // n * n / statistics.median(cpu[name, n]),
            "per_second": tokens // n * n / statistics.median(wall[name, n]),
        }
        for name, n in cases
    ]
    return {"tokens": tokens, "points": points}


def one_step(model: EncoderDecoder, optimizer: torch.optim.Optimizer, ids: Tensor) -> None:
    """One step of training on source and target ids (2, b, n + 1), all as long."""
    source, target = ids[0, :, 1:], ids[1]
    model.train()
    optimizer.zero_grad(set_to_none=True)
    state = model.start(Padded.unpadded(source))
    hidden = model.advance(Padded.unpadded(target[:, :-1]), state).values.flatten(0, 1)
    loss = cross_entropy(hidden, model.head.weight, target[:, 1:].flatten(), 0.1)
    (loss.total / loss.tokens).backward()  # type: ignore[no-untyped-call]
    optimizer.step()


# --- memory ----------------------------------------------------------------------------------

HEADS, WIDTH = 2, 64
SHORTEST = 256
MATRICES = 3
"""The n × n matrices alive at once at the worst moment, in the backward pass of the softmax: the
weights, the gradient that comes in, the gradient that goes out."""


def attention_memory(longest: int) -> dict[str, Any]:
    """Memory of self-attention, forward and backward, on top of its inputs; bytes by length.

    Each figure is from a process of its own, as memory that was once taken is not always given
    back.
    """
    points = []
    n = SHORTEST
    while n <= longest:
        point = {"length": n, "predicted": MATRICES * HEADS * n * n * 4}
        for kind in ("fused", "explicit"):
            command = [sys.executable, __file__, kind, str(n)]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            point[kind] = json.loads(done.stdout)
        points.append(point)
        n *= 2
    return {"heads": HEADS, "width": WIDTH, "matrices": MATRICES, "points": points}


def memory_of_one(kind: str, n: int) -> int:
    """Bytes that this process takes for one self-attention over n positions."""
    torch.set_num_threads(1)
    query, key, value = (torch.randn(1, HEADS, n, WIDTH, requires_grad=True) for _ in range(3))
    wanted = torch.randn(1, HEADS, n, WIDTH)
    _forward_and_backward(kind, [x.detach()[:, :, :64].requires_grad_() for x in (query,) * 3])
    with contextlib.suppress(OSError):  # Linux: let the peak begin where memory stands now
        Path("/proc/self/clear_refs").write_text("5")
    before = peak_memory()
    _forward_and_backward(kind, [query, key, value], wanted)
    return peak_memory() - before


def _forward_and_backward(kind: str, inputs: list[Tensor], wanted: Tensor | None = None) -> None:
    query, key, value = inputs
    if kind == "fused":
        output = attention(query, key, value)
    else:
        output = attention_with_weights(query, key, value)[0]
    gradient = torch.ones_like(output) if wanted is None else wanted
    output.backward(gradient)  # type: ignore[no-untyped-call]


# --- layers between two positions --------------------------------------------------------------

DISTANCES = (1, 2, 4, 8, 16, 32, 64, 128)
D_MODEL = 8
KERNEL = 5


def path_lengths() -> dict[str, Any]:
    """Layers (of recurrence, steps) that a signal passes between positions some distance apart.

    Counted by gradients, in float64, since a gradient through a hundred layers is small: a
    position counts as reached when the gradient there is not zero.
    """
    stacks: dict[str, Callable[[int], EncoderConfig]] = {
        "convolution": lambda n: ConvolutionEncoderConfig(n_layers=n, width=KERNEL),
        "dilated": lambda n: ConvolutionEncoderConfig(n_layers=n, width=KERNEL, dilation_growth=2),
        "attention": lambda n: TransformerConfig(n_layers=n, n_heads=2, d_ff=16, norm_order="pre"),
        "recurrent_layers": lambda n: RecurrentEncoderConfig(n_layers=n),
    }
    layers = {name: _layers_for(make) for name, make in stacks.items()}
    points = [
        {
            "distance": distance,
            "recurrent_steps": _steps_between(distance),
            **{name: result[distance] for name, result in layers.items()},
            "predicted": {
                "recurrent_steps": distance,
                "convolution": math.ceil(2 * distance / (KERNEL - 1)),
                "dilated": math.ceil(math.log2(2 * distance / (KERNEL - 1) + 1)),
                "attention": 1,
            },
        }
        for distance in DISTANCES
    ]
    return {"kernel": KERNEL, "dilations": DILATIONS, "points": points}


def _layers_for(make: Callable[[int], EncoderConfig]) -> dict[int, int]:
    """For each distance the fewest layers of a stack that reach as far."""

    @cache
    def max_target_length(n_layers: int) -> int:
        return _max_target_length(make(n_layers))

    enough = range(1, max(DISTANCES) + 1)  # a layer more never reaches less far
    return {d: enough[bisect_left(enough, d, key=max_target_length)] for d in DISTANCES}


def _max_target_length(config: EncoderConfig) -> int:
    """Receptive field to the right of an encoder's first output: last position with a gradient."""
    torch.manual_seed(1)
    encoder: nn.Module = build_encoder(config, D_MODEL).double().eval()
    x = torch.randn(1, max(DISTANCES) + 1, D_MODEL, dtype=torch.float64, requires_grad=True)
    first = encoder(Padded.unpadded(x)).values[0, 0]
    first.backward(torch.randn_like(first))  # not their sum, which a layer norm keeps at zero
    assert x.grad is not None
    return int(x.grad[0].abs().sum(-1).nonzero().max())


def _steps_between(distance: int) -> int:
    """Number of states between two positions of a recurrent layer, along the gradient."""
    torch.manual_seed(1)
    layer = Recurrence("lstm", D_MODEL, D_MODEL, 1, dropout=0.0).double()
    x = torch.randn(1, distance + 1, D_MODEL, dtype=torch.float64, requires_grad=True)
    handed_on: set[int] = set()
    hidden = None
    for i in range(distance + 1):
        output, hidden = layer(Padded.unpadded(x[:, i : i + 1]), hidden)
        for part in hidden:
            part.register_hook(lambda g, i=i: handed_on.add(i) if g.any() else None)
    output.backward(torch.randn_like(output))
    assert x.grad is not None
    assert x.grad[0, 0].any(), "nothing has come through"
    return len(handed_on)


if __name__ == "__main__":
    print(memory_of_one(sys.argv[1], int(sys.argv[2])))
