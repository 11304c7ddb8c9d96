"""DOCX: runs as texts and tags, and what of a paragraph stays."""

from __future__ import annotations

import io
import re
import zipfile
from pathlib import Path

import pytest

from helpers.message_samples import docx
from helpers.real_documents import needs_documents, real_documents
from transduce.errors import DataError
from transduce.localise.checks import pseudo_translated
from transduce.localise.document import document_with
from transduce.localise.formats import read_document
from transduce.localise.placeholders import protect
from transduce.localise.projection import detagged


def run(text: str, properties: str = "") -> str:
    space = ' xml:space="preserve"' if text != text.strip() else ""
    return f"<w:r><w:rPr>{properties}</w:rPr><w:t{space}>{text}</w:t></w:r>"


def paragraph(*parts: str) -> str:
    return f'<w:p><w:pPr><w:jc w:val="left"/></w:pPr>{"".join(parts)}</w:p>'


def field(code: str, result: str) -> str:
    def sign(kind: str) -> str:
        return f'<w:r><w:fldChar w:fldCharType="{kind}"/></w:r>'

    instruction = f"<w:r><w:instrText>{code}</w:instrText></w:r>"
    return "".join((sign("begin"), instruction, sign("separate"), result, sign("end")))


def body(content: bytes, name: str = "document") -> str:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return archive.read(f"word/{name}.xml").decode()


def sources(*parts: str) -> list[str]:
    return [s.source for s in read_document("a.docx", docx(paragraph(*parts))).segments]


def translated(target: str, *parts: str) -> str:
    """The body of a document of a paragraph, with a target; `<1>` is the first tag."""
    document = read_document("a.docx", docx(paragraph(*parts)))
    (segment,) = document.segments
    target = re.sub("<([0-9])>", lambda match: segment.tags[int(match[1]) - 1], target)
    return body(document.with_targets({segment.key: target}))


BOLD = "<w:b/>"
DELETED = "<w:del><w:r><w:delText>old</w:delText></w:r></w:del>"
LINK = '<w:hyperlink r:id="rId4">{}</w:hyperlink>'
SPACE = ' xml:space="preserve"'


def text(content: str, properties: str = "") -> str:
    """A run as it is written."""
    properties = f"<w:rPr>{properties}</w:rPr>" if properties else ""
    return f"<w:r>{properties}<w:t{SPACE}>{content}</w:t></w:r>"


@pytest.mark.parametrize(
    ("parts", "source"),
    [
        ((run("One "), run("two", '<w:lang w:val="en"/>'), run(" three")), "One two three"),
        ((run("One"), "<w:proofErr/>", run(" two", "<w:noProof/>")), "One two"),
        ((run("One "), run("two", BOLD), run(" three")), "One <g2>two</g2> three"),
        ((run("One", BOLD), run(" ", "<w:i/>"), run("two", BOLD)), "One two"),
        ((run("One "), LINK.format(run("two"))), "One <g2>two</g2>"),
        ((LINK.format(run("One")),), "One"),
        ((run("Page "), field("PAGE", run("1")), run(" of")), "Page <x2/> of"),
        (
            (run("See "), field(' HYPERLINK "x"', run("it"))),
            "See <x2/><x3/><x4/>it",
        ),
        ((run("One "), DELETED, run("two")), "One <x2/>two"),
        ((run("One "), f"<w:ins>{run('new')}</w:ins>", run(" two")), "One <g2>new</g2> two"),
        ((run("1"), "<w:r><w:tab/><w:t>One</w:t><w:br/></w:r>"), "1<tab2/>One"),
    ],
)
def test_what_is_a_text_and_what_a_tag(parts: tuple[str, ...], source: str) -> None:
    assert sources(*parts) == [source]


def test_runs_of_a_translation() -> None:
    parts = (
        '<w:bookmarkStart w:id="1"/>',
        *(run("One "), run("two", BOLD), '<w:bookmarkEnd w:id="1"/>'),
        *(LINK.format(run(" three")), "<w:r><w:drawing/></w:r>", run("four &amp; ")),
    )
    expected = (
        *('<w:bookmarkStart w:id="1"/>', LINK.format(text("drei")), text(" ")),
        *("<w:r><w:drawing/></w:r>", text("eins &lt;")),
        *(text("zwei", BOLD), text(" "), '<w:bookmarkEnd w:id="1"/>'),
    )
    assert paragraph(*expected) in translated("<3>drei<4> <5>eins &lt;<1>zwei<2>", *parts)


def test_what_frames_a_text_stays() -> None:
    parts = ("<w:r><w:tab/></w:r>", field("SEQ", run("1")), run(": One", BOLD))
    made = translated(": Eins", *parts)
    assert text(": Eins", BOLD) in made and "<w:r><w:tab/></w:r>" in made
    assert field("SEQ", run("1")) in made


