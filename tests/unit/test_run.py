"""A run directory: what it holds, how it is loaded and averaged."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import transduce
from helpers.reversing_run import LEARNT
from helpers.tiny_run import reversal_pairs, tiny_recipe, train_tiny, write_tsv
from transduce import Run, RunError, SettingError
from transduce.recipes import read_recipe
from transduce.runs.importing import average_runs
from transduce.training.trainer import Outcome
from transduce.training.weights import read_tensors

WORDS = ["abc", "edcba", "aa", "ce", "bbbd", "dcab", "eeea", "ab"]


@pytest.fixture(scope="module")
def run(run_path: Path) -> Run:
    return transduce.load(run_path, device="cpu")


class TestPublicNames:
    def test_every_name_resolves(self) -> None:
        for name in transduce.__all__:
            assert getattr(transduce, name) is not None
        assert sorted(transduce.__all__) == transduce.__all__ == dir(transduce)

    def test_nothing_else_is_public(self) -> None:
        lazily = set(transduce._HOMES)
        assert lazily <= set(transduce.__all__)
        for name, home in transduce._HOMES.items():
            assert getattr(importlib.import_module(home), name) is getattr(transduce, name)

    def test_errors_are_all_there(self) -> None:
        from transduce import errors

        kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
        own = {kind.__name__ for kind in kinds if kind.__module__ == errors.__name__}
        internal = {"TorchNeededError", "UnknownTextError"}  # caught inside the package
        assert own - internal <= set(transduce.__all__)

    def test_unknown_name(self) -> None:
        with pytest.raises(AttributeError, match="no attribute 'translate'"):
            _ = transduce.translate  # type: ignore[attr-defined]

    @pytest.mark.system
    def test_torch_is_not_imported_before_it_is_needed(self) -> None:
        program = (
            "import sys, transduce; assert transduce.__version__; transduce.SettingError\n"
            "assert not {'torch', 'numpy', 'sacrebleu'} & set(sys.modules), 'too early'\n"
            "transduce.load; assert not {'torch', 'numpy'} & set(sys.modules), 'too early'\n"
            "transduce.record_attention; assert 'torch' in sys.modules"
        )
        subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True)


class TestDirectory:
    def test_holds_what_it_says(self, run_path: Path) -> None:
        names = {file.name for file in run_path.iterdir() if not file.name.startswith(".")}
        assert names == {
            *("recipe.toml", "weights.safetensors", "metrics.jsonl", "README.md", "checkpoints"),
            *("source_tokenizer.json", "target_tokenizer.json"),
        }

    def test_nothing_pickled(self, run_path: Path) -> None:
        for file in run_path.rglob("*"):
            if file.is_file() and file.suffix != ".safetensors":
                file.read_text(encoding="utf-8")
            elif file.is_file():
                read_tensors(file)

    def test_recipe_is_spelled_out(self, run_path: Path, data: Path) -> None:
        again = read_recipe(run_path)
        assert again == tiny_recipe(data, *LEARNT)
        assert "epsilon = 1e-09" in (run_path / "recipe.toml").read_text()

    def test_can_be_moved(self, run_path: Path, run: Run, tmp_path: Path) -> None:
        moved = tmp_path / "elsewhere"
        moved.mkdir()
        for file in run_path.glob("*.*"):
            if file.is_file():
                (moved / file.name).write_bytes(file.read_bytes())
        texts = [t.text for t in transduce.load(moved).translate(WORDS)]
        assert texts == [t.text for t in run.translate(WORDS)]

    def test_results_show_themselves_in_a_line(self, run_path: Path, run: Run) -> None:
        assert repr(run) == (
            f"<transduce run {run_path}: translation, {run.info()['parameters']:,} parameters>"
        )
        translation = run(WORDS[0])
        assert repr(translation) == (
            f"Translation(text={translation.text!r}, score={translation.score!r}, "
            f"log_prob={translation.log_prob!r})"
        )
        scores = {"bleu": 12.3456, "bleu_signature": "tok:13a", "chrf": 50.0}
        many = transduce.Evaluation(scores, ["a b c"] * 2000, ["x"] * 2000)
        assert repr(many) == "<Evaluation of 2,000 items: bleu 12.35, chrf 50>"
        labels = transduce.LabelPrediction("a", {str(i): 0.0 for i in range(999)} | {"a": 0.5})
        assert repr(labels) == "LabelPrediction(text='a', probability=0.5)"
        assert repr(labels.__class__()) == "LabelPrediction(text='', probability=0)"
        assert len(repr(transduce.EmbeddingPrediction((0.1,) * 999))) < 60
        assert "tensor" not in repr(run.align(WORDS[0]))
        observed = run.explain(WORDS[0])
        assert repr(observed) == (
            f"<Explanation of translation run {run_path.name!r}: source={WORDS[0]!r} -> "
            f"{translation.text!r}>"
        )
        compared = transduce.explain_runs([run, run], WORDS[0])
        assert repr(compared) == f"<SideBySide of 2 explanations: {run_path}, {run_path}>"
        with transduce.record_tensors(run.model) as tensors:
            run(WORDS[0])
        assert repr(tensors).startswith("<RecordedTensors, calls of each: logits ")
        assert "tensor(" not in repr(tensors) and len(repr(tensors)) < 300
        outcome = Outcome(1000, 61.3, 800, {"loss": 1.23456, "bleu": 20.0}, True)
        assert repr(outcome) == ("<Outcome of 1,000 steps in 61 s, best 800: loss 1.235, bleu 20>")

    def test_scores_are_tables_in_a_notebook(self) -> None:
        scores = {"bleu": 12.3456, "bleu_signature": "tok:<13a>"}
        shown = transduce.Evaluation(scores, ["a"] * 2000, ["x"] * 2000)._repr_html_()
        assert shown.startswith("<table>") and shown.endswith("</table>")
        assert ">2,000</td>" in shown and ">12.35</td>" in shown
        assert "tok:&lt;13a&gt;" in shown
        outcome = Outcome(1000, 61.3, 800, {"loss": 1.23456}, False)._repr_html_()
        assert ">1,000</td>" in outcome and ">1.235</td>" in outcome

    def test_predictions_are_of_the_kind_that_is_asked_for(self, run_path: Path, run: Run) -> None:
        (answer,) = run.predict(WORDS[:1], kind=transduce.Translation)
        assert answer.candidates and answer.text == run(WORDS[0]).text
        output = "'translation', whose predictions are of class Translation, not Caption"
        with pytest.raises(RunError, match=output):
            list(run.predict(WORDS, kind=transduce.Caption))
        with pytest.raises(RunError, match="'translation', not 'dialogue'; use predict"):
            run.conversation()

    def test_info(self, run_path: Path, run: Run) -> None:
        info = run.info()
        weights = read_tensors(run_path / "weights.safetensors")
        assert info["parameters"] == sum(tensor.numel() for tensor in weights.values())
        assert info["source_vocabulary"] == info["target_vocabulary"] == 4 + 5
        assert info["checkpoints"] == ["step-00000080", "step-00000120"]
        json.dumps(info)


class TestLoad:
    def test_what_is_no_run(self, tmp_path: Path) -> None:
        with pytest.raises(RunError, match="is not a directory"):
            transduce.load(tmp_path / "none")
        with pytest.raises(RunError, match=r"has no recipe\.toml"):
            transduce.load(tmp_path)

    @pytest.mark.parametrize(
        ("name", "content"),
        [
            ("weights.safetensors", None),
            ("weights.safetensors", b"\x80\x02half a pickle"),
            ("source_tokenizer.json", None),
            ("source_tokenizer.json", b"{"),
            ("target_tokenizer.json", b"\x00"),
            ("recipe.toml", b"task = []"),
            ("recipe.toml", b"task = 'translatoin'"),
            ("recipe.toml", b"task = 'translation'\nmodel.preset = []\n"),
            ("recipe.toml", b"\x00"),
        ],
    )
    def test_damaged(
        self, run_path: Path, tmp_path: Path, name: str, content: bytes | None
    ) -> None:
        for file in run_path.glob("*.*"):
            if file.is_file():
                (tmp_path / file.name).write_bytes(file.read_bytes())
        (tmp_path / name).unlink()
        if content is not None:
            (tmp_path / name).write_bytes(content)
        with pytest.raises((RunError, SettingError)) as caught:
            transduce.load(tmp_path)
        assert str(tmp_path) in str(caught.value) and "\n" not in str(caught.value)

    def test_no_such_device(self, run_path: Path) -> None:
        with pytest.raises(SettingError, match="device 'abacus'") as caught:
            transduce.load(run_path, device="abacus")
        assert "\n" not in str(caught.value)


class TestAverage:
    def test_of_checkpoints(self, run_path: Path, tmp_path: Path) -> None:
        average_runs([run_path], tmp_path / "mean", last=2)
        files = sorted((run_path / "checkpoints").glob("*/model.safetensors"))
        one, two = (read_tensors(file) for file in files)
        mean = read_tensors(tmp_path / "mean" / "weights.safetensors")
        for name, tensor in mean.items():
            torch.testing.assert_close(tensor, (one[name] + two[name]) / 2)
        assert transduce.load(tmp_path / "mean")("abc").text

    def test_of_the_last_of_three_checkpoints(self, data: Path, tmp_path: Path) -> None:
        settings = ("training.steps=3", "training.validate_every=1", "training.keep_last=3")
        path, _ = train_tiny(data, tmp_path / "run", *settings)
        files = sorted((path / "checkpoints").glob("*/model.safetensors"))
        _, two, three = (read_tensors(file) for file in files)
        average_runs([path], tmp_path / "mean", last=2)
        mean = read_tensors(tmp_path / "mean" / "weights.safetensors")
        for name, tensor in mean.items():
            torch.testing.assert_close(tensor, (two[name] + three[name]) / 2)

    def test_of_runs_that_differ_in_dropout(
        self, run_path: Path, data: Path, tmp_path: Path
    ) -> None:
        settings = (f"fine_tune.run={run_path}", "model.encoder.dropout=0.3", "training.steps=1")
        other = train_tiny(data, tmp_path / "other", *settings)[0]
        average_runs([run_path, other], tmp_path / "mean")
        mean, one, two = (
            read_tensors(run / "weights.safetensors")
            for run in (tmp_path / "mean", run_path, other)
        )
        for name, tensor in mean.items():
            torch.testing.assert_close(tensor, (one[name] + two[name]) / 2)

    def test_refusals(self, run_path: Path, data: Path, tmp_path: Path) -> None:
        with pytest.raises(RunError, match="exists"):
            average_runs([run_path, run_path], run_path)
        with pytest.raises(RunError, match="at least two"):
            average_runs([run_path], tmp_path / "mean")
        other = train_tiny(data, tmp_path / "other", "training.steps=1", "model.d_model=8")[0]
        with pytest.raises(RunError, match="different models"):
            average_runs([run_path, other], tmp_path / "mean")
        letters = write_tsv(tmp_path / "b.tsv", reversal_pairs(50, letters="xyzuv"))
        other = train_tiny(letters, tmp_path / "letters", "training.steps=1")[0]
        with pytest.raises(RunError, match="different vocabularies"):
            average_runs([run_path, other], tmp_path / "mean")
        assert not (tmp_path / "mean").exists()
