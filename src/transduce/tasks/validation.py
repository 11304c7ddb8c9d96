"""Checksum of validation data, and a warning where they are few."""

from __future__ import annotations

import hashlib
import json
import logging
from typing import Any

from transduce.metrics.significance import few_items, few_tokens
from transduce.tasks.sections import SplitsConfig

logger = logging.getLogger("transduce")


def checksum_of(*facts: Any) -> str:
    """Checksum of a JSON value."""
    return digest_of(facts)[:16]


def digest_of(facts: Any) -> str:
    """SHA-256 of a JSON value, in 64 hexadecimal digits: the name of data made from it."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def warn_of_few(data: SplitsConfig, count: int, what: str, tokens: bool = False) -> None:
    """Warn if validation data, and the test data held out with them, are too few to compare models.

    count, what: number and kind of the items of each validation. tokens: items are tokens,
    measured only by loss.
    """
    few = few_tokens(count, what) if tokens else few_items(count, what)
    if not few:
        return
    remedy = "extend data.valid"
    if data.valid is None:
        test = " (which holds out about as many for the test)" if data.test is None else ""
        remedy = f"raise data.hold_out{test}, or set data.valid"
    logger.warning("validation: %s; %s", few, remedy)
