"""Provenance of synthetic data, beside them and in each run that uses them.

`pairs.jsonl`, or `pairs.jsonl.gz`, is described by `pairs.provenance.json`; `transduce distil` and
`transduce backtranslate` write both.  A run trained on such files, and runs made from it, have all
descriptions in `provenance.json` and a summary in the model card, even after the data are deleted.
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from transduce.data.text_files import PACKINGS
from transduce.support.files import read_json
from transduce.tasks.model_card import card_line, code, file_name
from transduce.training.distributed import Ranks
from transduce.training.weights import write_text

PROVENANCE = "provenance.json"
SUFFIXES = {packing.suffix for packing in PACKINGS}


def provenance_file(data: Path) -> Path:
    """Provenance file of a data file."""
    plain = data.with_suffix("") if data.suffix in SUFFIXES else data
    return plain.with_suffix(f".{PROVENANCE}")


def write_provenance(data: Path, facts: dict[str, Any]) -> None:
    """Record the provenance of a data file. Raises RunError if writing fails."""
    write_text(provenance_file(data), json.dumps(facts, indent=2, ensure_ascii=False) + "\n")


def read_provenance(data: Path) -> dict[str, Any] | None:
    """Provenance of a data file, or None if it is missing or unreadable."""
    return _object_in(provenance_file(data))


def record_provenance(data: Iterable[Path], run: Path) -> None:
    """Record the provenance of data files in a run directory, where available."""
    files = {provenance_file(file): file for file in data}  # both sides of pairs have one
    sources = [
        {"file": str(file), **facts} for file in files.values() if (facts := read_provenance(file))
    ]
    if Ranks.present().is_main:
        _keep(sources, run)


def inherit_provenance(runs: Iterable[Path], run: Path) -> None:
    """Copy the data provenance of source runs into a run directory."""
    records = [record for other in runs for record in _kept_in(other)]
    _keep([record for i, record in enumerate(records) if record not in records[:i]], run)


def _keep(records: Sequence[Any], run: Path) -> None:
    if records:
        text = json.dumps({"synthetic": records}, indent=2, ensure_ascii=False)
        write_text(run / PROVENANCE, text + "\n")


def _kept_in(run: Path) -> list[Any]:
    records = (_object_in(run / PROVENANCE) or {}).get("synthetic", [])
    return records if isinstance(records, list) else []


def provenance_text(run: Path) -> str:
    """A paragraph for the model card; empty where nothing is synthetic."""
    lines = [
        card_line(
            f"- {_named(record.get('file'))}: {record.get('texts')} pairs by "
            f"{code(str(record.get('made_by')))}, whose {record.get('made_side')} side is the "
            f"output of {_named(record.get('run'))} (sha256 of its weights "
            f"{str(record.get('weights_sha256'))[:12]}…, {record.get('finished')})"
            f"{_beside(record.get('runs_beside'))}"
        )
        + "\n"
        for record in _kept_in(run)
    ]
    if not lines:
        return ""
    return f"Of these, synthetic (more in `{PROVENANCE}`):\n\n{''.join(lines)}\n"


def _beside(runs: Any) -> str:
    """Other members of an ensemble; a file edited by hand may not have a list."""
    names = map(_named, runs) if isinstance(runs, list) else ()
    return "".join(f", with {name} beside it" for name in names)


def _named(path: object) -> str:
    return code(file_name(path))


def _object_in(path: Path) -> dict[str, Any] | None:
    try:
        facts = read_json(path)
    except (OSError, ValueError):
        return None
    return facts if isinstance(facts, dict) else None
