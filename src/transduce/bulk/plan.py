"""Plan of a bulk translation, a shard for every file, and the translation of a shard.

A worker does no more than a bare loop over the shards would do.

    OUTPUT/
        _transduce.json         origin: weights, settings, inputs
        NAME, DIRECTORY/NAME    a shard with the name of its input, complete or absent

An existing shard is finished, so the same command resumes an interrupted job.  A job with other
weights, vocabularies, decoding options or changed inputs is refused.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import torch

from transduce.data.stores import (
    StoredFile,
    absolute_url,
    files_in,
    local_path,
    names_below,
    opened_store,
    remove_leftovers,
    whole_stored_file,
)
from transduce.data.text_files import lenient_text, packed, raw_lines
from transduce.decoding.options import DecodingOptions, decisive
from transduce.errors import DataError, SettingError, extra_module, first_line
from transduce.loading import Run, load
from transduce.runs.arguments import EngineName
from transduce.runs.directory import LEARNT_AFTER, locked, vocabularies_of
from transduce.settings.sections import differing, to_dict
from transduce.support.files import from_json
from transduce.support.version import __version__
from transduce.training.weights import sha256_of

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
    precision: str = "float32"
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
        run = load(self.run, self.device, self.precision, self.engine)
        others = [load(path, self.device, run.precision, self.engine) for path in self.runs[1:]]
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

    run: with its translator.  options: of decoding.

    Raises TransduceError if a file cannot be read or written.
    """
    with opened_store(shard.source) as source, whole_stored_file(shard.target) as target:
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


MANIFEST = "_transduce.json"
FORMAT = 1
PARQUET = (".parquet", ".pq")
UNREADABLE = (".zip", ".7z", ".lz4")
SAME_WORK = {
    "runs": "weights or vocabularies",
    "precision": "precision",
    "engine": "engine",
    "column": "--column",
}
"""Parts of the manifest that must not change, with their names in messages; decoding and inputs are
compared item by item."""


@dataclass(frozen=True)
class BulkPlan:
    """All shards of a job and those still to do."""

    spec: TranslatorSpec
    fingerprints: tuple[Mapping[str, str], ...]
    """`fingerprint` of each run."""
    shards: tuple[Shard, ...]
    todo: tuple[Shard, ...]


def fingerprint(run: Path) -> dict[str, str]:
    """Checksums of the files of a run that determine its outputs."""
    names = ("recipe.toml", "weights.safetensors", *LEARNT_AFTER[:1])
    files = [run / name for name in names if (run / name).is_file()]
    return {file.name: sha256_of(file) for file in (*files, *vocabularies_of(run))}


@contextmanager
def open_plan(
    address: str, output: str, spec: TranslatorSpec, column: str | None = None
) -> Iterator[BulkPlan]:
    """Plan the translation of files into a directory, which is locked for this process.

    address: of the files.  output: address of the directory.  spec: runs and options.  column: of
    tables; None for lines.

    Raises DataError or SettingError for invalid inputs and for a directory of another job; RunError
    while another process on this machine works on it.
    """
    output = absolute_url(output)
    files = files_in(address)
    shards = tuple(_shard(file, output, column) for file in files)
    _check_apart(address, output, shards)
    prints = tuple(fingerprint(run) for run in spec.runs)
    directory = local_path(output)
    if directory is None:
        yield _joined(output, spec, prints, shards, _manifest(spec, prints, files, column))
        return
    with locked(directory):
        plan = _joined(output, spec, prints, shards, _manifest(spec, prints, files, column))
        remove_leftovers(directory)
        try:
            yield plan
        finally:
            remove_leftovers(directory)


def _shard(file: StoredFile, output: str, column: str | None) -> Shard:
    is_table = file.name.endswith(PARQUET)
    if file.name.endswith(UNREADABLE):
        raise DataError(f"{file.url} has an unsupported compression; use .gz, .bz2 or .xz")
    if is_table and column is None:
        raise SettingError(f"{file.url} is a Parquet file; name its text column with --column")
    if column is not None and not is_table:
        raise SettingError(f"--column applies only to Parquet files, but {file.url} is a text file")
    return Shard(file.name, file.url, f"{output.rstrip('/')}/{file.name}", column)


def _check_apart(address: str, output: str, shards: Sequence[Shard]) -> None:
    inside = f"{output.rstrip('/')}/"
    if any(f"{shard.source}/".startswith(inside) for shard in shards):
        raise SettingError(f"{address} is inside the output directory; choose another --output")
    if output.startswith(f"{absolute_url(address).rstrip('/')}/"):
        raise SettingError(f"--output {output} is inside the input directory; choose another")


def _joined(
    output: str,
    spec: TranslatorSpec,
    prints: tuple[Mapping[str, str], ...],
    shards: tuple[Shard, ...],
    manifest: dict[str, Any],
) -> BulkPlan:
    """Start or resume the job in its directory.  Raises DataError if it belongs to another job."""
    there = names_below(output)
    url = f"{output.rstrip('/')}/{MANIFEST}"
    if MANIFEST in there:
        other = _difference(_read(url), manifest)
        if other:
            raise DataError(f"{output} was made with different {other}; choose another --output")
    elif there:
        raise DataError(f"{output} contains other files ({min(there)}); choose another --output")
    else:
        with whole_stored_file(url) as file:
            file.write(json.dumps(manifest, ensure_ascii=False, indent=1).encode())
    todo = tuple(shard for shard in shards if shard.name not in there)
    return BulkPlan(spec, prints, shards, todo)


def _manifest(
    spec: TranslatorSpec,
    prints: Sequence[Mapping[str, str]],
    files: Sequence[StoredFile],
    column: str | None,
) -> dict[str, Any]:
    content = {
        "format": FORMAT,
        "transduce": __version__,
        "run": str(spec.run.resolve()),
        "runs": list(prints),
        "decoding": decisive(to_dict(spec.options)),
        "precision": spec.precision,
        "engine": spec.engine,
        "column": column,
        "inputs": {file.name: [file.size, file.stamp] for file in files},
    }
    return dict(json.loads(json.dumps(content)))  # as it is read again: no tuples


def _difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Name the first difference between two jobs; empty if they are the same."""
    if before.get("format") != FORMAT:
        return "version of transduce"
    for name, words in SAME_WORK.items():
        if before.get(name) != now[name]:
            return words
    for part in ("decoding", "inputs"):
        old, new = before.get(part), now[part]
        if not isinstance(old, Mapping):
            return part
        for name in sorted(differing(old, new)):
            if name in old and name in new:
                return f"{part} ({name} has changed)"
            return f"{part} ({name} was {'added' if name in new else 'removed'})"
    return ""


def _read(url: str) -> Mapping[str, Any]:
    with opened_store(url) as file:
        try:
            content = from_json(file.read())
        except ValueError:
            content = None
    if not isinstance(content, dict):
        raise DataError(f"{url} is damaged; choose another --output")
    return content
