"""ROUGE of the lead sentence, and of a run's summaries, against all references of a test set.

    python benchmarks/summaries.py csl-title|scitldr-a [--outputs FILE] [--lead FILE]

Reads $TRANSDUCE_DATA/csl-title or …/scitldr-a.  --outputs: summaries, one a line, as
`transduce evaluate RUN --output FILE` writes them.  --lead: write the lead sentences there, for
`transduce evaluate RUN --against FILE`.
"""

from __future__ import annotations

import argparse
import os
import re
from pathlib import Path

from transduce.data.tables import json_records
from transduce.metrics.measure import measure, metrics_named

Items = tuple[list[str], list[list[str]]]
"""Lead sentences, and references, of each item."""


def csl_title(directory: Path) -> Items:
    """Up to the first mark of an end in each abstract; one title each."""
    records = [record.values for record in json_records(directory / "test.jsonl.gz")]
    ends = re.compile(r"[。．？！;；]|\.(?![0-9A-Za-z])")
    return [ends.split(one["text"], 1)[0] for one in records], [[one["title"]] for one in records]


def scitldr(directory: Path) -> Items:
    """The first sentence of each abstract; one reference or more."""
    records = [record.values for record in json_records(directory / "test.jsonl.gz")]
    return [one["source"][0].strip() for one in records], [one["target"] for one in records]


DATA_SETS = {"csl-title": (csl_title, "zh"), "scitldr-a": (scitldr, "en")}


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=DATA_SETS)
    parser.add_argument("--outputs", type=Path)
    parser.add_argument("--lead", type=Path)
    given = parser.parse_args()
    read, language = DATA_SETS[given.name]
    lead, references = read(Path(os.environ["TRANSDUCE_DATA"], given.name))
    if given.lead:
        given.lead.write_text("".join(f"{line}\n" for line in lead), encoding="utf-8")
    systems = {"lead sentence": lead}
    if given.outputs:
        systems[str(given.outputs)] = given.outputs.read_text(encoding="utf-8").splitlines()
    for name, summaries in systems.items():
        result = measure(metrics_named("rouge"), summaries, references, language)
        scores = (f"{result[metric]:6.2f}" for metric in metrics_named("rouge"))
        print(f"{name:<24}", *scores, result["rouge-1_signature"])


if __name__ == "__main__":
    main()
