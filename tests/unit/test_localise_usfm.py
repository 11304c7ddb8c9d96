"""USFM: verses with paragraphs and characters as tags, notes and captions as texts of their own."""

from __future__ import annotations

import re

import pytest

from helpers.localised_document import Output, localised_document, word_by_word
from transduce import DecodingOptions
from transduce.errors import DataError
from transduce.localise.document import Document
from transduce.localise.formats import read_document
from transduce.localise.inline import parts_of

pytest.importorskip("sentencex")

USFM = r"""\id GEN - A test
\h Genesis
\mt1 The Book of Genesis
\c 1
\s1 The beginning
\p
\v 1 In the beginning \nd God\nd* made the sky\f + \fr 1:1 \ft Or \fq sky\ft , some say.\f* here.
\v 2 The earth was empty,
\q1 and dark;
\q2 the \w wind|lemma="ruach"\w* blew. \x - \xo 1:2 \xt Jer 4:23\x*
\s A heading within
\p
and the verse goes on // here.
\v 3-4 Light came.\fig At the lake|src="a.jpg" size="col"\fig*
\tr \th1 Day \tcr2 Work
\r (John 1:1)
"""


def read(text: str) -> Document:
    return read_document("a.usfm", text.encode())


def raised(document: Document) -> str:
    """The file with its texts in capitals, but for their tags."""
    targets = {
        s.key: "".join(p if is_tag else p.upper() for is_tag, p in parts_of(s.source, s.tags))
        for s in document.segments
    }
    return document.with_targets(targets).decode()


def test_texts_by_verse() -> None:
    texts = {s.key: re.sub("<[^>]*>", "·", s.source) for s in read(USFM).segments}
    assert texts == {
        "GEN 0:0, h": "Genesis",
        "GEN 0:0, mt1": "The Book of Genesis",
        "GEN 1:0, s1": "The beginning",
        "GEN 1:1": "In the beginning ·God· made the sky· here.",
        "GEN 1:1, f": "Or·sky·, some say.",
        "GEN 1:2": "The earth was empty,·and dark;·the ·wind· blew.",
        "GEN 1:2, s": "A heading within",
        "GEN 1:2, 2": "and the verse goes on·here.",
        "GEN 1:3-4": "Light came.",
        "GEN 1:3-4, fig": "At the lake",
        "GEN 1:3-4, th1": "Day",
        "GEN 1:3-4, tcr2": "Work",
    }


def test_capitals_leave_marks_and_no_word() -> None:
    made = raised(read(USFM))
    staying = r"\\(?:id|r|x) [^\n]*|\|[^\\]*|\\\+?[a-z]+[0-9]?\*?"
    assert re.findall(staying, made) == re.findall(staying, USFM)
    assert not re.search("[a-z]", re.sub(staying, "", made))


def test_a_word_for_each_word_keeps_marks_in_place() -> None:
    def doubled(texts: list[str], _: object) -> list[Output]:
        return [Output(re.sub(r"\w+", lambda word: word[0].swapcase(), text)) for text in texts]

    made = localised_document(
        read(USFM), "de", doubled, DecodingOptions(), word_by_word(r"\w+|[^\w\s]")
    ).decode()
    assert made.lower() == USFM.lower()
    assert r"\nd gOD\nd* MADE THE SKY\f + \fr 1:1 \ft oR \fq SKY\ft ," in made
    assert '\n\\q2 THE \\w WIND|lemma="ruach"\\w* BLEW.' in made


def test_breaks_keep_their_order_and_notes_follow_their_words() -> None:
    document = read(r"\c 1 \v 1 One\f + \ft Note\f* two" + "\n\\q1 three\n\\q2 four")
    verse, note = document.segments
    star, first, second = verse.tags
    made = document.with_targets(
        {verse.key: f"drei {second} eins {first} zwei{star} vier", note.key: "Notiz"}
    )
    expected = "\\c 1 \\v 1 drei\n\\q1 eins\n\\q2 zwei\\f + \\ft Notiz\\f* vier"
    assert made.decode() == expected
    alone = document.with_targets({note.key: "Notiz"}).decode()
    assert alone == document.decoded.text.replace("Note", "Notiz")


def test_signs_of_marks_are_refused() -> None:
    document = read(USFM)
    for text in (r"a \p b", r"a\nd b", "a // b"):
        with pytest.raises(DataError, match="would be a mark"):
            document.with_targets({"GEN 1:3-4": text})


def test_old_captions_and_alignments_of_words() -> None:
    old = read(r"\v 1 Text.\fig |a.jpg|col|||The lake|1.1\fig*")
    assert [segment.source for segment in old.segments] == ["Text.", "The lake"]
    aligned = read(r'\v 1 \zaln-s |x="a b"\*\w In|x="1"\w*\zaln-e\* \w here|x="2"\w*, two.')
    assert raised(aligned) == aligned.decoded.text.replace("In|", "IN|").replace(
        "here|", "HERE|"
    ).replace("two", "TWO")
