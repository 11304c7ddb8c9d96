"""Office files made of given parts, and what a plain reader of XML and ZIP shows of them."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Mapping
from pathlib import PurePath
from xml.etree import ElementTree

ODF_SPACES = " ".join(
    f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"'
    for name in ("office", "text", "table", "style", "presentation", "form", "meta", "chart")
) + (
    ' xmlns:draw="urn:oasis:names:tc:opendocument:xmlns:drawing:1.0"'
    ' xmlns:svg="urn:oasis:names:tc:opendocument:xmlns:svg-compatible:1.0"'
    ' xmlns:fo="urn:oasis:names:tc:opendocument:xmlns:xsl-fo-compatible:1.0"'
    ' xmlns:dc="http://purl.org/dc/elements/1.1/" xmlns:xlink="http://www.w3.org/1999/xlink"'
    ' xmlns:officeooo="http://openoffice.org/2009/office"'
)
OOXML_SPACES = (
    'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main" '
    'xmlns:c="http://schemas.openxmlformats.org/drawingml/2006/chart" '
    'xmlns:p="http://schemas.openxmlformats.org/presentationml/2006/main" '
    'xmlns:xdr="http://schemas.openxmlformats.org/drawingml/2006/spreadsheetDrawing"'
)
SHEETS = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'


NAMESPACES = (
    'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main" '
    'xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006"'
)


def docx(body: str, compression: int = zipfile.ZIP_STORED, **members: str) -> bytes:
    """A document of Word with a body, and other members of roots and contents by their names."""
    file = io.BytesIO()
    bodies = {"document": f"<w:body>{body}</w:body>"} | members
    with zipfile.ZipFile(file, "w", compression) as archive:
        archive.writestr("[Content_Types].xml", "<Types/>", zipfile.ZIP_STORED)
        for name, content in bodies.items():
            root = {"header1": "hdr", "footnotes": "footnotes", "styles": "styles"}.get(
                name, "document"
            )
            text = f"<?xml version='1.0'?>\n<w:{root} {NAMESPACES}>{content}</w:{root}>"
            archive.writestr(f"word/{name}.xml", text)
    return file.getvalue()


def archive(members: Mapping[str, str], mimetype: str = "") -> bytes:
    """A ZIP of members, the first of them a type, if there is one."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as made:
        if mimetype:
            made.writestr("mimetype", mimetype, zipfile.ZIP_STORED)
        for name, content in members.items():
            made.writestr(name, content)
        made.writestr("Pictures/1.png", bytes(range(256)) * 4)
    return file.getvalue()


def odf(
    body: str, kind: str = "text", *, styles: str = "", flat: bool = False, **parts: str
) -> bytes:
    """A file of ODF: its body, automatic styles, and other members by their names."""
    root = "document" if flat else "document-content"
    content = (
        f"<?xml version='1.0' encoding='UTF-8'?>\n<office:{root} {ODF_SPACES}>"
        f"<office:automatic-styles>{styles}</office:automatic-styles>"
        f"<office:body><office:{kind}>{body}</office:{kind}></office:body></office:{root}>"
    )
    if flat:
        return content.encode()
    others = {
        f"{n.strip('_')}.xml": f"<office:x {ODF_SPACES}>{part}</office:x>"
        for n, part in parts.items()
    }
    mimetype = f"application/vnd.oasis.opendocument.{kind}"
    return archive({"content.xml": content} | others, mimetype)


def pptx(slide: str, **members: str) -> bytes:
    """A presentation of a slide, and other parts by their names with `__` for `/`."""
    others = {f"ppt/{n.replace('__', '/')}.xml": part for n, part in members.items()}
    others = {n: f"<p:x {OOXML_SPACES}>{part}</p:x>" for n, part in others.items()}
    return archive({"ppt/slides/slide1.xml": f"<p:sld {OOXML_SPACES}>{slide}</p:sld>"} | others)


