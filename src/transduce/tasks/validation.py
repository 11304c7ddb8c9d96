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
    """Checksum of what JSON has."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def warn_of_few(data: SplitsConfig, count: int, what: str, tokens: bool = False) -> None:
    """Warn where validation data are too few to tell one model from another, and so the test data
    that are set aside beside them.

    count, what: how many of what each validation measures.  tokens: these are tokens, whose loss
    is all that is measured.
    """
    few = few_tokens(count, what) if tokens else few_items(count, what)
    if not few:
        return
    remedy = "add to data.valid"
    if data.valid is None:
        test = ", which sets aside about as many for the test" if data.test is None else ""
        remedy = f"raise data.hold_out{test}, or name data.valid"
    logger.warning("validation: %s; %s", few, remedy)
