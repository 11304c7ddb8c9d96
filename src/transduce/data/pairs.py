"""Read pairs of texts, source and target, from common formats of parallel text."""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from transduce.config import section, to_dict
from transduce.config_paths import expanded_path
from transduce.data.delimited import Column, Delimiter, check_columns, csv_rows, tsv_rows
from transduce.data.escaped_text import Entities, unescaped
from transduce.data.formats import is_plain
from transduce.data.lines import read_lines
from transduce.data.tables import HUB, hub_rows, jsonl_rows, parquet_rows
from transduce.errors import DataError, reading
from transduce.text.characters import mark

GLANCES = 32
GLANCE_BYTES = 2**16
"""Bytes read at each of `GLANCES` places to estimate the length of lines."""
BLOCKS = 16
BLOCK_BYTES = 2**12
"""Bytes hashed in each of `BLOCKS` blocks, to distinguish files of the same size and dates."""
_MARKS = re.compile(r"(?:<[^<>]*> )+")


def _some(paths: Any) -> Any:
    if isinstance(paths, list | tuple) and not paths:
        raise ValueError("name at least one file")
    return paths


FilePath = Annotated[Path, BeforeValidator(expanded_path)]
"""A file or directory of data; may hold `~` and `$VARIABLE`.  Relative, it is below `data.root`."""
FilePaths = Annotated[FilePath | tuple[FilePath, ...], BeforeValidator(_some)]
"""One path, or several."""
HubPath = Annotated[str, BeforeValidator(expanded_path)]
"""The same, or `hf://owner/name`."""


def _plain_tag(tag: str) -> str:
    if any(sign in "<>" or sign.isspace() for sign in tag):
        raise ValueError(f"tag {tag!r} contains white space, < or >; write it without brackets")
    return tag


Tag = Annotated[str, AfterValidator(_plain_tag)]
TagSeparator = Annotated[str, Field(max_length=8)]


@section
class ParallelFiles:
    """Two text files, plain or compressed, with pair N on line N of both."""

    kind: Literal["parallel"] = "parallel"
    source: FilePath
    """File with one source text per line."""
    target: FilePath
    """File with one target text per line."""
    tag: Tag = ""
    """Put before every source as `<tag> `, such as the target language."""
    unescape: bool = False
    """Read entities of HTML and Moses, such as `&quot;` and `&#124;`, as their characters."""


@section
class TabSeparated:
    """A tab-separated file, plain or compressed."""

    kind: Literal["tsv"] = "tsv"
    path: FilePath
    """The file."""
    source: Column = 0
    """Column of the source: a number from 0, or a name from the header line."""
    target: Column = 1
    """Column of the target: a number from 0, or a name from the header line."""
    tag: Tag = ""
    """Put before every source as `<tag> `, such as the target language."""
    tag_columns: tuple[Column, ...] = ()
    """Columns with further tags, put before the source in the same way, in this order."""
    tag_separator: TagSeparator = ""
    """Separator of several tags in one column, such as `;` in `V;PST;SG`."""
    unescape: bool = False
    """Read entities of HTML and Moses, such as `&quot;` and `&#124;`, as their characters."""


@section
class CommaSeparated:
    """A CSV file, plain or compressed, quoted as in RFC 4180 and spreadsheets."""

    kind: Literal["csv"] = "csv"
    path: FilePath
    """The file."""
    delimiter: Delimiter = ","
    """Separator between columns: a comma, `;`, or a tab, for TSV with quoting."""
    header: bool = True
    """Read column names from the first line."""
    source: Column = "source"
    """Column of the source: a name from the header line, or a number from 0."""
    target: Column = "target"
    """Column of the target."""
    tag: Tag = ""
    """Put before every source as `<tag> `, such as the target language."""
    tag_columns: tuple[Column, ...] = ()
    """Columns with further tags, put before the source in the same way, in this order."""
    tag_separator: TagSeparator = ""
    """Separator of several tags in one column, such as `;` in `V;PST;SG`."""
    unescape: bool = False
    """Read entities of HTML and Moses, such as `&quot;` and `&#124;`, as their characters."""

    def __post_init__(self) -> None:
        check_columns(self.header, (self.source, self.target, *self.tag_columns))


