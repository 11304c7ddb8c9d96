"""The trainer in WebAssembly: its losses, gradients and steps are those of PyTorch."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from helpers.node import run_node
from helpers.web import needs_learner, needs_node, write_learner
from transduce.models.config import EncoderDecoderConfig
from transduce.models.decoder_only import DecoderOnlyConfig, build_decoder_only
from transduce.models.encoder_decoder import EncoderDecoder, build_encoder_decoder
from transduce.nn.attention import MultiHeadAttention, SelfAttention
from transduce.nn.masks import Mask
from transduce.nn.residual import Dropout, PostNorm, PreNorm
from transduce.nn.stack_configs import TransformerConfig
from transduce.nn.state import KeyValue
from transduce.nn.transformer import DecoderLayer
from transduce.sequence import Padded
from transduce.text import BOS, EOS
from transduce.training.config import AdamConfig, Cosine, MuonConfig, TrainingConfig, learning_rate
from transduce.training.optimizer import build_optimizer
from transduce.training.weights import weights_of

pytestmark = [pytest.mark.system, needs_node, needs_learner]
SIZES = 13, 11
SMOOTHING = 0.1
LENGTHS = ((5, 4), (1, 7), (9, 1), (3, 3))
"""Tokens of source and target of each pair."""

RUN = """
const { readFileSync } = require("fs");
const given = JSON.parse(readFileSync("case.json", "utf8"));
const modules = { relaxed: readFileSync("relaxed.wasm"), plain: readFileSync("plain.wasm") };
(async () => {
  const learner = await Learner.load(given.model, given.training, modules);
  const names = learner.parameters.map(({ name }) => name);
  if (String([...names].sort()) !== String(Object.keys(given.weights).sort())) throw "names";
  names.forEach((name, k) => learner.view(k).set(given.weights[name]));
  learner.engine.call.learner_start_average(learner.handle);
  const all = (kind) =>
    Object.fromEntries(names.map((name, k) => [name, [...learner.view(k, kind)]]));
  const losses = [], steps = given.steps ?? 0;
  let gradients, logits;
  for (let step = 0; step < Math.max(steps, 1); step++) {
    losses.push(learner.pass(given.batch, { backward: true, seed: given.seed }));
    gradients ??= all("gradients");
    logits ??= [...learner.logits()];
    if (steps) learner.step(step / steps);
  }
  const attentions = learner.attentions(0).map((a) => ({ ...a, numbers: [...a.numbers] }));
  const written = learner.write(given.batch.sources, 6);
  const [weights, average] = [all("weights"), all("average")];
  const answer = { losses, gradients, logits, attentions, weights, average, written };
  process.stdout.write(JSON.stringify(answer));
})();
"""


def stack(**settings: Any) -> TransformerConfig:
    plain: dict[str, Any] = {"n_layers": 2, "n_heads": 2, "d_ff": 24, "dropout": 0.0}
    return TransformerConfig(**{**plain, **settings})


def encoder_decoder(tie: Any = "two-way", d_model: int = 20, **settings: Any) -> Any:
    config = EncoderDecoderConfig(
        d_model=d_model, tie=tie, encoder=stack(**settings), decoder=stack(**settings)
    )
    sizes = (SIZES[1], SIZES[1]) if tie == "three-way" else SIZES
    torch.manual_seed(7)
    return spread(build_encoder_decoder(config, *sizes, joint=tie == "three-way")), config


def decoder_only(**settings: Any) -> Any:
    config = DecoderOnlyConfig(d_model=20, decoder=stack(**settings))
    torch.manual_seed(7)
    return spread(build_decoder_only(config, SIZES[1])), config


def spread(model: nn.Module) -> nn.Module:
    """Weights of which none is zero."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return model


def batch(lengths: Any = LENGTHS, sizes: tuple[int, int] = SIZES) -> dict[str, Any]:
    numbers = torch.Generator().manual_seed(2)
    drawn = [
        [
            torch.randint(4, size, (n,), generator=numbers).tolist()
            for n, size in zip(pair, sizes, strict=True)
        ]
        for pair in lengths
    ]
    return {
        "sources": [[*source, EOS] for source, _ in drawn],
        "inputs": [[BOS, *target] for _, target in drawn],
        "targets": [[*target, EOS] for _, target in drawn],
    }


