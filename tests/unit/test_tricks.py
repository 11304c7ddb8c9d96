"""Tricks whose price is measured: replacements in the program, and rows that resume."""

import itertools
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import make_table
import tricks

from helpers.tiny_run import reversal_pairs
from helpers.tiny_training import run
from transduce.making.plan import DataFacts
from transduce.models.config import EncoderDecoderConfig
from transduce.models.encoder_decoder import EncoderDecoder, build_encoder_decoder
from transduce.nn.attention import MultiHeadAttention, SelfAttention, StepContext
from transduce.nn.stack_configs import TransformerConfig
from transduce.recipes import parse_recipe
from transduce.sequence import Padded
from transduce.training.loss import cross_entropy
from transduce.training.trainer import _Trainer

FACTS = {
    "translation": DataFacts("translation", 5_000, 40.0, 40.0, 90),
    "spelling": DataFacts("spelling", 5_000, 8.0, 14.0, 30, symbols=True),
}
PATHS = {split: f"{split}.jsonl" for split in ("train", "valid", "test")}


def model() -> EncoderDecoder:
    torch.manual_seed(1)
    stack = TransformerConfig(n_layers=2, n_heads=2, d_ff=16, dropout=0.0)
    config = EncoderDecoderConfig(d_model=8, tie="three-way", encoder=stack, decoder=stack)
    return build_encoder_decoder(config, 11, 11, joint=True).eval()


def logits(of: EncoderDecoder) -> torch.Tensor:
    tokens = Padded.from_rows([[3, 4, 5], [6, 7]])
    return of(tokens, tokens)


@pytest.mark.parametrize(
    ("kind", "name"),
    [(kind, name) for kind in FACTS for name in tricks.TRICKS],
)
def test_every_trick_is_a_recipe(kind: str, name: str) -> None:
    candidate = {task[0]: task[3] for task in tricks.TASKS}[kind]
    plain = tricks.recipe_with(tricks.TRICKS["none"], FACTS[kind], candidate, 50, PATHS, 1)
    trick = tricks.TRICKS[name]
    assert trick.is_of(plain) or (kind, name) == ("spelling", "BPE-dropout")
    if trick.is_of(plain):
        recipe = tricks.recipe_with(trick, FACTS[kind], candidate, 50, PATHS, 1)
        parse_recipe(recipe, "")
        is_setting = trick.replacement is tricks.nullcontext and name != "none"
        assert (recipe != plain) == is_setting


