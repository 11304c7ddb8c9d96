"""AsciiDoc: headings, paragraphs, items, cells; code, attributes and comments stay."""

from __future__ import annotations

import re

import pytest

from helpers.localised_document import Output, localised_document, word_by_word
from transduce import DecodingOptions
from transduce.errors import DataError
from transduce.localise.formats import read_document
from transduce.localise.inline import parts_of

pytest.importorskip("sentencex")

ADOC = """= The title
Jane Doe <jane@x.org>
:toc:

== A heading

A paragraph with *bold words*, _slanted_ and `code`, see
https://x.org[the page] or <<top,the top>> in {version}.footnote:[A note here.]
Second line. +
After a break.

.A block title
[source,python]
----
code = 1
----

* One item
goes on
** Two
. First
<1> Called out

Term:: Its meaning
NOTE: Take care.

[NOTE]
====
Inside it.
====

image::a.png[A picture,300]

|===
|Head one |Head two

|Cell *one*
2+|Cell two
|===

// a comment
 literal text
"""
STAYING = """code comment footnote https image jane literal mail org png python source text toc top
version oe ane"""
"""Words of code, names and attributes."""


def test_capitals_leave_no_word_but_of_code() -> None:
    document = read_document("a.adoc", ADOC.encode())
    targets = {
        s.key: "".join(p if is_tag else p.upper() for is_tag, p in parts_of(s.source, s.tags))
        for s in document.segments
    }
    made = document.with_targets(targets).decode()
    assert set(re.findall("[a-z]{2,}", made)) <= {*STAYING.split()}
    assert made.lower().split() == ADOC.lower().split()
    assert "footnote:[A NOTE HERE.] SECOND LINE. +\nAFTER A BREAK." in made
    assert not document.unread


def test_a_word_for_each_word_keeps_marks_in_place() -> None:
    def swapped(texts: list[str], _: object) -> list[Output]:
        return [Output(text.swapcase()) for text in texts]

    document = read_document("a.adoc", ADOC.encode())
    made = localised_document(
        document, "de", swapped, DecodingOptions(), word_by_word(r"\w+|[^\w\s]")
    ).decode()
    assert made.lower().split() == ADOC.lower().split()
    assert "*BOLD WORDS*, _SLANTED_ AND `code`, SEE https://x.org[THE PAGE]" in made


@pytest.mark.parametrize("name", ("a.adoc", "a.rst"))
@pytest.mark.parametrize("text", ("1. Absatz", "- so", "*x* so `y`", "A:: b", ".. a"))
def test_a_translation_is_no_other_block(name: str, text: str) -> None:
    document = read_document(name, b"One paragraph\n")
    try:
        made = document.with_targets({document.segments[0].key: text})
    except DataError as error:
        assert "would be a mark" in str(error)
        return
    (segment,) = read_document(name, made).segments
    assert segment.source == text
