"""Record: what became of a segment, of a part of a file that was not read, of a setting.

The only schema of reports: `transduce localise --report` writes a record as a line of JSON, and the
server names those that are not done by their index and reason.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

CAUSES: Mapping[str, str] = {
    "placeholders are not kept": "placeholders",
    "the translation is empty": "empty",
    "the format cannot hold the translation": "format",
    "no format": "format",
}
"""Names of causes, by the beginnings of their reasons before a colon."""


@dataclass(frozen=True)
class Record:
    """Outcome of a segment.

    key:     its place in the file or the text, such as "line 3".
    source:  its text.
    target:  the text in its place afterwards: the translation, or the source.
    state:   "kept" for a translation in an output that people corrected, with a reason where its
             source has changed; "unread" for a part of a file that no segment holds, "ignored" for
             a setting, named by the key, that was not followed.
    reason:  why it is not done, on a line.
    file:    the document; empty for texts.
    """

    key: str
    source: str
    target: str
    state: Literal["translated", "approved", "kept", "needs-translation", "unread", "ignored"]
    reason: str = ""
    file: str = ""

    @property
    def text(self) -> str:
        """The target, by the name that translations have elsewhere."""
        return self.target

    @property
    def is_done(self) -> bool:
        """False for anything that was not translated, read or followed."""
        return self.state in ("translated", "approved", "kept")

    @property
    def cause(self) -> str:
        """The reason as a word of a few, which quote nothing: a label of metrics."""
        return CAUSES.get(self.reason.partition(":")[0], "other")

    def line(self) -> str:
        """The record as JSON, without a line break."""
        return json.dumps(dataclasses.asdict(self), ensure_ascii=False)


def untranslated(key: str, source: str, reason: str) -> Record:
    """The record of a segment that stays as it is."""
    return Record(key, source, source, "needs-translation", reason)
