"""HTML: blocks, inline tags, entities, attributes, and what is left alone."""

import time
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.errors import DataError
from transduce.localise.document import Document
from transduce.localise.formats import read_document
from transduce.localise.html import tags_of
from transduce.localise.inline import parts_of


def read(text: str) -> Document:
    return read_document("a.html", text.encode())


def sources(text: str) -> list[str]:
    return [segment.source for segment in read(text).segments]


def translated(text: str, *targets: str) -> str:
    """The page with its segments' translations, in order."""
    document = read(text)
    keys = [segment.key for segment in document.segments]
    return document.with_targets(dict(zip(keys, targets, strict=True))).decode()


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("<p>Ich bin\n heute müde.</p>", ["Ich bin heute müde."]),
        ("<p>你\n好</p>", ["你好"]),
        (
            "<p>Ich bin <em><span>sehr</span></em> müde.",
            ["Ich bin <em><span>sehr</span></em> müde."],
        ),
        ("<p><b><i>Alles</i></b></p>", ["Alles"]),
        ("<li><a href='/'>Start</a><li><a href='/b'>Mehr</a>", ["Start", "Mehr"]),
        ("eins<br>zwei<hr>drei", ["eins", "zwei", "drei"]),
        ("<p>x &lt;b&gt; &amp; y</p>", ["x &lt;b&gt; &amp; y"]),
        ("<p>M&uuml;de AT&T &nbsp;</p><td>&nbsp;</td>", ["Müde AT&amp;T"]),
        ("<p>Nimm <code>ls -l</code> und <kbd>x</kbd></p>", ["Nimm <code>ls -l</code> und"]),
        (
            "<p>Nimm <b translate=no>ls <i>x</i></b> jetzt",
            ["Nimm <b translate=no>ls <i>x</i></b> jetzt"],
        ),
        ("<p translate='no'>nein<p>ja", ["ja"]),
        ("<div class='a notranslate b'><p>nein</p></div>ja", ["ja"]),
        ("<pre>a</pre><script>'<p>b</p>'</script><style>c</style><textarea>d</textarea>e", ["e"]),
        ("<title>A <b> &amp; B</title>", ["A &lt;b&gt; &amp; B"]),
        ("<!-- a --><?php b ?><!DOCTYPE html>", []),
        (
            "<img alt='Ein Hund' title=kurz><input placeholder='Name'><a aria-label=x></a>",
            ["Ein Hund", "kurz", "Name", "x"],
        ),
        ("<meta name=Description content='d'><meta name=x content=y>", ["d"]),
        ("<meta property=og:title content='Titel'><meta property=og:url content=u>", ["Titel"]),
        (
            "<input type=Submit value=Los><input type=button value=Ab><input value=Wert>"
            "<button value=Wert>Knopf</button>",
            ["Los", "Ab", "Knopf"],
        ),
        (
            "<select><optgroup label=Tiere><option label=Hund value=h>Katze</select>"
            "<track label=Deutsch><label label=x>Text",
            ["Tiere", "Hund", "Katze", "Deutsch", "Text"],
        ),
        ("<p>a <b>c<p>d</b> e", ["a <b>c", "d</b> e"]),
        ("a < b <", ["a &lt; b &lt;"]),
        ("a</p>b<b", ["a", "b"]),
    ],
)
def test_segments(page: str, expected: list[str]) -> None:
    assert sources(page) == expected


def test_only_the_text_changes() -> None:
    page = (
        "<P CLASS=x>Ich bin\r\n heute <B ID='b' >m&uuml;de</B>.<BR />\r\n"
        "Mit <img src=a alt=Hund> &copy; und &lt;b&gt;\r\n<p>offen"
    )
    result = translated(
        page, "I am <B ID='b' >tired</B> ü & ö.", "dog", "With © <img src=a alt=Hund> <i>", "open"
    )
    assert result == (
        "<P CLASS=x>I am <B ID='b' >tired</B> &uuml; &amp; ö.<BR />\r\n"
        'With &copy; <img src=a alt="dog"> &lt;i&gt;\r\n<p>open'
    )


def test_attributes_are_quoted_and_escaped() -> None:
    page = """<img alt='a' title="b"><a title=c d></a><meta name=description content='&eacute;e'>"""
    assert translated(page, "'1\" & <", "'2\"", 'x y"', "éé") == (
        """<img alt='&#39;1" &amp; &lt;' title="'2&quot;"><a title="x y&quot;" d></a>"""
        """<meta name=description content='&eacute;&eacute;'>"""
    )


