"""Laws of every document format, over documents made of likely and unlikely parts."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import PurePath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.message_samples import SAMPLES
from transduce.errors import DataError
from transduce.localise.document import Document
from transduce.localise.formats import FORMATS, read_document
from transduce.localise.inline import from_markup, in_one_line
from transduce.text.scripts import joined_lines

BLANKS = st.sampled_from(["\n", "\r\n", "\r", "\n\n", " ", "\t", "", "\u3000", "\u2028"])
WORDS = st.sampled_from(
    (
        *("Katze", "müde.", "你好。", "a b", "&", "<", ">", "&amp;", "&uuml;", "&nbsp;", "\xa0"),
        *("-->", "- ", "{0}", "\x00", "\ufeff", "12", "'", '"', "\U0001f600", "אב", "%s", "="),
        *("]]>", "i.", "\u200b", "/", "- x"),
    )
)
TAGS = st.sampled_from(
    (
        *("<i>", "</i>", "<b>", "</b>", "<p>", "</p>", "<br>", "<br/>", "<!-- c -->", "<title>"),
        *('<a href="x">', "</a>", "<img alt=Hund>", "<p title='a \"b\"'>", "<code>", "</code>"),
        *("<script>", "</script>", "<pre>", "</pre>", '<p translate="no">', "<!DOCTYPE html>"),
        *("<?x?>", "<a b='", "<!--", "</", "<li>", "{\\an8}", "</title>", "<v Roger>"),
        *('<meta name="description" content="x y">', "<00:01.000>"),
    )
)
TIMINGS = st.sampled_from(
    (
        *("1", "WEBVTT", "NOTE x", "STYLE", "00:00:01,000 --> 00:00:02,000", "0:0:0 --> x"),
        *("- Ja.", "00:01.5 --> 00:03.000 align:left", "00:00:02,100 --> 00:00:04,000", "-Nein"),
        "– so",
    )
)
MARKS = st.sampled_from(
    (
        *("# ", "> ", "- ", "1. ", "    ", "| a | b |\n|-|-|\n", "|", "```\n", "---\n", "**", "*"),
        *("_", "`", "``", "[", "](b)", "![", "[^1]", "\\", "  \n", "~~", "\n===\n", "<http://a.b>"),
        *('!!! note "T"\n    ', ":::tip\n", "> [!NOTE]\n> ", "$x$", "{#a}", "[x]: y\n", "&copy;"),
    )
)
VERSES = st.sampled_from(
    (
        *("\\id GEN x\n", "\\c 1\n", "\\v 1 ", "\n\\v 2-3 ", "\\p\n", "\n\\q1 ", "\\s Hund\n"),
        *("\\nd ", "\\nd*", "\\+wj a\\+wj*", "\\w ", '|x="1"\\w*', "\\f + \\fr 1:1 \\ft a", "\\f*"),
        *("\\x - \\xt b\\x*", '\\fig a|src="b"\\fig*', '\\k-s |a="b"\\*', "\\k-e\\*", "\\", "\\*"),
        *("\\tr \\tc1 ", "\\fq ", " // ", "|", "~", "\\zx "),
    )
)
RST_PARTS = st.sampled_from(
    (
        *("\n====\n", "\n----\n", "====\n", ".. note::", ".. note:: a\n\n   ", "\n\n", "   "),
        *(".. image:: a\n   :alt: b\n", ".. code::\n\n   ", ".. x::", "- ", "1. ", ":a: ", "| "),
        *("::\n\n  ", "``", "`", "**", "*", "``a``", "**b**", ":ref:`a <b>`", ":ref:`", "|a|"),
        *("`a <b>`_", "a_", "[1]_", "\\*", "\\", "\\ ", "+--+\n", "== ==\n", ">>> a\n", ".. _a:\n"),
        *(".. |a| replace:: ", ".. [1] ", "--a  "),
    )
)
ADOC_PARTS = st.sampled_from(
    (
        *("= ", "\n== ", "\n* ", "\n. ", "\n.a\n", ":a: b\n", "----\n", "====\n", "a:: ", "\n\n"),
        *("[source]\n", "image::a[b]\n", "\n|===\n", "|", "2+|", "*", "_", "`", "*a*", "_b_"),
        *("`c`", "{d}", "https://a.b[c]", "<<a,b>>", "footnote:[a]", " +\n", "\n+\n", "// a\n"),
        *("NOTE: ", "[[a]]"),
    )
)
PARTS = {
    ".txt": WORDS | BLANKS,
    ".srt": WORDS | BLANKS | TAGS | TIMINGS | TIMINGS.map("\n{}\n".format),
    ".vtt": WORDS | BLANKS | TAGS | TIMINGS | TIMINGS.map("\n\n{}\n".format),
    ".html": WORDS | BLANKS | TAGS | TAGS,
    ".md": WORDS | BLANKS | MARKS | MARKS | TAGS,
    ".adoc": WORDS | BLANKS | ADOC_PARTS | ADOC_PARTS,
    ".rst": WORDS | BLANKS | RST_PARTS | RST_PARTS,
    ".usfm": WORDS | BLANKS | VERSES | VERSES,
}
ENCODINGS = st.sampled_from(["utf-8", "utf-8-sig", "utf-16"])
TEXTS = st.lists(WORDS | TAGS | BLANKS | st.text(max_size=5), max_size=8).map("".join)


def documents(suffix: str) -> st.SearchStrategy[bytes]:
    """Documents of a format, most of them broken."""
    texts = st.lists(PARTS[suffix], max_size=30).map("".join)
    return st.tuples(texts, ENCODINGS).map(lambda pair: pair[0].encode(pair[1]))


def attempt(document: Document, key: str, text: str) -> bytes | None:
    """The document with one target, or None if it is refused in one line that names the segment."""
    try:
        return document.with_targets({key: text})
    except DataError as error:
        assert str(error).startswith(f"{key}: ")
        assert len(str(error).splitlines()) == 1 or "\u2028" in text
        return None


@pytest.mark.parametrize("suffix", PARTS)
def test_nothing_set_changes_no_byte(suffix: str) -> None:
    @given(documents(suffix))
    def law(data: bytes) -> None:
        document = read_document(f"a{suffix}", data)
        assert document.with_targets({}) == data
        keys = [segment.key for segment in document.segments]
        assert len(set(keys)) == len(keys)
        assert all(one.source and one.source == one.source.strip() for one in document.segments)

    law()


@pytest.mark.parametrize("suffix", PARTS)
def test_only_the_spans_of_the_target_change(suffix: str) -> None:
    @given(documents(suffix), TEXTS, st.integers(0, 20))
    def law(data: bytes, text: str, number: int) -> None:
        document = read_document(f"a{suffix}", data)
        if not document.segments:
            return
        segment = document.segments[number % len(document.segments)]
        result = attempt(document, segment.key, text)
        if result is None:
            return
        before = document.decoded.text
        after = result.removeprefix(document.decoded.bom).decode(document.decoded.encoding)
        first, last = segment.spans[0].start, segment.spans[-1].end
        assert after.startswith(before[:first])
        assert after.endswith(before[last:])
        changed = after[first : len(after) - len(before[last:])]
        for (_, end), (start, _) in zip(segment.spans, segment.spans[1:], strict=False):
            assert before[end:start] in changed

    law()


READABLE = (
    st.lists(
        st.sampled_from(
            [
                *("Hund", "müde", "你好", "&", "<", ">", "&amp;", "&copy;", "אב", "'", '"', "%1$s"),
                *("x-y", "a\xa0b", "{0}"),
            ]
        ),
        min_size=1,
        max_size=30,
    )
    .map(" ".join)
    .map(in_one_line)
    .filter(bool)
)


def seen(suffix: str, text: str) -> str:
    """A target as a reader of the document sees it."""
    return from_markup(text) if suffix not in (".txt", ".srt") else text


@pytest.mark.parametrize(
    ("suffix", "data"),
    [
        (".txt", b"one\r\n  two\t\r\n\r\nthree"),
        (
            ".srt",
            b"1\n00:00:01,000 --> 00:00:02,000\none,\n\n2\n00:00:02,500 --> 00:00:05,0\nof\ntwo.\n",
        ),
        (
            ".vtt",
            b"WEBVTT\n\n00:01.000 --> 00:02.000\none.\n\nx\n00:02.500 --> 00:05.000 line:0\ntwo.\n",
        ),
        (".html", b"<p>one<p title='two'>three <img alt=four> <i>five</i>"),
        (".adoc", b"= one\n\n* two\nthree\n\n|===\n|four |five\n|===\n"),
        (".rst", b"==\none\n==\n\ntwo three\nfour\n\n.. note:: five\n\n- six"),
        (".usfm", b"\\c 1\n\\v 1 one\n\\q two\\f + \\ft three\\f*\n\\s four\n\\v 2 \\nd five\\nd*"),
        (".md", b"# one\n\n> two\n> [three](b)\n\n| a | b |\n|-|-|\n| c | d |\n"),
    ],
)
def test_reading_gives_the_targets_back(suffix: str, data: bytes) -> None:
    document = read_document(f"a{suffix}", data)

    @given(READABLE, st.integers(0, 5))
    def law(text: str, number: int) -> None:
        segment = document.segments[number % len(document.segments)]
        tags = "".join(re.findall("<[^>]*>", segment.source))
        text += "."  # cues without an end of sentence would be read as one
        result = attempt(document, segment.key, text + tags)
        assert result is not None
        again = read_document(f"a{suffix}", result)
        joined = joined_lines([seen(suffix, one.source) for one in again.segments])
        joined = re.sub("<[^>]*>$", "", joined) if suffix == ".html" else joined
        assert in_one_line(seen(suffix, text)) in in_one_line(joined)
        if suffix != ".srt":  # a cue that begins with a capital is not joined
            assert len(again.segments) == len(document.segments)

    law()


@pytest.mark.parametrize("suffix", PARTS)
@pytest.mark.parametrize("text", ["", " \n", "\xa0"])
def test_a_blank_target_is_refused(suffix: str, text: str) -> None:
    data = b"1\n00:00:01,000 --> 00:00:02,000\nHund"
    document = read_document(f"a{suffix}", data)
    with pytest.raises(DataError, match="the translation is blank"):
        document.with_targets({document.segments[-1].key: text})
    with pytest.raises(DataError, match="page 9: no such segment"):
        document.with_targets({"page 9": "Hund"})


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.txt", b"Stra\xdfe", "a.txt: byte 4 is not utf-8; convert the file to UTF-8"),
        ("a.srt", b"\xff\xfea", "a.srt: "),
        ("a.html", b"<meta charset=nonsense>", "'nonsense' is not an encoding"),
        ("a.pdf", b"%PDF", "PDF cannot be edited"),
        ("a.odt", b"PK", "a.odt: the file is a damaged archive"),
        ("a.indd", b"PK", "no format for .indd; use .txt, .srt"),
        ("a.docx", b"PK", "a.docx: the file is a damaged archive"),
        ("readme", b"", "no format for a name without suffix"),
    ],
)
def test_unreadable_files_are_one_line(name: str, data: bytes, message: str) -> None:
    with pytest.raises(DataError, match=re.escape(message)) as caught:
        read_document(name, data)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("make", [str.upper, lambda text: text + " € \U0001f600"])
def test_an_encoding_is_kept(make: Callable[[str], str]) -> None:
    page = "<meta charset=iso-8859-1><p>Straße “x”</p>".encode("cp1252")
    document = read_document("a.html", page)
    assert document.segments[0].source == "Straße “x”"
    target = make("Straße")
    result = document.with_targets({document.segments[0].key: target})
    assert read_document("a.html", result).segments[0].source == target
    text = read_document("a.txt", "Straße".encode("latin-1"), "latin-1")
    assert text.with_targets({"line 1": "Größe"}) == "Größe".encode("latin-1")
    with pytest.raises(DataError, match="line 1: '€' is not in the file's encoding, latin-1"):
        text.with_targets({"line 1": "1 €"})
    with pytest.raises(DataError, match="line 1: the file would begin with a byte order mark"):
        text.with_targets({"line 1": "ÿþx"})


def test_formats_are_those_of_the_laws() -> None:
    messages = {PurePath(name).suffix for name in SAMPLES}
    alike = {".htm", ".xhtml", ".markdown", ".mdx", ".epub", ".sfm", ".asciidoc"}
    assert {*alike, *PARTS, *messages} == set(FORMATS)