def logits_of(model: nn.Module, rows: dict[str, Any]) -> Tensor:
    """Logits (targets, v) of the rows, one after another."""
    inputs = Padded.from_rows(rows["inputs"])
    if isinstance(model, EncoderDecoder):
        logits = model(Padded.from_rows(rows["sources"]), inputs)
    else:
        logits = model(inputs)
    return logits[inputs.real]


def loss_of(model: nn.Module, rows: dict[str, Any]) -> Tensor:
    targets = torch.tensor([i for row in rows["targets"] for i in row])
    return F.cross_entropy(logits_of(model, rows), targets, label_smoothing=SMOOTHING)


IN_STACKS = ("n_layers", "n_heads", "d_ff", "d_head", "activation", "norm_order", "norm")


def facts_of(config: Any, sizes: tuple[int, int] = SIZES, **settings: Any) -> dict[str, Any]:
    """Settings of a model for the page."""
    stacks = {}
    for side in ("encoder", "decoder"):
        if (section := getattr(config, side, None)) is not None:
            names = (*IN_STACKS, "positions", "norm_epsilon")
            stacks[side] = {name: getattr(section, name) for name in names}
    tie = {True: "two-way", False: "none"}.get(config.tie, config.tie)
    vocabularies = {"source_size": sizes[0], "target_size": sizes[1]}
    return {"d_model": config.d_model, "tie": tie, **vocabularies, **stacks, **settings}


SCHEDULE = {"peak": 0.01, "warmup_steps": 2}


def learnt(
    directory: Path,
    model: nn.Module,
    facts: dict[str, Any],
    rows: dict[str, Any],
    relaxed: bool = True,
    **given: Any,
) -> dict[str, Any]:
    """The trainer in Node, from the weights of a model."""
    training = {"label_smoothing": SMOOTHING, "schedule": SCHEDULE}
    weights = {name: w.flatten().tolist() for name, w in weights_of(model).items()}
    content = {"model": facts, "training": training, "weights": weights, "batch": rows, **given}
    (directory / "case.json").write_text(json.dumps(content))
    answer: dict[str, Any] = run_node(directory, write_learner(directory, relaxed) + RUN)
    return answer


def check_gradients(model: nn.Module, answer: dict[str, Any], loss: Tensor) -> None:
    """Gradients within 1e-5 of each tensor's largest."""
    model.zero_grad()
    loss.backward()
    sums = answer["losses"][0]
    assert sums["loss"] / sums["count"] == pytest.approx(loss.item(), abs=1e-5)
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        gradient = torch.tensor(answer["gradients"][name]).view_as(parameter)
        largest = max(parameter.grad.abs().max().item(), 1e-4)
        worst = (gradient - parameter.grad).abs().max().item() / largest
        assert worst <= 1e-5, f"{name}: {worst}"


PAIRS: dict[str, Callable[[], Any]] = {
    "post-norm": encoder_decoder,
    "pre-norm, rotary": lambda: encoder_decoder(norm_order="pre", positions="rotary"),
    "post-norm, three-way": lambda: encoder_decoder("three-way"),
    "head of its own": lambda: encoder_decoder("none", norm_order="pre"),
    "rms, swiglu": lambda: encoder_decoder(norm_order="pre", norm="rms", activation="swiglu"),
    "geglu, alibi": lambda: encoder_decoder(activation="geglu", positions="alibi"),
    "gelu-tanh, learned": lambda: encoder_decoder(activation="gelu-tanh", positions="learned"),
    "silu, no positions": lambda: encoder_decoder(activation="silu", positions="none"),
    "heads of another width": lambda: encoder_decoder(d_head=6, n_heads=3, positions="rotary"),
    "odd width": lambda: encoder_decoder(d_model=21, n_heads=3, n_layers=1),
    "wide": lambda: encoder_decoder(d_model=64, n_heads=4, d_ff=256),
}


