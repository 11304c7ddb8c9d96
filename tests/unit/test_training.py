"""The parts of training: schedules, loss, averages, weights on disk, checkpoints."""

import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from helpers.golden import read_golden
from transduce.errors import RunError
from transduce.training import loss as loss_module
from transduce.training.checkpoints import (
    Progress,
    checkpoint_path,
    prune_checkpoints,
    read_progress,
    save_checkpoint,
)
from transduce.training.config import (
    AdamConfig,
    Constant,
    Cosine,
    InverseSquareRoot,
    Noam,
    TrainingConfig,
    learning_rate,
)
from transduce.training.loss import cross_entropy
from transduce.training.optimizer import build_optimizer
from transduce.training.weight_files import checkpoints_of
from transduce.training.weights import (
    MovingAverage,
    average,
    load_weights,
    read_tensors,
    weights_of,
    write_tensors,
)


class TestSchedules:
    def test_noam_is_the_papers(self) -> None:
        golden = read_golden("noam_schedule")
        schedule = Noam(warmup_steps=golden["warmup"])
        for step, rate in golden["rate_at_step"].items():
            result = learning_rate(schedule, int(step), 0.0, golden["d_model"])
            assert result == pytest.approx(rate, rel=1e-4)

    def test_noam_factor(self) -> None:
        plain = learning_rate(Noam(), 7, 0.0, 64)
        assert learning_rate(Noam(factor=2.0), 7, 0.0, 64) == pytest.approx(2 * plain)

    def test_inverse_square_root(self) -> None:
        schedule = InverseSquareRoot(peak=0.5, warmup_steps=100)
        rates = {step: learning_rate(schedule, step, 0.0, 64) for step in (1, 50, 100, 400, 10_000)}
        assert rates == pytest.approx({1: 0.005, 50: 0.25, 100: 0.5, 400: 0.25, 10_000: 0.05})

    def test_cosine(self) -> None:
        schedule = Cosine(peak=1.0, floor=0.2, warmup_steps=10)
        assert learning_rate(schedule, 5, 0.0, 64) == pytest.approx(0.5)
        for progress, rate in [(0.0, 1.0), (0.5, 0.6), (1.0, 0.2), (1.5, 0.2)]:
            assert learning_rate(schedule, 100, progress, 64) == pytest.approx(rate)
        quarter = 0.2 + 0.8 * (1 + math.cos(math.pi / 4)) / 2
        assert learning_rate(schedule, 100, 0.25, 64) == pytest.approx(quarter)

    def test_constant(self) -> None:
        schedule = Constant(peak=0.1, warmup_steps=4)
        rates = [learning_rate(schedule, step, 0.9, 64) for step in (1, 2, 4, 1000)]
        assert rates == pytest.approx([0.025, 0.05, 0.1, 0.1])


