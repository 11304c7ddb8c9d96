"""Pages of records: the report, and the review, in which people approve and correct."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from importlib import resources

from transduce.localise.document import Record

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


def review_page(xliff: bytes) -> str:
    """A page that shows the units of an XLIFF file side by side, and saves it as reviewed.

    xliff: as `xliff.written_xliff` makes it.
    """
    page = resources.files("transduce.localise") / "static" / "review.html"
    return page.read_text(encoding="utf-8").replace("UNITS", xliff.decode(), 1)
