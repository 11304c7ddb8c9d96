"""A run trained with tags tells whoever leaves one out, or writes one that it does not know."""

from __future__ import annotations

from pathlib import Path

import pytest

import transduce
from helpers.tiny_run import reversal_pairs, tiny_recipe, tiny_settings, write_tsv
from transduce.tasks.translation.recipe import ExpectedTags
from transduce.text import CharactersConfig, SubwordConfig, Tokenizer, train_tokenizer

COLUMNS = ("data.train.tag_columns=[0]", "data.train.source=1", "data.train.target=2")
TEXTS = ["<fwd> ab", "<bwd> ab", "ba"]


def complaints(
    caplog: pytest.LogCaptureFixture, expected: ExpectedTags, *texts: str, first: int = 0
) -> list[str]:
    caplog.clear()
    expected.check(texts, first)
    return [record.getMessage() for record in caplog.records]


def of(tokenizer: Tokenizer, *overrides: str) -> ExpectedTags:
    return ExpectedTags(tiny_recipe(Path("a.tsv"), *overrides).data.tags(), tokenizer)


@pytest.fixture(scope="module")
def characters() -> Tokenizer:
    return train_tokenizer(CharactersConfig(lowercase=True), TEXTS)


@pytest.fixture(scope="module")
def subwords() -> Tokenizer:
    return train_tokenizer(SubwordConfig(size=270), TEXTS)


def test_a_missing_tag_is_told_once(
    caplog: pytest.LogCaptureFixture, characters: Tokenizer
) -> None:
    expected = of(characters, *COLUMNS)
    assert complaints(caplog, expected, "<fwd> ab", "<FWD> ab", " ", "") == []
    assert complaints(caplog, expected, "<bwd> b", "ab", "ab", first=512) == [
        "line 514 has no tag, but this model was trained with tags: <bwd>, <fwd>; "
        "further lines are not reported"
    ]
    assert complaints(caplog, expected, "ab") == []


def test_an_unknown_tag_is_told(caplog: pytest.LogCaptureFixture, characters: Tokenizer) -> None:
    assert complaints(caplog, of(characters, *COLUMNS), "<fwd> <bdw> b") == [
        "line 1 has the unknown tag <bdw>; known are <bwd>, <fwd>; further lines are not reported"
    ]


def test_tags_that_a_vocabulary_does_not_list(
    caplog: pytest.LogCaptureFixture, subwords: Tokenizer
) -> None:
    assert complaints(caplog, of(subwords, *COLUMNS), "<any> ab", "ab") == [
        "line 2 has no tag, but this model was trained with tags; further lines are not reported"
    ]
    mix = "data.mix=[{pairs={kind='parallel', source='s', target='t', tag='de'}}]"
    both = of(subwords, "data.train.tag=fr", mix)
    assert complaints(caplog, both, "<de> ab", "<fr> ab", "<it> ab") == [
        "line 3 has the unknown tag <it>; known are <de>, <fr>; further lines are not reported"
    ]


def test_without_tags_in_all_corpora_nothing_is_expected(
    caplog: pytest.LogCaptureFixture, characters: Tokenizer
) -> None:
    mix = "data.mix=[{pairs={kind='tsv', path='b.tsv', tag='BT'}}]"
    for overrides in [(), (mix,)]:  # back-translations are marked, real pairs are not
        assert complaints(caplog, of(characters, *overrides), "ab", "<x> ab") == []


def test_a_run_tells(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = [(tag, *pair) for pair in reversal_pairs(60) for tag in ("fwd", "bwd")]
    data = write_tsv(tmp_path / "pairs.tsv", rows)
    run, _ = transduce.train(tiny_settings(data, *COLUMNS), tmp_path / "run")
    model = transduce.load(run, "cpu")
    model.translate_batch(["<fwd> ab"])
    model.evaluate()
    assert "tag" not in caplog.text
    model.translate_batch(["<fwd> ab", "ab"])
    assert "line 2 has no tag" in caplog.text
    caplog.clear()
    list(transduce.load(run, "cpu").stream("<fwb> ab"))
    assert "line 1 has the unknown tag <fwb>; known are <bwd>, <fwd>" in caplog.text
