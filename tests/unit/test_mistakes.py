"""Mistakes in a recipe are said in one line, and before anything long has begun."""

from pathlib import Path
from typing import Any

import pytest
import torch

import transduce
from helpers.tiny_run import reversal_pairs, tiny_recipe, train_tiny, write_tsv
from transduce import RunError, SettingError
from transduce.cli import demo as demo_module
from transduce.cli.demo import COPY
from transduce.cli.main import main
from transduce.runs.importing import average_runs
from transduce.training.weight_files import checkpoints_of
from transduce.training.weights import read_tensors


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tsv(tmp_path_factory.mktemp("data") / "a.tsv", reversal_pairs(200))


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["seed=99999999999999999999"], "seed"),
        (['data.root="a\\u0000b"'], "data.root: a file name cannot contain the character NUL"),
        (['data.train.path="a\\u0000b"'], "data.train.path: a file name cannot contain"),
        (["training.threads=100000"], "training.threads"),  # PyTorch would end the process
        (["decoding.max_length_ratio=1e300"], "max_length_ratio"),
        (["decoding.max_length_extra=10000000000000000000000"], "max_length_extra"),
        (['evaluation.metrics=["blue"]'], "'blue' is not a metric; did you mean 'bleu'"),
        (['evaluation.validation_metrics=["wre"]'], "'wre' is not a metric; did you mean 'wer'"),
        (["model.encoder.n_heads=3"], "n_heads = 3 does not divide d_model = 16"),
        (["model.tie=three-way"], "needs one joint vocabulary"),
        (["model.decoder.positions=learned", "model.decoder.max_positions=9"], "learned positions"),
        (["training.select_by=blue"], "'blue' is not a metric; did you mean 'bleu'"),
        (["training.select_by=bleu"], "'bleu', but validation measures 'loss', 'wer', 'per'"),
        (
            ["training.select_by=bleu", 'evaluation.validation_metrics=["wer"]'],
            "'bleu', but validation measures 'loss', 'wer'",
        ),
        (["training.r_drop=1"], "training.r_drop needs dropout"),
        (["training.select_by=wer", "evaluation.validation_pairs=0"], "measures 'loss'"),
    ],
)
def test_is_said_when_the_recipe_is_read(data: Path, overrides: list[str], message: str) -> None:
    with pytest.raises(SettingError, match="^[^\n]*" + message.replace("(", r"\(")):
        tiny_recipe(data, *overrides)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["training.device=meta"], "device 'meta'"),
        (["training.device=privateuseone"], "device 'privateuseone' is not available"),
    ],
)
def test_is_said_before_the_first_step(
    data: Path, tmp_path: Path, overrides: list[str], message: str
) -> None:
    with pytest.raises(SettingError, match=message):
        train_tiny(data, tmp_path / "run", *overrides)
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


def test_a_score_that_the_symbols_of_a_file_do_not_have(data: Path, tmp_path: Path) -> None:
    path, _ = train_tiny(data, tmp_path / "first", "training.steps=1")
    target = f'text.target={{kind="file",path="{path}/target_tokenizer.json"}}'
    with pytest.raises(SettingError, match="'bleu', but validation measures 'loss', 'wer', 'per'"):
        train_tiny(data, tmp_path / "run", target, "training.select_by=bleu")
    train_tiny(data, tmp_path / "run", target, "training.select_by=wer", "training.steps=1")


def test_so_many_threads(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["translate", "run", "--threads", "100000"]) == 2
    assert "--threads" in capsys.readouterr().err


def test_a_device_that_cannot_be_is_said_before_the_data_is_read(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="device"):
        train_tiny(tmp_path / "missing.tsv", tmp_path / "run", "training.device=nonsense")


def test_however_short_the_time_something_is_kept(data: Path, tmp_path: Path) -> None:
    path, outcome = train_tiny(data, tmp_path / "run", "training.minutes=1e-9")
    assert outcome.step == 1
    assert transduce.load(path)("abc") is not None


def test_tokenizers_half_written_are_made_again(data: Path, tmp_path: Path) -> None:
    whole, _ = train_tiny(data, tmp_path / "whole", "training.steps=1")
    run = tmp_path / "run"
    run.mkdir()
    for name in ("recipe.toml", "source_tokenizer.json"):
        (run / name).write_bytes((whole / name).read_bytes())
    (run / ".target_tokenizer.json.123.tmp").write_text("{")
    train_tiny(data, run, "training.steps=1", resume=True)
    for name in ("source_tokenizer.json", "target_tokenizer.json"):
        assert (run / name).read_bytes() == (whole / name).read_bytes()


def test_tokenizers_lost_after_the_first_checkpoint_cannot_be_made_again(
    data: Path, tmp_path: Path
) -> None:
    path, _ = train_tiny(data, tmp_path / "run", "training.steps=1")
    (path / "target_tokenizer.json").unlink()
    with pytest.raises(RunError, match="no tokenizer files"):
        train_tiny(data, path, "training.steps=2", resume=True)


