"""Request of `transduce make`, and the results of its steps, kept in the run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from transduce.errors import RunError, SettingError
from transduce.make.data import Prepared
from transduce.make.plan import Facts


@dataclass(frozen=True)
class Request:
    """Files, minutes and options of a call."""

    files: Sequence[str]
    minutes: float
    monolingual: str = ""
    target_language: str = ""


@dataclass
class Plan:
    """The request, and the results of the steps so far.

    failure: message of a training that failed.  trained: it has ended.  gain: points of twice the
    data, and their 95 % interval; empty if unmeasured.  overhead: seconds of a short training
    beside its steps.  test_seconds: of the test.  seconds: spent before the training.
    """

    request: Request
    prepared: Prepared | None = None
    tokens_per_second: float = 0.0
    tokens_of_a_step: int = 0
    order: list[tuple[str, float]] = field(default_factory=list)
    tried: dict[str, float] = field(default_factory=dict)
    candidate: str = ""
    failure: str = ""
    trained: bool = False
    synthetic: int = 0
    curve: list[tuple[int, float]] = field(default_factory=list)
    gain: tuple[float, float, float] | tuple[()] = ()
    overhead: float = 0.0
    test_seconds: float = 0.0
    seconds: float = 0.0

    def extended(self, minutes: float, run: Path) -> float:
        """Go on with more minutes; returns those that are added.  Raises SettingError for no more
        than before."""
        added = minutes - self.request.minutes
        if added <= 0:
            had = f"{self.request.minutes:g}"
            raise SettingError(
                f"--minutes {minutes:g}: {run} has had {had}; with --resume, give more than these"
            )
        self.request = replace(self.request, minutes=minutes)
        self.trained, self.curve, self.gain = False, [], ()
        return added

    @classmethod
    def read(cls, path: Path) -> Plan:
        """Plan of a run.  Raises RunError if there is none."""
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            request, prepared = Request(**content.pop("request")), content.pop("prepared")
            if prepared is not None:
                prepared["facts"] = Facts(**prepared["facts"])
                prepared = Prepared(**prepared)
            return cls(request, prepared, **content)
        except (OSError, ValueError, TypeError, KeyError):
            run = path.parent.parent
            raise RunError(f"{run} was not begun by `transduce make`; leave out --resume") from None
