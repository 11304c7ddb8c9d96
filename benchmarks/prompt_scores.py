"""Word error rate of telephone prompts by language, and the share of their words not in training.

    transduce evaluate runs/prompts --output prompts.txt
    python benchmarks/prompt_scores.py MANIFEST prompts.txt --without it/confbridge-begin-leader

prints, for each language and for all: recordings, words of the references, the share of those that
occur in no training prompt, how many of them, and of the others, are in the output of the same
recording, and word and character error rates.  `--show 20` prints twenty of them,
chosen at random: language, reference, output.  `--without` names recordings that the recipe's
filters leave out, such as wrong pairs.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

from transduce.data.text_files import read_lines
from transduce.metrics.error_rates import normalise
from transduce.metrics.measure import measure

RATES = ("word-error-rate", "character-error-rate")


def found_share(words: int, found: int) -> str:
    """Percentage of the words found, or a dash without words."""
    return f"{100 * found / words:.1f} %" if words else "-"


def summary(records: list[dict[str, Any]], outputs: list[str], known: set[tuple[str, str]]) -> str:
    """A line of the table."""
    words, result = Counter[bool](), Counter[bool]()
    for record, output in zip(records, outputs, strict=True):
        said, written = (Counter(normalise(text).split()) for text in (record["text"], output))
        for word, count in said.items():
            seen = (record["lang"], word) in known
            words[seen] += count
            result[seen] += min(count, written[word])
    total = words.total()
    references = [[record["text"]] for record in records]
    scores = measure(RATES, outputs, references, "")
    return (
        f"{len(records):4} recordings  {total:5} words  {words[False] / total:.1%} new  "
        f"found: new {found_share(words[False], result[False])}, "
        f"others {found_share(words[True], result[True])}  "
        + "  ".join(f"{name} {scores[name]:.1f}" for name in RATES)
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("manifest", type=Path)
    parser.add_argument("outputs", type=Path, help="a line for each recording of the split dev")
    parser.add_argument("--without", nargs="+", default=(), help="language/prompt of recordings")
    parser.add_argument("--show", type=int, default=0, help="recordings to print")
    options = parser.parse_args()
    prompts = [json.loads(line) for line in read_lines(options.manifest)]
    known = {
        (prompt["lang"], word)
        for prompt in prompts
        if prompt["split"] == "train"
        for word in normalise(prompt["text"]).split()
    }
    held_out = (prompt for prompt in prompts if prompt["split"] == "dev")
    records = [one for one in held_out if f"{one['lang']}/{one['prompt']}" not in options.without]
    pairs = list(zip(records, read_lines(options.outputs), strict=True))
    for language in (*sorted({record["lang"] for record in records}), None):
        some = [(one, text) for one, text in pairs if language in (None, one["lang"])]
        chosen, outputs = [one for one, _ in some], [text for _, text in some]
        print(f"{language or 'all':4}", summary(chosen, outputs, known))
    random.Random(1).shuffle(pairs)
    for one, text in pairs[: options.show]:
        print(f"{one['lang']}\t{one['text']}\t{text}")


if __name__ == "__main__":
    main()