def test_a_text_box_and_its_fallback_are_once() -> None:
    inner = paragraph(run("Box"))
    box = (
        f"<mc:AlternateContent><mc:Choice><w:txbxContent>{inner}</w:txbxContent></mc:Choice>"
        f"<mc:Fallback><w:pict>{inner}</w:pict></mc:Fallback></mc:AlternateContent>"
    )
    document = read_document("a.docx", docx(paragraph(run("One "), f"<w:r>{box}</w:r>", run("x"))))
    assert [segment.source for segment in document.segments] == ["One <x2/>x", "Box"]
    outer, inside = document.segments
    made = body(document.with_targets({inside.key: "Feld", outer.key: "<x2/>Eins"}))
    assert made.count(text("Feld")) == 2 and "Box" not in made
    assert made.index("</mc:AlternateContent>") < made.index("Eins")
    assert body(document.with_targets({inside.key: "Feld"})).count(text("Feld")) == 2


def test_other_members_and_their_keys() -> None:
    content = docx(
        paragraph(run("One")),
        header1=paragraph(run("Head")),
        footnotes=paragraph(run("Note")),
        styles=paragraph(run("Style")),
    )
    document = read_document("a.docx", content)
    keys = [segment.key for segment in document.segments]
    assert keys[:3] == [f"{n}.xml, paragraph 1" for n in ("document", "header1", "footnotes")]
    made = document.with_targets({keys[1]: "Kopf"})
    assert text("Kopf") in body(made, "header1") and body(made) == body(content)
    with zipfile.ZipFile(io.BytesIO(made)) as new, zipfile.ZipFile(io.BytesIO(content)) as old:
        entries = [[(i.filename, i.compress_type) for i in z.infolist()] for z in (old, new)]
    assert entries[0] == entries[1]


def test_a_lost_tag_and_control_characters_are_refused() -> None:
    parts = (run("One "), run("two", BOLD))
    with pytest.raises(DataError, match=r"document\.xml, paragraph 1: the translation lacks <g2>"):
        translated("Eins zwei", *parts)
    with pytest.raises(DataError, match="paragraph 1: the file cannot hold '\\\\x01'; remove it"):
        translated("\x01", run("One"))


def test_a_field_that_does_not_end_costs_no_more() -> None:
    parts = '<w:r><w:fldChar w:fldCharType="begin"/></w:r>' * 30_000
    (segment,) = read_document("a.docx", docx(paragraph(parts, run("One")))).segments
    assert segment.source == "One"


def test_archives_that_are_attacks_or_damaged() -> None:
    with pytest.raises(DataError, match=r"the archive is too large: 2\d* bytes"):
        read_document("a.docx", docx("<!--" + " " * 20_000_000 + "-->", zipfile.ZIP_DEFLATED))
    with pytest.raises(DataError, match="the archive has too many elements for its size: 6000"):
        read_document("a.docx", docx("<w:p/>" * 60_000, zipfile.ZIP_DEFLATED))
    with pytest.raises(DataError, match=r"word/document\.xml is not well-formed XML"):
        read_document("a.docx", docx("<w:p>"))
    with pytest.raises(DataError, match="elements are deeper than 200"):
        read_document("a.docx", docx("<w:p>" * 300 + "</w:p>" * 300))


@needs_documents
@pytest.mark.parametrize("path", real_documents(".docx"), ids=lambda path: path.name)
def test_real_documents_open_and_change_in_their_texts_alone(path: Path) -> None:
    content = path.read_bytes()
    document = read_document(path.name, content)
    assert document.with_targets({}) == content
    made = document_with(document, pseudo_translated(document.segments))
    assert all(record.is_done for record in made.records)
    again = [segment.source for segment in read_document(path.name, made.content).segments]
    written = [re.sub(r"[0-9]+(?=/?>)", "", record.target) for record in made.records]
    assert [re.sub(r"[0-9]+(?=/?>)", "", source) for source in again] == written
    library = pytest.importorskip("docx")
    counts = [
        [len(file.paragraphs), len(file.tables), len(file.inline_shapes)]
        for file in map(library.Document, (io.BytesIO(content), io.BytesIO(made.content)))
    ]
    assert counts[0] == counts[1]


@needs_documents
def test_few_paragraphs_have_tags() -> None:
    segments = [
        segment
        for path in real_documents(".docx")
        for segment in read_document(path.name, path.read_bytes()).segments
    ]
    assert len(segments) > 200
    assert sum(bool(segment.tags) for segment in segments) <= len(segments) * 160 / 1013


