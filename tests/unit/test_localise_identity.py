"""Identity in, identity out: what is translated word for word keeps every tag where it is.

A translator that enciphers each letter, aligned word to word, gives a document that differs from
the source in the enciphered letters alone.
"""

from __future__ import annotations

import gzip
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.localised_document import Output, word_by_word
from transduce import DecodingOptions
from transduce.errors import DataError
from transduce.localise.document import Segment, Span
from transduce.localise.formats import FORMATS, read_document
from transduce.localise.placeholders import protect
from transduce.localise.plurals import HEAD
from transduce.localise.translate import localised, protected_sentences
from transduce.text.scripts import has_words, joined_lines

pytest.importorskip("sentencex")

DOCUMENTS = Path(__file__).parents[3] / "shared" / "documents"
MIN_WITH_TAGS = 0.995
"""Share of segments with tags that come out in place."""
MIN_MADE_UP = 0.97
"""The same of made-up pages: a blank may change sides of a tag that begins before its sentence."""
ALPHABETS = ("az", "AZ", "àö", "øþ", "ÀÖ", "ØÞ", "ая", "АЯ", "あん", "アン", "一龥")
"""First and last letter of each alphabet."""
CIPHER = {
    code: code + 1 if chr(code) < last else ord(first)
    for first, last in ALPHABETS
    for code in range(ord(first), ord(last) + 1)
}
"""Each letter is written as the next of its alphabet."""
ENUMERATOR = re.compile(
    r"(?<!\w)(?:[A-Za-z]|(?i:[xl]{0,3}(?:i[xv]|v?i{0,3}))|[一二三四五六七八九十]{1,3})[.．)）、]"
    r"|\[[xX]\]"
)
"""The only words that stay outside of sentences."""
WORDS = {
    "words": r"\w+",
    "words and marks": r"\w+|[^\w\s]",
    "between blanks": r"\S+",
    "pieces of words": r"\w{1,3}|[^\w\s]",
}
"""Units that the alignment links, each to itself."""


def enciphered(texts: Sequence[str], options: Sequence[DecodingOptions]) -> list[Output]:
    """A translation of each letter, those of placeholders too."""
    return [Output(text.translate(CIPHER)) for text in texts]


def expected(segment: Segment) -> str:
    """The source with each letter of its sentences enciphered, outside placeholders."""
    source = protect(segment.source, segment.tags, segment.markup, segment.flags)
    sentences = protected_sentences(source, "en")
    for gap in sentences.between:
        bare = "".join(c for c in gap if c not in source.names)
        assert not any(map(str.isalpha, ENUMERATOR.sub("", bare))), gap
    return source.restored(
        sentences.joined(
            [
                "".join(c if c in source.names else c.translate(CIPHER) for c in text)
                if has_words("".join(" " if c in source.names else c for c in text))
                else text
                for text in sentences.texts
            ]
        )
    )


def is_of_letters(segment: Segment) -> bool:
    """False where the cipher makes a placeholder of a word, as `<dd>` of `<cc>`."""
    texts = (segment.source, expected(segment))
    counts = [len(protect(t, (), segment.markup, segment.flags).names) for t in texts]
    return bool(segment.tags) or counts[0] == counts[1]


def outcome(segments: Sequence[Segment], words: str) -> Counter[tuple[bool, bool]]:
    """Numbers of segments by (has tags, came out as expected)."""
    segments = [s for s in segments if not HEAD.search(s.source) and is_of_letters(s)]
    records = localised(segments, "en", enciphered, DecodingOptions(), word_by_word(WORDS[words]))
    return Counter(
        (bool(segment.tags), _lines(record.target) == _lines(expected(segment)))
        for segment, record in zip(segments, records, strict=True)
    )


def _lines(text: str) -> str:
    return joined_lines(text.splitlines())