@section
class JsonLines:
    """A file with one JSON object per line, plain or compressed."""

    kind: Literal["jsonl"] = "jsonl"
    path: FilePath
    """The file."""
    source: str = "source"
    """Field of the source; `translation.en` goes into nested objects, `source.*` joins a list."""
    target: str = "target"
    """Field of the target."""
    tag: Tag = ""
    """Put before every source as `<tag> `, such as the target language."""
    tag_columns: tuple[str, ...] = ()
    """Fields with further tags, put before the source in the same way, in this order."""
    tag_separator: TagSeparator = ""
    """Separator of several tags in one field, such as `;` in `V;PST;SG`."""
    unescape: bool = False
    """Read entities of HTML and Moses, such as `&quot;` and `&#124;`, as their characters."""


@section
class Parquet:
    """A Parquet file (needs the extra `parquet`)."""

    kind: Literal["parquet"] = "parquet"
    path: FilePath
    """The file."""
    source: str = "source"
    """Column of the source; `translation.en` goes into nested columns."""
    target: str = "target"
    """Column of the target."""
    tag: Tag = ""
    """Put before every source as `<tag> `, such as the target language."""
    tag_columns: tuple[str, ...] = ()
    """Columns with further tags, put before the source in the same way, in this order."""
    tag_separator: TagSeparator = ""
    """Separator of several tags in one column, such as `;` in `V;PST;SG`."""
    unescape: bool = False
    """Read entities of HTML and Moses, such as `&quot;` and `&#124;`, as their characters."""


@section
class HubDataset:
    """A data set for the `datasets` library (needs the extra `hub`)."""

    kind: Literal["hub"] = "hub"
    path: HubPath
    """`hf://owner/name`, a directory of data files, or one written by `save_to_disk`."""
    split: str = "train"
    """The split."""
    name: str | None = None
    """Configuration of the data set, if it has several."""
    source: str = "source"
    """Column of the source; `translation.en` goes into nested columns."""
    target: str = "target"
    """Column of the target."""
    tag: Tag = ""
    """Put before every source as `<tag> `, such as the target language."""
    tag_columns: tuple[str, ...] = ()
    """Columns with further tags, put before the source in the same way, in this order."""
    tag_separator: TagSeparator = ""
    """Separator of several tags in one column, such as `;` in `V;PST;SG`."""
    unescape: bool = False
    """Read entities of HTML and Moses, such as `&quot;` and `&#124;`, as their characters."""


PairsConfig = Annotated[
    ParallelFiles | TabSeparated | CommaSeparated | JsonLines | Parquet | HubDataset,
    Field(discriminator="kind"),
]


def located(path: str | Path, root: Path) -> str | Path:
    """Resolve the path of a section: on the Hub, or below the root."""
    return path if str(path).startswith(HUB) else root / path


def read_pairs(config: PairsConfig, root: Path) -> Iterator[tuple[str, str]]:
    """Stream all pairs in the order of the input, including empty texts.

    root: the directory that relative paths start from.  Raises DataError, while reading, if the
    input does not match its section.
    """
    tag = mark(config.tag) if config.tag else ""
    entities = Entities(_name_of(config))
    separator = "" if isinstance(config, ParallelFiles) else config.tag_separator
    for number, (source, target, *values) in enumerate(_rows(config, root), 1):
        if separator:
            values = [part for value in values for part in value.split(separator) if part.strip()]
        if config.unescape:
            source, target = unescaped(source), unescaped(target)
        else:
            entities.look_at(source, target)
        if any("<" in value or ">" in value for value in values):
            assert not isinstance(config, ParallelFiles)
            raise DataError(
                f"{located(config.path, root)}: pair {number} has an invalid tag, "
                f"{' '.join(values)!r}; tags must not contain `<` or `>`"
            )
        marks = tag + "".join(map(mark, values))
        yield (marks + source if source.strip() else source), target
    entities.look_back()


def _name_of(config: PairsConfig) -> str:
    """Name of a section's data in messages."""
    if isinstance(config, ParallelFiles):
        return f"{config.source}, {config.target}"
    return str(config.path)


def without_marks(source: str) -> str:
    """A source without the tags before it."""
    return source[match.end() :] if (match := _MARKS.match(source)) else source


def inputs_of(config: PairsConfig, root: Path) -> list[Path]:
    """Files of the pairs; none for a data set on the Hub."""
    if isinstance(config, ParallelFiles):
        return [root / config.source, root / config.target]
    if not isinstance(config, HubDataset):
        return [root / config.path]
    if config.path.startswith(HUB):
        return []
    return files_below(root / config.path)


