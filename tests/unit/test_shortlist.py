"""Vocabulary shortlists: the tokens that they allow, and independence of the batch."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import transduce
from helpers.command_line import transduce as command
from helpers.tiny_run import reversal_pairs, train_tiny, write_tsv
from transduce import DecodingOptions, Run, RunError, SettingError
from transduce.decoding.options import check_shortlist
from transduce.decoding.shortlist import Shortlist
from transduce.decoding.step_search import EncoderDecoderSearch, ShortlistedModel, padded_ids
from transduce.sequence import Padded
from transduce.tasks.translation.shortlist import coverage, load_shortlist, save_shortlist
from transduce.text import BOS, EOS, PAD, UNK

WORDS = ["abc", "edcba", "aa", "ce", "bbbd", "dcab", "eeea", "ab"]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("run")
    data = write_tsv(directory / "a.tsv", reversal_pairs(300))
    learnt = ("training.steps=120", "training.schedule.peak=0.01", "decoding.beam_size=3")
    return train_tiny(data, directory / "run", *learnt)[0]


@pytest.fixture
def run(path: Path) -> Run:
    return transduce.load(path, device="cpu")


def listed(run: Run, likely: int) -> Shortlist:
    """Each letter allows its own symbol and `likely` - 1 others."""
    source, target = run.translator.source, run.translator.target
    table = np.full((source.size, likely), -1)
    for letter in "abcde":
        others = "abcde"["abcde".index(letter) :] + "abcde"
        ids = [target.encode(other)[0] for other in others[:likely]]
        table[source.encode(letter)[0]] = ids
    return Shortlist(table, np.empty(0, np.int64), joint=False, size=target.size)


def shortlisted(run: Run, likely: int) -> Run:
    search = EncoderDecoderSearch(
        run.translator.steps.model, padded_ids, shortlist=listed(run, likely)
    )
    predictor: Any = replace(run.translator, backend=search)
    return replace(run, predictor=predictor)


class TestWhatIsAllowed:
    def test_union_of_parts(self) -> None:
        table = np.array([[-1, -1]] * 4 + [[10, 12], [11, -1]])
        result = Shortlist(table, np.array([20]), joint=False, size=30)
        assert result.of([4, 5, 4]) == [PAD, UNK, BOS, EOS, 10, 11, 12, 20]
        assert result._replace(joint=True).of([5]) == [PAD, UNK, BOS, EOS, 5, 11, 20]

    def test_outputs_stay_inside(self, run: Run) -> None:
        run = shortlisted(run, 1)
        options = replace(run.recipe.decoding, shortlist=True)
        for word, result in zip(WORDS, run.translate_batch(WORDS, options), strict=True):
            assert set(result.tokens) <= {*word, "<unk>"}

    def test_a_list_of_all_changes_nothing(self, run: Run) -> None:
        run = shortlisted(run, 5)
        for method in ("beam", "sample"):
            plain = replace(run.recipe.decoding, method=method, n_best=3)
            short = run.translate_batch(WORDS, replace(plain, shortlist=True))
            for a, b in zip(run.translate_batch(WORDS, plain), short, strict=True):
                assert [c.text for c in a.candidates] == [c.text for c in b.candidates]
                scores = [[c.log_prob for c in t.candidates] for t in (a, b)]
                assert scores[0] == pytest.approx(scores[1], abs=1e-4)

    @pytest.mark.parametrize("method", ["beam", "sample"])
    def test_company_does_not_matter(self, run: Run, method: str) -> None:
        run = shortlisted(run, 2)
        options = replace(run.recipe.decoding, method=method, n_best=3, shortlist=True)
        together = run.translate_batch(WORDS, options)
        for i, (word, result) in enumerate(zip(WORDS, together, strict=True)):
            (alone,) = run.translate_batch([word], options, i)
            assert [c.text for c in alone.candidates] == [c.text for c in result.candidates]
            scores = [[c.log_prob for c in t.candidates] for t in (alone, result)]
            assert scores[0] == pytest.approx(scores[1], abs=1e-4)

    def test_logits_are_those_of_the_model(self, run: Run) -> None:
        model, encode = run.translator.model, run.translator.source.encode
        sources = [encode("abc"), encode("dea")]
        shortlisted = ShortlistedModel(model, [listed(run, 2).of(ids) for ids in sources])
        batch = Padded.from_rows([[*ids, EOS] for ids in sources])
        begin = Padded.unpadded(torch.full((2, 1), BOS))
        with torch.inference_mode():
            whole = model.step(begin, model.start(batch))[:, 0]
            state = shortlisted.start(batch)
            few = shortlisted.step(begin, state)[:, 0]
            state.select(torch.tensor([1, 1, 0]))
            assert state.sentences.tolist() == [1, 1, 0]
        for row, ids in enumerate(sources):
            own = set(listed(run, 2).of(ids))
            for column, token in enumerate(shortlisted.ids):
                if token in own:
                    assert few[row, column].item() == pytest.approx(
                        whole[row, token].item(), abs=1e-5
                    )
                else:
                    assert few[row, column] == float("-inf")


class TestOfARun:
    @pytest.mark.system
    def test_learnt_saved_and_used(self, path: Path, tmp_path: Path) -> None:
        done = command("shortlist", path, "--likely", 1, "--frequent", 0)
        assert done.code == 0 and done.lines[0].endswith("shortlist.safetensors")
        assert "coverage 100.00 % of validation target tokens" in done.lines[1]
        run = transduce.load(path, device="cpu")
        assert run.translator.steps.shortlist is not None
        assert set(run.translator.steps.shortlist.of(run.translator.source.encode("ab"))) == {
            *(PAD, UNK, BOS, EOS),
            *run.translator.target.encode("a b"),
        }
        (tmp_path / "words").write_text("abc\nba\n")
        lines = command("translate", path, tmp_path / "words", "--shortlist").lines
        assert [set(line.split()) <= set(w) for line, w in zip(lines, ["abc", "ba"], strict=True)]
        (path / "shortlist.safetensors").unlink()
        done = command("translate", path, tmp_path / "words", "--shortlist")
        assert done.complaint == "this run has no shortlist; make one with transduce shortlist RUN"

    def test_of_other_vocabularies(self, run: Run, tmp_path: Path) -> None:
        source, target = run.translator.source, run.translator.target
        assert load_shortlist(tmp_path, source, target) is None
        own = listed(run, 2)
        save_shortlist(own, tmp_path)
        again = load_shortlist(tmp_path, source, target)
        assert again is not None and again.rows() == own.rows()
        for wrong in (own._replace(likely=own.likely[1:]), own._replace(likely=own.likely + 9)):
            save_shortlist(wrong, tmp_path)
            with pytest.raises(RunError, match="is for other vocabularies"):
                load_shortlist(tmp_path, source, target)

    def test_coverage(self, run: Run) -> None:
        translator = run.translator
        result = coverage(
            listed(run, 1), translator.source, translator.target, [("ab", "a b"), ("a", "b a")]
        )
        assert result.covered == 3 / 4 and result.size == (6 + 5) / 2

    def test_options_that_it_does_not_go_with(self, run: Run) -> None:
        run = shortlisted(run, 1)
        options = replace(run.recipe.decoding, shortlist=True, constraints=("a",))
        with pytest.raises(SettingError, match="shortlist cannot be combined with"):
            run.translate("abc", options)


def test_a_shortlist_of_the_recipe_yields_to_constraints() -> None:
    recipe = DecodingOptions(shortlist=True)
    assert not recipe.with_settings({"constraints": ["a"]}).shortlist
    assert recipe.with_settings({"constraints": []}).shortlist
    assert recipe.with_settings({"beam_size": 2}).shortlist
    both = recipe.with_settings({"constraints": ["a"], "shortlist": True})
    with pytest.raises(SettingError, match="cannot be combined"):
        check_shortlist(both, object())
