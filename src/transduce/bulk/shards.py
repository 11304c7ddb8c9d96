"""Translation of a shard: a file of text or a Parquet table in, a file of the same kind out.

A worker does no more than a bare loop over the shards would do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import torch

from transduce.data.formats import packed
from transduce.data.lines import lenient_text, raw_lines
from transduce.data.stores import opened, whole_file
from transduce.decoding.options import DecodingOptions
from transduce.errors import DataError, extra_module, first_line
from transduce.nn.kernels.linear import Precision
from transduce.runs.engine import EngineName
from transduce.runs.loading import load
from transduce.runs.run import Run

TRANSLATION = "translation"
"""Column of a Parquet shard for the outputs."""
BATCH_ROWS = 1024
"""Rows translated together."""
GROUP_ROWS = 2**16
"""Rows per row group of the output Parquet files."""


@dataclass(frozen=True)
class TranslatorSpec:
    """A translator to load in a worker: runs, device, decoding options."""

    run: Path
    options: DecodingOptions
    ensemble: tuple[Path, ...] = ()
    language_model: Path | None = None
    device: str = "cpu"
    precision: Precision = "float32"
    threads: int = 1
    engine: EngineName = "auto"

    @property
    def runs(self) -> tuple[Path, ...]:
        """All run directories used."""
        beside = () if self.language_model is None else (self.language_model,)
        return (self.run, *self.ensemble, *beside)

    def load(self) -> Run:
        """Load the run and its auxiliary models.  Raises RunError or SettingError if this is
        impossible."""
        torch.set_num_threads(self.threads)
        places = self.device, self.precision, self.engine
        run, *others = (load(path, *places) for path in self.runs)
        if not others:
            return run
        beside = None if self.language_model is None else others.pop()
        return run.with_models(others, beside)


@dataclass(frozen=True)
class Shard:
    """A file of the job."""

    name: str
    source: str
    target: str
    """URLs of the input and the output file."""
    column: str | None = None
    """Text column of a Parquet file; None for a text file."""


def translate_shard(run: Run, options: DecodingOptions, shard: Shard) -> int:
    """Write the whole translation of a shard, or nothing; returns its number of lines.

    Raises TransduceError if a file cannot be read or written.
    """
    with opened(shard.source) as source, whole_file(shard.target) as target:
        if shard.column is None:
            return _translate_lines(run, options, shard, source, target)
        return _translate_table(run, options, shard, source, target)


def _translate_lines(
    run: Run, options: DecodingOptions, shard: Shard, source: BinaryIO, target: BinaryIO
) -> int:
    read = written = 0

    def texts() -> Iterator[str]:
        nonlocal read
        for read, raw in enumerate(raw_lines(source, shard.source), 1):
            yield lenient_text(raw, shard.source, read)

    out = packed(target, shard.name)
    try:
        for translation in run.translate(texts(), options):
            out.write(f"{translation.text}\n".encode("utf-8", "surrogateescape"))
            written += 1
    finally:
        if out is not target:
            out.close()
    assert read == written
    return written


def _translate_table(
    run: Run, options: DecodingOptions, shard: Shard, source: BinaryIO, target: BinaryIO
) -> int:
    arrow = extra_module("pyarrow", "reading this data", "scale")
    parquet = extra_module("pyarrow.parquet", "reading this data", "scale")
    done, waiting = 0, []
    try:
        with parquet.ParquetFile(source) as file:
            schema = _schema_with_translation(arrow, file.schema_arrow, shard)
            with parquet.ParquetWriter(target, schema) as out:
                for batch in file.iter_batches(batch_size=BATCH_ROWS):
                    texts = [text or "" for text in batch.column(shard.column).to_pylist()]
                    translations = run.translate_batch(texts, options, done)
                    outputs = arrow.array(
                        [_storable(translation.text) for translation in translations],
                        arrow.string(),
                    )
                    waiting.append(
                        arrow.RecordBatch.from_arrays([*batch.columns, outputs], schema=schema)
                    )
                    done += batch.num_rows
                    if done % GROUP_ROWS < batch.num_rows:
                        out.write_table(arrow.Table.from_batches(waiting, schema))
                        waiting = []
                if waiting:
                    out.write_table(arrow.Table.from_batches(waiting, schema))
    except (arrow.ArrowException, UnicodeDecodeError, OSError) as error:
        if getattr(error, "errno", None):
            raise  # the system's, for whoever opened the file
        reason = first_line(error)
        raise DataError(f"{shard.source} cannot be read as Parquet: {reason}") from None
    return done


def _schema_with_translation(arrow: Any, schema: Any, shard: Shard) -> Any:
    """Raises DataError unless the text column exists once, as text, and the output column does
    not."""
    if shard.column not in schema.names:
        raise DataError(
            f"{shard.source} has no column {shard.column!r} (it has {', '.join(schema.names)})"
        )
    if schema.names.count(shard.column) > 1:
        raise DataError(f"{shard.source} has several columns {shard.column!r}; rename all but one")
    kind = schema.field(shard.column).type
    if arrow.types.is_dictionary(kind):
        kind = kind.value_type
    if not any(test(kind) for test in (arrow.types.is_string, arrow.types.is_large_string)):
        raise DataError(f"{shard.source}: column {shard.column!r} must be text, not {kind}")
    if TRANSLATION in schema.names:
        raise DataError(f"{shard.source} already has a column {TRANSLATION!r}; rename it")
    return schema.append(arrow.field(TRANSLATION, arrow.string()))


def _storable(text: str) -> str:
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
