"""`transduce translate --ray`: files by the thousand, by many workers."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cyclopts import Parameter

from transduce.cli.lines import STDIN
from transduce.cli.options import Count, Decoding, Flag, Machine
from transduce.cli.output import STDOUT
from transduce.errors import SettingError

if TYPE_CHECKING:
    from transduce.bulk.shards import TranslatorSpec

logger = logging.getLogger("transduce")


@Parameter(name="*", group="Many files")
@dataclass(frozen=True, kw_only=True)
class BulkOptions:
    """Translation of many files at once."""

    ray: Flag = False
    """Translate each file that FILE stands for, a directory, a pattern or a URL of fsspec's, into
    a file of that name in the directory --output, by workers of Ray. The same command goes on."""
    workers: Count | None = None
    """With --ray: how many, each with the model and --threads, then 1 by default; by default as
    many as there is room for."""

    def check(self, others: Mapping[str, bool]) -> None:
        """Raises SettingError for options that mean nothing with, or without, --ray.

        others: of the command's own, those that are not for --ray, and whether they were given.
        """
        if not self.ray:
            others = {"workers": self.workers is not None}
        for name, given in others.items():
            if given and self.ray:
                raise SettingError(f"--{name} is not for --ray; leave one of them out")
            if given:
                raise SettingError(f"--{name} is for --ray; add that")


FILE_BY_FILE = BulkOptions()


def translate_files(
    bulk: BulkOptions, spec: TranslatorSpec, place: str, output: str, column: str | None = None
) -> None:
    """Translate all files of a place into a directory, and say how fast.

    column: the texts of Parquet files.
    """
    if place == STDIN:
        raise SettingError("--ray needs files to read: name a directory, a pattern or a URL")
    if output == STDOUT:
        raise SettingError("--ray needs a directory to write to: add --output DIRECTORY")
    from transduce.bulk.plan import open_plan
    from transduce.bulk.workers import translate_plan

    with open_plan(place, output, spec, column) as plan:
        before = len(plan.shards) - len(plan.todo)
        if before:
            logger.info("%d of %d shards are there already", before, len(plan.shards))
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
    """What each worker loads; it has been loaded here once, so that it is known to be right.

    Raises RunError or SettingError where it cannot be.
    """
    from transduce.bulk.shards import TranslatorSpec
    from transduce.decoding.options import DecodingOptions

    spec = TranslatorSpec(
        run.resolve(),
        DecodingOptions(),  # until the recipe's are known
        tuple(path.resolve() for path in ensemble),
        language_model and language_model.resolve(),
        precision=machine.precision,
        threads=machine.threads or 1,
        engine=machine.engine,
    )
    translator = spec.load().translator
    options = decoding.over(translator)
    translator.check(options)
    # 8 bits and CTranslate2 are for a CPU, also where there is a GPU to choose.
    on_cpu = machine.precision == "int8" or machine.engine == "ctranslate2"
    device = "cpu" if on_cpu else machine.device
    return dataclasses.replace(spec, options=options, device=device)