def test_an_attribute_within_a_block_is_translated_alone_too() -> None:
    document = read("<p>Ein <img alt='Hund'> hier</p>")
    first, second = document.segments
    assert (first.source, second.source) == ("Hund", "Ein <img alt='Hund'> hier")
    result = document.with_targets({first.key: "dog"})
    assert result == b"<p>Ein <img alt='dog'> hier</p>"


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("I am tired.", "the translation lacks <b>"),
        ("I am </b>tired<b>.", "not nested as in the source"),
        ("I <b>am</b> <b>tired</b>.", "has <b> more often"),
        ("I am\x01 <b>tired</b>.", "HTML cannot hold the character"),
    ],
)
def test_broken_translations_are_refused(target: str, message: str) -> None:
    with pytest.raises(DataError, match=f"line 1, column 4: .*{message}"):
        translated("<p>Ich bin <b>müde</b>.", target)


def test_equal_tags_keep_their_own_attributes_in_order() -> None:
    page = "<p>A <img alt='eins'> b <img alt='eins'> c"
    result = translated(page, "one", "two", "x <img alt='eins'><img alt='eins'> y")
    assert result == "<p>x <img alt='one'><img alt='two'> y"


class Reference(HTMLParser):
    """The parser of the standard library, as a judge of positions."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=False)
        self.found: list[tuple[int, str]] = []
        self.lines = text.split("\n")
        self.feed(text)
        self.close()

    def place(self) -> int:
        line, column = self.getpos()
        return sum(len(one) + 1 for one in self.lines[: line - 1]) + column

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.found.append((self.place(), tag))

    def handle_endtag(self, tag: str) -> None:
        self.found.append((self.place(), f"/{tag}"))

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        self.handle_starttag(tag, attrs)


WHOLE = st.sampled_from(
    (
        *("<p>", "</p>", "<b id=x>", "</b>", "<br/>", "<img alt='a > b'>", '<a title="\n<b>">'),
        *("\n", "text", " ", "&amp;", "<!-- <b> -->", "<!DOCTYPE html>", "<?x?>", "<A\nHREF=/x >"),
        *("a < b", "<script>'<p>'</script>", "<style>p > b {}</style>", "<x-y z>", "</x-y >"),
        "ä\U0001f600",
    )
)


@given(st.lists(WHOLE, max_size=30).map("".join))
def test_positions_are_those_of_the_standard_library(text: str) -> None:
    tags = list(tags_of(text))
    assert "".join(text[slice(*tag.span)] for tag in tags) == text
    ours = [
        (tag.span.start, "/" * (tag.kind == "close") + tag.name)
        for tag in tags
        if tag.kind != "text" and tag.name
    ]
    assert ours == Reference(text).found


@pytest.mark.parametrize(
    "part", ["<", "<!--", "<a ", '<a b="', "&", "<b>x", "</", "<![CDATA[", " ", "<p title=a>"]
)
def test_reading_takes_time_in_proportion(part: str) -> None:
    """The standard library's parser takes eight seconds for 24,000 characters of `<a `."""
    page = "<p>" + part * 20_000 + "x"
    start = time.process_time()
    read(page)
    assert time.process_time() - start < 5


def test_the_page_names_the_language_of_the_translation() -> None:
    page = "<html lang='de' xml:lang=de-AT><body class=a lang=\"de\"><p lang=fr>Hund<p>Baum"
    document = read_document("a.html", page.encode(), target_language="en")
    (first, second) = document.segments
    assert document.with_targets({first.key: "dog"}).decode() == (
        "<html lang='en' xml:lang=en><body class=a lang=\"en\"><p lang=fr>dog<p>Baum"
    )
    assert document.with_targets({}).decode() == page
    targets = {first.key: "dog", second.key: "tree"}
    assert b"<html lang='de'" in read(page).with_targets(targets)


def test_a_page_takes_its_own_source() -> None:
    page = "<p>Nimm <code>apt  install\n\t    a</code> jetzt <b>x\n\t y</b> hier</p>"
    document = read(page)
    (segment,) = document.segments
    assert "  " not in segment.source
    result = document.with_targets({segment.key: segment.source}).decode()
    assert result == page.replace("x\n\t y", "x y")


@pytest.mark.parametrize(
    "reading",
    (
        "<rt>かんじ</rt>",
        "<rp>(</rp><rt>かんじ</rt><rp>)</rp>",
        "<rp>(<rt>かんじ<rp>)",
        "<rt>かんじ",
    ),
)
def test_readings_stay_with_their_tags(reading: str) -> None:
    page = f"<p><ruby>漢字{reading}</ruby>を読む。</p>"
    (segment,) = read(page).segments
    assert "".join(p for is_tag, p in parts_of(segment.source, segment.tags) if not is_tag) == (
        "漢字を読む。"
    )
    assert read(page).with_targets({segment.key: segment.source}).decode() == page
