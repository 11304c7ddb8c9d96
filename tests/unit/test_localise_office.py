"""Office files: no word of the visible text is left, and all but the texts stays."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import zipfile
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

import pytest

from helpers.message_samples import docx
from helpers.office_samples import (
    EPUB,
    SHEETS,
    XLSX,
    archive,
    epub,
    members_of,
    odf,
    pptx,
    shown,
    xlsx,
)
from helpers.real_documents import needs_documents, real_documents
from transduce.errors import DataError
from transduce.localise.document import Document, LocalisedDocument, Record, document_with
from transduce.localise.formats import read_document
from transduce.localise.inline import parts_of

OFFICE = (".odt", ".odp", ".ods", ".pptx", ".xlsx", ".epub", ".docx")
ENTITY = re.compile("&(?:amp|lt|gt);")
LETTERS = re.compile("[a-zß-öø-ÿ]{2,}")


def capitals(text: str) -> str:
    return "".join(
        part if ENTITY.fullmatch(part) else part.upper()
        for part in re.split(f"({ENTITY.pattern})", text)
    )


def in_capitals(document: Document) -> LocalisedDocument:
    """The document translated by capitals."""
    records = [
        Record(
            s.key,
            s.source,
            "".join(
                part if is_tag else capitals(part) for is_tag, part in parts_of(s.source, s.tags)
            ),
            "translated",
        )
        for s in document.segments
    ]
    return document_with(document, records)


def raised(name: str, content: bytes, language: str = "de") -> LocalisedDocument:
    return in_capitals(read_document(name, content, target_language=language))


def sources(name: str, content: bytes) -> list[str]:
    return [segment.source for segment in read_document(name, content).segments]


KEPT_WORDS = re.compile(r"Calibri|Jane Doe|&[a-z]|http\S+|[$A-Z]+[0-9]|Arial")
SAMPLES = {
    "a.odt": odf(
        '<text:h>Bold <text:span text:style-name="B">and</text:span> plain'
        "<text:note><text:note-body><text:p>Text of a note</text:p></text:note-body></text:note>"
        "</text:h><text:p>Comment<office:annotation><dc:creator>JANE DOE</dc:creator>"
        "<text:p>Of a comment</text:p></office:annotation></text:p>"
        "<draw:frame><draw:text-box><text:p>In a box</text:p></draw:text-box>"
        "<svg:title>A picture</svg:title><svg:desc>Of a cat</svg:desc></draw:frame>"
        '<table:table table:name="T"><table:table-row><table:table-cell><text:p>In a cell</text:p>'
        "</table:table-cell></table:table-row></table:table>"
        "<text:p>See <text:bookmark-ref>chapter one</text:bookmark-ref>,"
        "<text:page-number>3</text:page-number></text:p>"
        "<text:index-title-template>Contents</text:index-title-template>"
        '<form:button form:label="Push me"/>',
        styles='<style:style style:name="B" style:family="text">'
        '<style:text-properties fo:font-weight="bold"/></style:style>',
        meta="<dc:title>The title</dc:title><meta:keyword>some words</meta:keyword>",
        styles_="<style:header><text:p>A header</text:p></style:header>",
    ),
    "a.odp": odf(
        "<presentation:footer-decl>A footer</presentation:footer-decl><draw:page><draw:frame>"
        "<draw:text-box><text:list><text:list-item><text:p>An item</text:p></text:list-item>"
        "</text:list></draw:text-box></draw:frame><presentation:notes><text:p>Speak up</text:p>"
        "</presentation:notes></draw:page>",
        "presentation",
    ),
    "a.ods": odf(
        '<table:table table:name="Fruit"><table:table-row>'
        '<table:table-cell office:value-type="string" office:string-value="Green apple">'
        "<text:p>Green apple</text:p></table:table-cell>"
        "</table:table-row></table:table>",
        "spreadsheet",
    ),
    "a.pptx": pptx(
        '<p:cNvPr descr="A cat" title="Picture of it"/><a:p><a:r><a:rPr lang="en-GB" err="1"/>'
        '<a:t>Split </a:t></a:r><a:r><a:rPr lang="en-US"/><a:t>runs</a:t></a:r><a:br/>'
        '<a:r><a:rPr b="1"/><a:t>in bold</a:t></a:r></a:p>',
        notesSlides__notesSlide1="<a:p><a:r><a:t>Speak up</a:t></a:r></a:p>",
        comments__comment1="<p:text>Looks good</p:text>",
        charts__chart1="<c:title><a:p><a:r><a:t>Sold units</a:t></a:r></a:p></c:title>"
        "<c:strCache><c:pt><c:v>Green apples</c:v></c:pt></c:strCache>",
        diagrams__data1="<a:p><a:r><a:t>A step</a:t></a:r></a:p>",
    ),
    "a.xlsx": xlsx(
        "<si><t>A cell</t></si><si><r><t>Some </t></r><r><rPr><b/></rPr><t>bold</t></r></si>",
        workbook=f'<workbook {SHEETS}><sheets><sheet name="Figures"/></sheets></workbook>',
        worksheets__sheet1=f'<worksheet {SHEETS}><sheetData><row><c t="inlineStr"><is><t>In line'
        '</t></is></c><c><v>1234.5</v></c></row></sheetData><dataValidation promptTitle="Help"'
        ' prompt="Give a number"/><headerFooter><oddHeader>&amp;LThe left&amp;RPage &amp;P of '
        "&amp;N</oddHeader></headerFooter></worksheet>",
        comments1="<comments><text><r><t>A comment</t></r></text></comments>",
        drawings__drawing1='<x xmlns:a="a"><cNvPr descr="A photo"/><a:p><a:r><a:t>Shape</a:t></a:r>'
        "</a:p></x>",
    ),
    "a.epub": epub(
        "<html lang='en'><head><title>One</title></head><body><p>Two <b>three</b></p></body>"
        "</html>",
        "<navLabel><text>Chapter one</text></navLabel>",
        "<dc:title>My book</dc:title><dc:language>en</dc:language>",
    ),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_no_word_is_left(name: str) -> None:
    made = raised(name, SAMPLES[name])
    assert all(record.is_done for record in made.records)
    visible = [text for text in shown(made.content) if LETTERS.search(text)]
    assert [t for t in visible if not re.search("Jane Doe|&P", t)] == [] or name == "a.epub"
    values = re.findall(
        r'(?:descr|title|prompt|promptTitle|form:label|office:string-value|[^:]name)="([^"]*)"',
        "".join(content.decode("latin-1") for content in members_of(made.content).values()),
    )
    assert [value for value in values if LETTERS.search(value)] == []


@needs_documents
@pytest.mark.parametrize("path", real_documents(*OFFICE), ids=lambda path: path.name)
def test_real_documents_have_no_word_left(path: Path) -> None:
    content = path.read_bytes()
    made = raised(path.name, content)
    left = [record for record in made.records if not record.is_done]
    assert {record.reason for record in left} <= {"it is the result of a formula"}
    again = read_document(path.name, made.content)
    assert [
        text
        for segment in again.segments
        for is_tag, text in parts_of(segment.source, segment.tags)
        if not is_tag and LETTERS.search(ENTITY.sub("", text))
    ] == []


@needs_documents
@pytest.mark.parametrize("path", real_documents(*OFFICE), ids=lambda path: path.name)
def test_the_container_stays_to_the_byte(path: Path) -> None:
    content = path.read_bytes()
    made = raised(path.name, content).content
    before, after = members_of(content), members_of(made)
    assert list(before) == list(after)
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(io.BytesIO(made)) as new:
        for was, info in zip(old.infolist(), new.infolist(), strict=True):
            assert (was.compress_type, was.date_time, was.extra, was.external_attr) == (
                *(info.compress_type, info.date_time, info.extra, info.external_attr),
            )
            if before[was.filename] == after[was.filename]:
                size = 30 + len(was.filename) + was.compress_size
                start = was.header_offset, info.header_offset
                assert content[start[0] :][:size] == made[start[1] :][:size]


@pytest.mark.system
@needs_documents
@pytest.mark.skipif(
    not (shutil.which("soffice") and shutil.which("pdftotext")), reason="needs LibreOffice, poppler"
)
@pytest.mark.parametrize("path", real_documents(".odt", ".pptx", ".xlsx"), ids=lambda p: p.name)
def test_libreoffice_shows_no_word_that_is_left(path: Path, tmp_path: Path) -> None:
    (tmp_path / path.name).write_bytes(raised(path.name, path.read_bytes()).content)
    command = ["soffice", f"-env:UserInstallation=file://{tmp_path}/user", "--headless"]
    command += ["--convert-to", "pdf", "--outdir", str(tmp_path), str(tmp_path / path.name)]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    pdf = tmp_path / f"{path.stem}.pdf"
    outcome = subprocess.run(["pdftotext", pdf, "-"], capture_output=True)
    if outcome.returncode:
        pytest.skip("LibreOffice does not open the file")
    text = outcome.stdout.decode()
    assert set(LETTERS.findall(text)) <= {"nachm", "vorm", "am", "pm"}  # of times in fields


def test_looks_and_blanks_of_odf() -> None:
    """Spans of equal looks are one text, blanks in elements are blanks."""
    styles = "".join(
        f'<style:style style:name="{name}" style:family="text"><style:text-properties {look}/>'
        "</style:style>"
        for name, look in (
            ("R", 'officeooo:rsid="1"'),
            ("L", 'fo:language="en" fo:country="US"'),
            ("B", 'fo:font-weight="bold"'),
            ("C", 'fo:font-weight="bold" officeooo:rsid="2"'),
        )
    )
    span = '<text:span text:style-name="{}">{}</text:span>'.format
    body = f"<text:p><text:s/>On{span('R', 'e ')}{span('L', 'two')} {span('B', 'th')}"
    content = odf(f"{body}{span('C', 'ree')}<text:s text:c='2'/>four</text:p>", styles=styles)
    document = read_document("a.odt", content)
    (segment,) = document.segments
    assert segment.source == "One two <g3>three  </g3>four"
    made = document.with_targets({segment.key: "<g3>Drei  </g3>zwei"})
    text = members_of(made)["content.xml"].decode()
    assert f"<text:s/>{span('B', 'Drei <text:s/>')}zwei</text:p>" in text


def test_cells_of_values_and_formulas_stay() -> None:
    cell = '<table:table-cell office:value-type="{}" {}><text:p>{}</text:p></table:table-cell>'
    cells = "".join(
        (
            cell.format("date", 'office:date-value="2020-03-12"', "12 March 2020"),
            cell.format("float", 'office:value="5"', "5 Euro"),
            cell.format("string", 'table:formula="of:=IF([.A1])"', "Good result"),
        )
    )
    document = read_document(
        "a.ods",
        odf(
            f"<table:table><table:table-row>{cells}</table:table-row></table:table>", "spreadsheet"
        ),
    )
    assert not document.segments
    (record,) = document.unread
    assert (record.source, record.reason) == ("Good result", "it is the result of a formula")
    sheet = '<c t="str"><f>A1</f><v>Good result</v></c><c t="str"><v>Plain text</v></c>'
    content = xlsx("", worksheets__sheet1=f"<worksheet {SHEETS}>{sheet}</worksheet>")
    document = read_document("a.xlsx", content)
    assert [s.source for s in document.segments] == ["Plain text"]
    assert [r.source for r in document.unread] == ["Good result"]


def test_columns_of_a_table_have_the_names_of_their_cells() -> None:
    table = f'<table {SHEETS}><tableColumn name="Units"/><tableColumn name="Price"/></table>'
    parts = {
        "tables__table1": table,
        "worksheets__sheet1": f"<worksheet {SHEETS}><f>SUM(T[Price])</f></worksheet>",
    }
    made = raised("a.xlsx", xlsx("<si><t>Units</t></si><si><t>Price</t></si>", **parts))
    members = members_of(made.content)
    assert b'name="UNITS"' in members["xl/tables/table1.xml"]
    assert b'name="Price"' in members["xl/tables/table1.xml"]
    assert (
        b"UNITS" in members["xl/sharedStrings.xml"] and b"Price" in members["xl/sharedStrings.xml"]
    )
    assert [r.reason for r in made.records if not r.is_done] == [
        "formulas refer to the column by its name"
    ]


def test_an_apostrophe_stays_inside_of_the_name_of_a_column() -> None:
    table = f"<table {SHEETS}><tableColumn name='Units'/></table>"
    document = read_document("a.xlsx", xlsx("", tables__table1=table))
    (segment,) = document.segments
    made = document.with_targets({segment.key: 'L\'unité "U"'})
    root = ElementTree.fromstring(members_of(made)["xl/tables/table1.xml"])
    assert [column.get("name") for column in root] == ['L\'unité "U"']


def test_equal_columns_of_a_table_get_numbers() -> None:
    openpyxl = pytest.importorskip("openpyxl")
    from openpyxl.worksheet.table import Table

    book = openpyxl.Workbook()
    sheet = book.active
    rows = ("Units", "Pieces", "unit\nprice", "Stück2", "Items", 7), ("Pieces", "a", "b", 1, 2, 3)
    for row in rows:
        sheet.append(row)
    sheet["B5"] = "Units"
    sheet.add_table(Table(displayName="T", ref="A1:E2"))
    out = io.BytesIO()
    book.save(out)
    document = read_document("a.xlsx", out.getvalue())
    names = {"Units": "Stück", "Pieces": "stück", "Items": "Stück", "unit\nprice": "Preis\nje St."}
    targets = {s.key: names.get(s.source, s.source) for s in document.segments}
    again = openpyxl.load_workbook(io.BytesIO(document.with_targets(targets))).active
    headers = [cell.value for cell in again[1]]
    assert headers == ["Stück", "stück3", "Preis\nje St.", "Stück2", "Stück4", 7]
    columns = [c.name.replace("_x000a_", "\n") for c in again.tables["T"].tableColumns]
    assert columns == headers[:5]
    assert (again["A2"].value, again["B5"].value) == ("stück", "Stück")  # those outside stay


@pytest.mark.parametrize(
    ("formula", "left"),
    [("1", []), ("Sales!A1", ["Sales"]), ("'My sheet'!A1", ["My sheet"]), ("Sales2!A1", [])],
)
def test_sheets_that_formulas_name_stay(formula: str, left: list[str]) -> None:
    names = "".join(f'<sheet name="{name}"/>' for name in ("Sales", "My sheet"))
    parts = {
        "workbook": f"<workbook {SHEETS}><sheets>{names}</sheets></workbook>",
        "worksheets__sheet1": f"<worksheet {SHEETS}><f>{formula}</f></worksheet>",
    }
    document = read_document("a.xlsx", xlsx("", **parts))
    assert [record.source for record in document.unread] == left
    assert {r.reason for r in document.unread} <= {"formulas refer to the sheet by its name"}
    assert [s.source for s in document.segments] == [
        name for name in ("Sales", "My sheet") if name not in left
    ]


@pytest.mark.parametrize("target", ["a/b", "x" * 32, "my sheet"])
def test_names_that_no_sheet_can_have_are_refused(target: str) -> None:
    names = "".join(f'<sheet name="{name}"/>' for name in ("Sales", "My sheet"))
    workbook = f"<workbook {SHEETS}><sheets>{names}</sheets></workbook>"
    document = read_document("a.xlsx", xlsx("", workbook=workbook))
    with pytest.raises(DataError, match="cannot be the name of a sheet"):
        document.with_targets({document.segments[0].key: target})


def test_headers_of_pages_keep_their_codes() -> None:
    header = '&amp;L&amp;"Arial,Bold"Left&amp;CPage &amp;P of &amp;N'
    sheet = f"<worksheet {SHEETS}><oddHeader>{header}</oddHeader></worksheet>"
    made = raised("a.xlsx", xlsx("", worksheets__sheet1=sheet)).content
    text = members_of(made)["xl/worksheets/sheet1.xml"].decode()
    assert '&amp;L&amp;"Arial,Bold"LEFT&amp;CPAGE &amp;P OF &amp;N<' in text


@pytest.mark.parametrize(
    ("name", "language", "parts"),
    [
        ("a.odt", "de", ('fo:language="de"', 'fo:country="none"')),
        ("a.odt", "pt-BR", ('fo:language="pt"', 'fo:country="BR"')),
        ("a.pptx", "ar", ('lang="ar"', 'rtl="1"')),
        ("a.epub", "ar", ("<dc:language>ar<", 'dir="rtl"', "lang='ar'", 'direction="rtl"')),
    ],
)
def test_the_language_is_written(name: str, language: str, parts: tuple[str, ...]) -> None:
    styles = (
        '<style:default-style style:family="paragraph"><style:text-properties fo:language="en" '
        'fo:country="US"/></style:default-style>'
    )
    content = odf("<text:p>One</text:p>", styles=styles) if name == "a.odt" else SAMPLES[name]
    made = members_of(raised(name, content, language).content)
    whole = "".join(text.decode("latin-1") for text in made.values())
    assert all(part in whole for part in parts)


def test_texts_of_word_beside_paragraphs() -> None:
    picture = '<w:p><w:r><w:drawing><w:docPr descr="A tree"/></w:drawing></w:r></w:p>'
    numbers = '<w:lvlText w:val="Chapter %1"/><w:lvlText w:val="o"/>'
    chart = "<c:x xmlns:c='c'><c:tx><c:v>A series</c:v></c:tx></c:x>"
    file = io.BytesIO(docx(picture))
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr("word/numbering.xml", f"<w:numbering xmlns:w='w'>{numbers}</w:numbering>")
        archive.writestr("word/charts/chart1.xml", chart)
    assert sources("a.docx", file.getvalue()) == ["A tree", "Chapter %1", "A series"]


@pytest.mark.parametrize("suffix", [".odt", ".pptx", ".xlsx", ".epub"])
def test_archives_that_are_attacks_are_refused(suffix: str) -> None:
    name = {".odt": "content.xml", ".pptx": "ppt/slides/slide1.xml"}.get(suffix, "a.opf")
    name = "xl/sharedStrings.xml" if suffix == ".xlsx" else name
    for body, message in (
        ("<a>" + " " * 20_000_000 + "</a>", "the archive is too large"),
        (f"<a>{'<b/>' * 60_000}</a>", "too many elements"),
        ("<a>" * 300 + "</a>" * 300, "deeper than 200"),
        ("<!DOCTYPE a [" + '<!ENTITY e "x">' * 600 + "]><a/>", "DOCTYPE has more than 8000"),
        ("<a>", "not well-formed"),
    ):
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(name, body)
        with pytest.raises(DataError, match=message):
            read_document(f"a{suffix}", file.getvalue())


@pytest.mark.parametrize("method", [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
def test_other_compressions_are_refused(method: int) -> None:
    with pytest.raises(DataError, match=r"sharedStrings\.xml is not compressed by Deflate"):
        read_document("a.xlsx", repacked(XLSX, method))


def test_a_member_twice_and_entities_are_refused() -> None:
    with (
        pytest.warns(UserWarning, match="Duplicate name"),
        pytest.raises(DataError, match=r"the archive has OEBPS/page\.xhtml twice"),
    ):
        read_document("a.epub", repacked(EPUB, extra=("OEBPS/page.xhtml", "<p>Other</p>")))
    declared = "<!DOCTYPE c [<!ENTITY e 'text'>]><comments><text><t>&e;</t></text></comments>"
    with pytest.raises(DataError, match="&e; is an entity of the file; write out its text"):
        read_document("a.xlsx", xlsx("<si><t>One</t></si>", comments1=declared))
    known = declared.replace("&e;", "&#xe9;t&#233;")
    assert sources("a.xlsx", xlsx("", comments1=known)) == ["été"]


@pytest.mark.parametrize(
    "prolog",
    ["\ufeff", "\ufeff<?xml version='1.0'?>\n<!DOCTYPE html [<!ENTITY e 'a > \"b\"'>\n]>\n"],
)
def test_the_prolog_of_a_page_of_a_book_stays(prolog: str) -> None:
    page = f"{prolog}<html><body>\n<p>One two</p></body></html>"
    made = raised("a.epub", epub(page))
    (record,) = made.records
    n_lines = prolog.count("\n")
    assert record.key == f"OEBPS/page.xhtml, line {n_lines + 2}, column 4"
    assert members_of(made.content)["OEBPS/page.xhtml"].decode().startswith(prolog)


def repacked(
    content: bytes, method: int = zipfile.ZIP_DEFLATED, extra: Sequence[str] = ()
) -> bytes:
    """An archive with its members compressed anew, and another one of a name and text."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, part in members_of(content).items():
            archive.writestr(name, part)
        if extra:
            archive.writestr(*extra)
    return file.getvalue()


