"""Steps of one shape: the weights of plain steps, without a look at a value."""

from __future__ import annotations

import contextlib
import itertools
import signal
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

import transduce
from helpers.gpu import Reads
from helpers.tiny_run import (
    records,
    reversal_pairs,
    stack,
    tiny_task,
    train_tiny,
    training,
    write_tsv,
)
from transduce.data.batches import DataState, PairBatch
from transduce.errors import TransduceError
from transduce.models.config import PRESETS
from transduce.models.encoder_decoder import build_encoder_decoder
from transduce.nn.repeated_work import RepeatedWork
from transduce.tasks.translation.training import TranslationTraining
from transduce.training import step
from transduce.training.distributed import Ranks
from transduce.training.loss import LossSums
from transduce.training.optimizer import build_optimizer
from transduce.training.signals import InterruptedTraining
from transduce.training.step import (
    GraphedStep,
    NonFiniteError,
    OptimizerStep,
    packer_of,
    padding_reason,
)

SETTINGS = (
    "training.batch_tokens=96",
    "training.label_smoothing=0.1",
    "training.clip_norm=0.5",
    "training.optimizer.weight_decay=0.1",
    "training.optimizer.epsilon=1e-4",  # else gradients of rounding alone, of a key's bias, count
)


def stepper(
    kind: type[OptimizerStep], data: Path, directory: Path, *settings: str
) -> OptimizerStep:
    torch.manual_seed(5)
    task = tiny_task(data, directory, *SETTINGS, *settings)
    config = task.recipe.training
    optimizer = build_optimizer(task.model, config)
    packer = task if kind is GraphedStep else None
    return kind(task, config, optimizer, Ranks.present(), lambda text: None, None, packer)


def steps(step: OptimizerStep, n: int) -> list[tuple[list[Any], int]]:
    every = (batch for batch, _ in step.task.batches.iterate(DataState()))
    each = step.config.accumulate
    groups = [list(itertools.islice(every, each)) for _ in range(n)]
    return [(group, sum(batch.target_tokens for batch in group)) for group in groups]


def taken(step: OptimizerStep, n: int = 5) -> tuple[dict[str, Tensor], float]:
    for number, (batches, count) in enumerate(steps(step, n), 1):
        step(number, batches, 0.01 / number, count)
    return step.task.model.state_dict(), step.read()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_tsv(tmp_path / "pairs.tsv", reversal_pairs(60))


