"""Counts and examples of faults, by kind."""

import json
from collections import Counter
from collections.abc import Sequence

from transduce.examination.examine import Examined
from transduce.support.tables import html_table

EXAMPLES = 3
WIDTH = 60
"""Characters of a text in an example."""


class Examination:
    """Counts and examples of faults.

    pairs, faulty: lines, and those with faults.  counts, examples: by kind of fault.
    """

    def __init__(self, kinds: Sequence[str]) -> None:
        self.pairs = self.faulty = 0
        self.counts = Counter(dict.fromkeys(kinds, 0))
        self.examples: dict[str, list[str]] = {kind: [] for kind in kinds}

    def add(self, lines: Sequence[Examined]) -> None:
        """Count lines."""
        self.pairs += len(lines)
        self.faulty += sum(bool(line.faults) for line in lines)
        for line in lines:
            for kind, fault in line.faults.items():
                self.counts[kind] += 1
                if len(self.examples[kind]) < EXAMPLES:
                    texts = " | ".join(map(short, (fault, *line.pair)))
                    self.examples[kind].append(f"{place(line)}: {texts}")

    def lines(self) -> list[str]:
        """Rows of kinds with faults, each with its examples."""
        rows = [f"{'kind':<16}{'lines':>10}{'share':>9}"]
        for kind, count in self.counts.items():
            if count:
                rows.append(f"{kind:<16}{count:>10,}{self._share(count):>9.2%}")
                rows += [f"    {example}" for example in self.examples[kind]]
        rows.append(f"{'any':<16}{self.faulty:>10,}{self._share(self.faulty):>9.2%}")
        return [*rows, f"{'examined':<16}{self.pairs:>10,}"]

    def as_json(self) -> str:
        """The same counts as an object."""
        counts = {"pairs": self.pairs, "faulty": self.faulty, "kinds": dict(self.counts)}
        return json.dumps(counts)

    def _share(self, count: int) -> float:
        return count / max(self.pairs, 1)

    def __repr__(self) -> str:
        return f"<Examination: {self.faulty:,} of {self.pairs:,} lines with faults>"

    def _repr_html_(self) -> str:
        """The kinds with faults as a table, for a notebook."""
        rows = [
            (kind, count, f"{self._share(count):.2%}", "; ".join(self.examples[kind]))
            for kind, count in self.counts.items()
            if count
        ]
        return html_table(["fault", "lines", "share", "examples"], rows)


def place(line: Examined) -> str:
    """File and line."""
    return f"{line.corpus.name}:{line.line}"


def short(text: str) -> str:
    """Beginning of a text, without control characters."""
    plain = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)
    return plain if len(plain) <= WIDTH else f"{plain[: WIDTH - 1]}…"
