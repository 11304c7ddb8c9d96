"""Forecast of a made run: what would be done, and how good it would be, by the measured table."""

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from transduce.making.build import TEST_SHARE, Maker
from transduce.making.data import Plan, PreparedData, Request
from transduce.making.plan import MINUTES, expected_score, preferred, ranked
from transduce.making.trials import METRICS
from transduce.support.tables import table


@dataclass(frozen=True)
class Forecast:
    """Data as prepared, and for some minutes the candidate and the score of the table.

    speed: target tokens a second.  rows: minutes, candidate, score, and the nearest measured set.
    """

    prepared: PreparedData
    speed: float
    rows: Sequence[tuple[int, str, float, str]]

    def lines(self) -> Iterator[str]:
        """The forecast for a terminal."""
        facts, counts, dropped = self.prepared.facts, self.prepared.counts, self.prepared.dropped
        languages = " -> ".join(filter(None, (facts.source_language, facts.target_language)))
        yield f"{facts.kind} {languages}".rstrip()
        yield from self.prepared.columns
        yield ", ".join(f"{name} {count:,}" for name, count in counts.items())
        yield "left out: " + (", ".join(f"{n} {c:,}" for n, c in dropped.items()) or "none")
        yield f"{self.speed:,.0f} target tokens a second"
        head = ["minutes", "candidate", METRICS[facts.kind], "as measured on"]
        yield from table(head, [(str(m), c, f"{s:.0f}", near) for m, c, s, near in self.rows])


def forecast(request: Request) -> Forecast:
    """Forecast of a request: its data prepared and the speed measured in a temporary directory.

    Raises the errors of `make`.
    """
    with tempfile.TemporaryDirectory(prefix="make-") as directory:
        maker = Maker(Path(directory) / "run", Plan(request))
        maker.directory.mkdir(parents=True)
        maker.prepare([])
        maker.measure()
    facts, speed, rows = maker.prepared.facts, maker.plan.tokens_per_second, []
    for minutes in MINUTES[:3]:
        work = speed * 60 * minutes * (1 - TEST_SHARE)
        best = preferred(facts, ranked(facts, work), request.destination)[0]
        rows.append((minutes, best, *expected_score(facts, work)))
    return Forecast(maker.prepared, speed, rows)