def test_the_type_of_a_book_stays_first_and_stored() -> None:
    made = raised("a.epub", EPUB).content
    assert made[30:58] == b"mimetypeapplication/epub+zip"


def test_faults_of_a_page_of_a_book_name_it() -> None:
    document = read_document("a.epub", EPUB)
    key = document.segments[-1].key
    assert key.startswith("OEBPS/page.xhtml, line 1")
    with pytest.raises(DataError, match=f"{key}: HTML cannot hold"):
        document.with_targets({key: "\x1b"})


@pytest.mark.parametrize(("version", "has_direction"), [("3.0", True), ("2.0", False)])
def test_direction_of_a_book(version: str, has_direction: bool) -> None:
    """EPUB 2 has no direction of pages: epubcheck."""
    parts = {
        "OEBPS/content.opf": f'<package version="{version}"><metadata/><spine/></package>',
        "OEBPS/page.xhtml": "<html><body><p>One</p></body></html>",
    }
    content = archive(parts, "application/epub+zip")
    document = read_document("a.epub", content, target_language="ar")
    made = document.with_targets({segment.key: "واحد" for segment in document.segments})
    package = members_of(made)["OEBPS/content.opf"]
    assert (b'page-progression-direction="rtl"' in package) == has_direction


@pytest.mark.parametrize(
    "name", ["docProps/core2.xml", "package/services/metadata/core-properties/1a2b.psmdcp"]
)
def test_titles_of_other_writers(name: str) -> None:
    part = '<coreProperties xmlns:dc="dc"><dc:title>The title</dc:title></coreProperties>'
    for file in ("a.docx", "a.pptx", "a.xlsx"):
        body = {"a.docx": "word/document.xml"}.get(file, "xl/sharedStrings.xml")
        content = archive({name: part, body: "<w:document xmlns:w='w'/>"})
        assert "The title" in sources(file, content), file
