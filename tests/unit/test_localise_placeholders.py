"""Placeholders are found, kept whole, and checked."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import time
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.localised_document import Output, word_by_word
from transduce import DecodingOptions
from transduce.errors import DataError
from transduce.localise.document import Segment, Span
from transduce.localise.placeholders import (
    MAX_PLACEHOLDERS,
    check_placeholders,
    names_in,
    placeholder_pattern,
    protect,
)
from transduce.localise.projection import Links, detagged, projected
from transduce.localise.translate import localised


@pytest.mark.parametrize(
    "placeholder",
    (
        *("[X6X]", "[X12X]", '<x id="6"></x>', "<b>", "</b>", "<br/>", "<a href='x y'>"),
        *("<!-- c -->", "<x:b y='1'>", "</x:b>", "%s", "%1$s", "%-5.2f", "%lld", "%@", "%%"),
        *("%(name)s", "%{x}", "%.*f", "%05d", "{}", "{0}", "{name!r:>5}", "{{x}}"),
        *("{{ user.name }}", "${x}", "$x", "#{x}", "@:key.name", "&copy;", "&#160;"),
        *("https://a.b/c?d=e&f#g", "www.a.b", "a.b+c@d-e.org", "--option-name", "{count, number}"),
        *("{n, plural, one}", "{% if a %}", "$(ARG1)", "%PRODUCTNAME", "`ls -l`", "%1", "%L2"),
        *("%n", "%qT", "%q+D", "%#qT", "%<-O2 %s%>", "%C", "%'d", "%zu", "0x%08x", "%skB", "<0>"),
        *("</0>", "<1/>", "~a", "~%", ":name", "\\n", "C:\\Users\\me", "#NAME#", "%(n)d"),
    ),
)
def test_recognised(placeholder: str) -> None:
    for text in (
        placeholder,
        f"Öffne {placeholder} jetzt.",
        f"你好 {placeholder}。",
        f"A ({placeholder})!",
    ):
        if placeholder[:2] == "--" and "你" in text:
            continue
        source = protect(text)
        assert list(source.names.values()) == [placeholder]
        assert source.restored(source.text) == text
        check_placeholders(source, source.text)


def test_arguments_of_a_shell_by_its_flag() -> None:
    source = protect("Save $1, for $5", flags=frozenset(("sh-format",)))
    assert list(source.names.values()) == ["$1", "$5"]


@pytest.mark.parametrize(
    "text",
    (
        *("100 % der Fälle", "50% of it", "100%ig", "5 < 6 > 4", "a <= b", "Preis: $5"),
        *("{siehe oben}", "a@b", "AT&T", "A & B; C", "x -- y", "a - b", "[1]", "[X]", "%"),
        *("e.g. this", "--William Shakespeare", "He said --I think-- so.", "um 12:30", "R&D"),
        *("Hawai`i and O`ahu", "Note: text", "std::cout", "`foo' and `bar'", "foo_Bar", "a~b"),
        *("Nr. %", "sagte er.)", "Kund:innen", "[so] (nicht)", "f(x)", "5<6"),
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
    source = protect("Use &lt;i&gt; for <i>it</i> &amp;lt;i&amp;gt;", ("<i>", "</i>"), markup=True)
    assert [source.kinds[mark] for mark in source.marks] == ["text", "open", "close", *["text"] * 2]
    assert source.restored(source.text) == "Use &lt;i&gt; for <i>it</i> &amp;lt;i&amp;gt;"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (
            "Siehe [den Hund](https://a.b/c_(d)) und ![Bild](x.png).",
            "[ ](https://a.b/c_(d)) ![ ](x.png)",
        ),
        ("&Open _File AT&T a_b", "& _"),
        ("Line\\nNext", "\\n"),
        ("%1%1%d", "%1 %1 %d"),
        ("<0>Hund</0>", "<0> </0>"),
    ],
)
def test_parts_of_words_are_recognised(text: str, names: str) -> None:
    assert list(protect(text).names.values()) == names.split()


@pytest.mark.parametrize(
    "text",
    (
        "Ich kaufe {count, plural, one {# Hund} other {# Hunde}}.",
        *("{g, select,", "=1 {ein Hund}", "other {# Hunde}}"),
        "{n,plural,offset:1 =0{keiner} other{{n, plural, one {x y} other {z}}}}",
    ),
)
def test_branches_of_icu_are_refused(text: str) -> None:
    with pytest.raises(DataError, match="has a text for each case; translate its texts by hand"):
        protect(text)


@given(
    st.lists(
        st.sampled_from(
            (
                *("https://x.org/", "{", "}", "{{", "}}", "<!--", "-->", "<", ">", "a", " ", "`"),
                *("<b>", "</b>", "%<", "%>", "[", "](", ")", "{%", "%}", '"', "%s", "www.", "#"),
                "$(",
            )
        ),
        max_size=12,
    ).map("".join)
)
def test_no_name_holds_a_mark(text: str) -> None:
    source = protect(text, ("<b>", "</b>"))
    for name in source.names.values():
        assert not any(c in source.names for c in name)
    assert source.restored(source.text) == text


def test_a_link_whose_text_is_its_address() -> None:
    tags = ('<a href="https://x.org">', "</a>")
    source = protect(f"Siehe {tags[0]}https://x.org{tags[1]} heute.", tags)
    assert set(source.marks) == set(source.names)
    assert list(source.names.values()) == [*tags, "https://x.org"]


def test_limits_are_one_line() -> None:
    with pytest.raises(DataError, match="more than 1000 placeholders"):
        protect("%s " * (MAX_PLACEHOLDERS + 1))
    with pytest.raises(DataError, match="characters of both private planes"):
        protect("\U000f0000 \U00100000 %s")
    assert protect("\U000f0000 %s").shown(protect("\U000f0000 %s").text) == "\U000f0000 %s"


@pytest.mark.parametrize(
    ("source", "target", "message"),
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
        ("(%s-Datei)", "Datei%s", "%s is part of a word"),
        ("%<%s%> %d", "%d %<%s%>", "not in their order"),
    ],
)
def test_faults_are_found(source: str, target: str, message: str) -> None:
    protected = protect(source)
    if not message:
        check_placeholders(protected, protected.marked(target))
        return
    with pytest.raises(DataError, match=message):
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
    n_words = len(spans[0]), len(spans[1])
    return [(spans[0][a], spans[1][b]) for a, b in pairs if a < n_words[0] and b < n_words[1]]


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
        # Ends of a pair keep their marks.
        ("Siehe <a>Handbuch (5)</a>.", "See manual (5).", STRAIGHT, "See <a>manual (5)</a>."),
        ("Ein «<a>Keil»</a> hier", "A «shim» here", STRAIGHT, "A «<a>shim»</a> here"),
        ("<b>Alt</b>2.3. Warum", "Old2.3. Why", STRAIGHT, "<b>Old</b>2.3. Why"),
        ("<b>Ich sehe</b> den", "I see the", ((0, 1), (2, 2)), "I <b>see</b> the"),
        ("Jetzt <b>sehe ich</b>", "Now I see", ((0, 0), (2, 1)), "Now <b>I</b> see"),
        # Blanks beside empty pairs and tags without end.
        (
            "Nimm <code></code><a></a> Paket",
            "Take package",
            STRAIGHT,
            "Take <code></code><a></a> package",
        ),
        ("Ein Bild<img> hier", "A picture here", STRAIGHT, "A picture<img> here"),
        # A pair glued to a word, without a word of its own, goes behind that word.
        (
            "Ein Hund<sup><a>[1]</a></sup> bellt",
            "A dog barks",
            STRAIGHT,
            "A dog<sup><a>[1]</a></sup> barks",
        ),
        ("Am 1<sup>er</sup> Mai", "On 1 May", STRAIGHT, "On 1<sup>er</sup> May"),
        ("Viel H<sub>2</sub>O da", "Much H2O there", STRAIGHT, "Much H<sub>2</sub>O there"),
        ("Heute <b>%s</b> kaufen", "buy today", ((0, 1), (1, 0)), "<b>%s</b> buy today"),
        # Quotes and brackets move with a placeholder.
        (
            "Could not open file '%s'.",
            "Datei konnte nicht geöffnet werden.",
            ((0, 1), (1, 2), (2, 3), (3, 0)),
            "Datei '%s' konnte nicht geöffnet werden.",
        ),
        ("Hunde (%s/%s) da", "There dogs", ((0, 1), (1, 0)), "(%s/%s) There dogs"),
        ("&Datei öffnen", "Open file", ((0, 1), (1, 0)), "Open &file"),
        ("Erste\\nZweite", "First Second", STRAIGHT, "First\\nSecond"),
        ("%s: Datei fehlt", "File is missing", STRAIGHT, "%s: File is missing"),
        ("[Der Hund](a_b) da", "There the dog", ((0, 1), (1, 2), (2, 0)), "There [the dog](a_b)"),
    ],
)
def test_projection(
    source: str, target: str, links: Sequence[tuple[int, int]], expected: str
) -> None:
    protected = protect(source)
    plain = detagged(protected)
    result = projected(protected, plain, target, words(plain.text, target, links))
    check_placeholders(protected, result)
    assert protected.restored(result) == expected


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
    result = projected(protected, detagged(protected), target, [link])
    assert protected.restored(result) == expected


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
        result = projected(protected, plain, output, links)
    except DataError:
        return
    assert sorted(c for c in result if c in protected.names) == sorted(protected.names)
    moved = "".join(piece.text for piece in plain.pieces)
    bare = [c for c in result if c not in protected.names and c != " "]
    assert sorted(bare) == sorted(
        c for c in moved + output if c not in protected.names and c != " "
    )


@pytest.mark.parametrize(
    "part",
    (
        *("a", "%", "{", "<", "<a ", "http://", "a@", "&", "-", "[X", "{a,", ".", "%0", "%1"),
        *("%<a", "`a", "``a", "[a](", "](a", "{% ", ":a ", "\\n", "$(", "%a", "<0", "_A", "www."),
        *("--a", "'"),
    ),
)
def test_finding_takes_time_in_proportion(part: str) -> None:
    text = part * (30_000 // len(part))
    start = time.process_time()
    with contextlib.suppress(DataError):
        protect(text)
    assert time.process_time() - start < 1


def test_a_placeholder_of_another_line_is_refused() -> None:
    whole = protect("%s\n%d")
    line = dataclasses.replace(whole, text=whole.marks[0])
    check_placeholders(line, whole.marks[0])
    with pytest.raises(DataError, match=r"a placeholder of its own, %d"):
        check_placeholders(line, whole.marks)


@pytest.mark.parametrize("text", ["a\\n\\na", "1%\\n\\nd", "->:ss0%}@", "$\\n\\nx.y", "%s%d"])
def test_a_placeholder_behind_another_is_not_left_open(text: str) -> None:
    """Of those that the one before hides from the pattern until it is a mark."""
    protected = protect(text)
    assert protected.pattern.search(protected.text) is None
    assert protected.restored(protected.text) == text


def reversed_words(text: str) -> str:
    return " ".join(reversed(text.split()))


def reversed_links(pairs: Sequence[tuple[str, str]]) -> list[Links]:
    """Each word linked to its place in the reversed text."""
    links: list[Links] = []
    for pair in pairs:
        source, target = ([Span(*m.span()) for m in re.finditer(r"\w+", text)] for text in pair)
        links.append(list(zip(source, reversed(target), strict=True)))
    return links


@pytest.mark.parametrize(
    ("flag", "text", "written"),
    [
        ("c-format", "file %s of user %s now", ["%2$s", "%1$s"]),
        ("c-format", "file %5.2f of user %s now", ["%2$s", "%1$5.2f"]),
        ("c-format", "50 %% of %s of user %s now", ["%2$s", "%1$s", "%%"]),
        ("c-format", "file %2$s of user %1$s now", ["%1$s", "%2$s"]),
        ("objc-format", "file %@ of user %@ now", ["%2$@", "%1$@"]),
        ("java-printf-format", "file %s of user %s now", ["%2$s", "%1$s"]),
        ("python-brace-format", "file {} of user {:>5} now", ["{1:>5}", "{0}"]),
        ("python-brace-format", "file {} of user {} now", ["{1}", "{0}"]),
        ("python-format", "file %(a)s of user %(b)s now", ["%(b)s", "%(a)s"]),
        *((flag, "file %s of user %s now", None) for flag in ("", "python-format", "lua-format")),
        ("", "file {} of user {} now", None),
        ("c-format", "file %*d of user %s now", None),
        ("ruby-format", "on %d of %B now", None),
    ],
)
def test_arguments_in_another_order_are_numbered_or_refused(
    flag: str, text: str, written: list[str] | None
) -> None:
    def translate(texts: Sequence[str], options: Sequence[DecodingOptions]) -> list[Output]:
        return [Output(reversed_words(text)) for text in texts]

    segment = Segment("k", text, (), flags=frozenset((flag,)))
    (record,) = localised([segment], "en", translate, DecodingOptions(), reversed_links)
    if written is None:
        assert (record.target, record.state) == (text, "needs-translation")
        assert record.cause == "placeholders"
    else:
        found = names_in(record.target, placeholder_pattern(segment.flags))
        assert (found, record.reason) == (written, "")


def test_equal_arguments_stay_as_they_are_where_their_order_does() -> None:
    def translate(texts: Sequence[str], options: Sequence[DecodingOptions]) -> list[Output]:
        return [Output(text.upper().replace("%S", "%s")) for text in texts]

    segment = Segment("k", "File %s of user %s.", (), flags=frozenset(("c-format",)))
    align = word_by_word(r"\w+")
    (record,) = localised([segment], "en", translate, DecodingOptions(), align)
    assert record.target == "FILE %s OF USER %s."


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("see `the guide <https://x.org>`_ now", "now `guide the <https://x.org>`_ see"),
        ("see *this* or **that one** now", "now **one that** or *this* see"),
        ("see ``a * b`` and *c* now", "now *c* ``a * b`` and see"),
        ("a * b * c", "c * b * a"),
    ],
)
def test_pairs_of_rst_go_with_their_words(text: str, target: str) -> None:
    def translate(texts: Sequence[str], options: Sequence[DecodingOptions]) -> list[Output]:
        return [Output(reversed_words(text)) for text in texts]

    segment = Segment("k", text, (), flags=frozenset(("rst-text",)))
    (record,) = localised([segment], "en", translate, DecodingOptions(), reversed_links)
    assert (record.target, record.reason) == (target, "")


def test_pairs_of_rst_are_apart_from_letters() -> None:
    source = protect("see *this* `page <u>`_ now", flags=frozenset(("rst-text",)))
    start, end, opening, closing = source.marks
    text = f"看{start}这个{end}的{opening}页{closing}。"
    assert source.restored(text) == "看\\ *这个*\\ 的\\ `页 <u>`_。"