def parts(n: int, m: int, v: int, dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    hidden = torch.randn(n, m, dtype=dtype, requires_grad=True)
    weight = torch.randn(v, m, dtype=dtype, requires_grad=True)
    return hidden, weight, torch.randint(v, (n,))


class TestLoss:
    @pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
    def test_equals_pytorchs(self, smoothing: float) -> None:
        hidden, weight, targets = parts(37, 8, 23, torch.float64)
        result = cross_entropy(hidden, weight, targets, smoothing)
        logits = hidden @ weight.T
        expected = F.cross_entropy(logits, targets, reduction="sum", label_smoothing=smoothing)
        assert result.total.item() == pytest.approx(expected.item(), rel=1e-12)
        plain = F.cross_entropy(logits, targets, reduction="sum")
        assert result.nll.item() == pytest.approx(plain.item(), rel=1e-12)
        assert result.tokens == 37
        ours = torch.autograd.grad(3 * result.total, (hidden, weight))
        theirs = torch.autograd.grad(3 * expected, (hidden, weight))
        for a, b in zip(ours, theirs, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)

    def test_gradcheck(self) -> None:
        hidden, weight, targets = parts(5, 3, 7, torch.float64)
        assert torch.autograd.gradcheck(
            lambda h, w: cross_entropy(h, w, targets, 0.1).total, (hidden, weight)
        )

    def test_chunks_do_not_matter(self, monkeypatch: pytest.MonkeyPatch) -> None:
        hidden, weight, targets = parts(200, 8, 23, torch.float64)  # a chunk has 64 rows or more
        whole = cross_entropy(hidden, weight, targets, 0.1)
        whole_gradients = torch.autograd.grad(whole.total, (hidden, weight))
        monkeypatch.setattr(loss_module, "_CHUNK_ELEMENTS", {"cpu": 1})
        pieces = cross_entropy(hidden, weight, targets, 0.1)
        gradients = torch.autograd.grad(pieces.total, (hidden, weight))
        torch.testing.assert_close(pieces.total, whole.total)
        torch.testing.assert_close(pieces.nll, whole.nll)
        torch.testing.assert_close(gradients, whole_gradients)

    def test_large_logits_stay_finite(self) -> None:
        hidden = torch.tensor([[1e4], [-1e4]], requires_grad=True)
        weight = torch.tensor([[1.0], [-1.0], [0.0]], requires_grad=True)
        sums = cross_entropy(hidden, weight, torch.tensor([0, 1]))
        assert sums.total.item() == pytest.approx(0.0)
        sums.total.backward()
        assert hidden.grad is not None and hidden.grad.isfinite().all()

    def test_without_gradient(self) -> None:
        hidden, weight, targets = parts(5, 3, 7, torch.float32)
        expected = cross_entropy(hidden, weight, targets).nll
        with torch.inference_mode():
            sums = cross_entropy(hidden.detach(), weight.detach(), targets)
        torch.testing.assert_close(sums.nll.clone(), expected)

    def test_bfloat16_is_near(self) -> None:
        hidden, weight, targets = parts(300, 16, 50, torch.float32)
        expected = cross_entropy(hidden, weight, targets, 0.1)
        exact = torch.autograd.grad(expected.total, (hidden, weight))
        with torch.autocast("cpu", torch.bfloat16):
            result = cross_entropy(hidden.bfloat16(), weight, targets, 0.1)
        rough = torch.autograd.grad(result.total, (hidden, weight))
        assert result.total.dtype == torch.float32
        assert result.total.item() == pytest.approx(expected.total.item(), rel=0.01)
        for a, b in zip(rough, exact, strict=True):
            assert a.dtype == torch.float32
            assert (a - b).norm() < 0.02 * b.norm()

    @pytest.mark.parametrize("biased", [False, True])
    def test_autocast_makes_the_largest_product_narrow(self, biased: bool) -> None:
        hidden, weight, targets = parts(30, 16, 50, torch.float32)
        bias = torch.randn(50) if biased else None
        with torch.autocast("cpu", torch.bfloat16):
            result = cross_entropy(hidden, weight, targets, bias=bias)
        narrow = cross_entropy(hidden.bfloat16(), weight, targets, bias=bias)
        assert torch.equal(result.total, narrow.total)
        assert result.total != cross_entropy(hidden, weight, targets, bias=bias).total


class TestAverages:
    def test_moving_average_is_the_formula(self) -> None:
        model = nn.Linear(3, 2)
        average_ = MovingAverage(model, 0.5)
        expected = model.weight.detach().clone()
        for step in range(1, 12):
            with torch.no_grad():
                model.weight.normal_()
            average_.update(model, step)
            decay = min(0.5, (1 + step) / (10 + step))
            expected = decay * expected + (1 - decay) * model.weight.detach()
            torch.testing.assert_close(average_.weights["weight"], expected)

    def test_moving_average_lends_its_weights(self) -> None:
        model = nn.Linear(3, 2)
        average_ = MovingAverage(model, 0.9)
        own = model.weight.detach().clone() + 1
        with torch.no_grad():
            model.weight.copy_(own)
        with pytest.raises(RuntimeError, match="on the way"), average_.in_place_of(model):
            assert not torch.equal(model.weight, own)
            raise RuntimeError("on the way")
        assert torch.equal(model.weight, own)

    def test_mean_of_weights(self) -> None:
        result = average([{"a": torch.tensor([1.0, 2.0])}, {"a": torch.tensor([3.0, 6.0])}])
        assert result["a"].tolist() == [2.0, 4.0] and result["a"].dtype == torch.float32

    @pytest.mark.parametrize("other", [{"a": torch.zeros(3)}, {"b": torch.zeros(2)}, {}])
    def test_mean_of_different_models(self, other: dict[str, torch.Tensor]) -> None:
        with pytest.raises(RunError, match="different models"):
            average([{"a": torch.zeros(2)}, other])


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(4, 3)
        self.linear = nn.Linear(3, 3)
        self.head = nn.Linear(3, 4, bias=False)
        self.head.weight = self.embedding.weight


class TestWeights:
    def test_tied_weights_are_written_once_and_stay_tied(self, tmp_path: Path) -> None:
        model, other = Tied(), Tied()
        write_tensors(tmp_path / "w.safetensors", weights_of(model))
        weights = read_tensors(tmp_path / "w.safetensors")
        assert sorted(weights) == ["embedding.weight", "linear.bias", "linear.weight"]
        load_weights(other, weights, "here")
        assert other.head.weight is other.embedding.weight
        assert torch.equal(other.head.weight, model.head.weight)

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"linear.bias": None}, "lack 'linear.bias'"),
            ({"linear.bias": torch.zeros(2)}, r"'linear.bias' has shape \(2,\)"),
            ({"more": torch.zeros(2)}, "have 'more'"),
        ],
    )
    def test_weights_of_another_model(
        self, changes: dict[str, torch.Tensor | None], message: str
    ) -> None:
        model = Tied()
        before = {name: tensor.clone() for name, tensor in weights_of(model).items()}
        mixed = {name: tensor + 1 for name, tensor in before.items()} | changes
        with pytest.raises(RunError, match=f"here: .*{message}"):
            load_weights(model, {k: v for k, v in mixed.items() if v is not None}, "here")
        assert all(torch.equal(before[name], t) for name, t in weights_of(model).items())

    def test_damaged_files(self, tmp_path: Path) -> None:
        path = tmp_path / "w.safetensors"
        with pytest.raises(RunError, match="no such file"):
            read_tensors(path)
        write_tensors(path, {"a": torch.arange(100.0)})
        whole = path.read_bytes()
        pickled = tmp_path / "pickled"
        torch.save({"a": torch.arange(100.0)}, pickled)
        for content in (whole[:-4], whole[:20], b"", b"\xff" * 100, pickled.read_bytes()):
            path.write_bytes(content)
            with pytest.raises(RunError, match="not a complete safetensors file") as caught:
                read_tensors(path)
            assert str(path) in str(caught.value) and "\n" not in str(caught.value)

    def test_cannot_be_written(self, tmp_path: Path) -> None:
        with pytest.raises(RunError, match="cannot be written"):
            write_tensors(tmp_path / "none" / "w.safetensors", {"a": torch.zeros(1)})


