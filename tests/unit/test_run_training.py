"""Training from Python: what may be overwritten, who may write, and settings of training."""

import itertools
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import transduce
from helpers.tiny_run import (
    records,
    reversal_pairs,
    tiny_recipe,
    tiny_settings,
    train_tiny,
    write_tsv,
)
from transduce import DataError, RunError, SettingError, TrainingError
from transduce.runs.directory import locked
from transduce.settings.sections import to_toml
from transduce.tasks.translation.training import TranslationTraining
from transduce.training import weight_files
from transduce.training.checkpoints import served_weights
from transduce.training.weight_files import checkpoints_of
from transduce.training.weights import read_tensors


def contents(run: Path) -> dict[Path, bytes]:
    """All files of a run but the one that is locked."""
    files = (file for file in run.rglob("*") if file.is_file() and file.name != ".lock")
    return {file: file.read_bytes() for file in files}


class TestTrain:
    def test_does_not_spoil_a_run(self, data: Path, tmp_path: Path) -> None:
        path, _ = train_tiny(data, tmp_path / "run", "training.steps=1")
        before = (path / "weights.safetensors").read_bytes()
        with pytest.raises(RunError, match="holds a run already"):
            train_tiny(data, path, "training.steps=1", "seed=2")
        with pytest.raises(SettingError, match="begun with other settings of 'seed'"):
            train_tiny(data, path, "training.steps=1", "seed=2", resume=True)
        assert (path / "weights.safetensors").read_bytes() == before
        settings = tiny_settings(data, "training.steps=1", "seed=2")
        transduce.train(settings, path, overwrite=True)
        assert (path / "weights.safetensors").read_bytes() != before
        assert [record["step"] for record in records(path, "train")] == [1]

    @pytest.mark.system
    @pytest.mark.parametrize(
        "wrong",
        ["data.train.path='missing.tsv'", "training.select_by='chrf'", "training.device='abacus'"],
    )
    def test_a_mistake_does_not_cost_the_run_to_replace(
        self, data: Path, tmp_path: Path, wrong: str
    ) -> None:
        path, _ = train_tiny(data, tmp_path / "run", "training.steps=1")
        before = contents(path)
        with pytest.raises((DataError, SettingError)):
            transduce.train(tiny_settings(data), path, [wrong], overwrite=True)
        assert contents(path) == before
        settings = tiny_settings(data, "training.steps=1", "seed=2")
        transduce.train(settings, path, overwrite=True)
        assert contents(path).keys() == before.keys()

    def test_a_first_step_that_cannot_be_does_not_cost_it_either(
        self, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path, _ = train_tiny(data, tmp_path / "run", "training.steps=1")
        before = contents(path)

        def loss(*arguments: object) -> None:
            raise RuntimeError("not on this machine")

        monkeypatch.setattr(TranslationTraining, "loss", loss)
        with pytest.raises(RuntimeError, match="not on this machine"):
            transduce.train(tiny_settings(data), path, overwrite=True)
        assert contents(path) == before

    @pytest.mark.parametrize("wrote", [(), ("recipe.toml", "tokenizer.json")])
    def test_a_killed_attempt_to_replace_a_run_does_not_cost_it(
        self, data: Path, tmp_path: Path, wrote: tuple[str, ...]
    ) -> None:
        path, _ = train_tiny(data, tmp_path / "run", "training.steps=1")
        before = contents(path)
        weight_files.back_up(path, [f for f in path.iterdir() if f.name != ".lock"])
        for name in wrote:
            (path / name).write_text("of the new one")
        with pytest.raises(RunError, match="holds a run already"):
            train_tiny(data, path, "training.steps=1")
        assert contents(path) == before

    @pytest.mark.system
    @pytest.mark.parametrize("at", range(12))
    def test_a_kill_while_files_are_moved_costs_none(
        self, data: Path, tmp_path: Path, at: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path, _ = train_tiny(data, tmp_path / "run", "training.steps=1")
        before = contents(path)
        renames, rename = iter(range(99)), Path.rename

        def killed(file: Path, target: Path) -> Path:
            if next(renames) == at:
                raise KeyboardInterrupt
            return rename(file, target)

        mistake = ["data.train.path='missing.tsv'"]
        with monkeypatch.context() as patch:
            patch.setattr(Path, "rename", killed)
            with pytest.raises((DataError, KeyboardInterrupt)):
                transduce.train(tiny_settings(data), path, mistake, overwrite=True)
        with pytest.raises(DataError, match="no such file"):
            transduce.train(tiny_settings(data), path, mistake, overwrite=True)
        assert contents(path) == before

    def test_does_not_spoil_other_things(self, data: Path, tmp_path: Path) -> None:
        (tmp_path / "thesis.tex").write_text("years of work")
        for overwrite in (False, True):
            with pytest.raises(RunError, match="not a run directory"):
                transduce.train(tiny_settings(data), tmp_path, overwrite=overwrite)
        with pytest.raises(RunError, match="is a file"):
            transduce.train(tiny_settings(data), tmp_path / "thesis.tex")
        with pytest.raises(RunError, match="cannot be written to"):
            transduce.train(tiny_settings(data), tmp_path / "thesis.tex" / "run")
        assert [file.name for file in tmp_path.iterdir()] == ["thesis.tex"]

    @pytest.mark.system
    def test_one_process_at_a_time(self, data: Path, tmp_path: Path) -> None:
        path, _ = train_tiny(data, tmp_path / "run", "training.steps=1")
        program = (
            "import sys; from pathlib import Path; from transduce.runs.directory import locked\n"
            "with locked(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
        )
        command = [sys.executable, "-W", "ignore", "-c", program, str(path)]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as other:
            assert other.stdout is not None and other.stdout.readline() == "held\n"
            for how in ({"resume": True}, {"overwrite": True}):
                with pytest.raises(RunError, match="in use by another process"):
                    transduce.train(tiny_settings(data, "training.steps=2"), path, **how)
            assert (path / "weights.safetensors").exists()
        with locked(path):
            pass

    @pytest.mark.parametrize(
        "wrong",
        [
            "data.train.path='misspelt.tsv'",  # when the data are read
            "data.filters.max_length=1",  # when they are filtered: no pair is left
            "training.schedule.peak=1e38",  # after some steps
        ],
    )
    def test_failure_before_the_first_checkpoint_blocks_nothing(
        self, data: Path, tmp_path: Path, wrong: str
    ) -> None:
        settings = tiny_settings(data)
        (tmp_path / "run" / "synthetic").mkdir(parents=True)
        with pytest.raises((DataError, TrainingError)):
            transduce.train(settings, tmp_path / "run", [wrong])
        assert (tmp_path / "run" / "recipe.toml").is_file()
        transduce.train(settings, tmp_path / "run")
        assert (tmp_path / "run" / "synthetic").is_dir(), "pairs made for the run are kept"

    def test_from_a_file_and_a_run_directory(
        self, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        recipe = tmp_path / "letters.toml"
        recipe.write_text(to_toml(tiny_recipe(data)))
        made, outcome = transduce.train(recipe, overrides=["training.steps=1"])
        assert (made, outcome.step) == (Path("runs/letters"), 1)
        made, outcome = transduce.train(made, tmp_path / "again", ["training.steps=1"])
        assert outcome.step == 1

    def test_joint_subwords(self, data: Path, tmp_path: Path) -> None:
        settings = tiny_settings(data, "training.steps=2", "model.tie=three-way")
        settings["text"] = {"source": {"kind": "bpe", "size": 300}}
        path, outcome = transduce.train(settings, tmp_path / "run")
        assert {"loss", "bleu", "chrf"} == set(outcome.scores)
        assert (path / "tokenizer.model").is_file()
        assert isinstance(transduce.load(path)("abc").text, str)

    @pytest.mark.system
    @pytest.mark.parametrize("stack", [{}, {"kind": "recurrent"}])
    def test_bf16(self, stack: dict[str, str], data: Path, tmp_path: Path) -> None:
        """On any processor: for some of them there is no LSTM in bfloat16."""
        settings = tiny_settings(data, "training.precision=bf16", "training.steps=60")
        if stack:
            settings["model"] |= {"encoder": stack, "decoder": stack}
        path, _ = transduce.train(settings, tmp_path / "run")
        losses = [record["loss"] for record in records(path, "train")]
        assert losses[-1] < 0.8 * losses[0]
        assert {t.dtype for t in read_tensors(path / "weights.safetensors").values()} == {
            torch.float32
        }

    @pytest.mark.slow
    @pytest.mark.filterwarnings("ignore")
    def test_compiled(self, data: Path, tmp_path: Path) -> None:
        settings = ("training.steps=4", "training.validate_every=2", "training.ema=0.9")
        plain, _ = train_tiny(data, tmp_path / "plain", *settings)
        compiled, _ = train_tiny(data, tmp_path / "compiled", *settings, "training.compile=true")
        for kind in ("train", "validation"):
            expected = [record["loss"] for record in records(plain, kind)]
            result = [record["loss"] for record in records(compiled, kind)]
            assert result == pytest.approx(expected, rel=1e-4)
        assert transduce.load(compiled)("abc").text is not None

    @pytest.mark.system
    @pytest.mark.filterwarnings("ignore")
    def test_a_machine_that_cannot_compile(
        self, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from torch._dynamo.exc import TorchDynamoException

        def loss(*arguments: object) -> None:
            raise TorchDynamoException("InvalidCxxCompiler: no compiler found\n\nSet TORCH_LOGS")

        monkeypatch.setattr(TranslationTraining, "loss", loss)
        message = r"training\.compile: InvalidCxxCompiler: no compiler found; remove it$"
        with pytest.raises(SettingError, match=message):
            train_tiny(data, tmp_path / "run", "training.compile=true")


class TestDecodingOfValidation:
    @pytest.mark.parametrize("setting", ["beam_groups=5", "shortlist=true"])
    def test_what_is_for_later_does_not_end_it(
        self, setting: str, data: Path, tmp_path: Path
    ) -> None:
        """Groups divide the beam of decoding; a shortlist is learnt from what was trained."""
        _, outcome = train_tiny(data, tmp_path / "run", f"decoding.{setting}")
        assert outcome.step == 12

    def test_what_cannot_be_is_said_before_the_first_step(self, data: Path, tmp_path: Path) -> None:
        with pytest.raises(SettingError, match=r"prefix: 'Q' has characters"):
            train_tiny(data, tmp_path / "run", "decoding.prefix=Q")
        assert not (tmp_path / "run" / "metrics.jsonl").exists()

    def test_long_sources_are_warned_of_once(
        self, data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        valid = write_tsv(tmp_path / "valid.tsv", [("ab", "b a"), ("abcabc", "c b a c b a")])
        overrides = [
            f'data.valid={{kind="tsv",path="{valid}"}}',
            "data.filters.max_length=5",
            "training.steps=4",
            "training.validate_every=1",
        ]
        train_tiny(data, tmp_path / "run", *overrides)
        text = [message for message in caplog.messages if "in pieces" in message]
        assert text == [
            "1 of the 2 sources decoded at each validation have more than 5 tokens and are "
            "translated in pieces"
        ]


class TestResumingOtherwise:
    @pytest.mark.system
    @pytest.mark.parametrize(("begun", "then"), [("adam", "muon"), ("muon", "adam")])
    def test_another_optimizer_is_refused(
        self, begun: str, then: str, data: Path, tmp_path: Path
    ) -> None:
        kind = "training.optimizer.kind={}".format
        run, _ = train_tiny(data, tmp_path / "run", kind(begun))
        before = (run / "recipe.toml").read_bytes()
        with pytest.raises(SettingError, match=f"optimizer.kind = '{begun}'"):
            train_tiny(data, run, kind(then), "training.steps=24", resume=True)
        assert (run / "recipe.toml").read_bytes() == before
        assert train_tiny(data, run, kind(begun), "training.steps=14", resume=True)[1].step == 14

    def test_patience_is_with_the_score_that_counts_now(self, data: Path, tmp_path: Path) -> None:
        """What it lost with the old one does not end it before the new one is measured."""
        patient = ("training.validate_every=2", "training.patience=1", "training.steps=20")
        still = "training.schedule.peak=1e-12"
        unscored = "evaluation.validation_pairs=0"
        run, outcome = train_tiny(data, tmp_path / "run", *patient, still, unscored)
        assert outcome.step < 20
        now = ("training.select_by=per", "evaluation.validation_pairs=8")
        _, again = train_tiny(data, run, *patient, still, *now, resume=True)
        assert again.step > outcome.step and "per" in again.scores
        back = train_tiny(data, run, *patient, still, "training.select_by=loss", resume=True)[1]
        assert back.step > again.step, "though the loss was measured all the time"

    def test_the_last_weights_can_be_kept(
        self, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        losses = itertools.count(1.0)
        monkeypatch.setattr(TranslationTraining, "validate", lambda task: {"loss": next(losses)})
        settings = ("training.validate_every=6", "training.average_last=1")
        run, outcome = train_tiny(data, tmp_path / "run", *settings)
        assert outcome.averaged == 1 and outcome.best_step < outcome.step
        kept = read_tensors(run / "weights.safetensors")
        last = served_weights(checkpoints_of(run)[-1])
        assert all(torch.equal(kept[name], last[name]) for name in last)
        assert "the last checkpoint" in (run / "README.md").read_text(encoding="utf-8")


class TestChangesOnResume:
    def test_settings_that_alter_results_are_said(
        self, data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        run = tmp_path / "run"
        train_tiny(data, run, "training.steps=6")
        changes = (
            "training.steps=8",
            "training.precision=bf16",
            "training.log_every=4",
            "decoding.beam_size=2",
        )
        for message in (True, False):
            caplog.clear()
            train_tiny(data, run, *changes, resume=True)
            lines = [line for line in caplog.messages if "other settings" in line]
            assert lines == message * [
                f"{run} resumes with other settings: training.steps = 8 (was 6); "
                'training.precision = "bf16" (was "float32"); decoding.beam_size = 2 (was 5)'
            ]

    def test_a_metric_that_is_measured_otherwise(
        self, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        fewer = "evaluation.validation_pairs=4"
        for name, separate in (("per", True), ("loss", False)):
            run = tmp_path / name
            train_tiny(data, run, "training.steps=6", f"training.select_by={name}")
            train_tiny(data, run, f"training.select_by={name}", fewer, resume=True)
            message = f"earlier values of {name} are not compared" in capsys.readouterr().err
            assert message == separate


def test_few_validation_data_are_said(
    data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    train_tiny(data, tmp_path / "run", "training.steps=1")
    (line,) = [line for line in caplog.messages if line.startswith("validation: ")]
    assert "pairs: the 95 % interval of a score of 50 % is ± 1" in line
    assert "it is ± 5; raise data.hold_out (which holds out about as many for the test)" in line


def test_a_model_that_has_hardly_learnt_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = write_tsv(tmp_path / "a.tsv", reversal_pairs(60))
    short = ("training.steps=3", "training.validate_every=3")
    train_tiny(table, tmp_path / "short", *short, 'evaluation.validation_metrics=["per"]')
    (line,) = [record.message for record in caplog.records if "hardly" in record.message]
    assert re.fullmatch(
        r".*short has hardly learnt \(per \d+\.\d\d\): 3 steps ended in epoch \d; train longer "
        r"\(training\.minutes or training\.steps\)",
        line,
    )
    caplog.clear()
    train_tiny(table, tmp_path / "loss", *short, "evaluation.validation_pairs=0")
    assert "hardly" not in caplog.text  # nothing was decoded
