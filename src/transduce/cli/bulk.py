"""`transduce translate --ray`: bulk translation of many files by parallel workers."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cyclopts import Parameter

from transduce.cli.lines import STDIN
from transduce.cli.options import (
    BULK_GROUP,
    CheckedBefore,
    Count,
    Decoding,
    Flag,
    Machine,
    chosen_options,
)
from transduce.cli.output import STDOUT
from transduce.errors import SettingError

if TYPE_CHECKING:
    from transduce.bulk.shards import TranslatorSpec

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
    from transduce.bulk.shards import TranslatorSpec
    from transduce.decoding.options import DecodingOptions
    from transduce.runs.engine import device_for

    spec = TranslatorSpec(
        run.resolve(),
        DecodingOptions(),  # replaced once the recipe is loaded
        tuple(path.resolve() for path in ensemble),
        language_model and language_model.resolve(),
        precision=machine.precision,
        threads=machine.threads or 1,
        engine=machine.engine,
    )
    translator = spec.load().translator
    options = chosen_options(translator, decoding)
    translator.check(options)
    device = device_for(machine.engine, machine.precision, machine.device)
    return dataclasses.replace(spec, options=options, device=device)
