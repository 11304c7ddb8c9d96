"""What training does with numbers that are none, too little memory, and signals."""

import itertools
import json
import math
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from helpers.tiny_run import records, reversal_pairs, steps_of, tiny_task, write_tsv
from helpers.tiny_training import Numbers, Sums, equal, run, weights
from transduce.data.batches import DataState, PairBatch
from transduce.errors import MemoryLimitError, TrainingError
from transduce.sequence import Padded
from transduce.training import signals as signals_module
from transduce.training.checkpoints import Progress
from transduce.training.log import MAX_FILES, as_json, save_batches
from transduce.training.loss import LossSums
from transduce.training.selection import Checkpointer
from transduce.training.signals import InterruptedTraining


class Spoilt(Sums):
    """Some batches, by number, have a loss or a gradient that is not finite."""

    def __init__(self, losses: set[int] = frozenset(), gradients: set[int] = frozenset()) -> None:
        super().__init__()
        self.losses, self.gradients = losses, gradients

    def loss(self, batch: Numbers) -> LossSums:
        sums = super().loss(batch)
        number = batch.number  # type: ignore[attr-defined]
        if number in self.losses:
            return sums._replace(total=sums.total * math.inf)
        if number in self.gradients:
            zero = (self.model[0].weight * 0).sum()
            return sums._replace(total=sums.total + zero.sqrt())  # 0, with an infinite slope
        return sums

    def iterate(self, state: DataState) -> Any:
        for batch, after in super().iterate(state):
            batch.number = after.position - 1
            yield batch, after


