"""`transduce translate`: translate lines, JSON records, tables or directories, also with
`--ray`."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from transduce.cli.doubts import Doubts, doubting
from transduce.cli.inputs import (
    STDIN,
    InputTable,
    LineBatch,
    LineReader,
    read_records,
    shown_input,
    texts_of_lines,
    with_options,
)
from transduce.cli.options import (
    AS_IN_RECIPE,
    BULK_GROUP,
    AuxiliaryModel,
    CheckedBefore,
    Count,
    Decoding,
    Flag,
    Machine,
    Models,
    chosen_options,
    with_decoding,
)
from transduce.cli.output import STDOUT, Output, check_not_read, open_output
from transduce.errors import SettingError

if TYPE_CHECKING:
    from transduce.bulk.plan import TranslatorSpec
    from transduce.decoding.options import DecodingOptions
    from transduce.loading import Run
    from transduce.tasks.translation.quality_estimation import QualityEstimator
    from transduce.tasks.translation.text_translator import Translation


logger = logging.getLogger("transduce")


@Parameter(name="*", group=BULK_GROUP)
@dataclass(frozen=True, kw_only=True)
class BulkOptions(CheckedBefore):
    """Bulk translation of many files."""

    ray: Flag = False
    """Translate many files in parallel with Ray. FILE is a directory, a glob pattern or an fsspec
    URL; --output is the directory of the translated files. Repeat the command to continue."""
    workers: Count | None = None
    """With --ray, number of workers; each loads the model and uses --threads (then 1 by default).
    Default: as many as resources permit."""

    def check(self, others: Mapping[str, bool]) -> None:
        """Raise SettingError for options that conflict with --ray, or require it.

        others: options that conflict with --ray; True for each that was given.
        """
        if not self.ray:
            others = {"workers": self.workers is not None}
        for name, is_given in others.items():
            if is_given and self.ray:
                raise SettingError(f"--{name} cannot be combined with --ray")
            if is_given:
                raise SettingError(f"--{name} requires --ray")


def translate_files(
    bulk: BulkOptions, spec: TranslatorSpec, address: str, output: str, column: str | None = None
) -> None:
    """Translate all files of a place into a directory, and log the speed.

    column: text column of Parquet files.
    """
    if address == STDIN:
        raise SettingError("--ray requires FILE: a directory, a glob pattern or a URL")
    if output == STDOUT:
        raise SettingError("--ray requires an output directory; add --output DIRECTORY")
    from transduce.bulk.plan import open_plan
    from transduce.bulk.workers import translate_plan

    with open_plan(address, output, spec, column) as plan:
        before = len(plan.shards) - len(plan.todo)
        if before:
            logger.info("%d of %d shards are already translated", before, len(plan.shards))
        if not plan.todo:
            return
        totals = translate_plan(plan, bulk.workers)
    logger.info(
        "%d shards, %s lines in %.1f s: %.1f lines/s by %d workers",
        totals.shards,
        f"{totals.lines:,}",
        totals.seconds,
        totals.lines_per_second,
        totals.workers,
    )


def translator_spec(
    run: Path,
    ensemble: tuple[Path, ...],
    language_model: Path | None,
    decoding: Decoding,
    machine: Machine,
) -> TranslatorSpec:
    """Specification of the translator that each worker loads, validated by loading it once.

    Raises RunError or SettingError.
    """
    from transduce.bulk.plan import TranslatorSpec
    from transduce.decoding.options import DecodingOptions
    from transduce.runs.arguments import device_for

    spec = TranslatorSpec(
        run.resolve(),
        DecodingOptions(),  # replaced once the recipe is loaded
        tuple(path.resolve() for path in ensemble),
        language_model and language_model.resolve(),
        precision=machine.precision,
        threads=machine.threads or 1,
        engine=machine.engine,
    )
    loaded = spec.load()  # its precision may be measured: once, for all workers
    translator = loaded.translator
    options = chosen_options(translator, decoding)
    translator.check(options)
    device = device_for(machine.engine, machine.precision, machine.device)
    return dataclasses.replace(spec, options=options, device=device, precision=loaded.precision)


SOURCE = "source"
TRANSLATION = "translation"
"""Fields of a record, and columns of a table, with the source and its translation."""


@with_decoding("translation", "ensemble", "language-model")
def translate(
    run: Path,
    file: Annotated[str, Parameter(show_default=False)] = STDIN,
    /,
    *,
    output: Annotated[str, Parameter(show_default=False)] = STDOUT,
    source_language: Annotated[str | None, Parameter(show_default=False)] = None,
    target_language: Annotated[str | None, Parameter(show_default=False)] = None,
    n_best: Count | None = None,
    jsonl: Flag = False,
    column: Annotated[str | None, Parameter(show_default=False)] = None,
    confidence: Flag = False,
    stream: Flag = False,
    ensemble: Models = (),
    language_model: AuxiliaryModel = None,
    bulk: BulkOptions = BulkOptions(),
    decoding: Decoding = AS_IN_RECIPE,
    machine: Machine = Machine(),
) -> None:
    """Translate lines of text.

    Each input line yields an output line, in order and without delay; blank lines stay blank.
    Invalid UTF-8 is replaced, with a warning. Characters that never occurred in training are
    reported once.

    Parameters
    ----------
    run
        Run directory.
    file
        Input file with a text per line, plain or compressed. Default: stdin (also -).
    output
        Output file, written atomically. Default: stdout.
    source_language
        Code of the language of the texts, such as en, for a run of several. Default: the first of
        languages.source in its recipe.
    target_language
        Code of the language to translate into, such as de, for a run of several.
    n_best
        Write an n-best list: up to N lines `id ||| text ||| score` per input line, best first.
        Ids count input lines from 0; a blank line has an entry, without text and with score 0.
    jsonl
        Read and write JSON Lines. Each record has a field "source" and is returned with
        "translation", "score" and "tokens" added, "finished": false if the output ended at its
        greatest length, and "n_best" for --n-best above 1. Fields named
        after decoding settings ("prefix", "constraints", "beam_size") override them for that
        record. A record that cannot be translated gets a field "error" instead.
    column
        Translate this column of a CSV or TSV file with a header row, and add a column
        "translation". With --jsonl, the field to translate; with --ray, the column of Parquet
        files.
    confidence
        With --jsonl, add "confidence" (mean token probability), "token_log_probs" and, after
        `transduce calibrate`, "quality" (quality estimation: expected chrF).
    stream
        Write each translation incrementally, as its tokens are decoded.
    ensemble
        Another run to decode with as an ensemble; requires the same vocabularies. May be repeated.
    language_model
        Run of a language model for shallow fusion; requires the same target vocabulary.
    """
    _check_together(stream, jsonl, n_best is not None, column, confidence, bulk.ray)
    others = {"n-best": n_best is not None, "jsonl": jsonl, "stream": stream}
    languages = source_language, target_language
    bulk.check(others | {"target-language": any(languages)})
    if bulk.ray:
        spec = translator_spec(run, ensemble, language_model, decoding, machine)
        translate_files(bulk, spec, file, output, column)
        return
    check_not_read(output, file)
    lines = LineReader(file)
    with open_output(output) as out, doubting(run) as doubts:
        model = machine.load_together(run, ensemble, language_model)
        model = model.between(*languages)
        options = chosen_options(model.translator, decoding, n_best or (None if jsonl else 1))
        model.translator.check(options)
        quality = _quality(model) if confidence else None
        batches = shown_input(lines, quiet=output == STDOUT and sys.stdout.isatty())
        if jsonl:
            files = batches, out, lines.name, column or SOURCE
            _translate_records(model, doubts, *files, options, quality)
            return
        if column is not None:
            for rows in InputTable(lines.name, (column,), TRANSLATION).read(batches):
                texts = [text for (text,) in rows.inputs]
                outputs = doubts.seen(texts, model.translate_batch(texts, options, rows.first))
                out.write(rows.answered(_best(outputs)))
                if rows.error is not None:
                    raise rows.error
            return
        for batch in texts_of_lines(batches, lines.name):
            if stream:
                for number, text in enumerate(batch.lines, batch.first):
                    with contextlib.closing(model.stream(text, options, number)) as parts:
                        for part in parts:
                            out.write_text(part)
                    out.write_text("\n")
            else:
                translations = model.translate_batch(batch.lines, options, batch.first)
                outputs = doubts.seen(batch.lines, translations)
                out.write(_best(outputs) if n_best is None else _n_best(batch.first, outputs))


def _check_together(
    stream: bool, jsonl: bool, n_best: bool, column: str | None, confidence: bool, ray: bool
) -> None:
    """Raises SettingError for options that cannot be combined."""
    if stream and (jsonl or n_best):
        raise SettingError("--stream cannot be combined with --jsonl or --n-best")
    if column is not None and not (jsonl or ray) and (stream or n_best):
        raise SettingError("--column cannot be combined with --n-best or --stream")
    if confidence and not jsonl:
        raise SettingError("--confidence requires --jsonl")


def _translate_records(
    model: Run,
    doubts: Doubts,
    batches: Iterable[LineBatch],
    out: Output,
    name: str,
    field: str,
    options: DecodingOptions,
    quality: QualityEstimator | None,
) -> None:
    for records in read_records(batches, (field,), name):
        each = with_options(records, name, options, model.translator.check)
        sources = [source for (source,) in records.inputs]
        answers = model.translate_batch(sources, each, records.first)
        translations = list(doubts.seen(sources, answers))
        more = quality.fields(sources, translations) if quality else [{}] * len(sources)
        out.write(
            records.answered(
                _fields(translation, of_record.n_best) | extra
                for translation, of_record, extra in zip(translations, each, more, strict=True)
            )
        )


def _quality(model: Run) -> QualityEstimator:
    from transduce.tasks.translation.quality_estimation import QualityEstimator, load_quality

    return QualityEstimator(model.translator, load_quality(model.path))


def _fields(translation: Translation, n_best: int) -> dict[str, Any]:
    fields = translation.fields()
    if n_best > 1:
        fields["n_best"] = [{"text": c.text, "score": c.score} for c in translation.candidates]
    return fields


def _best(translations: Iterable[Translation]) -> Iterator[str]:
    return (translation.text for translation in translations)


def _n_best(first: int, translations: Iterable[Translation]) -> Iterator[str]:
    for number, translation in enumerate(translations, first):
        for candidate in translation.candidates:
            yield f"{number} ||| {candidate.text} ||| {candidate.score:.6f}"
        if not translation.candidates:
            yield f"{number} |||  ||| {0:.6f}"
