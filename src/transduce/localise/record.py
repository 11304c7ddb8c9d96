"""Record: the fate of each segment, and the report of them as a page.

The only schema of reports: `transduce localise --report` writes a record as a line of JSON, and the
server names those that are not done by their index and reason.
"""

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal

CAUSES: Mapping[str, str] = {
    "placeholders are not kept": "placeholders",
    "the translation is empty": "empty",
    "the format cannot hold the translation": "format",
    "no format": "format",
}
"""Names of causes, by the beginnings of their reasons before a colon."""


CUT_OFF = "cut off at the greatest length"
"""Reason of a translation of which a sentence did not end."""


@dataclass(frozen=True, slots=True)
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
    def is_finished(self) -> bool:
        """False for a translation that was cut off."""
        return not self.reason.endswith(CUT_OFF)

    @property
    def cause(self) -> str:
        """The reason as a word of a few, which quote nothing: a label of metrics."""
        return CAUSES.get(self.reason.partition(":")[0], "other")

    def line(self) -> str:
        """The record as JSON, without a line break."""
        return json.dumps(dataclasses.asdict(self), ensure_ascii=False)


def untranslated_record(key: str, source: str, reason: str) -> Record:
    """The record of a segment that stays as it is.

    key: of the segment.  source: its text.  reason: shown to the user.
    """
    return Record(key, source, source, "needs-translation", reason)


RECORD_HEAD = """<!DOCTYPE html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Report of transduce localise</title>
<style>
:root { color-scheme: light dark; font: 15px/1.45 system-ui, sans-serif }
body { max-width: 90rem; margin: 1.5rem auto; padding: 0 1rem }
table { border-collapse: collapse; width: 100%; table-layout: fixed }
th, td { border-top: 1px solid #8885; padding: .4rem .6rem; text-align: start; vertical-align: top }
th:first-child { width: 18% }
td { overflow-wrap: anywhere; white-space: pre-wrap }
td:first-child { color: #888; font-size: 13px }
.left td:first-child { box-shadow: inset 3px 0 #c60 }
em { display: block; color: #c60; font-style: normal }
</style>
"""


def report_page(records: Sequence[Record]) -> Iterator[str]:
    """Lines of the page of some records."""
    left = [record for record in records if not record.is_done]
    done = [record for record in records if record.is_done]
    yield RECORD_HEAD
    yield f"<h1>{len(done)} segments translated, {len(left)} left</h1>"
    yield "<table><tr><th>Place<th>Source<th>Translation</tr>"
    for record in (*left, *done):
        location = f"{escape(record.file)}<br>{escape(record.key)}"
        reason = f"<em>{escape(record.reason)}</em>" if record.reason else ""
        target = escape(record.target) if record.is_done else ""
        yield f'<tr class="{"done" if record.is_done else "left"}"><td>{location}'
        yield f'<td dir="auto">{escape(record.source)}<td dir="auto">{target}{reason}</tr>'
    yield "</table></html>"