@pytest.mark.parametrize("name", PAIRS)
def test_gradients_are_those_of_pytorch(tmp_path: Path, name: str) -> None:
    model, config = PAIRS[name]()
    sizes = (SIZES[1], SIZES[1]) if config.tie == "three-way" else SIZES
    rows = batch(sizes=sizes)
    answer = learnt(tmp_path, model, facts_of(config, sizes), rows)
    check_gradients(model, answer, loss_of(model, rows))
    logits = torch.tensor(answer["logits"]).view(-1, sizes[1])
    torch.testing.assert_close(logits, logits_of(model, rows), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("relaxed", [True, False])
def test_without_relaxed_vectors_they_are_the_same(tmp_path: Path, relaxed: bool) -> None:
    model, config = encoder_decoder(norm_order="pre", positions="rotary")
    rows = batch([(40, 30), (1, 1), (17, 33)])
    answer = learnt(tmp_path, model, facts_of(config), rows, relaxed)
    check_gradients(model, answer, loss_of(model, rows))


@pytest.mark.parametrize("positions", ["sinusoidal", "rotary"])
def test_a_decoder_alone_learns_too(tmp_path: Path, positions: str) -> None:
    model, config = decoder_only(positions=positions, norm_order="pre")
    rows = batch()
    answer = learnt(tmp_path, model, facts_of(config), rows | {"sources": []})
    check_gradients(model, answer, loss_of(model, rows))


class NoResidual(PreNorm):
    def forward(self, x: Tensor, sublayer: Callable[..., Tensor], *context: Any) -> Tensor:
        return sublayer(self.norm(x), *context)


def wrap_attend(attention: MultiHeadAttention, scale: float, masked: bool) -> None:
    """Multiply queries, and hide nothing of a batch of one length where not masked."""
    attend = attention.attend

    def changed(query: Tensor, memory: KeyValue, mask: Mask) -> Tensor:
        return attend(query * scale, memory, mask if masked else Mask())

    attention.attend = changed  # type: ignore[method-assign]


@pytest.mark.parametrize("left_out", ["residual", "norm", "scale", "mask"])
def test_gradients_without_a_part(tmp_path: Path, left_out: str) -> None:
    model, config = encoder_decoder(norm_order="pre", n_layers=1)
    for module in list(model.modules()):
        if isinstance(module, PreNorm) and left_out == "residual":
            module.__class__ = NoResidual
        if isinstance(module, MultiHeadAttention) and left_out == "scale":
            wrap_attend(module, 10**0.5, masked=True)
        if isinstance(module, DecoderLayer) and left_out == "mask":
            assert isinstance(module.self_attention, SelfAttention)
            wrap_attend(module.self_attention, 1.0, masked=False)
        for child in module.children():
            if isinstance(child, nn.LayerNorm) and left_out == "norm":
                child.forward = lambda x: x  # type: ignore[method-assign]
    rows = batch([(5, 4)] * 3)
    answer = learnt(tmp_path, model, facts_of(config, left_out=[left_out]), rows)
    loss = loss_of(model, rows)
    if left_out == "norm":  # which no gradient reaches
        for name, parameter in model.named_parameters():
            if "norm." in name:
                loss = loss + 0 * parameter.sum()
    check_gradients(model, answer, loss)


def philox(seed: int, step: int, site: int, n: int) -> Any:
    """n numbers of 16 bits (Salmon et al. 2011), from counters."""
    blocks = np.arange((n + 7) // 8, dtype=np.uint64)
    low, full = np.uint64(0xFFFFFFFF), 1 << 32
    words = [blocks & low, blocks >> np.uint64(32)]
    words += [np.full_like(blocks, step), np.full_like(blocks, site)]
    keys = [seed % full, seed >> 32]
    for _ in range(10):
        products = [words[0] * np.uint64(0xD2511F53), words[2] * np.uint64(0xCD9E8D57)]
        high = [product >> np.uint64(32) for product in products]
        words = [
            high[1] ^ words[1] ^ np.uint64(keys[0]),
            products[1] & low,
            high[0] ^ words[3] ^ np.uint64(keys[1]),
            products[0] & low,
        ]
        keys = [(keys[0] + 0x9E3779B9) % full, (keys[1] + 0xBB67AE85) % full]
    return np.stack(words, 1).astype("<u4").view("<u2").reshape(-1)[:n]


def test_philox_has_its_published_numbers() -> None:
    """Of Random123: key 0 and counter 0."""
    expected = np.array([0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8], "<u4")
    assert philox(0, 0, 0, 8).view("<u4").tolist() == expected.tolist()


@pytest.mark.parametrize("order", ["post", "pre"])
def test_dropout_draws_numbers_by_their_place(
    tmp_path: Path, order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    p, seed = 0.25, 9
    model, config = encoder_decoder(norm_order=order, n_layers=1)
    rows = batch([(5, 4)] * 3)  # without padding, so that elements have the same places
    sites = iter(range(100))

    def dropped(self: Dropout, x: Tensor) -> Tensor:
        if not self.p:
            return x
        bits = philox(seed, 0, next(sites), x.numel()).astype(int).reshape(x.shape)
        return x * torch.tensor(bits >= round(p * 65536)) / (1 - p)

    for module in model.modules():  # in the order of the pass: front end, then each sublayer
        if isinstance(module, PostNorm | PreNorm) or hasattr(module, "embedding_norm"):
            monkeypatch.setattr(module, "dropout", Dropout(p).train())
    monkeypatch.setattr(Dropout, "forward", dropped)
    answer = learnt(tmp_path, model, facts_of(config, dropout=p), rows, seed=seed)
    check_gradients(model, answer, loss_of(model, rows))
    assert next(sites) == 7  # 2 embeddings, 2 sublayers of the encoder, 3 of the decoder


@pytest.mark.parametrize("kind", ["adam", "muon"])
def test_steps_are_those_of_the_toolkit(tmp_path: Path, kind: str) -> None:
    model, config = encoder_decoder(positions="rotary", activation="swiglu")
    rows, steps = batch(), 5
    optimizer = {"adam": AdamConfig(weight_decay=0.1), "muon": MuonConfig(weight_decay=0.1)}[kind]
    settings = TrainingConfig(optimizer=optimizer, clip_norm=0.5, ema=0.9)
    schedule = Cosine(peak=0.01, warmup_steps=2)
    training = {
        "label_smoothing": SMOOTHING,
        "clip_norm": 0.5,
        "ema": 0.9,
        "optimizer": {"kind": kind, "weight_decay": 0.1},
        "schedule": SCHEDULE,
    }
    before = {name: w.clone() for name, w in weights_of(model).items()}
    answer = learnt(tmp_path, model, facts_of(config), rows, training=training, steps=steps)
    stepper = build_optimizer(model, settings)
    average = {name: w.clone() for name, w in before.items()}
    for step in range(steps):
        loss = loss_of(model, rows)
        sums = answer["losses"][step]
        assert sums["loss"] / sums["count"] == pytest.approx(loss.item(), abs=2e-4)
        stepper.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        for group in stepper.param_groups:
            group["lr"] = learning_rate(schedule, step + 1, step / steps, config.d_model)
        stepper.step()
        decay = min(0.9, (2 + step) / (11 + step))
        for name, weight in weights_of(model).items():
            average[name].lerp_(weight, 1 - decay)
    for kind_of, expected in (("weights", weights_of(model)), ("average", average)):
        for name, weight in expected.items():
            stepped = torch.tensor(answer[kind_of][name]).view_as(weight)
            apart, moved = (stepped - weight).abs(), (weight - before[name]).abs().max().item()
            if name.endswith("key_value.bias"):  # no gradient reaches biases of keys, but rounding
                parts = list(apart.chunk(3 if "query" in name else 2))
                del parts[-2]
                apart = torch.cat(parts)
            assert apart.max().item() <= 0.02 * moved, name


def test_what_it_writes_and_looks_at_is_the_models(tmp_path: Path) -> None:
    model, config = encoder_decoder(norm_order="pre")
    rows = batch([(5, 4), (3, 2)])
    answer = learnt(tmp_path, model, facts_of(config), rows)
    for source, written in zip(rows["sources"], answer["written"], strict=True):
        ids = [BOS]
        while len(ids) <= 6:
            logits = logits_of(model, {"sources": [source], "inputs": [ids], "targets": [ids]})[-1]
            logits[[0, BOS]] = -math.inf
            if int(logits.argmax()) == EOS:
                break
            ids.append(int(logits.argmax()))
        assert written == ids[1:]
    sums = [sum(a["numbers"][: a["columns"]]) for a in answer["attentions"]]
    assert sums == pytest.approx([1.0] * 12, abs=1e-5)
