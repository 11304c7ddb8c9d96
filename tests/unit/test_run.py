"""A run directory: made, loaded and used, as from Python."""

import importlib
import json
import logging
import math
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import transduce
from helpers.tiny_run import (
    reversal_pairs,
    tiny_recipe,
    tiny_settings,
    train_tiny,
    write_tsv,
)
from transduce import DataError, DecodingOptions, Run, RunError, SettingError
from transduce.average import average_runs
from transduce.metrics.measure import measure
from transduce.models.encoder_decoder import build_encoder_decoder
from transduce.models.presets import PRESETS
from transduce.nn.state import State
from transduce.recipes import read_recipe
from transduce.run import STREAM_TEXTS
from transduce.sequence import Padded
from transduce.tasks.task import Evaluation
from transduce.tasks.translation.alignment import align_pairs
from transduce.tasks.translation.recipe import read_pairs_of
from transduce.tasks.translation.translator import Translator
from transduce.tasks.translation.translator_config import TranslatorConfig
from transduce.training.trainer import Outcome
from transduce.training.weights import read_tensors

LEARNT = (
    "training.steps=120",
    "training.validate_every=40",
    "training.schedule.peak=0.01",
    "data.filters.max_length=12",
    "decoding.beam_size=3",
    "decoding.length_penalty=none",
)
WORDS = ["abc", "edcba", "aa", "ce", "bbbd", "dcab", "eeea", "ab"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tsv(tmp_path_factory.mktemp("data") / "a.tsv", reversal_pairs(300))


@pytest.fixture(scope="module")
def path(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train_tiny(data, tmp_path_factory.mktemp("runs") / "tiny", *LEARNT)[0]


@pytest.fixture(scope="module")
def run(path: Path) -> Run:
    return transduce.load(path, device="cpu")


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

        classes = {n for n, v in vars(errors).items() if isinstance(v, type)}
        assert classes <= set(transduce.__all__)

    def test_unknown_name(self) -> None:
        with pytest.raises(AttributeError, match="no attribute 'translate'"):
            _ = transduce.translate  # type: ignore[attr-defined]

    def test_torch_is_not_imported_before_it_is_needed(self) -> None:
        program = (
            "import sys, transduce; assert transduce.__version__; transduce.SettingError\n"
            "assert not {'torch', 'numpy', 'sacrebleu'} & set(sys.modules), 'too early'\n"
            "transduce.load; assert 'torch' in sys.modules"
        )
        subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True)


class TestDirectory:
    def test_holds_what_it_says(self, path: Path) -> None:
        names = {file.name for file in path.iterdir() if not file.name.startswith(".")}
        assert names == {
            *("recipe.toml", "weights.safetensors", "metrics.jsonl", "README.md", "checkpoints"),
            *("source_tokenizer.json", "target_tokenizer.json"),
        }

    def test_nothing_pickled(self, path: Path) -> None:
        for file in path.rglob("*"):
            if file.is_file() and file.suffix != ".safetensors":
                file.read_text(encoding="utf-8")
            elif file.is_file():
                read_tensors(file)

    def test_recipe_is_spelled_out(self, path: Path, data: Path) -> None:
        again = read_recipe(path)
        assert again == tiny_recipe(data, *LEARNT)
        assert "epsilon = 1e-09" in (path / "recipe.toml").read_text()

    def test_can_be_moved(self, path: Path, run: Run, tmp_path: Path) -> None:
        moved = tmp_path / "elsewhere"
        moved.mkdir()
        for file in path.glob("*.*"):
            if file.is_file():
                (moved / file.name).write_bytes(file.read_bytes())
        texts = [t.text for t in transduce.load(moved).translate(WORDS)]
        assert texts == [t.text for t in run.translate(WORDS)]

    def test_results_show_themselves_in_a_line(self, path: Path, run: Run) -> None:
        assert repr(run) == (
            f"<transduce run {path}: translation, {run.info()['parameters']:,} parameters>"
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
        seen = run.explain(WORDS[0])
        assert repr(seen) == (
            f"<Explanation of translation run {path.name!r}: source={WORDS[0]!r} -> "
            f"{translation.text!r}>"
        )
        compared = transduce.explain_runs([run, run], WORDS[0])
        assert repr(compared) == f"<SideBySide of 2 explanations: {path}, {path}>"
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

    def test_predictions_are_of_the_kind_that_is_asked_for(self, path: Path, run: Run) -> None:
        (found,) = run.predict(WORDS[:1], kind=transduce.Translation)
        assert found.candidates and found.text == run(WORDS[0]).text
        told = "'translation', whose predictions are of class Translation, not Caption"
        with pytest.raises(RunError, match=told):
            list(run.predict(WORDS, kind=transduce.Caption))
        with pytest.raises(RunError, match="'translation', not 'dialogue'; use predict"):
            run.conversation()

    def test_info(self, path: Path, run: Run) -> None:
        info = run.info()
        weights = read_tensors(path / "weights.safetensors")
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
    def test_damaged(self, path: Path, tmp_path: Path, name: str, content: bytes | None) -> None:
        for file in path.glob("*.*"):
            if file.is_file():
                (tmp_path / file.name).write_bytes(file.read_bytes())
        (tmp_path / name).unlink()
        if content is not None:
            (tmp_path / name).write_bytes(content)
        with pytest.raises((RunError, SettingError)) as caught:
            transduce.load(tmp_path)
        assert str(tmp_path) in str(caught.value) and "\n" not in str(caught.value)

    def test_no_such_device(self, path: Path) -> None:
        with pytest.raises(SettingError, match="device 'abacus'") as caught:
            transduce.load(path, device="abacus")
        assert "\n" not in str(caught.value)


class TestTranslate:
    def test_one_text_or_many(self, run: Run) -> None:
        one = run("abc")
        assert isinstance(one, transduce.Translation)
        assert one.text == " ".join(one.tokens) == one.candidates[0].text
        many = list(run(iter(WORDS)))
        assert len(many) == len(WORDS) and many[0].text == one.text
        assert one == run.translate("abc")

    def test_it_has_learnt_something(self, run: Run) -> None:
        texts = [run(word).text for word in WORDS]
        assert any(text == " ".join(reversed(w)) for w, text in zip(WORDS, texts, strict=True))

    @pytest.mark.parametrize("blank", ["", " ", "\t", "\u3000", "\n"])
    def test_blank_gives_blank(self, run: Run, blank: str) -> None:
        assert [t.text == "" for t in run.translate(["abc", blank, "abc"])] == [False, True, False]
        assert run(blank).candidates == ()

    def test_is_lazy(self, run: Run) -> None:
        taken = []

        def texts() -> Iterator[str]:
            for i in range(10 * STREAM_TEXTS):
                taken.append(i)
                yield ""

        results = run.translate(texts())
        assert not taken
        next(results)
        assert len(taken) == STREAM_TEXTS

    def test_stream_keeps_the_order(self, run: Run) -> None:
        texts = ["", *WORDS] * (STREAM_TEXTS // len(WORDS) + 1)
        assert len(texts) > STREAM_TEXTS
        options = DecodingOptions(beam_size=1)
        wanted = {text: run.translate(text, options).text for text in ["", *WORDS]}
        assert [t.text for t in run.translate(texts, options)] == [wanted[text] for text in texts]

    @pytest.mark.parametrize("method", ["beam", "sample"])
    def test_company_in_a_batch_does_not_matter(self, run: Run, method: str) -> None:
        options = replace(run.recipe.decoding, method=method, n_best=3, seed=5)
        together = run.translate_batch(WORDS, options)
        one_by_one = [run.translate_batch([w], options, i)[0] for i, w in enumerate(WORDS)]
        small = run.translate_batch(WORDS, replace(options, batch_tokens=1))
        for a, b, c in zip(together, one_by_one, small, strict=True):
            assert [x.text for x in a.candidates] == [x.text for x in b.candidates]
            assert [x.text for x in a.candidates] == [x.text for x in c.candidates]
            scores = [[x.log_prob for x in t.candidates] for t in (a, b, c)]
            assert scores[0] == pytest.approx(scores[1], abs=1e-4)
            assert scores[0] == pytest.approx(scores[2], abs=1e-4)

    def test_n_best(self, run: Run) -> None:
        found = run("abcd", replace(run.recipe.decoding, n_best=3))
        scores = [candidate.score for candidate in found.candidates]
        assert len(scores) == 3 and scores == sorted(scores, reverse=True)
        assert (found.text, found.score) == (found.candidates[0].text, scores[0])

    def test_unknown_letters(self, run: Run) -> None:
        assert isinstance(run("añ🙂\x00b").text, str)

    def test_over_long_input_goes_in_pieces(
        self, run: Run, caplog: pytest.LogCaptureFixture
    ) -> None:
        long = "abcde" * 8  # 40 letters, 12 at a time
        with caplog.at_level(logging.WARNING, "transduce"):
            results = list(run.translate(["abc", long, "abc"]))
        assert len(results) == 3 and results[0] == results[2]
        assert [r.message for r in caplog.records] == [
            "line 2 has 40 tokens, more than the 12 this model was trained for; translating it "
            "in pieces"
        ]
        parts = [run(long[i : i + 12]) for i in range(0, 40, 12)]
        assert results[1].text == " ".join(part.text for part in parts)
        assert results[1].log_prob == pytest.approx(sum(p.log_prob for p in parts), abs=1e-4)

    def test_learned_positions_end_the_output(self, data: Path, tmp_path: Path) -> None:
        """A model that has learnt nothing may go on for ever."""
        learned = [f"model.{stack}.positions=learned" for stack in ("encoder", "decoder")]
        learned += [f"model.{stack}.max_positions=14" for stack in ("encoder", "decoder")]
        settings = ("data.filters.max_length=12", "training.steps=1", "decoding.min_length=30")
        path, _ = train_tiny(data, tmp_path / "run", *learned, *settings)
        assert len(transduce.load(path)("abcdeabcdeab").tokens) == 13

    def test_length_at_the_limit_is_whole(self, run: Run, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.WARNING, "transduce"):
            assert run("abcdeabcdeab").text
        assert not caplog.records


class TestScore:
    def test_equals_what_translating_reports(self, run: Run) -> None:
        found = run.translate_batch(WORDS, replace(run.recipe.decoding, n_best=3))
        listed = [(w, c) for w, t in zip(WORDS, found, strict=True) for c in t.candidates]
        scores = run.score((word, candidate.text) for word, candidate in listed)
        assert list(scores) == pytest.approx([c.log_prob for _, c in listed], abs=1e-4)

    def test_pairs_beyond_learned_positions(
        self, data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """One of them costs the others nothing, and is named."""
        settings = tiny_settings(data, "training.steps=1", "data.filters.max_length=18")
        stack = {"positions": "learned", "max_positions": 20, "n_layers": 1, "n_heads": 2}
        settings["model"] |= {"encoder": stack, "decoder": stack}
        path, _ = transduce.train(settings, tmp_path / "run")
        short = transduce.load(path, device="cpu")
        pairs = [("ab", "b a"), ("ab", "a " * 20), ("a" * 20, "a"), ("a" * 19, "a " * 19)]
        scores = list(short.score(pairs))
        assert [math.isnan(score) for score in scores] == [False, True, True, False]
        links = list(align_pairs(short.translator, pairs))
        assert [bool(found.links) for found in links] == [True, False, False, True]
        assert "pair 2 has 21 tokens on one side; scoring is limited to 20" in caplog.text
        assert "pair 3 has 21 tokens on one side; alignment is limited to 20" in caplog.text

    def test_is_a_log_probability(self, run: Run) -> None:
        """Over all targets of up to one symbol, and the rest, probabilities sum to at most 1."""
        targets = ["", *"abcde"]
        probabilities = [math.exp(x) for x in run.score([("ab", t) for t in targets])]
        assert 0 < sum(probabilities) <= 1

    def test_company_does_not_matter(self, run: Run) -> None:
        pairs = [(word, " ".join(reversed(word))) for word in WORDS] * 10  # more than a batch
        alone = [next(run.score([pair])) for pair in pairs[: len(WORDS)]]
        assert list(run.score(iter(pairs))) == pytest.approx(alone * 10, abs=1e-4)

    def test_a_source_is_read_once_for_all_its_targets(
        self, run: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        read: list[int] = []
        start = run.model.start

        def counted(source: Padded) -> State:
            read.append(len(source.values))
            return start(source)

        monkeypatch.setattr(run.model, "start", counted)
        pairs = [(word, target) for target in ("a b", "c d", "b") for word in ("abc", "cd", "e")]
        found = list(run.score(pairs))
        assert sum(read) == 3
        assert found == pytest.approx([next(run.score([pair])) for pair in pairs], abs=1e-4)


class TestAlign:
    def test_shapes_and_sums(self, run: Run) -> None:
        found = run.align("abcd", "d c b a")
        assert found.source == ("a", "b", "c", "d", "</s>")
        assert found.target == ("d", "c", "b", "a", "</s>")
        assert found.weights.shape == (5, 5)
        torch.testing.assert_close(found.weights.sum(1), torch.ones(5))

    def test_own_output_by_default(self, run: Run) -> None:
        assert run.align("abcd").target[:-1] == run("abcd").tokens

    @pytest.mark.parametrize("layer", [1, -2])
    def test_a_layer_that_is_not_there(self, run: Run, layer: int) -> None:
        with pytest.raises(
            SettingError, match=f"layer {layer} is out of range: this model has layers"
        ):
            run.align("abcd", layer=layer)

    @pytest.mark.parametrize("name", [name for name in PRESETS if "paper" not in name])
    def test_presets_align_or_say_that_they_cannot(self, run: Run, name: str) -> None:
        of_run = run.translator
        model = build_encoder_decoder(PRESETS[name], 40, 40, joint=True).eval()
        translator = Translator(
            model, of_run.source, of_run.target, TranslatorConfig(of_run.options, 20)
        )
        if name in ("rnn-fixed", "rnn-cho", "rnn-sutskever", "bytenet"):
            with pytest.raises(RunError, match=r"alignment needs cross-attention.*'general'"):
                translator.align("abcd", "d c b a")
        else:
            weights = translator.align("abcd", "d c b a").weights
            torch.testing.assert_close(weights.sum(1), torch.ones(5))

    def test_recording_changes_nothing(self, run: Run) -> None:
        before = run("abcd")
        with transduce.record_attention(run.model) as maps:
            during = run("abcd")
        assert before == run("abcd")
        # Weights that are written out are summed in another order than those of fused attention.
        assert during.text == before.text
        assert during.score == pytest.approx(before.score, rel=1e-5)
        assert any(name.endswith("cross_attention") for name in maps)


class TestEvaluate:
    def test_on_the_held_out_split(self, run: Run) -> None:
        result = run.evaluate()
        assert set(result.scores) == {"wer", "per", "accuracy"}
        assert result.scores["wer"] + result.scores["accuracy"] == pytest.approx(100)
        assert list(result.sources) == [s for s, _ in read_pairs_of(run.recipe.data, "test")]

    def test_on_given_pairs_with_several_references(self, run: Run) -> None:
        right = run("abc").text
        pairs = [("abc", "e e e"), ("abc", right), ("de", "a a a a a")]
        result = run.evaluate(examples=pairs)
        assert result.references == [["e e e", right], ["a a a a a"]]
        assert result.scores["accuracy"] == 50

    def test_against_other_outputs(self, run: Run) -> None:
        result = run.evaluate()
        comparison = result.against(list(result.hypotheses))
        assert set(comparison) == {"wer", "per", "accuracy"}
        with pytest.raises(DataError, match="one line per item"):
            result.against(["a"])

    def test_against_an_output_that_a_metric_is_too_long_for(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        said, meant = ["a b c d", "e f"], [["a b c e"], ["e f"]]
        found = Evaluation(measure(["bleu", "ter"], said, meant), ["x", "y"], said, meant)
        assert set(found.against(["a", "b"])) == {"bleu", "ter"}
        assert set(found.against(["a " * 6000, "b"])) == {"bleu"}
        assert "ter" in caplog.text and "skipping it" in caplog.text

    def test_nothing_to_evaluate(self, run: Run) -> None:
        with pytest.raises(DataError, match="no pairs"):
            run.evaluate(examples=[])


class TestAverage:
    def test_of_checkpoints(self, path: Path, tmp_path: Path) -> None:
        average_runs([path], tmp_path / "mean", last=2)
        files = sorted((path / "checkpoints").glob("*/model.safetensors"))
        one, two = (read_tensors(file) for file in files)
        mean = read_tensors(tmp_path / "mean" / "weights.safetensors")
        for name, tensor in mean.items():
            torch.testing.assert_close(tensor, (one[name] + two[name]) / 2)
        assert transduce.load(tmp_path / "mean")("abc").text

    def test_of_runs(self, path: Path, tmp_path: Path) -> None:
        average_runs([path, path], tmp_path / "mean")
        mean = read_tensors(tmp_path / "mean" / "weights.safetensors")
        for name, tensor in read_tensors(path / "weights.safetensors").items():
            torch.testing.assert_close(mean[name], tensor)

    def test_of_runs_that_differ_in_dropout(self, path: Path, data: Path, tmp_path: Path) -> None:
        settings = (f"fine_tune.run={path}", "model.encoder.dropout=0.3", "training.steps=1")
        other = train_tiny(data, tmp_path / "other", *settings)[0]
        average_runs([path, other], tmp_path / "mean")
        mean, one, two = (
            read_tensors(run / "weights.safetensors") for run in (tmp_path / "mean", path, other)
        )
        for name, tensor in mean.items():
            torch.testing.assert_close(tensor, (one[name] + two[name]) / 2)

    def test_refusals(self, path: Path, data: Path, tmp_path: Path) -> None:
        with pytest.raises(RunError, match="exists"):
            average_runs([path, path], path)
        with pytest.raises(RunError, match="at least two"):
            average_runs([path], tmp_path / "mean")
        other = train_tiny(data, tmp_path / "other", "training.steps=1", "model.d_model=8")[0]
        with pytest.raises(RunError, match="different models"):
            average_runs([path, other], tmp_path / "mean")
        letters = write_tsv(tmp_path / "b.tsv", reversal_pairs(50, letters="xyzuv"))
        other = train_tiny(letters, tmp_path / "letters", "training.steps=1")[0]
        with pytest.raises(RunError, match="different vocabularies"):
            average_runs([path, other], tmp_path / "mean")
        assert not (tmp_path / "mean").exists()