def test_qk_norm_leaves_the_size_of_queries_out() -> None:
    torch.manual_seed(1)
    attention, x = SelfAttention(8, 2).eval(), torch.randn(1, 5, 8)
    with tricks.normed_queries_and_keys():
        before = attention(x, StepContext())
        with torch.no_grad():
            attention.query_key_value.weight[:8] *= 3
            attention.query_key_value.bias[:8] *= 3
        torch.testing.assert_close(attention(x, StepContext()), before, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(attention(x, StepContext()), before, rtol=1e-3)


def test_capped_logits_have_their_gradient() -> None:
    torch.manual_seed(1)
    hidden = (8 * torch.randn(6, 4)).requires_grad_()
    weight, targets = torch.randn(9, 4, requires_grad=True), torch.arange(6)
    capped = tricks.CAP * torch.tanh(hidden @ weight.T / tricks.CAP)
    plain = F.cross_entropy(capped, targets, label_smoothing=0.1, reduction="sum")
    expected = torch.autograd.grad(plain, [hidden, weight])
    with tricks.capped_logits():
        total = cross_entropy(hidden, weight, targets, 0.1).total
        gradients = torch.autograd.grad(total, [hidden, weight])
    torch.testing.assert_close(total, plain, rtol=1e-4, atol=1e-4)
    for gradient, right in zip(gradients, expected, strict=True):
        torch.testing.assert_close(gradient, right, rtol=1e-4, atol=1e-4)


def test_zero_outputs_leave_sublayers_silent() -> None:
    with tricks.zero_outputs():
        silent = model()
    layer = silent.encoder.layers[0]
    assert (
        not layer.feed_forward.outer.weight.any() and not layer.self_attention.output.weight.any()
    )
    assert layer.feed_forward.inner.weight.any()
    assert model().encoder.layers[0].feed_forward.outer.weight.any()


def test_mixed_residuals_begin_without_a_share_of_the_embeddings() -> None:
    plain = logits(model())
    with tricks.mixed_residuals():
        mixed = model()
        torch.testing.assert_close(logits(mixed), plain)
        with torch.no_grad():
            mixed.decoder.layers[1].shares[1] = 0.5  # type: ignore[index,operator]
        assert not torch.allclose(logits(mixed), plain, rtol=1e-3)
    assert not hasattr(model().encoder.layers[0], "shares")


def test_value_embeddings_begin_with_none() -> None:
    plain = logits(model())
    with tricks.value_embeddings():
        valued = model()
        torch.testing.assert_close(logits(valued), plain)
        logits(valued).square().sum().backward()
        tables = [front.values for front in (valued.front_end, valued.target_front_end)]
        assert all(table.weight.grad.any() for table in tables)  # type: ignore[union-attr,operator]
        with torch.no_grad():
            tables[1].weight.normal_()  # type: ignore[union-attr,operator]
        moved = logits(valued)
        tokens = Padded.from_rows([[3, 4, 5], [6, 7]])
        state = valued.start(tokens)  # the same step by step, with a cache
        for at in range(2):
            step = valued.step(Padded.from_rows([[3 + at], [6 + at]]), state)
            torch.testing.assert_close(step[:, 0], moved[:, at], rtol=1e-4, atol=1e-5)
    assert not torch.allclose(moved, plain, rtol=1e-3)
    assert not hasattr(model().front_end, "values")


def test_the_test_is_decoded_with_the_replacement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(make_table, "TESTED", 20)
    facts, paths = make_table.written_splits("spelling", reversal_pairs(100), tmp_path)
    attend, steps = MultiHeadAttention.attend, []

    def counted(self: MultiHeadAttention, query: torch.Tensor, *rest: Any) -> torch.Tensor:
        steps.append(query.shape[2])
        return attend(self, query, *rest)

    trick = tricks.Trick(
        replacement=lambda: patch.object(MultiHeadAttention, "attend", counted)  # type: ignore[arg-type,return-value]
    )
    row = tricks.measured(trick, facts, "speller", 2, paths, 1, tmp_path / "run")
    assert row["steps"] == 2 and row["loss"] > 0 and 1 in steps  # a token each


def test_other_work_changes_no_ratio_of_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed = [trick for trick in tricks.TRICKS.values() if not trick.is_free]
    loads = itertools.chain.from_iterable([load] * len(timed) for load in (1.0, 3.0))

    def cpu_of_a_step(recipe: dict[str, Any], run: Path) -> float:
        is_adam = recipe["training"]["optimizer"]["kind"] == "adam"
        return next(loads) * (0.5 if is_adam else 1.0)

    monkeypatch.setattr(tricks, "cpu_of_a_step", cpu_of_a_step)
    measured = tricks.costs_of_steps(FACTS["translation"], "nano", PATHS, tmp_path / "timed")
    assert measured.keys() == tricks.TRICKS.keys()
    assert measured["AdamW for Muon"] == 0.5 * measured["none"]
    assert measured["QK-norm"] == measured["none"] == 2.0


def test_batches_grow_after_two_thirds_of_the_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    plain = _Trainer._step

    def step(trainer: _Trainer, batches: Any) -> None:
        sizes.append(len(batches))
        plain(trainer, batches)

    monkeypatch.setattr(_Trainer, "_step", step)
    with tricks.growing_batches():
        run(tmp_path, steps=9)
    assert sizes == [1] * 6 + [2] * 3


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Names of what is trained; nothing is."""
    names: list[str] = []

    def measured(
        trick: Any, facts: Any, candidate: str, steps: int, paths: Any, seed: int, place: Path
    ) -> dict[str, Any]:
        (name,) = (name for name, other in tricks.TRICKS.items() if other is trick)
        names.append(name)
        if len(names) == 4:
            raise KeyboardInterrupt
        gain = 5.0 if name == "AdamW for Muon" else 0.0
        return {"steps": 10, "spent": 1.0, "loss": 2.0, "score": 10.0 + seed + gain}

    monkeypatch.setattr(tricks, "measured", measured)
    monkeypatch.setattr(tricks, "cpu_of_a_step", lambda recipe, run: 0.1)
    monkeypatch.setattr(tricks, "pairs_of", lambda data, name: [(f"a{n}", "b") for n in range(900)])
    yield names


def test_the_same_command_goes_on(
    tmp_path: Path,
    trained: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = ["tricks.py", "--data", "x", "--place", str(tmp_path), "--minutes", "1e9"]
    monkeypatch.setattr(sys, "argv", command)
    with pytest.raises(KeyboardInterrupt):
        tricks.main()
    path = tmp_path / "tricks.jsonl"
    with path.open("a", encoding="utf-8") as file:
        file.write('{"task": "multi30k", "tri')  # cut off by the end of the process
    tricks.main()
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    keys = [tricks.key_of(row) for row in rows]
    assert len(keys) == len(set(keys)) == 2 * (2 * len(tricks.TRICKS) - 1)
    assert len(trained) == len(keys) + 1  # one was ended
    tricks.main()
    assert len(trained) == len(keys) + 1
    capsys.readouterr()
    monkeypatch.setattr(sys, "argv", [*command[:1], "--place", str(tmp_path), "--table"])
    tricks.main()
    table = capsys.readouterr().out
    assert "| multi30k | 120 | none | 10 | 11.0, 12.0 |  | 2.00, 2.00 |" in table
    assert "| multi30k | 120 | AdamW for Muon | 10 | +5.0 | +5.0, +5.0 | +0.00 |" in table
