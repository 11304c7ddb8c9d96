"""Pairs of texts, source and target: read from common formats of parallel data, written as a
file."""

import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from transduce.data.sources import (
    Addresses,
    CsvFile,
    HubData,
    JsonLinesFile,
    ParquetFile,
    TsvFile,
    chained,
    files_at,
)
from transduce.data.tables import Column, numbered_csv_rows, numbered_json_rows, tsv_rows
from transduce.data.text_files import Entities, is_plain, read_lines, unescaped
from transduce.errors import DataError, writing
from transduce.settings.sections import ByKind, section
from transduce.text.tokenizer import mark


@section
class FilterConfig:
    """Filters for training pairs.  Pairs with an empty or blank side are always left out."""

    max_length: Annotated[int, Field(ge=1)] = 256
    """Maximum tokens on either side, without BOS and EOS; also the length above which `translate`
    splits a source."""
    max_ratio: Annotated[float, Field(ge=0)] = 0.0
    """Maximum ratio of tokens between the sides; 0 for no limit, as for summaries.  For
    translations, 9 is a customary limit against misaligned lines."""
    drop_duplicates: bool = True
    """Keep only the first of identical pairs."""


GLANCES = 32
GLANCE_BYTES = 2**16
"""Bytes read at each of `GLANCES` places to estimate the length of lines."""
_MARKS = re.compile(r"(?:<[^<>]*> )+")


def _plain_tag(tag: str) -> str:
    if any(sign in "<>" or sign.isspace() for sign in tag):
        raise ValueError(f"tag {tag!r} contains white space, < or >; write it without brackets")
    return tag


Tag = Annotated[str, AfterValidator(_plain_tag)]
TagSeparator = Annotated[str, Field(max_length=8)]


@section
class Tagged:
    """Base of sections of pairs."""

    tag: Tag = ""
    """Put before every source as `<tag> `, such as the target language."""
    unescape: bool = False
    """Read entities of HTML and Moses, such as `&quot;` and `&#124;`, as their characters."""


@section
class ParallelFiles(Tagged):
    """Two text files, plain or compressed, with pair N on line N of both; or two sets of as many
    files."""

    kind: Literal["parallel"] = "parallel"
    source: Addresses
    """File with one source text per line; or a list, a pattern, a directory, a URL."""
    target: Addresses
    """File with one target text per line; or a list, a pattern, a directory, a URL."""

    def location(self, root: Path) -> str:
        """Both files, for messages."""
        return f"{self.source}, {self.target}"

    def files(self, root: Path) -> list[Path]:
        """All files."""
        return [file for pair in self.file_pairs(root) for file in pair]

    def file_pairs(self, root: Path) -> list[tuple[Path, Path]]:
        """The files of each source and its target.  Raises DataError for an unequal number."""
        sources, targets = files_at(self.source, root), files_at(self.target, root)
        if len(sources) != len(targets):
            raise DataError(
                f"{self.source} has {len(sources)} files but {self.target} has {len(targets)}; "
                "each file of sources needs one of targets, in the order of their names"
            )
        return list(zip(sources, targets, strict=True))


@section
class PairColumns(Tagged):
    """Base of sections of pairs in tables."""

    source: Column = "source"
    """Column of the source: a name from the header line, or a number from 0."""
    target: Column = "target"
    """Column of the target."""
    tag_columns: tuple[Column, ...] = ()
    """Columns with further tags, put before the source in the same way, in this order."""
    tag_separator: TagSeparator = ""
    """Separator of several tags in one column, such as `;` in `V;PST;SG`."""

    def columns(self) -> Sequence[Any]:
        """All columns that are read."""
        return (self.source, self.target, *self.tag_columns)


@section
class NamedPairColumns(PairColumns):
    """Base of sections of pairs in tables without numbers of columns."""

    source: str = "source"
    """Column of the source; `translation.en` goes into nested columns."""
    target: str = "target"
    """Column of the target."""
    tag_columns: tuple[str, ...] = ()
    """Columns with further tags, put before the source in the same way, in this order."""


@section
class TabSeparated(PairColumns, TsvFile):
    """A tab-separated file, plain or compressed, without quoting: a tab separates columns."""

    source: Column = 0
    """Column of the source: a number from 0, or a name from the header line."""
    target: Column = 1
    """Column of the target: a number from 0, or a name from the header line."""


@section
class CommaSeparated(PairColumns, CsvFile):
    """A CSV file, plain or compressed, quoted as in RFC 4180 and spreadsheets."""


@section
class JsonLines(NamedPairColumns, JsonLinesFile):
    """A file with one JSON object per line, plain or compressed.

    In a list of texts, `source.*` joins all.
    """


@section
class Parquet(NamedPairColumns, ParquetFile):
    """A Parquet file (needs the extra `parquet`)."""


@section
class HubDataset(NamedPairColumns, HubData):
    """A data set for the `datasets` library (needs the extra `hub`)."""


PairsConfig = Annotated[
    ParallelFiles | TabSeparated | CommaSeparated | JsonLines | Parquet | HubDataset,
    ByKind(),
]


