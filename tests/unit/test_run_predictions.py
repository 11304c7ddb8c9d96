"""A run in use, as from Python: translations, scores, alignments, evaluations."""

import logging
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import transduce
from helpers.predictors import translator_of
from helpers.tiny_run import tiny_settings, train_tiny
from transduce import DataError, DecodingOptions, Run, RunError, SettingError
from transduce.metrics.measure import measure
from transduce.models.config import PRESETS
from transduce.models.encoder_decoder import build_encoder_decoder
from transduce.nn.state import State
from transduce.runs.run import STREAM_TEXTS
from transduce.sequence import Padded
from transduce.tasks.evaluation import Evaluation
from transduce.tasks.translation.alignment import align_pairs
from transduce.tasks.translation.recipe import read_pairs_of

WORDS = ["abc", "edcba", "aa", "ce", "bbbd", "dcab", "eeea", "ab"]


@pytest.fixture(scope="module")
def run(run_path: Path) -> Run:
    return transduce.load(run_path, device="cpu")


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
        expected = {text: run.translate(text, options).text for text in ["", *WORDS]}
        assert [t.text for t in run.translate(texts, options)] == [expected[text] for text in texts]

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
        result = run("abcd", replace(run.recipe.decoding, n_best=3))
        scores = [candidate.score for candidate in result.candidates]
        assert len(scores) == 3 and scores == sorted(scores, reverse=True)
        assert (result.text, result.score) == (result.candidates[0].text, scores[0])

    def test_unknown_letters(self, run: Run) -> None:
        text = run("añ🙂\x00b").text
        assert text == run("aé😀\x01b").text, "all of them are one token"
        assert set(text.split()) <= set("abcde")

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
        translations = run.translate_batch(WORDS, replace(run.recipe.decoding, n_best=3))
        listed = [(w, c) for w, t in zip(WORDS, translations, strict=True) for c in t.candidates]
        scores = run.score((word, candidate.text) for word, candidate in listed)
        assert list(scores) == pytest.approx([c.log_prob for _, c in listed], abs=1e-4)

    def test_pairs_beyond_learned_positions(
        self, data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        settings = tiny_settings(data, "training.steps=1", "data.filters.max_length=18")
        stack = {"positions": "learned", "max_positions": 20, "n_layers": 1, "n_heads": 2}
        settings["model"] |= {"encoder": stack, "decoder": stack}
        path, _ = transduce.train(settings, tmp_path / "run")
        short = transduce.load(path, device="cpu")
        pairs = [("ab", "b a"), ("ab", "a " * 20), ("a" * 20, "a"), ("a" * 19, "a " * 19)]
        scores = list(short.score(pairs))
        assert [math.isnan(score) for score in scores] == [False, True, True, False]
        links = list(align_pairs(short.translator, pairs))
        assert [bool(link.links) for link in links] == [True, False, False, True]
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
        result = list(run.score(pairs))
        assert sum(read) == 3
        assert result == pytest.approx([next(run.score([pair])) for pair in pairs], abs=1e-4)


class TestAlign:
    def test_shapes_and_sums(self, run: Run) -> None:
        result = run.align("abcd", "d c b a")
        assert result.source == ("a", "b", "c", "d", "</s>")
        assert result.target == ("d", "c", "b", "a", "</s>")
        assert result.weights.shape == (5, 5)
        torch.testing.assert_close(result.weights.sum(1), torch.ones(5))

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
        translator = translator_of(model, of_run.source, of_run.target, of_run.options, 20)
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
        message, meant = ["a b c d", "e f"], [["a b c e"], ["e f"]]
        result = Evaluation(measure(["bleu", "ter"], message, meant), ["x", "y"], message, meant)
        assert set(result.against(["a", "b"])) == {"bleu", "ter"}
        assert set(result.against(["a " * 6000, "b"])) == {"bleu"}
        assert "ter" in caplog.text and "skipping it" in caplog.text

    def test_nothing_to_evaluate(self, run: Run) -> None:
        with pytest.raises(DataError, match="no pairs"):
            run.evaluate(examples=[])
