"""Pairs set aside for validation and test, where no file is given for them."""

import itertools
from pathlib import Path

import pytest

from helpers.tiny_run import tiny_recipe, write_tsv
from transduce import DataError
from transduce.tasks.common import has_split
from transduce.tasks.recipe import DataConfig, read_pairs_of
from transduce.tasks.task import Split

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