def about_how_many(config: PairsConfig, root: Path) -> int | None:
    """Estimate the pairs in plain text files from samples of lines; None for other formats."""
    if not isinstance(config, ParallelFiles | TabSeparated | CommaSeparated | JsonLines):
        return None
    path = inputs_of(config, root)[0]
    try:
        if not is_plain(path):
            return None
        size, sampled, lines = path.stat().st_size, 0, 0
        with path.open("rb") as file:
            for glance in range(GLANCES):
                file.seek(size * glance // GLANCES)
                sample = file.read(min(GLANCE_BYTES, size // GLANCES + 1))
                sampled, lines = sampled + len(sample), lines + sample.count(b"\n")
        return size * lines // max(sampled, 1) or None
    except OSError:
        return None


def files_below(directory: Path) -> list[Path]:
    """All files below a directory, without hidden ones."""
    visible = (p for p in directory.rglob("*") if not p.name.startswith("."))
    return sorted(p for p in visible if p.is_file())


def fingerprint(config: PairsConfig, root: Path) -> str:
    """Hash of the settings and inputs, computed as in `stamp`.

    A data set on the Hub is identified by name, configuration and split only; add `@revision` to
    the name to fix a version.  Raises DataError if a file is missing.
    """
    return stamp(config, inputs_of(config, root))


def stamp(config: Any, paths: Iterable[Path]) -> str:
    """Hash of settings, and of the place, size, dates and some blocks of files.

    Dates are the modification and change times; no program can set back the latter.  Raises
    DataError if a file is missing.
    """
    files = []
    for path in paths:
        with reading(path):
            status = path.stat()
            dates = status.st_mtime_ns, status.st_ctime_ns
            blocks = _blocks(path, status.st_size) if stat.S_ISREG(status.st_mode) else ""
        files.append([str(path.resolve()), status.st_size, *dates, blocks])
    facts = json.dumps([to_dict(config), files], sort_keys=True)
    return hashlib.sha256(facts.encode("utf-8", "surrogateescape")).hexdigest()


def file_stamp(file: str) -> bytes:
    """Place, size and dates of a file, to be hashed with many others; no block is read.

    Raises OSError if it is missing, ValueError for a name with the character NUL.
    """
    status = os.stat(file)  # noqa: PTH116 - a Path for each of a million files is slow
    numbers = status.st_size, status.st_mtime_ns, status.st_ctime_ns
    return os.fsencode(file) + f"\0{numbers}\0".encode()


def _blocks(path: Path, size: int) -> str:
    """Hash of blocks from the first to the last byte; of a small file, all of it."""
    digest = hashlib.blake2b(digest_size=16)
    with path.open("rb") as file:
        for block in range(BLOCKS):
            file.seek(max(size - BLOCK_BYTES, 0) * block // (BLOCKS - 1))
            digest.update(file.read(BLOCK_BYTES))
    return digest.hexdigest()


def _rows(config: PairsConfig, root: Path) -> Iterator[tuple[str, ...]]:
    """Source, target and tags of each row."""
    match config:
        case ParallelFiles():
            return _parallel(root / config.source, root / config.target)
        case TabSeparated():
            columns = (config.source, config.target, *config.tag_columns)
            return tsv_rows(root / config.path, columns)
        case CommaSeparated():
            columns = (config.source, config.target, *config.tag_columns)
            return csv_rows(root / config.path, columns, config.delimiter, config.header)
        case JsonLines():
            names = (config.source, config.target, *config.tag_columns)
            return jsonl_rows(root / config.path, names)
        case Parquet():
            names = (config.source, config.target, *config.tag_columns)
            return parquet_rows(root / config.path, names)
        case HubDataset():
            names = (config.source, config.target, *config.tag_columns)
            return hub_rows(located(config.path, root), names, config.split, config.name)


def _parallel(source_path: Path, target_path: Path) -> Iterator[tuple[str, str]]:
    sources, targets = read_lines(source_path), read_lines(target_path)
    count = 0
    while True:
        source, target = next(sources, None), next(targets, None)
        if source is None or target is None:
            break
        count += 1
        yield source, target
    n_sources = count + (source is not None) + sum(1 for _ in sources)
    n_targets = count + (target is not None) + sum(1 for _ in targets)
    if n_sources != n_targets:
        raise DataError(
            f"{source_path} has {n_sources} lines but {target_path} has {n_targets}; "
            "both files need one line per pair"
        )