def read_pairs(config: PairsConfig, root: Path) -> Iterator[tuple[str, str]]:
    """Stream all pairs in the order of the input, including empty texts."""
    tag = mark(config.tag) if config.tag else ""
    entities = Entities(str(config.location(Path())))
    separator = "" if isinstance(config, ParallelFiles) else config.tag_separator
    for number, (source, target, *values) in enumerate(_pair_rows(config, root), 1):
        if separator:
            values = [part for value in values for part in value.split(separator) if part.strip()]
        if config.unescape:
            source, target = unescaped(source), unescaped(target)
        else:
            entities.look_at(source, target)
        if any("<" in value or ">" in value for value in values):
            assert not isinstance(config, ParallelFiles)
            raise DataError(
                f"{config.location(root)}: pair {number} has an invalid tag, "
                f"{' '.join(values)!r}; tags must not contain `<` or `>`"
            )
        marks = tag + "".join(map(mark, values))
        yield (marks + source if source.strip() else source), target
    entities.look_back()


def numbered_pairs(config: PairsConfig, root: Path) -> Iterator[tuple[int, tuple[str, str]]]:
    """Stream the line of each pair in its file, from 1, and its texts without tags; in Parquet and
    on the Hub the row.  Bytes that are not UTF-8 become U+FFFD, texts that a row lacks blank."""
    for number, (source, target) in _numbered(config, root):
        if config.unescape:
            source, target = unescaped(source), unescaped(target)
        yield number, (source, target)


def _numbered(config: PairsConfig, root: Path) -> Iterator[tuple[int, tuple[str, ...]]]:
    if isinstance(config, ParallelFiles):
        return enumerate(chained(_parallel(*files, True) for files in config.file_pairs(root)), 1)
    columns = (config.source, config.target)
    if isinstance(config, TabSeparated):
        has_header = any(isinstance(column, str) for column in config.columns())
        rows = (tsv_rows(file, columns, lenient=True) for file in config.files(root))
        return enumerate(chained(rows), 2 if has_header else 1)
    if isinstance(config, CommaSeparated):
        return chained(
            numbered_csv_rows(file, columns, config.delimiter, config.header, lenient=True)
            for file in config.files(root)
        )
    names = (config.source, config.target)
    if isinstance(config, JsonLines):
        return chained(numbered_json_rows(file, names) for file in config.files(root))
    return ((record.number, record.texts(names)) for record in config.records(root, names))


def without_marks(source: str) -> str:
    """A source without the tags before it."""
    return source[match.end() :] if (match := _MARKS.match(source)) else source


def about_how_many(config: PairsConfig, root: Path) -> int | None:
    """Estimate the pairs in plain text files from samples of lines; None for other formats."""
    if not isinstance(config, ParallelFiles | TabSeparated | CommaSeparated | JsonLines):
        return None
    try:
        files = config.files(root)[:: 2 if isinstance(config, ParallelFiles) else 1]
        if not is_plain(path := files[0]):
            return None
        size, sampled, lines = path.stat().st_size, 0, 0
        with path.open("rb") as file:
            for glance in range(GLANCES):
                file.seek(size * glance // GLANCES)
                sample = file.read(min(GLANCE_BYTES, size // GLANCES + 1))
                sampled, lines = sampled + len(sample), lines + sample.count(b"\n")
        return sum(file.stat().st_size for file in files) * lines // max(sampled, 1) or None
    except OSError:
        return None


def _pair_rows(config: PairsConfig, root: Path) -> Iterator[tuple[str, ...]]:
    if isinstance(config, ParallelFiles):
        return chained(_parallel(*files) for files in config.file_pairs(root))
    return config.rows(root, config.columns())


def _parallel(
    source_path: Path, target_path: Path, lenient: bool = False
) -> Iterator[tuple[str, str]]:
    sources, targets = read_lines(source_path, lenient), read_lines(target_path, lenient)
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


def write_pairs(pairs: Iterable[tuple[str, str]], path: str | os.PathLike[str]) -> Path:
    """Write (source, target) pairs, read once, as JSON lines, the format `jsonl` of a recipe's
    data.

    The file appears complete or not at all.  Raises DataError if there are no pairs, for a pair
    that is not two texts, or if the file cannot be written.
    """
    path = Path(path)
    aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    empty = True
    try:
        with writing(path):
            file = aside.open("w", encoding="utf-8", newline="\n")
        with file:
            for line in _lines(pairs):
                empty = False
                with writing(path):
                    file.write(line)
            with writing(path):
                file.flush()
                os.fsync(file.fileno())
        if empty:
            raise DataError(f"there are no pairs to write to {path}")
        with writing(path):
            aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
    return path


def _lines(pairs: Iterable[tuple[str, str]]) -> Iterator[str]:
    for number, pair in enumerate(pairs, start=1):
        texts = tuple(pair) if isinstance(pair, tuple | list) else ()
        if len(texts) != 2 or not all(isinstance(text, str) for text in texts):
            raise DataError(f"pair {number} is not two texts, source and target: {pair!a:.80}")
        line = json.dumps(dict(zip(("source", "target"), texts, strict=True)), ensure_ascii=False)
        try:
            line.encode()
        except UnicodeEncodeError:
            raise DataError(f"pair {number} is not valid Unicode: {pair!a:.80}") from None
        yield line + "\n"
