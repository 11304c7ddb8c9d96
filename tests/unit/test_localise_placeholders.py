"""Placeholders are found, kept whole, and checked."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.errors import DataError
from transduce.localise.document import Span
from transduce.localise.placeholders import MOST, check_placeholders, protect
from transduce.localise.projection import Links, detagged, projected


@pytest.mark.parametrize(
    "placeholder",
    (
        *(
            "[X6X]",
            "[X12X]",
            '<x id="6"></x>',
            "<b>",
            "</b>",
            "<br/>",
            "<a href='x y'>",
            "<!-- c -->",
            "<x:b y='1'>",
            "</x:b>",
        ),
        *("%s", "%1$s", "%-5.2f", "%lld", "%@", "%%", "%(name)s", "%{x}", "%.*f", "%05d"),
        *(
            "{}",
            "{0}",
            "{name!r:>5}",
            "{{x}}",
            "{{ user.name }}",
            "${x}",
            "$x",
            "#{x}",
            "@:key.name",
        ),
        *("&copy;", "&#160;", "https://a.b/c?d=e&f#g", "www.a.b", "a.b+c@d-e.org", "--option-name"),
        *("{count, number}", "{n, plural, one}"),
    ),
)
def test_recognised(placeholder: str) -> None:
    for text in (
        placeholder,
        f"Öffne {placeholder} jetzt.",
        f"你好{placeholder}。",
        f"A ({placeholder})!",
    ):
        if placeholder[:2] == "--" and f" {placeholder}" not in text and text != placeholder:
            continue
        source = protect(text)
        assert list(source.names.values()) == [placeholder]
        assert source.restored(source.text) == text
        check_placeholders(source, source.text)


@pytest.mark.parametrize(
    "text",
    (
        *(
            "100 % der Fälle",
            "50% of it",
            "100%ig",
            "5 < 6 > 4",
            "a <= b",
            "Preis: $5",
            "{siehe oben}",
        ),
        *("a@b", "AT&T", "A & B; C", "x -- y", "a - b", "[1]", "[X]", "%", "%%%"[:1], "e.g. this"),
    ),
)
def test_not_recognised(text: str) -> None:
    assert protect(text).names == {}


def test_tags_of_a_format_are_kept_whole_and_text_is_unescaped() -> None:
    tags = ("<code>a b</code>", "<i>", "</i>")
    source = protect("x &amp; <code>a b</code> <i>&lt;b&gt;</i> &amp;copy;", tags, markup=True)
    assert sorted(source.names.values()) == ["&copy;", "</i>", "<b>", "<code>a b</code>", "<i>"]
    assert source.shown(source.text) == "x & <code>a b</code> <i><b></i> &copy;"
    assert source.restored(source.text) == "x &amp; <code>a b</code> <i>&lt;b&gt;</i> &amp;copy;"
    with pytest.raises(DataError, match="the text quotes its own tag <i>"):
        protect("<i>&lt;i&gt;</i>", ("<i>", "</i>"), markup=True)


def test_limits_are_one_line() -> None:
    with pytest.raises(DataError, match="more than 1000 placeholders"):
        protect("%s " * (MOST + 1))
    with pytest.raises(DataError, match="characters of both private planes"):
        protect("\U000f0000 \U00100000 %s")
    assert protect("\U000f0000 %s").shown(protect("\U000f0000 %s").text) == "\U000f0000 %s"


@pytest.mark.parametrize(
    ("source", "target", "said"),
    [
        ("a %s b", "a b", "%s is missing"),
        ("a [X1X] [X1X]", "a [X1X]", r"\[X1X\] is missing"),
        ("a %s b", "a %s %s b", "%s comes more often than in the source"),
        ("a %s b", "a %s b %d", "placeholder of its own, %d"),
        ("a [X1X] b", "a [X1X]] b", "parts of a placeholder"),
        ("a %s b %d", "a %d b %s", "not in their order"),
        ("a [X1X] b", "a [X1X]s b", r"\[X1X\] is part of a word"),
        ("a <b>c</b>", "a c <b></b>", "<b> has lost its words"),
        ("a <b>c</b> <i>d</i>", "a <b><i>c</b> d</i>", ""),
        ("a <b>c</b>", "a </b>c<b>", "not nested"),
    ],
)
def test_faults_are_found(source: str, target: str, said: str) -> None:
    protected = protect(source)
    if not said:
        check_placeholders(protected, protected.marked(target))
        return
    with pytest.raises(DataError, match=said):
        check_placeholders(protected, protected.marked(target))


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("a %1$s b %2$s", "%2$s a, %1$s b"),
        ("%s von %s", "%s of %s"),
        ("[X1X]mal", "[X1X]times"),
        ("<b>a</b> c", "c <b>a</b>"),
        ("50 % {0}", "50 % {0}"),
        ("Invoice %s is posted", "发票%s已过帐"),
        ("%s--abort and %<%%%c%>", "%s--abort und %<%%%c%>"),
        ('<x id="1"></x> a <x id="2"></x>', '<x id="2"></x> a <x id="1"></x>'),
    ],
)
def test_good_translations_pass(source: str, target: str) -> None:
    protected = protect(source)
    check_placeholders(protected, protected.marked(target))


def words(source: str, target: str, pairs: Sequence[tuple[int, int]]) -> Links:
    """Links between the words of two texts, by number."""
    spans = []
    for text in (source, target):
        ends, place = [], 0
        for word in text.split():
            start = text.index(word, place)
            place = start + len(word)
            ends.append(Span(start, start + len(word.rstrip("."))))
        spans.append(ends)
    return [(spans[0][a], spans[1][b]) for a, b in pairs]


STRAIGHT = ((0, 0), (1, 1), (2, 2), (3, 3))


@pytest.mark.parametrize(
    ("source", "target", "links", "expected"),
    [
        ("Ich bin <b>sehr müde</b>.", "I am very tired.", STRAIGHT, "I am <b>very tired</b>."),
        (
            "Ich <b>bin <i>sehr</i></b> müde",
            "I am very tired",
            STRAIGHT,
            "I <b>am <i>very</i></b> tired",
        ),
        (
            "Heute gehe <b>ich</b> nach",
            "I go today now",
            ((0, 2), (1, 1), (2, 0)),
            "<b>I</b> go today now",
        ),
        ("Öffne %1$s jetzt.", "Open now.", ((0, 0), (1, 1)), "Open %1$s now."),
        ("Öffne jetzt %1$s.", "Open now.", ((0, 0), (1, 1)), "Open now %1$s."),
        ("%1$s öffnen", "open it", ((0, 0),), "%1$s open it"),
        ("Jetzt {0} öffnen", "Open now", ((0, 1), (1, 0)), "{0} Open now"),
        ("öffnen {0}", "open", (), "open {0}"),
        ('Ich <x id="6"></x> bin', "I am", STRAIGHT[:2], 'I <x id="6"></x> am'),
        ("Ich %s.", "I.", STRAIGHT[:1], "I %s."),
    ],
)
def test_projection(
    source: str, target: str, links: Sequence[tuple[int, int]], expected: str
) -> None:
    protected = protect(source)
    plain = detagged(protected)
    found = projected(protected, plain, target, words(plain.text, target, links))
    check_placeholders(protected, found)
    assert protected.restored(found) == expected


def test_projection_needs_a_link() -> None:
    protected = protect("Ich <b>bin</b> hier")
    with pytest.raises(DataError, match="no word is linked to the content of <b>"):
        projected(protected, detagged(protected), "I am here", [])


@pytest.mark.parametrize(
    ("source", "target", "link", "expected"),
    [
        ("我有[X6X]狗。", "I have dogs.", (Span(2, 3), Span(7, 11)), "I have [X6X] dogs."),
        ("I have [X6X] dogs.", "我有狗。", (Span(7, 11), Span(2, 3)), "我有[X6X]狗。"),
        ("[X6X]fach", "times", (Span(0, 4), Span(0, 5)), "[X6X]times"),
    ],
)
def test_blanks_beside_a_placeholder_follow_the_scripts(
    source: str, target: str, link: tuple[Span, Span], expected: str
) -> None:
    protected = protect(source)
    found = projected(protected, detagged(protected), target, [link])
    assert protected.restored(found) == expected


@given(
    st.lists(st.sampled_from(["a", " ", "%s", "<b>", "</b>", "{0}", "é", ".", "<br/>"])).map(
        "".join
    ),
    st.text(max_size=12),
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9))),
)
def test_projection_keeps_all_or_refuses(
    source: str, output: str, pairs: list[tuple[int, int]]
) -> None:
    protected = protect(source)
    if any(character in protected.names for character in output):
        return
    plain = detagged(protected)
    links = [
        (Span(a, a + 1), Span(b, b + 1))
        for a, b in pairs
        if a < len(plain.text) and b < len(output)
    ]
    try:
        found = projected(protected, plain, output, links)
    except DataError:
        return
    assert sorted(c for c in found if c in protected.names) == sorted(protected.names)
    bare = "".join(c for c in found if c not in protected.names)
    assert bare.replace(" ", "") == output.replace(" ", "")


@pytest.mark.parametrize(
    "part", ["a", "%", "{", "<", "<a ", "http://", "a@", "&", "-", "[X", "{a,", "."]
)
def test_finding_takes_time_in_proportion(part: str) -> None:
    text = part * (100_000 // len(part))
    start = time.process_time()
    with contextlib.suppress(DataError):
        protect(text)
    assert time.process_time() - start < 3