RUN = "<w:r><w:t>{}</w:t></w:r>"
CONTAINERS = {
    "content control": (
        '<w:sdt><w:sdtPr><w:id w:val="1"/></w:sdtPr><w:sdtContent>',
        "</w:sdtContent></w:sdt>",
    ),
    "element": ('<w:customXml w:element="x">', "</w:customXml>"),
    "moved": ('<w:moveTo w:id="3" w:author="a">', "</w:moveTo>"),
    "direction": ('<w:bdo w:val="rtl">', "</w:bdo>"),
    "nested": (
        '<w:dir w:val="ltr"><w:smartTag w:element="y"><w:smartTagPr/>',
        "</w:smartTag></w:dir>",
    ),
    "unknown": ('<w:futureThing w:val="1">', "</w:futureThing>"),
    "link": ('<w:hyperlink w:anchor="a">', "</w:hyperlink>"),
}


@pytest.mark.parametrize("name", CONTAINERS)
def test_text_of_a_container_is_read_and_stays_in_it(name: str) -> None:
    opened, closed = CONTAINERS[name]
    two = RUN.format("the ") + RUN.format("dog").replace("<w:r>", "<w:r><w:rPr><w:b/></w:rPr>")
    content = docx(
        f"<w:p>{RUN.format('See ')}{opened}{two}{closed}{RUN.format(' now.')}</w:p>"
        f"<w:p>{opened}{RUN.format('Alone')}{closed}</w:p>"
    )
    document = read_document("a.docx", content)
    assert document.with_targets({}) == content and not document.unread
    first, second = document.segments
    assert first.source == "See <g2>the </g2><g3>dog</g3> now." and second.source == "Alone"
    made = document.with_targets(
        {first.key: "Sieh <g2>den </g2><g3>Hund</g3> jetzt.", second.key: "Allein"}
    )
    body = zipfile.ZipFile(io.BytesIO(made)).read("word/document.xml").decode()
    assert body.count(opened) == body.count(closed) == 2
    inside = body.partition(opened)[2].partition(closed)[0]
    assert "den </w:t>" in inside and "Hund</w:t>" in inside and "jetzt" not in inside
    assert f">Allein</w:t></w:r>{closed}" in body


def test_text_that_is_not_read_is_named() -> None:
    ruby = (
        "<w:r><w:ruby><w:rt><w:r><w:t>note</w:t></w:r></w:rt>"
        "<w:rubyBase><w:r><w:t>base</w:t></w:r></w:rubyBase></w:ruby></w:r>"
    )
    deleted = "<w:moveFrom>" + RUN.format("gone") + "</w:moveFrom>"
    field = '<w:fldSimple w:instr=" TITLE ">' + RUN.format("Title") + "</w:fldSimple>"
    document = read_document(
        "a.docx", docx(f"<w:p>{RUN.format('See ')}{ruby}{deleted}{field}</w:p>")
    )
    assert [(record.state, record.source) for record in document.unread] == [("unread", "notebase")]
    assert document.unread[0].reason == "its text is in no run of its own"


def test_breaks_part_words_for_the_model() -> None:
    content = docx(
        "<w:p><w:r><w:t>See</w:t><w:br/><w:t>the</w:t><w:tab/><w:t>dog</w:t></w:r></w:p>"
    )
    (segment,) = read_document("a.docx", content).segments
    protected = protect(segment.source, segment.tags, segment.markup, segment.flags)
    assert detagged(protected).text == "See the dog"


@pytest.mark.parametrize(
    ("language", "attribute"), (("de", "val"), ("ar", "bidi"), ("ja", "eastAsia"))
)
def test_the_language_and_the_direction_are_written(language: str, attribute: str) -> None:
    styles = '<w:docDefaults><w:rPr><w:lang w:val="en-US" w:bidi="he"/></w:rPr></w:docDefaults>'
    properties = '<w:pPr><w:pStyle w:val="a"/><w:jc w:val="left"/></w:pPr>'
    content = docx(f"<w:p>{properties}{RUN.format('Open')}</w:p>", styles=styles)
    document = read_document("a.docx", content, target_language=language)
    made = document.with_targets({document.segments[0].key: "Zz"})
    with zipfile.ZipFile(io.BytesIO(made)) as archive:
        body = archive.read("word/document.xml").decode()
        assert f'w:{attribute}="{language}"' in archive.read("word/styles.xml").decode()
    bidi = '<w:pStyle w:val="a"/><w:bidi/><w:jc w:val="left"/>'
    assert (bidi in body) == ("<w:rtl/></w:rPr><w:t" in body) == (language == "ar")
    assert document.with_targets({}) == content
