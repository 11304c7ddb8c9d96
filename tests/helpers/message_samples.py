"""Small samples of the formats of messages, with what each format's own reader says of them."""

from __future__ import annotations

from collections.abc import Callable

from transduce.localise.formats import read_document


def po(content: bytes) -> None:
    """Every line belongs to an entry."""
    assert not read_document("a.po", content).unread


PO = rb"""# Title
msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\n"
"Plural-Forms: nplurals=2; plural=(n != 1);\n"

#: a.c:1
#, c-format
msgid "Open \"%s\""
msgstr ""

#, fuzzy, c-format
#| msgid "Close"
msgid "Close it"
msgstr "Schliess"

msgctxt "menu"
msgid "Close it"
msgstr "Schliessen"

msgid ""
"Usage: %s\n"
"  -a  a long line that goes on and on and on \n"
msgstr ""

msgid "One file"
msgid_plural "%d files"
msgstr[0] ""
msgstr[1] ""

#~ msgid "Old"
#~ msgstr "Alt"
"""

SAMPLES: dict[str, tuple[bytes, Callable[[bytes], object]]] = {
    "a.po": (PO, po),
    "crlf.pot": (PO.replace(b"\n", b"\r\n"), po),
}
"""Content and judge by name."""