PARTS = st.sampled_from(
    (
        *("Hund", "sees", "2nd", "x", "12", "(", ")", "“", "”", "'", " ", " ", " ", ", ", ": "),
        *("-", "%s", "%1$s", "{0}", "[X1X]", "https://a.b/c", "`ls -l`", "\\n", "&Open", "$(ARG1)"),
        *("你好", "«", "»", "/", "…", "--all ", "%d", "  ", "ill. ", "A. ", "1. ", "iv) ", "• "),
        *("[x] ", "[ ] ", "Straße ", "?", "。", "「", "」", "он ", "vs. ", "%n", "{{x}}"),
    )
)
TAGS = st.sampled_from(
    (
        *("<b>{}</b>", "<i>{}</i> ", "(<a href='/'>{}</a>)", "<em>{}</em>", "{}<img>"),
        *("{}<code>x  y</code>", "{}<wbr/>", "{}<a id='x'></a> ", "<b>{}</b>", "{}<!-- c --> "),
    )
)


def texts_with_tags() -> st.SearchStrategy[str]:
    return st.recursive(
        st.lists(PARTS, max_size=6).map("".join),
        lambda inner: st.lists(
            st.tuples(TAGS, inner).map(lambda pair: pair[0].replace("{}", pair[1], 1)), max_size=4
        ).map("".join),
        max_leaves=12,
    )


@pytest.mark.parametrize("words", WORDS)
def test_a_text_without_tags(words: str) -> None:
    parts = PARTS | st.sampled_from(("<0>", "</0>"))

    @given(st.lists(parts, max_size=14).map("".join).filter(str.strip))
    def law(text: str) -> None:
        segment = Segment("k", text.strip(), (Span(0, 1),))
        counts = outcome([segment], words)
        assert counts[False, True] == 1, segment

    law()


@pytest.mark.parametrize("words", WORDS)
def test_a_page_of_well_nested_tags(words: str) -> None:
    total: Counter[tuple[bool, bool]] = Counter()

    @given(texts_with_tags())
    def law(text: str) -> None:
        segments = read_document("a.html", f"<p>{text}</p>".encode()).segments
        counts = outcome(segments, words)
        assert counts[False, False] == 0, segments
        total.update(counts)

    law()
    assert total[True, True] >= MIN_MADE_UP * (total[True, True] + total[True, False])


@pytest.mark.system
@pytest.mark.skipif(not DOCUMENTS.is_dir(), reason="needs shared/documents")
@pytest.mark.parametrize("words", ("words", "between blanks"))
def test_documents(words: str) -> None:
    counts: Counter[tuple[bool, bool]] = Counter()
    paths = [path for path in sorted(DOCUMENTS.iterdir()) if path.suffix in FORMATS]
    contents = {path.name: path.read_bytes() for path in paths}
    contents["faq.txt"] = gzip.decompress((DOCUMENTS / "212-debian-faq.txt.gz").read_bytes())
    for name, content in contents.items():
        try:
            counts += outcome(read_document(name, content).segments, words)
        except DataError:
            continue
    assert counts[False, False] == 0
    assert counts[True, True] >= MIN_WITH_TAGS * (counts[True, True] + counts[True, False])
    assert counts[True, True] > 500


def test_classes_are_no_part_of_a_name_in_subtitles() -> None:
    cue = "<c.red>Look</c> at <c.blue.big>the dog</c> and <v.loud Bernd>see</v> it."
    document = read_document("a.vtt", f"WEBVTT\n\n00:01.000 --> 00:02.000\n{cue}\n".encode())
    assert outcome(document.segments, "words") == {(True, True): 1}


@pytest.mark.parametrize(
    ("text", "target", "outside"),
    [
        ("A. See (b) %s", "A. Tff (c) %s", "A."),
        ("iv.", "iv.", "iv."),
        ("1. See", "1. Tff", ""),
        ("ill. See", "jmm. Tff", ""),
    ],
)
def test_enumerators_are_named(text: str, target: str, outside: str) -> None:
    segment = Segment("k", text, (Span(0, 1),))
    (record,) = localised([segment], "en", enciphered, DecodingOptions(), word_by_word(r"\w+"))
    assert (record.target, record.is_done) == (target, True)
    assert record.reason == (f"outside of its sentences: {outside}" if outside else "")
