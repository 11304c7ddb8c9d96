"""Pairs set aside for validation and test, where no file is given for them."""

import itertools
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from helpers.tiny_run import reversal_pairs, tiny_recipe, tiny_task, write_tsv
from transduce import DataError
from transduce.decoding.options import DecodingOptions
from transduce.tasks.recipe import Split, has_split, sampled
from transduce.tasks.training import prepare_training
from transduce.tasks.translation.recipe import DataConfig, read_pairs_of
from transduce.tasks.translation.training import TranslationTraining

PAIRS = [(f"s{i % 700}", f"t{i}") for i in range(1400)]  # two targets for each source


class TestSplits:
    def splits(self, config: DataConfig) -> dict[str, list[tuple[str, str]]]:
        names: tuple[Split, ...] = ("train", "valid", "test")
        there = [name for name in names if has_split(config, name)]
        return {name: list(read_pairs_of(config, name)) for name in there}

    def config(self, directory: Path, pairs: list[tuple[str, str]], *more: str) -> DataConfig:
        file = write_tsv(directory / "all.tsv", pairs)
        return tiny_recipe(file, *more).data

    def test_whole_disjoint_and_by_source(self, tmp_path: Path) -> None:
        found = self.splits(self.config(tmp_path, PAIRS))
        assert sorted(itertools.chain.from_iterable(found.values())) == sorted(PAIRS)
        sources = [{s for s, _ in part} for part in found.values()]
        assert sum(map(len, sources)) == 700  # no source in two splits
        assert 40 < len(sources[1]) < 100 and 40 < len(sources[2]) < 100

    def test_order_and_company_do_not_matter(self, tmp_path: Path) -> None:
        found = self.splits(self.config(tmp_path, PAIRS))
        turned = self.splits(self.config(tmp_path, PAIRS[::-1]))
        assert {n: sorted(p) for n, p in found.items()} == {n: sorted(p) for n, p in turned.items()}
        fewer = self.splits(self.config(tmp_path, PAIRS[:300]))
        assert all(set(fewer[name]) <= set(found[name]) for name in found)

    def test_tags_do_not_matter(self, tmp_path: Path) -> None:
        more = write_tsv(tmp_path / "more.tsv", PAIRS)
        mixed = f"data.mix=[{{pairs={{kind='tsv', path='{more}', tag='X', tag_columns=[1]}}}}]"
        found = self.splits(self.config(tmp_path, PAIRS, mixed))
        tagged = {s.rpartition("> ")[2] for s, _ in found["train"] if s.startswith("<X> <t")}
        held_out = {s for name in ("valid", "test") for s, _ in found[name]}
        assert len(tagged) + len(held_out) == 700 and not tagged & held_out

    def test_only_what_has_no_file_is_set_aside(self, tmp_path: Path) -> None:
        file = tmp_path / "all.tsv"
        own = f"{{kind='tsv', path='{file}'}}"
        config = self.config(tmp_path, PAIRS, f"data.test={own}")
        found = self.splits(config)
        assert found["test"] == PAIRS
        assert sorted(found["train"] + found["valid"]) == sorted(PAIRS)
        config = self.config(tmp_path, PAIRS, f"data.valid={own}")
        assert self.splits(config) == {"train": PAIRS, "valid": PAIRS}
        with pytest.raises(DataError, match="no test data"):
            list(read_pairs_of(config, "test"))


@pytest.mark.parametrize("kind", ["tsv", "jsonl"])
def test_a_test_set_that_is_not_there_is_said_before_training(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = write_tsv(tmp_path / "all.tsv", PAIRS)
    recipe = tiny_recipe(file, f"data.test={{kind='{kind}', path='tset.tsv'}}")
    prepare_training(recipe.data, recipe.training, recipe.seed)
    assert f"data.test: {Path(recipe.data.root) / 'tset.tsv'}: no such file" in caplog.text
    caplog.clear()
    recipe = tiny_recipe(file, f"data.test={{kind='tsv', path='{file}'}}")
    prepare_training(recipe.data, recipe.training, recipe.seed)
    assert not caplog.records


def source_of(pair: tuple[str, str]) -> str:
    return pair[0]


class TestDrawn:
    """The pairs that a validation decodes."""

    SORTED = tuple((f"<{tag}> {i}", f"{i}") for tag in ("ady", "bul", "vie") for i in range(1000))

    def test_even_whatever_the_order_of_the_file(self) -> None:
        found = sampled(self.SORTED, 300, source_of)
        tags = Counter(source[:5] for source, _ in found)
        assert len(found) == 300 and all(
            70 < tags[tag] < 130 for tag in ("<ady>", "<bul>", "<vie>")
        )
        assert found == sorted(found, key=self.SORTED.index)
        assert set(sampled(self.SORTED[::-1], 300, source_of)) == set(found)
        assert set(sampled(self.SORTED, 100, source_of)) < set(found)

    def test_all_that_there_are_and_none(self) -> None:
        assert sampled(iter(self.SORTED[:5]), 500, source_of) == list(self.SORTED[:5])
        assert sampled(iter([]), 500, source_of) == []
        assert sampled(self.SORTED, 0, source_of) == []

    def test_all_targets_of_a_source_come_together(self) -> None:
        several = [(source, target) for source, target in self.SORTED for target in (target, "x")]
        assert len({source for source, _ in sampled(several, 200, source_of)}) == 100


@pytest.fixture
def lower_case_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TranslationTraining:
    """Of a vocabulary in lower case, with a model that is always right but for capitals."""
    pairs = [(word, f"Über {word.upper()}") for word, _ in reversal_pairs(60)]
    data = write_tsv(tmp_path / "pairs.tsv", pairs)
    characters = "text.target={kind='characters', normalization='nfd', lowercase=true}"
    measured = "evaluation.validation_metrics=['accuracy', 'chrf']"
    task = tiny_task(data, tmp_path / "run", characters, measured)

    def right(texts: list[str], options: DecodingOptions, first: int = 0) -> list[SimpleNamespace]:
        return [SimpleNamespace(text=f"u\u0308ber {text}") for text in texts]

    monkeypatch.setattr(task.predictor, "translate_lines", right)
    return task


def test_references_are_as_the_vocabulary_writes_them(lower_case_task: TranslationTraining) -> None:
    scores = lower_case_task.validate()
    assert scores["accuracy"] == scores["chrf"] == 100


def test_letters_that_the_vocabulary_never_writes_are_told_of(
    lower_case_task: TranslationTraining, caplog: pytest.LogCaptureFixture
) -> None:
    translator = lower_case_task.predictor
    examples = [
        (("the dog over there",), "Über The Dog over there"),
        (("a cat like you",), "u\u0308ber a cat like you"),
    ]
    scores = translator.evaluate("test", examples).scores
    assert scores["chrf"] < 90 and "1 of 2 references contain characters" in caplog.text
    assert "cer 0.00, chrf 100.00" in caplog.text
    caplog.clear()
    translator.evaluate("test", examples[1:])
    assert not caplog.text