def trained(steps: int = 3) -> tuple[nn.Module, torch.optim.Optimizer, MovingAverage]:
    model = Tied()
    optimizer = build_optimizer(model, TrainingConfig())
    for group in optimizer.param_groups:
        group["lr"] = 0.01
    ema = MovingAverage(model, 0.9)
    for step in range(1, steps + 1):
        step_once(model, optimizer)
        ema.update(model, step)
    return model, optimizer, ema


def step_once(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    ids = torch.randint(4, (8,))
    hidden = F.dropout(model.linear(model.embedding(ids)), 0.5)
    F.cross_entropy(model.head(hidden), ids).backward()
    optimizer.step()


class TestOptimizer:
    def test_decays_matrices_alone(self) -> None:
        config = TrainingConfig(optimizer=AdamConfig(weight_decay=0.1))
        model = Tied()
        decayed, rest = build_optimizer(model, config).param_groups
        assert [id(p) for p in decayed["params"]] == [id(model.linear.weight)]
        assert decayed["weight_decay"] == 0.1 and rest["weight_decay"] == 0.0
        assert len(rest["params"]) == 2

    def test_is_the_papers(self) -> None:
        group = build_optimizer(Tied(), TrainingConfig()).param_groups[0]
        assert (group["betas"], group["eps"]) == ((0.9, 0.98), 1e-9)


class TestCheckpoints:
    @pytest.mark.parametrize(
        "text", ["", "{", "[]", "{}", '{"data": 3}', '{"step": 1, "data": {}}', "[" * 200_000]
    )
    def test_damaged_progress(self, tmp_path: Path, text: str) -> None:
        model, optimizer, ema = trained()
        save_checkpoint(tmp_path, Progress(step=5), model, optimizer, ema)
        path = checkpoint_path(tmp_path, 5)
        (path / "progress.json").write_text(text)
        if text == '{"step": 1, "data": {}}':  # all that is left out has a default
            assert read_progress(path) == Progress(step=1)
            return
        with pytest.raises(RunError, match=r"progress.json cannot be read"):
            read_progress(path)

    def test_prune_keeps_the_newest_and_no_interrupted_one(self, tmp_path: Path) -> None:
        parts = trained()
        for step in (10, 20, 25, 30):
            save_checkpoint(tmp_path, Progress(step=step, interrupted=step == 25), *parts)
        prune_checkpoints(tmp_path, 2, step=30)
        assert [path.name for path in checkpoints_of(tmp_path)] == [
            "step-00000020",
            "step-00000030",
        ]