def xlsx(strings: str, **members: str) -> bytes:
    """A workbook of shared strings, and other parts by their names with `__` for `/`."""
    parts = {"sharedStrings": f"<sst {SHEETS}>{strings}</sst>"} | members
    return archive({f"xl/{n.replace('__', '/')}.xml": part for n, part in parts.items()})


def epub(page: str, navigation: str = "", described: str = "") -> bytes:
    """A book of a page, with labels of its navigation and what describes it."""
    return archive(
        {
            "META-INF/container.xml": "<container/>",
            "OEBPS/content.opf": "<package xmlns:dc='http://purl.org/dc/elements/1.1/'>"
            f"<metadata><dc:creator>Jane Doe</dc:creator>{described}</metadata>"
            "<spine/></package>",
            "OEBPS/toc.ncx": f"<ncx>{navigation}</ncx>",
            "OEBPS/page.xhtml": page,
        },
        "application/epub+zip",
    )


def packed(name: str, sample: str) -> bytes:
    """A sample as a file of the suffix of a name."""
    suffix = PurePath(name).suffix
    if suffix in (".docx", ".docm"):
        return docx(sample)
    if suffix in (".odt", ".odp", ".ods", ".odg", ".ott", ".fodt", ".fodp", ".fods"):
        return odf(sample, flat=suffix.startswith(".f"))
    if suffix in (".pptx", ".pptm", ".ppsx"):
        return pptx(sample)
    if suffix in (".xlsx", ".xlsm"):
        return xlsx(sample)
    return epub(sample) if suffix == ".epub" else sample.encode()


def members_of(content: bytes) -> dict[str, bytes]:
    """Contents of the members of an archive, in order."""
    with zipfile.ZipFile(io.BytesIO(content)) as opened:
        assert opened.testzip() is None
        return {info.filename: opened.read(info) for info in opened.infolist()}


def shown(content: bytes) -> list[str]:
    """The text of each element of a file or of its members, with all that is in it."""
    texts = members_of(content).items() if content[:2] == b"PK" else [("a.xml", content)]
    return [
        re.sub(r"\s+", " ", "".join(element.itertext())).strip()
        for name, text in texts
        if re.search(r"\.(xml|xhtml|opf|ncx)$", name)
        for element in ElementTree.fromstring(text).iter()
    ]


ODT = odf(
    '<text:h>One <text:span text:style-name="R">two</text:span></text:h>'
    "<text:p>Three &amp; <text:s/>five</text:p>",
    styles='<style:style style:name="R" style:family="text">'
    '<style:text-properties officeooo:rsid="001"/></style:style>',
    meta="<dc:title>Six</dc:title>",
)
PPTX = pptx(
    "<a:p><a:r><a:rPr lang='en'/><a:t>One </a:t></a:r><a:r><a:rPr dirty='0'/><a:t>two</a:t></a:r>"
    "</a:p><a:p><a:r><a:rPr b='1'/><a:t>Three &amp; four</a:t></a:r></a:p>",
    notesSlides__notesSlide1="<a:p><a:r><a:t>Five</a:t></a:r></a:p>",
)
XLSX = xlsx(
    "<si><t>One two</t></si><si><r><t>Three </t></r><r><t>four</t></r></si>",
    comments1="<comments><text><t>Five &lt; six</t></text></comments>",
)
EPUB = epub(
    "<html><head><title>One</title></head><body><p>Two three &amp; four</p></body></html>",
    "<navLabel><text>One</text></navLabel>",
)
OFFICE = {
    "a.docm": docx("<w:p><w:r><w:t>One</w:t></w:r></w:p>"),
    **{f"a{suffix}": ODT for suffix in (".odt", ".odp", ".ods", ".odg", ".ott")},
    **{f"a{suffix}": odf("<text:p>One</text:p>", flat=True) for suffix in (".fodt", ".fodp")},
    "a.fods": odf("<text:p>One</text:p>", flat=True),
    **{f"a{suffix}": PPTX for suffix in (".pptx", ".pptm", ".ppsx")},
    **{f"a{suffix}": XLSX for suffix in (".xlsx", ".xlsm")},
}
"""A small file of each format of paragraphs but DOCX."""
