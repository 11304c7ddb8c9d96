"""The training loop, on a task so small that its every step can be foreseen."""

import dataclasses
import hashlib
import itertools
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from helpers.tiny_run import records, reversal_pairs, tiny_task, write_tsv
from helpers.tiny_training import Sums, equal, run, weights
from transduce.data.batches import DataState
from transduce.errors import RunError, SettingError, TrainingError
from transduce.training import trainer as trainer_module
from transduce.training.checkpoints import checkpoint_path
from transduce.training.config import Constant, Cosine
from transduce.training.log import kept_scores
from transduce.training.weight_files import checkpoints_of
from transduce.training.weights import read_tensors, weights_of


def test_a_rate_that_rises_at_a_resumption_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    schedule = Cosine(peak=0.01, warmup_steps=1)
    run(tmp_path, schedule=schedule, steps=20, log_every=1)
    capsys.readouterr()
    run(tmp_path, schedule=schedule, steps=40, log_every=1, resume=True)
    line = next(line for line in capsys.readouterr().err.splitlines() if "learning rate" in line)
    assert "rises from" in line and "cosine" in line
    run(tmp_path, schedule=schedule, steps=40, log_every=1, resume=True)
    assert "learning rate rises" not in capsys.readouterr().err  # nothing is left


class TestSteps:
    def test_learns_and_keeps_the_best(self, tmp_path: Path) -> None:
        task = Sums()
        outcome = run(tmp_path, task, steps=200, validate_every=50)
        losses = [record["loss"] for record in records(tmp_path, "validation")]
        assert outcome.scores["loss"] == min(losses) < 0.5
        assert outcome.best_step == 50 * (1 + losses.index(min(losses)))
        assert equal(weights(tmp_path), weights_of(task.model))  # the best ones are loaded

    def test_takes_denormals_for_zeros_until_the_end(self, tmp_path: Path) -> None:
        def product() -> float:
            return (torch.full((64,), 1e-30) * torch.full((64,), 1e-10)).max().item()

        if not torch.set_flush_denormal(True):
            pytest.skip("PyTorch cannot do so on this processor")
        torch.set_flush_denormal(False)
        task, products = Sums(), []
        task.model.register_forward_pre_hook(lambda *_: products.append(product()))
        run(tmp_path, task, steps=3)
        assert products and not any(products)
        assert product() > 0

    def test_accumulation_adds_up_to_the_whole_batch(self, tmp_path: Path) -> None:
        data = write_tsv(tmp_path / "a.tsv", reversal_pairs(60))
        task = tiny_task(data, tmp_path / "task", "training.batch_tokens=64")
        halves = [batch for batch, _ in itertools.islice(task.batches.iterate(DataState()), 2)]
        assert halves[0].target_tokens != halves[1].target_tokens
        gradients = []
        for parts in (halves, [joined(halves)]):
            task.model.zero_grad()
            count = sum(part.target_tokens for part in parts)
            for part in parts:
                (task.loss(part).total / count).backward()
            gradients.append({n: p.grad.clone() for n, p in task.model.named_parameters()})
        torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-4, atol=1e-6)

    def test_step_sees_the_sum_over_micro_batches(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        observed: list[torch.Tensor] = []
        task = Sums()
        task.model[1] = nn.Identity()
        expected = Sums()
        expected.model.load_state_dict(task.model.state_dict())
        two = [batch for batch, _ in itertools.islice(task.batches.iterate(DataState()), 2)]
        expected.model[1] = nn.Identity()
        (sum(expected.loss(batch).total for batch in two) / 3).backward()  # 1 + 2 rows

        def look(model: nn.Module, optimizer: Any) -> Any:
            optimizer.register_step_pre_hook(
                lambda *_: observed.append(model[0].weight.grad.clone())
            )
            return optimizer

        build = trainer_module.build_optimizer
        monkeypatch.setattr(
            trainer_module, "build_optimizer", lambda model, *rest: look(model, build(model, *rest))
        )
        run(tmp_path, task, steps=1, accumulate=2)
        torch.testing.assert_close(observed[0], expected.model[0].weight.grad)

    def test_clipping(self, tmp_path: Path) -> None:
        norms: list[float] = []
        task = Sums()

        def look(parameter: nn.Parameter) -> None:
            norms.append(
                math.sqrt(
                    sum(
                        float(p.grad.square().sum())
                        for p in task.model.parameters()
                        if p.grad is not None
                    )
                )
            )

        build = trainer_module.build_optimizer

        def building(model: nn.Module, *rest: Any) -> torch.optim.Optimizer:
            optimizer = build(model, *rest)
            optimizer.register_step_pre_hook(lambda *_: look(model[0].weight))
            return optimizer

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(trainer_module, "build_optimizer", building)
            run(tmp_path, task, steps=5, clip_norm=0.01)
        assert len(norms) == 5 and max(norms) == pytest.approx(0.01, rel=1e-3)

    def test_learning_rate_follows_the_schedule(self, tmp_path: Path) -> None:
        run(tmp_path, schedule=Cosine(peak=1.0, warmup_steps=1), steps=4)
        rates = [record["learning_rate"] for record in records(tmp_path, "train")]
        assert rates == pytest.approx([1.0, 0.8535534, 0.5, 0.1464466])

    def test_a_paced_task_learns_the_share_of_the_budget(self, tmp_path: Path) -> None:
        class Paced(Sums):
            def __init__(self) -> None:
                super().__init__()
                self.shares: list[float] = []

            def begin_step(self, share: float) -> None:
                self.shares.append(share)

        whole, resumed = Paced(), Paced()
        run(tmp_path, whole, steps=4)
        assert whole.shares == [0.0, 0.25, 0.5, 0.75]
        run(tmp_path, resumed, steps=5, resume=True)
        assert resumed.shares == [0.8]


def joined(parts: list[Any]) -> Any:
    """Two batches of pairs as one, padded to the wider of them."""
    from transduce.data.batches import PairBatch
    from transduce.sequence import Padded

    def rows(side: Padded) -> list[list[int]]:
        return [v[r].tolist() for v, r in zip(side.values, side.real, strict=True)]

    source = Padded.from_rows([row for part in parts for row in rows(part.source)])
    target = Padded.from_rows([row for part in parts for row in rows(part.target)])
    return PairBatch(source, target, parts[0].rows, sum(part.target_tokens for part in parts))


class TestValidation:
    def test_patience(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        task = Sums({"loss": [3.0, 2.0, 2.5, 2.0, 1.0, 0.5]})
        outcome = run(tmp_path, task, patience=2, steps=12)
        assert capsys.readouterr().err.endswith(
            "stopped by training.patience: no improvement in 2 validations since step 4\n"
        )
        run(tmp_path, task, resume=True, patience=2, steps=12)
        assert "nothing left to train after step 8\n" in capsys.readouterr().err
        assert (outcome.step, outcome.best_step, outcome.scores) == (8, 4, {"loss": 2.0})
        assert equal(weights(tmp_path), weights_of(task.model))

    @pytest.mark.parametrize(("name", "best"), [("bleu", 4), ("wer", 6), ("loss", 2)])
    def test_select_by(self, tmp_path: Path, name: str, best: int) -> None:
        task = Sums({"loss": [1.0, 2.0, 3.0], "bleu": [5.0, 9.0, 7.0], "wer": [50.0, 40.0, 30.0]})
        outcome = run(tmp_path, task, select_by=name, steps=6)
        assert outcome.best_step == best
        assert outcome.scores == {n: v[best // 2 - 1] for n, v in task.validations.items()}
        validated = read_tensors(checkpoint_path(tmp_path, 6) / "model.safetensors")
        assert equal(weights(tmp_path), validated) == (best == 6)

    def test_select_by_something_else(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with pytest.raises(SettingError, match=r"training.select_by = 'blue', .* 'loss'"):
            run(tmp_path, select_by="blue")
        assert run(tmp_path, resume=True).step == 10
        assert "resuming after step 2" in capsys.readouterr().err  # where it was noticed

    def test_average_last(self, tmp_path: Path) -> None:
        task = Sums()
        run(tmp_path, task, average_last=3, keep_last=1)
        kept = checkpoints_of(tmp_path)
        assert [int(path.name[5:]) for path in kept] == [6, 8, 10]
        parts = [read_tensors(path / "model.safetensors") for path in kept]
        for name, tensor in weights(tmp_path).items():
            mean = torch.stack([part[name] for part in parts]).mean(0)
            torch.testing.assert_close(tensor, mean)
        assert equal(weights(tmp_path), weights_of(task.model))
        assert records(tmp_path, "validation")[-1]["averaged"] == 3

    def test_average_that_is_worse(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        losses = {"loss": [5.0, 4.0, 2.0, 1.0, 1.5, 3.0]}  # the last of them is the average's
        outcome = run(tmp_path, Sums(losses), average_last=3)
        assert (outcome.averaged, outcome.scores, outcome.best_step) == (3, {"loss": 3.0}, 8)
        assert kept_scores(tmp_path) == {"loss": 3.0}
        message = capsys.readouterr().err
        assert "checkpoints, although step 8 scored no worse" in message
        assert "validation at step 10: loss 3.000\n" in message
        best = read_tensors(checkpoint_path(tmp_path, 8) / "model.safetensors")
        assert not equal(weights(tmp_path), best)
        back = run(tmp_path, Sums(losses), resume=True)
        assert (back.averaged, back.scores) == (0, {"loss": 1.0}) and equal(weights(tmp_path), best)
        assert kept_scores(tmp_path) == {"loss": 1.0}

    @pytest.mark.parametrize("lacking", [{"loss": math.nan, "bleu": 1.0}, {"loss": 1.0}])
    def test_average_that_cannot_be_measured(
        self, tmp_path: Path, lacking: dict[str, float], capsys: pytest.CaptureFixture[str]
    ) -> None:
        class Gone(Sums):
            def validate(self) -> dict[str, float]:
                last = self.validated == 5
                self.validated += 1
                return lacking if last else {"loss": 1.0, "bleu": 10.0 - self.validated}

        outcome = run(tmp_path, Gone(), average_last=3, select_by="bleu")
        assert (outcome.averaged, outcome.best_step, outcome.scores["bleu"]) == (0, 2, 9.0)
        last = read_tensors(checkpoint_path(tmp_path, 10) / "model.safetensors")
        assert not equal(weights(tmp_path), last)
        message = (
            "cannot measure bleu of the mean of the last 3 checkpoints; keeping the weights of"
        )
        assert message in capsys.readouterr().err

    def test_fewer_checkpoints_than_are_to_be_averaged(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        outcome = run(tmp_path, average_last=3, validate_every=10)
        assert outcome.averaged == 0
        message = "training.average_last = 3, but the number of checkpoints is 1\n"
        assert capsys.readouterr().err.endswith(message)

    def test_moving_average_is_what_is_kept(self, tmp_path: Path) -> None:
        run(tmp_path, ema=0.9, schedule=Constant(peak=0.001))
        last = checkpoint_path(tmp_path, 10)
        assert equal(weights(tmp_path), read_tensors(last / "ema.safetensors"))
        assert not equal(weights(tmp_path), read_tensors(last / "model.safetensors"))

    def test_outcome_is_remembered(self, tmp_path: Path) -> None:
        task = Sums({"loss": [3.0, 2.0, 2.5, 4.0, 5.0]})
        first = run(tmp_path, task)
        again = run(tmp_path, Sums({"loss": []}), resume=True)
        assert (again.step, again.best_step, again.scores) == (10, 4, {"loss": 2.0})
        assert again.scores == first.scores


class TestFailure:
    def test_loss_that_is_not_finite(self, tmp_path: Path) -> None:
        with pytest.raises(TrainingError) as caught:
            run(tmp_path, Sums(bad_batch=6))
        message = str(caught.value)
        assert "loss is nan at step 7 in a batch of 1" in message and "\n" not in message
        assert "the last checkpoint is of step 6" in message
        assert weights(tmp_path)["0.weight"].isfinite().all()
        with pytest.raises(TrainingError, match="at step 7"):  # and it can be taken up
            run(tmp_path, Sums(bad_batch=6), resume=True)
        assert run(tmp_path, Sums(), resume=True).step == 10

    def test_before_any_checkpoint(self, tmp_path: Path) -> None:
        with pytest.raises(TrainingError, match=r"step 1 .*there is no earlier checkpoint"):
            run(tmp_path, Sums(bad_batch=0))

    def test_validation_that_is_not_finite_spoils_nothing(self, tmp_path: Path) -> None:
        with pytest.raises(TrainingError, match="validation loss is nan at step 4"):
            run(tmp_path, Sums({"loss": [1.0, math.nan]}))
        assert [path.name for path in checkpoints_of(tmp_path)] == ["step-00000002"]
        kept = read_tensors(checkpoint_path(tmp_path, 2) / "model.safetensors")
        assert equal(weights(tmp_path), kept)


class TestResume:
    def test_every_step_is_logged_once(self, tmp_path: Path) -> None:
        run(tmp_path / "whole")
        with pytest.raises(TrainingError):
            run(tmp_path / "run", Sums(bad_batch=7))  # stops at step 8, after the checkpoint of 6
        with (tmp_path / "run" / "metrics.jsonl").open("a") as file:
            file.write('{"kind": "train", "st')  # killed while writing
        run(tmp_path / "run", resume=True)
        for kind in ("train", "validation"):
            whole, result = records(tmp_path / "whole", kind), records(tmp_path / "run", kind)
            assert [r["step"] for r in result] == [r["step"] for r in whole]
            assert [r["loss"] for r in result] == [r["loss"] for r in whole]
        assert equal(weights(tmp_path / "whole"), weights(tmp_path / "run"))

    def test_finished_run_is_left_as_it_is(self, tmp_path: Path) -> None:
        run(tmp_path, average_last=2)
        before = (tmp_path / "metrics.jsonl").read_text(), weights(tmp_path)
        run(tmp_path, average_last=2, resume=True)
        assert (tmp_path / "metrics.jsonl").read_text() == before[0]
        assert equal(weights(tmp_path), before[1])

    def test_a_mean_stays_where_the_best_step_is_gone(self, tmp_path: Path) -> None:
        losses = [5.0, 1.0, 3.0, 3.0, 3.0, 1.5]  # best at step 4; the last is that of the mean
        settings: dict[str, Any] = {"steps": 100, "patience": 3}
        first = run(tmp_path, Sums({"loss": losses}), average_last=2, **settings)
        assert (first.step, first.best_step, first.scores) == (10, 4, {"loss": 1.5})
        assert [path.name[-2:] for path in checkpoints_of(tmp_path)] == ["08", "10"]
        mean = weights(tmp_path)
        again = run(tmp_path, Sums({"loss": [1.5]}), average_last=2, resume=True, **settings)
        assert dataclasses.replace(again, seconds=first.seconds) == first
        without = run(tmp_path, Sums({"loss": [1.5]}), resume=True, **settings)
        assert (without.step, without.averaged, without.scores) == (10, 2, {"loss": 1.5})
        assert kept_scores(tmp_path) == {"loss": 1.5} and equal(weights(tmp_path), mean)
        settings["patience"] = 5
        longer = run(tmp_path, Sums({"loss": [1.2, 1.1, 1.5]}), resume=True, **settings)
        assert (longer.step, longer.averaged) == (14, 2) and equal(weights(tmp_path), mean)
        better = run(
            tmp_path, Sums({"loss": [0.5, *[1.0] * 6]}), resume=True, steps=100, patience=6
        )
        assert (better.best_step, better.averaged, better.scores) == (16, 0, {"loss": 0.5})
        assert not equal(weights(tmp_path), mean)

    def test_data_that_changed_are_said(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        run(tmp_path, steps=4)
        run(tmp_path, steps=6, resume=True)
        assert "training data have changed" not in capsys.readouterr().err
        task = Sums()
        task.data = "others"
        assert run(tmp_path, task, steps=8, resume=True).step == 8
        assert "the training data have changed; training" in capsys.readouterr().err
        run(tmp_path, task, resume=True)
        assert "training data have changed" not in capsys.readouterr().err  # said once

    def test_scores_of_another_validation_are_not_compared(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        run(tmp_path, Sums({"loss": [3.0, 1.0]}), steps=4)
        task = Sums({"loss": [2.0, 2.5]})
        task.valid = "others"
        outcome = run(tmp_path, task, steps=8, resume=True)
        assert (outcome.best_step, outcome.scores) == (6, {"loss": 2.0})
        assert "validation data or settings have changed" in capsys.readouterr().err
        run(tmp_path, task, steps=8, resume=True)
        assert "have changed" not in capsys.readouterr().err  # said once

    def test_an_average_that_no_checkpoint_has_is_refused_in_a_line(self, tmp_path: Path) -> None:
        run(tmp_path, steps=4)
        with pytest.raises(RunError, match=r"can be resumed: .*ema") as caught:
            run(tmp_path, steps=6, ema=0.9, resume=True)
        assert "\n" not in str(caught.value)

    def test_an_average_may_be_left_out(self, tmp_path: Path) -> None:
        run(tmp_path / "plain", steps=6)
        run(tmp_path / "run", steps=4, ema=0.9)
        run(tmp_path / "run", steps=6, resume=True)
        last = [checkpoint_path(tmp_path / name, 6) for name in ("plain", "run")]
        one, other = (read_tensors(path / "model.safetensors") for path in last)
        assert equal(one, other) and not (last[1] / "ema.safetensors").exists()

    def test_patience_starts_again_where_the_best_is_unknown(self, tmp_path: Path) -> None:
        ended = run(tmp_path, Sums({"loss": [1.0, 2.0, 2.0]}), steps=40, patience=2)
        assert ended.step == 6
        task = Sums({"loss": [3.0] * 9, "bleu": [5.0, *[4.0] * 8]})
        outcome = run(tmp_path, task, steps=40, patience=2, select_by="bleu", resume=True)
        assert (outcome.best_step, outcome.step) == (8, 12)

    def test_a_checkpoint_of_an_older_version_says_nothing_of_validation(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        run(tmp_path, Sums({"loss": [3.0, 1.0]}), steps=4)
        path = checkpoint_path(tmp_path, 4)
        progress = json.loads((path / "progress.json").read_text())
        for name in ("validation_checksum", "validation_seconds", "writing_seconds"):
            del progress[name]
        progress["target_tokens"] = 8
        text = json.dumps(progress).encode()
        (path / "progress.json").write_bytes(text)
        sums = (path / "SHA256SUMS").read_text().splitlines()
        kept = [line for line in sums if not line.endswith("progress.json")]
        kept.append(f"{hashlib.sha256(text).hexdigest()}  progress.json")
        (path / "SHA256SUMS").write_text("\n".join(kept) + "\n")
        outcome = run(tmp_path, Sums({"loss": [2.0, 2.5]}), steps=8, resume=True)
        assert (outcome.best_step, outcome.scores) == (4, {"loss": 1.0})
        assert "have changed" not in capsys.readouterr().err

    def test_nothing_to_resume(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (tmp_path / "metrics.jsonl").write_text('{"kind": "train", "step": 1}\n')
        assert run(tmp_path, resume=True).step == 10
        assert "no checkpoint to resume yet" in capsys.readouterr().err
        assert [r["step"] for r in records(tmp_path, "train")] == list(range(1, 11))

    def test_all_checkpoints_damaged(self, tmp_path: Path) -> None:
        run(tmp_path, steps=6)
        for path in checkpoints_of(tmp_path):
            (path / "progress.json").write_text("{")
        with pytest.raises(RunError, match=r"step-00000006/progress.json is damaged") as caught:
            run(tmp_path, resume=True)
        assert str(tmp_path) in str(caught.value) and "\n" not in str(caught.value)

    def test_progress_is_readable(self, tmp_path: Path) -> None:
        run(tmp_path)
        progress = json.loads((checkpoint_path(tmp_path, 10) / "progress.json").read_text())
        assert progress["step"] == 10 and progress["data"] == {"epoch": 0, "position": 10}
