"""Limits on the memory and time that a file or a request may take.

Each limit is a setting of whoever runs the program, an environment variable: not one of
the recipe, which may come from the same stranger as the file.  Those on the work of decoding are
in `decoding.work`.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

from transduce.errors import SettingError

MAX_DIGITS = 12


class Limit(NamedTuple):
    """One limit: a variable of the environment, and what holds where it is not set."""

    variable: str
    default: int
    unit: str = "MiB"
    """Empty for a plain number."""

    def most(self) -> int:
        """The value that holds now.  Raises SettingError for a variable that is no whole number."""
        text = os.environ.get(self.variable)
        if text is None:
            return self.default
        if not (text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS):
            of_unit = f" of {self.unit}" if self.unit else ""
            raise SettingError(
                f"{self.variable}={text!r} in the environment is no whole number{of_unit}; "
                f"the default is {self.default}"
            )
        return int(text)

    def remedy(self) -> str:
        """The end of a message: what to do where the file is trusted."""
        unit = f" ({self.unit})" if self.unit else ""
        return f"where you trust it, set {self.variable} to more than {self.most()}{unit}"


LINE_LIMIT = Limit("TRANSDUCE_LIMIT_LINE", 64)
"""A line of text, without which a file without line ends would be read whole."""
IMAGE_LIMIT = Limit("TRANSDUCE_LIMIT_IMAGE", 256)
"""What a member of a zip archive of images may unpack to."""
IDX_LIMIT = Limit("TRANSDUCE_LIMIT_IDX", 2048)
"""What a compressed IDX file may unpack to: a few megabytes of one could fill any memory."""
RUN_FILE_LIMIT = Limit("TRANSDUCE_LIMIT_RUN_FILE", 256)
"""Recipe, vocabulary and such of a run; its weights are checked against their own head."""


def from_json(text: str | bytes) -> Any:
    """What JSON says.

    Raises ValueError for what is none, and for what is nested too deeply, a few kilobytes of
    brackets: there `json.loads` raises what nobody expects.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def read_json(path: Path) -> Any:
    """That of a file of a run.  Raises OSError; ValueError also for one that is too large."""
    if path.stat().st_size > RUN_FILE_LIMIT.most() << 20:
        raise ValueError(f"it is too large; {RUN_FILE_LIMIT.remedy()}")
    return from_json(path.read_bytes())
