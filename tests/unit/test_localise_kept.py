"""Parts of a segment that its file protects: each is a tag, and comes out as it was."""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree

import pytest

from helpers.localised_document import Output
from transduce import DecodingOptions
from transduce.errors import DataError
from transduce.localise.document import Span
from transduce.localise.formats import read_document
from transduce.localise.projection import Links
from transduce.localise.translate import localised

UNIT = '<trans-unit id="1"><source>{}</source></trans-unit>'
FIRST = f'<xliff version="1.2" xmlns:its="i"><file><body>{UNIT}</body></file></xliff>'
SECOND = (
    '<xliff version="2.0" xmlns:its="i"><file id="f"><unit id="u"><segment><source>{}</source>'
    "</segment></unit></file></xliff>"
)
PARTS = (
    *('<mrk mtype="protected">Blue Door</mrk>', '<mrk mtype="x-its-translate-no">Blue Door</mrk>'),
    *('<g id="1" translate="no">Blue Door</g>', '<g id="1" its:translate="no">Blue Door</g>'),
    '<mrk id="m" translate="no">Blue <pc id="2">Door</pc></mrk>',
    '<sm id="m" translate="no"/>Blue <pc id="2">Door</pc><em startRef="m"/>',
)


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("file", (FIRST, SECOND))
def test_protected_text_of_xliff_is_kept(part: str, file: str) -> None:
    content = file.format(f"Open the {part} now").encode()
    document = read_document("a.xlf", content, target_language="de")
    (segment,) = document.segments
    assert segment.tags == (part,)
    made = document.with_targets({segment.key: f"Jetzt {part} öffnen"}).decode()
    assert f">Jetzt {part} öffnen</target>" in made
    ElementTree.fromstring(made)
    with pytest.raises(DataError, match="lacks"):
        document.with_targets({segment.key: "Jetzt öffnen"})
    assert not read_document("a.xlf", file.format(part).encode()).segments


def test_what_is_to_be_translated_is_no_tag() -> None:
    part = '<mrk mtype="seg" mid="1">Door</mrk> <g id="1" translate="yes">x</g>'
    (segment,) = read_document("a.xlf", FIRST.format(part).encode()).segments
    assert not any("Door" in tag for tag in segment.tags)


@pytest.mark.parametrize(
    "comment",
    (
        '{Locked="Blue &amp; Door"}',
        "Name. {Locked='Blue &amp; Door'}",
        '{Locked="x", "Blue &amp; Door", "Door"}',
        "{Locked=&quot;Blue &amp; Door&quot;}",
    ),
)
def test_locked_phrases_of_net_are_kept(comment: str) -> None:
    content = (
        '<root><resheader/><data name="a"><value>Blue &amp; Door and Blue &amp; Door: {0}</value>'
        f"<comment>{comment}</comment></data></root>"
    )
    document = read_document("a.resx", content.encode())
    (segment,) = document.segments
    assert "Door" not in segment.source.replace(segment.tags[0], "")
    assert len(segment.tags) == 2
    target = segment.source.replace(" and ", " und ").replace("{0}", "{0}!")
    assert (
        "<value>Blue &amp; Door und Blue &amp; Door: {0}!</value>"
        in document.with_targets({segment.key: target}).decode()
    )


def test_tags_are_repeated_in_the_texts_of_a_choice() -> None:
    tag = '<x id="1" equiv-text="n"/>'
    content = FIRST.format(f"Welcome {{VAR, plural, =0 {{nobody}} other {{{tag} people}}}}")
    document = read_document("a.xlf", content.encode(), target_language="de")
    (segment,) = document.segments
    target = f"{{VAR, plural, =0 {{keiner}} one {{{tag} Mensch}} other {{{tag} Menschen}}}}"
    assert target in document.with_targets({segment.key: target}).decode()
    with pytest.raises(DataError, match="lacks"):
        document.with_targets({segment.key: target.replace(tag, "")})
    with pytest.raises(DataError, match="more often"):
        document = read_document("a.xlf", FIRST.format(f"{tag} people").encode())
        document.with_targets({document.segments[0].key: f"{tag} Menschen {tag}"})


@pytest.mark.parametrize(
    ("outputs", "target"),
    [
        (
            {"Run dpkg -l <x> to see.": "Executa dpkg -l <x> para ver."},
            "Executa <code>dpkg -l &lt;x&gt;</code> para ver.",
        ),
        (
            {"Run dpkg -l <x> to see.": "Executa DPKG para ver.", "Run to see.": "Ver executa."},
            "Ver <code>dpkg -l &lt;x&gt;</code> executa.",
        ),
    ],
)
def test_code_is_sent_as_it_stands_where_it_is_kept(outputs: dict[str, str], target: str) -> None:
    page = b"<p>Run <code>dpkg -l &lt;x&gt;</code> to see.</p>"
    (segment,) = read_document("a.html", page).segments

    def translate(texts: Sequence[str], options: Sequence[DecodingOptions]) -> list[Output]:
        return [Output(outputs[text]) for text in texts]

    def align(pairs: Sequence[tuple[str, str]]) -> list[Links]:
        return [[(Span(0, 3), Span(0, 3)), (Span(4, 6), Span(4, 11))] for _ in pairs]

    (record,) = localised([segment], "en", translate, DecodingOptions(), align)
    assert record.target == target