class TestNonFinite:
    @pytest.mark.parametrize("clip_norm", [0.0, 1.0])
    def test_skip(
        self, clip_norm: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        task = Spoilt(losses={2}, gradients={5})
        observed: list[dict[str, torch.Tensor]] = []
        plain = task.validate

        def validate() -> dict[str, float]:
            observed.append({k: v.clone() for k, v in task.model.state_dict().items()})
            return plain()

        task.validate = validate  # type: ignore[method-assign]
        outcome = run(tmp_path, task, non_finite="skip", validate_every=1, clip_norm=clip_norm)
        assert outcome.step == 10
        same = [equal(a, b) for a, b in itertools.pairwise(observed)]
        assert [step for step, kept in enumerate(same, 2) if kept] == [3, 6]
        assert all(tensor.isfinite().all() for tensor in observed[-1].values())
        logged = records(tmp_path, "train")
        assert [r["step"] for r in logged] == list(range(1, 11))
        assert [r["step"] for r in logged if r["loss"] is None and r["skipped"] == 1] == [3, 6]
        message = [line for line in capsys.readouterr().err.splitlines() if "skipped" in line]
        assert len(message) == 2
        assert "the loss is inf at step 3 in a batch of 3, saved in non_finite/" in message[0]
        assert "gradient norm is nan at step 6" in message[1]

    def test_the_batch_is_kept(self, tmp_path: Path) -> None:
        for path, policy in ((tmp_path / "stop", "stop"), (tmp_path / "skip", "skip")):
            task = Spoilt(losses={2})
            if policy == "stop":
                with pytest.raises(TrainingError, match=r"in non_finite/step-00000003.json; "):
                    run(path, task, non_finite=policy)
            else:
                run(path, task, non_finite=policy)
            kept = json.loads((path / "non_finite" / "step-00000003.json").read_text())
            assert (kept["step"], kept["what"]) == (3, "loss is inf")
            ((described, values),) = [
                (b["description"], b["content"]["values"]) for b in kept["batches"]
            ]
            third = next(b for b, after in Sums().iterate(DataState(0, 2)))
            assert described == "a batch of 3" and values == third.values.tolist()

    def test_a_gradient_that_is_not_finite_stops_without_clipping_too(self, tmp_path: Path) -> None:
        with pytest.raises(TrainingError, match="gradient norm is nan at step 6"):
            run(tmp_path, Spoilt(gradients={5}))

    def test_too_many_in_a_row(self, tmp_path: Path) -> None:
        task = Spoilt(losses={1, 2, 4, 5, 6})
        with pytest.raises(TrainingError, match=r"step 7 .* after 2 skipped steps in a row"):
            run(tmp_path, task, non_finite="skip", skip_at_most=2)
        assert run(tmp_path / "more", task, non_finite="skip", skip_at_most=3).step == 10

    @pytest.mark.parametrize("interrupted", [3, 5, 6])
    def test_resume_counts_on(
        self, interrupted: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        settings: dict[str, Any] = {"non_finite": "skip", "skip_at_most": 3, "ema": 0.5}
        run(tmp_path / "whole", Spoilt(losses={1, 2, 4, 5, 6}), **settings)
        task = Spoilt(losses={1, 2, 4, 5, 6})
        plain = task.loss

        def loss(batch: Numbers) -> LossSums:
            if batch.number == interrupted:  # type: ignore[attr-defined]
                signal.raise_signal(signal.SIGTERM)
            return plain(batch)

        task.loss = loss  # type: ignore[method-assign]
        with pytest.raises(InterruptedTraining):
            run(tmp_path / "run", task, **settings)
        run(tmp_path / "run", Spoilt(losses={1, 2, 4, 5, 6}), resume=True, **settings)
        assert equal(weights(tmp_path / "whole"), weights(tmp_path / "run"))
        with pytest.raises(TrainingError, match=r"step 7 .* after 2 skipped"):
            run(tmp_path / "run2", Spoilt(losses={4, 5}), steps=6, non_finite="skip")
            run(
                tmp_path / "run2",
                Spoilt(losses={6}),
                resume=True,
                non_finite="skip",
                skip_at_most=2,
            )

    def test_files_are_limited(self, tmp_path: Path) -> None:
        kept = [save_batches(tmp_path, i, "loss", []) for i in range(MAX_FILES + 3)]
        assert all(kept[:MAX_FILES]) and not any(kept[MAX_FILES:])
        assert len(list((tmp_path / "non_finite").iterdir())) == MAX_FILES

    def test_ids_are_without_padding(self) -> None:
        source = Padded.from_rows([[5, 6, 7], [8]])
        batch = PairBatch(source, Padded.from_rows([[1, 3], [1, 3]]), np.array([4, 2]), 2)
        assert as_json(batch) == {
            "source": [[5, 6, 7], [8]],
            "target": [[1, 3], [1, 3]],
            "rows": [4, 2],
            "target_tokens": 2,
        }
        json.dumps(as_json([math.nan, torch.tensor([math.inf]), {1}]), allow_nan=False)
        image = as_json(torch.zeros(200_000, dtype=torch.uint8))
        assert image == {"shape": [200_000], "finite": True, "smallest": 0.0, "largest": 0.0}


OUT_OF_MEMORY = (
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    RuntimeError("[enforce fail at alloc_cpu.cpp:124] DefaultCPUAllocator: can't allocate memory"),
    MemoryError(),
)


class _FailingBackward(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, value: torch.Tensor) -> torch.Tensor:
        return value.clone()

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> torch.Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory")


class Small(Sums):
    """A model in whose memory only so many rows fit."""

    def __init__(self, rows: int, error: Exception | None) -> None:
        super().__init__()
        self.model[1] = nn.Identity()  # parts draw other dropout than the whole
        self.rows, self.error = rows, error
        self.refused = 0

    def loss(self, batch: Numbers) -> LossSums:
        sums = super().loss(batch)
        if len(batch.values) <= self.rows:
            return sums
        self.refused += 1
        if self.error is None:  # in the backward pass, when part of the gradient is there
            late = _FailingBackward.apply(self.model[0].weight) * 0
            return sums._replace(total=sums.total + late.sum())
        raise self.error


class Drawing(Small):
    """Draws dropout before it runs out of memory."""

    def __init__(self, rows: int, error: Exception | None) -> None:
        super().__init__(rows, error)
        self.model[1] = nn.Dropout(0.5)


class TestMemory:
    @pytest.mark.parametrize("error", [*OUT_OF_MEMORY, None])
    @pytest.mark.parametrize("accumulate", [1, 3])
    def test_a_split_batch_makes_the_same_step(
        self,
        error: Exception | None,
        accumulate: int,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        settings: dict[str, Any] = {"accumulate": accumulate, "steps": 4, "clip_norm": 1.0}
        run(tmp_path / "whole", Small(100, None), **settings)
        capsys.readouterr()
        task = Small(1, error)
        run(tmp_path / "split", task, **settings)
        assert 0 < task.refused <= 2  # three rows are halved twice, later batches at once
        for name, tensor in weights(tmp_path / "whole").items():
            torch.testing.assert_close(weights(tmp_path / "split")[name], tensor)
        for a, b in zip(
            records(tmp_path / "whole", "train"), records(tmp_path / "split", "train"), strict=True
        ):
            assert a["loss"] == pytest.approx(b["loss"])
        message = [line for line in capsys.readouterr().err.splitlines() if "out of memory" in line]
        assert len(message) == 1 and "splitting batches from now on" in message[0]

    def test_a_failed_attempt_leaves_no_trace_in_random_numbers(self, tmp_path: Path) -> None:
        """A resumed run, which finds the split again, draws the same dropout."""
        run(tmp_path / "whole", Drawing(1, MemoryError()))
        for steps, resume in ((6, False), (10, True)):
            task = Drawing(1, MemoryError())
            run(tmp_path / "run", task, steps=steps, resume=resume)
            assert task.refused
        assert equal(weights(tmp_path / "whole"), weights(tmp_path / "run"))

    def test_one_row_that_does_not_fit(self, tmp_path: Path) -> None:
        expected = "out of memory at step 1 in a batch of 1, a single row"
        with pytest.raises(MemoryLimitError, match=expected):
            run(tmp_path, Small(0, MemoryError()))

    def test_another_error_is_no_question_of_memory(self, tmp_path: Path) -> None:
        with pytest.raises(RuntimeError, match="shapes"):
            run(tmp_path, Small(1, RuntimeError("shapes cannot be multiplied")))

    def test_halves_of_pairs(self, tmp_path: Path) -> None:
        """Parts of uneven rows add up to the gradient of the whole, also where they are split."""
        data = write_tsv(tmp_path / "a.tsv", reversal_pairs(60))
        task = tiny_task(data, tmp_path / "task", "training.batch_tokens=256")
        whole = next(batch for batch, _ in task.batches.iterate(DataState()))
        first, rest = whole.halves()
        quarter = first.halves()
        gradients, nll = [], []
        for parts in ([whole], [first, rest], [*quarter, rest]):
            task.model.zero_grad()
            sums = [task.loss(part) for part in parts]
            assert [s.tokens for s in sums] == [p.target_tokens for p in parts]
            assert sum(s.tokens for s in sums) == whole.target_tokens
            sum(s.total for s in sums).backward()
            nll.append(sum(float(s.nll) for s in sums))
            gradients.append({n: p.grad.clone() for n, p in task.model.named_parameters()})
        for other in (1, 2):
            torch.testing.assert_close(gradients[other], gradients[0], rtol=1e-4, atol=1e-5)
            assert nll[other] == pytest.approx(nll[0])
        assert np.array_equal(np.concatenate([first.rows, rest.rows]), whole.rows)
        while (halves := whole.halves()) is not None:
            whole = halves[0]
        assert len(whole.rows) == 1


class TestSignals:
    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_a_validation_is_not_waited_for(self, number: signal.Signals, tmp_path: Path) -> None:
        run(tmp_path / "whole", ema=0.5)
        task, after = Sums(), []
        plain = task.validate

        def validate() -> dict[str, float]:
            if task.validated == 1:  # that of step 4
                signal.raise_signal(number)
                after.append(True)
            return plain()

        task.validate = validate  # type: ignore[method-assign]
        with pytest.raises(InterruptedTraining, match="after step 4") as caught:
            run(tmp_path / "run", task, ema=0.5)
        assert caught.value.number == number and not after
        assert steps_of(tmp_path / "run") == [2, 4]
        run(tmp_path / "run", ema=0.5, resume=True)
        assert equal(weights(tmp_path / "whole"), weights(tmp_path / "run"))
        for kind in ("train", "validation"):
            whole, result = (records(tmp_path / name, kind) for name in ("whole", "run"))
            assert [r["step"] for r in result] == [r["step"] for r in whole]
            assert [r["loss"] for r in result] == [r["loss"] for r in whole]

    def test_while_the_last_checkpoint_is_written(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It was heard, though nothing is left to do: a sweep is not to go on with the next run."""
        run(tmp_path / "whole")
        plain = Checkpointer.save

        def save(checkpointer: Checkpointer, progress: Progress) -> None:
            plain(checkpointer, progress)
            if progress.step == 10:
                signal.raise_signal(signal.SIGTERM)

        with monkeypatch.context() as patched:
            patched.setattr(Checkpointer, "save", save)
            with pytest.raises(InterruptedTraining, match="after step 10"):
                run(tmp_path / "run")
        assert run(tmp_path / "run", resume=True).step == 10
        assert equal(weights(tmp_path / "whole"), weights(tmp_path / "run"))

    def test_twice(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """SIGTERM twice, or Ctrl-C twice at once, is still one request; later, it is another."""
        clock = [0.0]
        monkeypatch.setattr(signals_module.time, "monotonic", lambda: clock[0])
        noted = signals_module.Signals()
        with noted.noted():
            for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGINT):
                signal.raise_signal(number)
            clock[0] = 5.0
            signal.raise_signal(signal.SIGTERM)
            assert noted.number == signal.SIGTERM
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
