"""Parallel data to examine: splits or files, evenly sampled, with their repeated lines."""

import itertools
import logging
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from transduce.data.encoded import Pair
from transduce.data.pairs import PairsConfig, ParallelFiles, numbered_pairs
from transduce.data.tables import delimiter_of
from transduce.data.text_files import PACKINGS, read_lines
from transduce.errors import SettingError
from transduce.recipes import load_settings, parse_recipe
from transduce.tasks.translation.recipe import TranslationRecipe

logger = logging.getLogger("transduce")

PAIRS = 40_000
SNIFFED = 200
"""Lines that the form of a table is recognised by."""
Row = TypeVar("Row")


class Sample(Generic[Row]):
    """Every row of a short corpus; of a longer one every second, fourth, ... row.

    Has between `most` and twice as many rows, unless the corpus has fewer.
    """

    def __init__(self, most: int = PAIRS) -> None:
        self.rows: list[Row] = []
        self._most = most
        self._step = 1
        self._read = 0

    def add(self, row: Row) -> None:
        """Keep the next row, or not."""
        if self._read % self._step == 0:
            self.rows.append(row)
            if len(self.rows) == 2 * self._most:
                del self.rows[1::2]
                self._step *= 2
        self._read += 1


BUCKETS = 256
"""Files of keys.  One is sorted at a time: of 20 million lines 80,000 keys, 1.3 MB."""
PENDING = 1 << 16
"""Keys in memory before they are written."""
NO_KEY = 0
_RECORD = np.dtype([("key", "<u8"), ("line", "<i8")])


class Repeats:
    """First line with the same 64-bit key, for each line.

    Takes 24 bytes a line on disk, in `directory`.
    """

    def __init__(self, directory: Path, name: str) -> None:
        self._directory = directory
        self._name = name
        self._keys: list[int] = []
        self._lines = 0

    def add(self, key: int) -> None:
        """Key of the next line; lines with `NO_KEY` equal none."""
        self._keys.append(key)
        if len(self._keys) == PENDING:
            self._write()

    def firsts(self) -> NDArray[np.int64]:
        """(lines,) Number of the first line with the same key, in a file mapped to memory."""
        self._write()
        path = self._directory / f"{self._name}.firsts"
        firsts = np.memmap(path, np.int64, "w+", shape=max(self._lines, 1))
        for at in range(0, len(firsts), PENDING):
            firsts[at : at + PENDING] = np.arange(at, min(at + PENDING, len(firsts)))
        for bucket in range(BUCKETS):
            if not (path := self._bucket(bucket)).exists():
                continue
            records = np.fromfile(path, _RECORD)
            path.unlink()
            records = records[np.argsort(records["key"], kind="stable")]
            _, begin, group = np.unique(records["key"], return_index=True, return_inverse=True)
            firsts[records["line"]] = records["line"][begin][group]
        return firsts

    def _bucket(self, number: int) -> Path:
        return self._directory / f"{self._name}.{number}"

    def _write(self) -> None:
        records = np.empty(len(self._keys), _RECORD)
        records["key"] = np.array(self._keys, np.uint64)
        records["line"] = np.arange(self._lines, self._lines + len(records))
        self._lines += len(records)
        self._keys = []
        records = records[records["key"] != NO_KEY]
        buckets = records["key"] >> np.uint64(56)
        for bucket in np.unique(buckets):
            with self._bucket(int(bucket)).open("ab") as file:
                records[buckets == bucket].tofile(file)


class _Folded(dict[int, int | None]):
    """Table of `str.translate` without punctuation, blanks and control characters."""

    def __missing__(self, code: int) -> int | None:
        dropped = unicodedata.category(chr(code))[0] in "PZC"
        self[code] = None if dropped else code
        return self[code]


_FOLDED = _Folded()


def folded(text: str) -> str:
    """A text without case, punctuation and blanks; unchanged if nothing else is in it."""
    return unicodedata.normalize("NFKC", text).casefold().translate(_FOLDED) or text.strip()


TABLES = {".tsv": "tsv", ".tab": "tsv", ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}
TABLES[".parquet"] = "parquet"
"""Kind of a table by its suffix."""


class ExaminedCorpus(NamedTuple):
    """Pairs of a split."""

    split: str
    config: PairsConfig
    root: Path

    @property
    def name(self) -> str:
        """File of the pairs, for places."""
        if isinstance(self.config, ParallelFiles):
            return ", ".join(str(source) for source, _ in self.config.file_pairs(self.root))
        return str(self.config.location(self.root))

    def pairs(self) -> Iterator[tuple[int, Pair]]:
        """Line of each pair, and its texts.  Raises DataError."""
        return numbered_pairs(self.config, self.root)


def corpora_of(
    files: Sequence[Path], held_out: Sequence[Path], columns: Sequence[str]
) -> list[ExaminedCorpus]:
    """Corpora of a recipe, a run, a table or two files, those held out first.

    columns: of source and target in a table.  Raises SettingError for other files.
    """
    if len(files) == 1 and (files[0].suffix == ".toml" or files[0].is_dir()):
        if held_out or columns:
            raise SettingError("a recipe names its test data and columns; remove the options")
        return _of_recipe(files[0])
    corpora = [_of_files("test", held_out, columns)] if held_out else []
    return [*corpora, _of_files("train", files, columns)]


def _of_recipe(path: Path) -> list[ExaminedCorpus]:
    file, settings = load_settings(path)
    recipe = parse_recipe(settings, str(file))
    if not isinstance(recipe, TranslationRecipe):
        raise SettingError(f"{file}: the task is not translation; name the files of its pairs")
    data, root = recipe.data, Path(recipe.data.root)
    splits = [("test", data.test), ("valid", data.valid)]
    splits += [("train", part.train) for part, _ in data.corpora()]
    return [ExaminedCorpus(split, config, root) for split, config in splits if config is not None]


def _of_files(split: str, files: Sequence[Path], columns: Sequence[str]) -> ExaminedCorpus:
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
        if kinds[0] == "csv":
            first = list(itertools.islice(read_lines(files[0], lenient=True), SNIFFED))
            section = {**section, "delimiter": delimiter_of(first) or ","}
    else:
        raise SettingError(
            f"{', '.join(map(str, files))}: give a recipe, one table ({', '.join(TABLES)}) or two "
            "files with a text on each line"
        )
    return ExaminedCorpus(split, TypeAdapter[Any](PairsConfig).validate_python(section), Path())


LIMITS = ".limits.gz"
"""End of the name of a file with the sample that the limits of a file of pairs come from."""


def limits_file(pairs: str | Path) -> Path:
    """The file with limits beside a file of pairs."""
    return Path(f"{pairs}{LIMITS}")


def kept_sample(corpora: Sequence[ExaminedCorpus]) -> list[Pair] | None:
    """Sample in the limits beside the only file of training pairs; None without."""
    trained = [corpus.config.files(corpus.root) for corpus in corpora if corpus.split == "train"]
    files = [file for files in trained for file in files]
    if len(files) != 1 or not (path := limits_file(files[0])).is_file():
        return None
    logger.info("limits of lengths, languages and alignment are those of %s", path)
    rows = TypeAdapter[Any](PairsConfig).validate_python({"kind": "jsonl", "path": path})
    return [pair for _, pair in numbered_pairs(rows, Path())]


def kind_of_table(file: Path) -> str | None:
    """Kind of a table by its suffix; None for other files."""
    path = PurePosixPath(file.name.lower())
    if path.suffix in {packing.suffix for packing in PACKINGS}:
        path = path.with_suffix("")
    return TABLES.get(path.suffix)
