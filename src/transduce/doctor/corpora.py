"""Parallel data to examine: the splits of a recipe, or files named by the command."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from pydantic import TypeAdapter

from transduce.data.filters import Pair
from transduce.data.formats import PACKINGS
from transduce.data.pairs import PairsConfig, ParallelFiles, numbered_pairs
from transduce.errors import SettingError
from transduce.recipes import load_settings, parse_recipe
from transduce.tasks.translation.recipe import TranslationRecipe

KINDS = {".tsv": "tsv", ".tab": "tsv", ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}
KINDS[".parquet"] = "parquet"
"""Kind of a table by its suffix."""


class Corpus(NamedTuple):
    """Pairs of a split."""

    split: str
    config: PairsConfig
    root: Path

    @property
    def name(self) -> str:
        """File of the pairs, for places."""
        if isinstance(self.config, ParallelFiles):
            return str(self.root / self.config.source)
        return str(self.config.location(self.root))

    def pairs(self) -> Iterator[tuple[int, Pair]]:
        """Line of each pair, and its texts.  Raises DataError."""
        return numbered_pairs(self.config, self.root)


def corpora_of(
    files: Sequence[Path], held_out: Sequence[Path], columns: Sequence[str]
) -> list[Corpus]:
    """Corpora of a recipe, a run, a table or two files, those held out first.

    columns: of source and target in a table.  Raises SettingError for other files.
    """
    if len(files) == 1 and (files[0].suffix == ".toml" or files[0].is_dir()):
        if held_out or columns:
            raise SettingError("a recipe names its test data and columns; remove the options")
        return _of_recipe(files[0])
    corpora = [_of_files("test", held_out, columns)] if held_out else []
    return [*corpora, _of_files("train", files, columns)]


def _of_recipe(path: Path) -> list[Corpus]:
    file, settings = load_settings(path)
    recipe = parse_recipe(settings, str(file))
    if not isinstance(recipe, TranslationRecipe):
        raise SettingError(f"{file}: the task is not translation; name the files of its pairs")
    data, root = recipe.data, Path(recipe.data.root)
    splits = [("test", data.test), ("valid", data.valid)]
    splits += [("train", part.train) for part, _ in data.corpora()]
    return [Corpus(split, config, root) for split, config in splits if config is not None]


def _of_files(split: str, files: Sequence[Path], columns: Sequence[str]) -> Corpus:
    if columns and len(columns) != 2:
        raise SettingError("--column is given twice, for source and target")
    kinds = [kind_of_table(file) for file in files]
    section: Mapping[str, Any]
    if len(files) == 2 and kinds == [None, None] and not columns:
        section = {"kind": "parallel", "source": files[0], "target": files[1]}
    elif len(files) == 1 and kinds[0] is not None:
        names = [int(name) if name.isdecimal() and kinds[0] == "tsv" else name for name in columns]
        section = {"kind": kinds[0], "path": files[0]}
        section = {**section, **dict(zip(("source", "target"), names, strict=False))}
    else:
        raise SettingError(
            f"{', '.join(map(str, files))}: give a recipe, one table ({', '.join(KINDS)}) or two "
            "files with a text on each line"
        )
    return Corpus(split, TypeAdapter[Any](PairsConfig).validate_python(section), Path())


def kind_of_table(file: Path) -> str | None:
    """Kind of a table by its suffix; None for other files."""
    path = PurePosixPath(file.name.lower())
    if path.suffix in {packing.suffix for packing in PACKINGS}:
        path = path.with_suffix("")
    return KINDS.get(path.suffix)
