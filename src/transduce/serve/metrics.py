"""Metrics in the text format of Prometheus.

Labels are endpoints, status codes, causes and names of runs: never an address, a key or a text.
"""

import bisect
import copy
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import ClassVar

METRICS_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
TEXTS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)

Labels = tuple[tuple[str, str], ...]
State = tuple[dict[str, Counter[Labels]], dict[str, dict[Labels, "Histogram"]]]
"""Values and histograms by name and labels."""


class Histogram:
    """Cumulative histogram: counts per bucket, their sum."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect.bisect_left(self.bounds, value)] += 1
        self.sum += value

    def add(self, other: "Histogram") -> None:
        """Count the values of another histogram."""
        self.counts = [sum(pair) for pair in zip(self.counts, other.counts, strict=True)]
        self.sum += other.sum

    def lines(self, name: str, labels: Labels) -> Iterator[str]:
        """Samples in the text format."""
        total = 0
        for bound, count in zip((*self.bounds, None), self.counts, strict=True):
            total += count
            edge = "+Inf" if bound is None else f"{bound:g}"
            yield f"{name}_bucket{_metrics_shown((*labels, ('le', edge)))} {total}"
        yield f"{name}_sum{_metrics_shown(labels)} {self.sum:.6f}"
        yield f"{name}_count{_metrics_shown(labels)} {total}"


class Metrics:
    """Counters, gauges and histograms of a server; safe to use from several threads."""

    HELP: ClassVar[Mapping[str, tuple[str, str]]] = {
        "transduce_requests_total": ("counter", "Requests answered."),
        "transduce_tokens_total": ("counter", "Tokens read and written by translation runs."),
        "transduce_untranslated_total": ("counter", "Lines, blocks and cues left as they were."),
        "transduce_cancelled_total": ("counter", "Requests ended by their client or deadline."),
        "transduce_waiting": ("gauge", "Texts waiting for a run."),
        "transduce_running": ("gauge", "Texts in the current batch."),
        "transduce_request_seconds": ("histogram", "Time from request to answer."),
        "transduce_queue_seconds": ("histogram", "Time from queueing to the first batch."),
        "transduce_batch_texts": ("histogram", "Texts per batch."),
    }

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: dict[str, Counter[Labels]] = {name: Counter() for name in self.HELP}
        self._histograms: dict[str, dict[Labels, Histogram]] = {name: {} for name in self.HELP}

    def count(self, name: str, amount: int = 1, **labels: str) -> None:
        """Add to a counter."""
        with self._lock:
            self._values[f"transduce_{name}"][_sorted(labels)] += amount

    def set(self, name: str, value: int, **labels: str) -> None:
        """Set a gauge."""
        with self._lock:
            self._values[f"transduce_{name}"][_sorted(labels)] = value

    def observe(self, name: str, value: float, **labels: str) -> None:
        """Count a value in a histogram."""
        bounds = TEXTS if name.endswith("_texts") else METRICS_SECONDS
        with self._lock:
            histograms = self._histograms[f"transduce_{name}"]
            histograms.setdefault(_sorted(labels), Histogram(bounds)).observe(value)

    def state(self) -> State:
        """A copy of all values, for another process."""
        with self._lock:
            return copy.deepcopy((self._values, self._histograms))

    def add(self, state: State, gauges: bool = True) -> None:
        """Add the values of another process.  gauges: of one that lives."""
        values, several = state
        with self._lock:
            for name, counter in values.items():
                if gauges or self.HELP[name][0] != "gauge":
                    self._values[name].update(counter)
            for name, histograms in several.items():
                for labels, histogram in histograms.items():
                    bounds = tuple(histogram.bounds)
                    self._histograms[name].setdefault(labels, Histogram(bounds)).add(histogram)

    def text(self) -> str:
        """All metrics in the text format, version 0.0.4."""
        lines: list[str] = []
        with self._lock:
            for name, (kind, purpose) in self.HELP.items():
                lines += [f"# HELP {name} {purpose}", f"# TYPE {name} {kind}"]
                for labels, histogram in sorted(self._histograms[name].items()):
                    lines += histogram.lines(name, labels)
                for labels, value in sorted(self._values[name].items()):
                    lines.append(f"{name}{_metrics_shown(labels)} {value}")
        return "\n".join(lines) + "\n"


def _sorted(labels: Mapping[str, str]) -> Labels:
    return tuple(sorted(labels.items()))


def _metrics_shown(labels: Labels) -> str:
    """Labels in the text format, between braces; nothing for none."""
    shown = ",".join(f'{key}="{_escaped(value)}"' for key, value in labels)
    return f"{{{shown}}}" if shown else ""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
