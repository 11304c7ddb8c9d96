"""Limits on the memory and time that a file or a request may take.

Each limit is an environment variable, set by the user of the program: not a setting of the recipe,
which may come from the same untrusted source as the file.  Limits on decoding are in
`decoding.work`.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any, NamedTuple

from transduce.errors import SettingError

MAX_DIGITS = 12
SURROGATES = re.compile("[\ud800-\udfff]")
"""Halves of characters, which JSON can spell and UTF-8 cannot."""


class Limit(NamedTuple):
    """A limit: an environment variable and its default."""

    variable: str
    default: int
    unit: str = "MiB"
    """Empty for a plain number."""

    def most(self) -> int:
        """The current value.  Raises SettingError if the variable is not a whole number."""
        text = os.environ.get(self.variable)
        if text is None:
            return self.default
        if not (text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS):
            of_unit = f" of {self.unit}" if self.unit else ""
            raise SettingError(
                f"{self.variable}={text!r} in the environment must be a whole number{of_unit}; "
                f"the default is {self.default}"
            )
        return int(text)

    def remedy(self) -> str:
        """End of a message: the remedy for a trusted file."""
        unit = f" ({self.unit})" if self.unit else ""
        return f"if you trust it, set {self.variable} above {self.most()}{unit}"


LINE_LIMIT = Limit("TRANSDUCE_LIMIT_LINE", 64)
"""Size of a line of text; a file without line ends would otherwise be read whole."""
IMAGE_LIMIT = Limit("TRANSDUCE_LIMIT_IMAGE", 256)
"""Unpacked size of a file in a zip archive of images."""
AUDIO_LIMIT = Limit("TRANSDUCE_LIMIT_AUDIO", 120, "minutes")
"""Length of a recording read as a whole: a megabyte of compressed silence could fill any memory."""
RECORDING_LIMIT = Limit("TRANSDUCE_LIMIT_RECORDING", 1024)
"""Unpacked size of a file in a zip archive of recordings."""
IDX_LIMIT = Limit("TRANSDUCE_LIMIT_IDX", 2048)
"""Unpacked size of an IDX file: a few compressed megabytes could fill any memory."""
RUN_FILE_LIMIT = Limit("TRANSDUCE_LIMIT_RUN_FILE", 256)
"""Size of a recipe, vocabulary or similar file of a run; weights are checked against their
header."""


def from_json(text: str | bytes) -> Any:
    """Parse JSON.

    Raises ValueError for invalid JSON, and for deep nesting (a few kilobytes of brackets), for
    which `json.loads` raises an unexpected exception.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def read_json(path: Path) -> Any:
    """Parse a JSON file of a run.  Raises OSError; also ValueError if it is too large."""
    if path.stat().st_size > RUN_FILE_LIMIT.most() << 20:
        raise ValueError(f"the file is too large; {RUN_FILE_LIMIT.remedy()}")
    return from_json(path.read_bytes())