def assert_close(weights: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    for name, tensor in expected.items():
        torch.testing.assert_close(weights[name], tensor, rtol=1e-4, atol=1e-5, msg=name)


@pytest.mark.parametrize("accumulate", [1, 2])
def test_weights_are_those_of_plain_steps(accumulate: int, data: Path, tmp_path: Path) -> None:
    setting = f"training.accumulate={accumulate}"
    plain, graphed = (
        taken(stepper(kind, data, tmp_path / kind.__name__, setting))
        for kind in (OptimizerStep, GraphedStep)
    )
    assert_close(graphed[0], plain[0])
    assert graphed[1] == pytest.approx(plain[1], rel=1e-5)


@pytest.mark.parametrize("accumulate", [1, 2])
def test_weights_stay_float32_beside_narrow_copies(
    accumulate: int, data: Path, tmp_path: Path
) -> None:
    """Steps equal to autocast, which casts each matrix by itself, under Adam written out."""
    more = "training.precision=bf16", f"training.accumulate={accumulate}"
    more += ("training.optimizer.weight_decay=0", "training.clip_norm=0")
    graphed = stepper(GraphedStep, data, tmp_path / "graphed", *more)
    weights, _ = taken(graphed, 2)
    assert isinstance(graphed, GraphedStep) and graphed._narrow is not None
    assert len(graphed._narrow._layers) == 11, "all but tied embeddings"
    cast = stepper(GraphedStep, data, tmp_path / "cast", *more)
    cast._narrow = None
    for name, tensor in taken(cast, 2)[0].items():
        assert torch.equal(weights[name], tensor), name
    plain = stepper(OptimizerStep, data, tmp_path / "plain", *more)
    task, settings = plain.task, plain.config.optimizer
    state = {p: (torch.zeros_like(p), torch.zeros_like(p)) for p in task.model.parameters()}
    for number, (batches, count) in enumerate(steps(plain, 1), 1):
        task.model.zero_grad()
        for batch in batches:
            with torch.autocast("cpu", torch.bfloat16):
                total = task.packed_loss(task.pack(batch)).total
            (total / count).backward()
        for p, (first, second) in state.items():
            assert p.grad is not None and p.dtype == p.grad.dtype == torch.float32
            first += (1 - settings.beta1) * (p.grad - first)
            second += (1 - settings.beta2) * (p.grad**2 - second)
            mean = first / (1 - settings.beta1**number)
            spread = (second / (1 - settings.beta2**number)).sqrt() + settings.epsilon
            p.data -= 0.01 / number * mean / spread
    assert_close(
        taken(stepper(GraphedStep, data, tmp_path / "one", *more), 1)[0], task.model.state_dict()
    )


def test_a_step_looks_at_no_value(data: Path, tmp_path: Path) -> None:
    step = stepper(GraphedStep, data, tmp_path)
    assert isinstance(step, GraphedStep)
    step._place([step.packer.pack(batch) for batch in steps(step, 1)[0][0]])
    with Reads() as reads:
        step._compute()
    # Adam of a CPU reads its learning rate, that of a GPU does not
    assert not [name for name in reads.names if name != "_local_scalar_dense"]
    assert len(reads.names) <= 1


@dataclass
class FakeGraphs:
    """CUDA graphs of nothing.  calls: what was done.  refusal: raised by work that is recorded.
    end: raised by the end of a capture."""

    calls: list[str] = field(default_factory=list)
    refusal: Exception | None = None
    end: Exception | None = None
    recording: bool = False

    def work(self) -> None:
        if self.recording and self.refusal is not None:
            raise self.refusal
        self.calls.append("record" if self.recording else "work")


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> FakeGraphs:
    fakes = FakeGraphs()

    @contextlib.contextmanager
    def record(graph: Any, capture_error_mode: str) -> Iterator[None]:
        fakes.recording = True
        try:
            yield
        finally:
            fakes.recording = False
            if fakes.end is not None:
                raise fakes.end

    @contextlib.contextmanager
    def beside(stream: Any) -> Iterator[None]:
        yield

    stream = SimpleNamespace(wait_stream=lambda other: None)
    graph = SimpleNamespace(replay=lambda: fakes.calls.append("replay"))
    event = SimpleNamespace(record=lambda: None, synchronize=lambda: fakes.calls.append("wait"))
    for name, fake in {
        "CUDAGraph": lambda: graph,
        "graph": record,
        "Event": lambda: event,
        "Stream": lambda device: stream,
        "stream": beside,
        "current_stream": lambda device: stream,
        "synchronize": lambda device: fakes.calls.append("all done"),
    }.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    return fakes


def test_work_is_recorded_after_a_few_times(graphs: FakeGraphs) -> None:
    calls, lines = graphs.calls, list[str]()
    work = RepeatedWork(graphs.work, torch.device("cuda"), lines.append)
    for _ in range(5):
        work.launch()
    assert calls == ["work"] * 3 + ["wait", "record", "replay", "wait", "replay", "wait"]
    assert work.is_recorded
    calls.clear()
    work.forget()
    assert calls == ["all done"], "before the memory of the graph is freed"
    calls.clear()
    work.launch()
    assert calls == ["work", "wait"] and not work.is_recorded and not lines
    graphs.refusal = RuntimeError("not permitted when stream is capturing\nand more")
    calls.clear()
    for _ in range(4):
        work.launch()
    assert calls == ["work", "wait"] * 4, "done each time"
    assert lines == [
        "each step is launched by itself, as it cannot be recorded: not permitted when stream is "
        "capturing"
    ]


@pytest.mark.parametrize("refusal", [None, RuntimeError, torch.OutOfMemoryError, ValueError])
def test_a_capture_that_does_not_end_stops_with_its_cause(
    graphs: FakeGraphs, refusal: type[Exception] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    graphs.refusal = None if refusal is None else refusal("the first error\nat a line")
    graphs.end = RuntimeError("operation failed due to a previous error during capture")
    lines: list[str] = []
    work = RepeatedWork(graphs.work, torch.device("cuda"), lines.append, first_times=1)
    work.launch()
    named = "the first error" if refusal else "operation failed due to a previous error"
    with pytest.raises(
        TransduceError, match=f"CUDA graph: {named}.*TRANSDUCE_CUDA_GRAPHS=0"
    ) as error:
        work.launch()
    assert "\n" not in str(error.value) and not lines and not work.is_recorded
    graphs.calls.clear()
    monkeypatch.setenv("TRANSDUCE_CUDA_GRAPHS", "0")
    work = RepeatedWork(graphs.work, torch.device("cuda"), lines.append, first_times=1)
    for _ in range(3):
        work.launch()
    assert graphs.calls == ["work"] * 3 + ["wait"], "nothing is recorded"


def test_memory_short_in_a_capture_that_ends_is_passed_on(graphs: FakeGraphs) -> None:
    graphs.refusal = torch.OutOfMemoryError("CUDA out of memory")
    work = RepeatedWork(graphs.work, torch.device("cuda"), str, first_times=0)
    with pytest.raises(torch.OutOfMemoryError):
        work.launch()


def test_a_larger_batch_begins_anew(data: Path, tmp_path: Path) -> None:
    step = stepper(GraphedStep, data, tmp_path)
    assert isinstance(step, GraphedStep)
    (batches, count), *_ = steps(step, 1)
    step(1, batches, 0.01, count)
    forgotten = []
    step._work.forget = lambda: forgotten.append(True)  # type: ignore[method-assign]
    step(2, batches, 0.01, count)
    assert not forgotten
    step.task.shape.longest[0] += 1
    step(3, batches, 0.01, count)
    assert forgotten


@pytest.mark.parametrize(("spoilt", "what"), [("loss", "loss is nan"), ("gradient", "norm is ")])
def test_a_step_that_is_not_finite_changes_nothing(
    spoilt: str, what: str, data: Path, tmp_path: Path
) -> None:
    step = stepper(GraphedStep, data, tmp_path)
    loss = step._loss
    weight = step.task.model.head.weight

    def spoil(batch: Any) -> Any:
        sums = loss(batch)
        if not spoiling:
            return sums
        if spoilt == "loss":
            return sums._replace(total=sums.total * float("nan"))
        return sums._replace(total=sums.total + (weight * 0).sum().sqrt())

    step._loss = spoil
    spoiling = False
    before: dict[str, Tensor] = {}
    every = steps(step, 5)
    for number, (batches, count) in enumerate(every, 1):
        spoiling = number == 3
        if number == 3:
            before = {name: x.clone() for name, x in step.task.model.state_dict().items()}
        step(number, batches, 0.01, count)
    with pytest.raises(NonFiniteError, match=what) as raised:
        step.read()
    assert raised.value.number == 3 and raised.value.batches == every[2][0]
    for name, tensor in step.task.model.state_dict().items():
        assert torch.equal(tensor, before[name])


def test_short_memory_makes_steps_plain(data: Path, tmp_path: Path) -> None:
    plain = taken(stepper(OptimizerStep, data, tmp_path / "plain"))
    step = stepper(GraphedStep, data, tmp_path / "graphed")
    assert isinstance(step, GraphedStep)
    launch, launched = step._work.launch, []

    def short() -> None:
        launched.append(True)
        if len(launched) == 3:
            raise MemoryError
        launch()

    step._work.launch = short  # type: ignore[method-assign]
    assert not step.is_read
    weights, nll = taken(step)
    assert step.is_read and len(launched) == 3
    assert_close(weights, plain[0])
    assert nll == pytest.approx(plain[1], rel=1e-5)


def test_a_training_of_packed_batches(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Is logged and validated as one of padded batches, and can be stopped and resumed."""
    more = ("training.steps=12", "training.log_every=5", "training.validate_every=4")
    train_tiny(data, tmp_path / "padded", *SETTINGS, *more)
    monkeypatch.setattr(step, "packer_of", lambda task, config, log: task)
    kinds = []
    call = GraphedStep.__call__

    def called(step: GraphedStep, number: int, *rest: Any) -> None:
        kinds.append(number)
        call(step, number, *rest)
        if number == 7 and not stopped:
            stopped.append(True)
            signal.raise_signal(signal.SIGTERM)

    stopped: list[bool] = []
    monkeypatch.setattr(GraphedStep, "__call__", called)
    with pytest.raises(InterruptedTraining):
        train_tiny(data, tmp_path / "packed", *SETTINGS, *more)
    train_tiny(data, tmp_path / "packed", *SETTINGS, *more, resume=True)
    assert kinds == list(range(1, 13))
    for kind in ("train", "validation"):
        padded, packed = (records(tmp_path / name, kind) for name in ("padded", "packed"))
        assert [r["step"] for r in packed] == [r["step"] for r in padded]
        for record, expected in zip(packed, padded, strict=True):
            assert record["loss"] == pytest.approx(expected["loss"], rel=1e-4)


@pytest.mark.parametrize("task", ["language-model", "masked-language-model"])
def test_trainings_of_documents(task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = (" ".join("abcde"[(i + j) % 5] for j in range(3 + i % 7)) for i in range(150))
    (tmp_path / "a.txt").write_text("\n\n".join(lines) + "\n")
    text = {"kind": "text", "path": "a.txt", "documents": "blank-line"}
    side = "decoder" if task == "language-model" else "encoder"
    settings = {
        "task": task,
        "data": {"root": str(tmp_path), "train": text, "hold_out": 0.1},
        "text": {"tokenizer": {"kind": "symbols"}},
        "model": {"d_model": 16, side: stack(positions="rotary")},
        "training": training(8, 128, 5e-3, validate_every=4, log_every=4),
    }
    settings["text"] |= {"block": 32} if side == "decoder" else {"max_length": 32}
    losses = []
    for name in ("padded", "packed"):
        transduce.train(settings, tmp_path / name)
        kinds = "train", "validation"
        losses.append([r["loss"] for kind in kinds for r in records(tmp_path / name, kind)])
        monkeypatch.setattr(step, "packer_of", lambda task, config, log: task)
    assert len(losses[0]) == 4
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)


GPU = torch.device("cuda")


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ([], ""),
        (["model.decoder.positions=alibi"], "model.decoder.positions add a bias"),
        (["model.encoder.attention_dropout=0.1"], "model.encoder.attention_dropout is not 0"),
        (["model.d_model=12"], "heads are 6 wide"),
    ],
)
def test_the_reason_for_padding_is_named(
    settings: list[str], reason: str, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    task = tiny_task(data, tmp_path, *settings)
    recurrent = build_encoder_decoder(PRESETS["rnn-dot"], 9, 9, joint=True)
    assert padding_reason(recurrent, GPU, torch.bfloat16).startswith("model.encoder.kind is not")
    named = padding_reason(task.model, GPU, torch.bfloat16)
    assert named.startswith(reason) and bool(named) == bool(reason)
    if not settings:
        assert "float32" in padding_reason(task.model, GPU, torch.float32)
        assert "needs a GPU" in padding_reason(task.model, torch.device("cpu"), torch.bfloat16)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
        assert "older than Ampere" in padding_reason(task.model, GPU, torch.bfloat16)


def test_a_subclass_with_its_own_loss_stays_padded(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Own(TranslationTraining):
        def loss(self, batch: PairBatch) -> LossSums:
            return super().loss(batch)

    task = tiny_task(data, tmp_path, "training.precision=bf16")
    config, lines = task.recipe.training, []
    assert packer_of(task, config, lines.append) is None and not lines, "not on a GPU"
    parameter = SimpleNamespace(device=GPU)
    model = SimpleNamespace(parameters=lambda: iter([parameter]), encoder=task.model.encoder)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(task, "model", model)
    assert packer_of(task, config, lines.append) is task and not lines
    task.__class__ = Own
    assert packer_of(task, config, lines.append) is None
    assert lines == [
        "batches are padded instead of packed, which is slower on a GPU: Own computes its own loss"
    ]