def test_a_moving_average_cannot_begin_midway(data: Path, tmp_path: Path) -> None:
    path, _ = train_tiny(data, tmp_path / "run", "training.steps=1")
    before = (path / "recipe.toml").read_text()
    with pytest.raises(SettingError, match=r"begun with training.ema = 0"):
        train_tiny(data, path, "training.steps=2", "training.ema=0.9", resume=True)
    assert (path / "recipe.toml").read_text() == before


def test_resuming_does_not_spoil_an_averaged_run(data: Path, tmp_path: Path) -> None:
    path, _ = train_tiny(data, tmp_path / "run", "training.steps=1")
    average_runs([path, path], tmp_path / "mean")
    with pytest.raises(RunError, match="no checkpoints to resume from; --overwrite with --run "):
        train_tiny(data, tmp_path / "mean", "training.steps=2", resume=True)


def test_settings_of_continuations_alone(data: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"decoding\.max_tokens applies only to continuations"):
        train_tiny(data, tmp_path / "run", "training.steps=1", "decoding.max_tokens=9")


@pytest.mark.system
def test_threads_are_those_of_one_training_alone(data: Path, tmp_path: Path) -> None:
    before = torch.get_num_threads()
    train_tiny(data, tmp_path / "run", "training.steps=1", f"training.threads={before + 1}")
    assert torch.get_num_threads() == before


def test_what_a_kill_left_in_the_checkpoints_goes(data: Path, tmp_path: Path) -> None:
    left = tmp_path / "run" / "checkpoints" / ".step-00000003"
    train_tiny(data, tmp_path / "run", "training.steps=1")
    left.mkdir()
    train_tiny(data, tmp_path / "run", "training.steps=6", resume=True)
    assert not left.exists()


def test_resumed_with_another_select_by(data: Path, tmp_path: Path) -> None:
    """A loss of about 2 must not count as a better error rate than 100 %."""
    path, before = train_tiny(data, tmp_path / "run", "training.steps=6")
    assert before.scores["wer"] > before.scores["loss"]
    more = ("training.steps=120", "training.validate_every=60", "training.schedule.peak=1e-2")
    _, after = train_tiny(data, path, *more, "training.select_by=per", resume=True)
    assert after.scores["per"] < before.scores["per"]
    assert after.best_step > 6


def test_average_of_checkpoints_is_of_what_they_would_serve(data: Path, tmp_path: Path) -> None:
    path, _ = train_tiny(data, tmp_path / "run", "training.ema=0.9")
    average_runs([path], tmp_path / "mean", last=2)
    one, two = (read_tensors(c / "ema.safetensors") for c in checkpoints_of(path))
    for name, tensor in read_tensors(tmp_path / "mean" / "weights.safetensors").items():
        torch.testing.assert_close(tensor, (one[name] + two[name]) / 2)


def test_disk_trouble_with_the_validation_pairs_is_not_taken_for_too_few(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transduce.tasks.translation import training as translation_data

    original = translation_data.cached_pairs
    calls: list[Any] = []

    def full(*arguments: Any) -> Any:
        calls.append(arguments)
        if len(calls) == 2:
            raise transduce.DataError("x cannot be written: No space left on device")
        return original(*arguments)

    monkeypatch.setattr(translation_data, "cached_pairs", full)
    with pytest.raises(transduce.DataError, match="No space left"):
        train_tiny(data, tmp_path / "run")


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB"),
        RuntimeError("[enforce fail at x] DefaultCPUAllocator: can't allocate memory: you tried"),
    ],
)
def test_out_of_memory_is_one_line(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*arguments: Any) -> None:
        raise error

    monkeypatch.setattr("transduce.loading.load", fail)
    assert main(["info", "somewhere"]) == 1
    assert capsys.readouterr().err.startswith("transduce: out of memory; lower ")


def test_other_runtime_errors_keep_their_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("transduce.loading.load", fail)
    with pytest.raises(RuntimeError, match="a bug"):
        main(["info", "somewhere"])


def test_a_demo_that_was_stopped_while_training_again_forgets_the_old_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "demo"
    run.mkdir()
    (run / "demo.json").write_text("{}")

    def stopped(*arguments: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(transduce, "train", stopped)
    monkeypatch.setattr(demo_module, "write_demo_pairs", lambda path, pairs: 1)
    with pytest.raises(KeyboardInterrupt):
        demo_module.run_demo(COPY, run, True, None, lambda text: None)
    assert not (run / "demo.json").exists()


def test_default_metrics_follow_the_units_of_the_target(data: Path) -> None:
    characters = ('text.target={kind="characters"}',)
    tiny_recipe(data, *characters, "training.select_by=cer")
    with pytest.raises(
        SettingError, match="'bleu', but validation measures 'loss', 'accuracy', 'cer'"
    ):
        tiny_recipe(data, *characters, "training.select_by=bleu")
    tiny_recipe(data, 'text.target={kind="bpe"}', "training.select_by=bleu")
