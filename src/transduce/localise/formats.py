"""Table of document formats: `FORMATS`, and the reader of a file by its name.

Readers of other packages are the entry points `transduce.formats`, named by suffix without a dot.
"""

import dataclasses
import functools
from collections.abc import Callable
from pathlib import PurePath

from transduce.errors import DataError, naming
from transduce.localise.asciidoc import read_asciidoc
from transduce.localise.ass import read_ass
from transduce.localise.assignments import read_desktop, read_ini, read_php, read_toml
from transduce.localise.document import Check, Document, Reading, unchecked
from transduce.localise.docx import read_docx
from transduce.localise.drawing import read_pptx
from transduce.localise.epub import read_epub
from transduce.localise.html import read_html
from transduce.localise.json_formats import read_json_document
from transduce.localise.markdown import read_markdown
from transduce.localise.odf import read_odf
from transduce.localise.plain import read_csv, read_plain
from transduce.localise.po import read_po
from transduce.localise.rst import read_rst
from transduce.localise.string_files import read_fluent, read_properties, read_strings
from transduce.localise.subtitles import read_subtitles
from transduce.localise.usfm import read_usfm
from transduce.localise.xlsx import read_xlsx
from transduce.localise.xml_formats import read_xml_document
from transduce.localise.yaml_format import read_yaml
from transduce.support.open_table import OpenTable

Reader = Callable[[bytes, Reading], Document]
"""Document in some bytes.  Raises DataError, and what the check does."""

ROWS: dict[str, Reader] = {
    ".txt": read_plain,
    ".srt": functools.partial(read_subtitles, "srt"),
    ".vtt": functools.partial(read_subtitles, "vtt"),
    **dict.fromkeys((".html", ".htm", ".xhtml"), read_html),
    **dict.fromkeys((".md", ".markdown", ".mdx"), read_markdown),
    **dict.fromkeys((".docx", ".docm"), read_docx),
    **dict.fromkeys((".pptx", ".pptm", ".ppsx"), read_pptx),
    **dict.fromkeys((".xlsx", ".xlsm"), read_xlsx),
    **dict.fromkeys((".odt", ".odp", ".ods", ".odg", ".ott"), read_odf),
    **dict.fromkeys((".fodt", ".fodp", ".fods"), read_odf),
    ".epub": read_epub,
    ".po": read_po,
    ".pot": functools.partial(read_po, is_template=True),
    **dict.fromkeys((".xlf", ".xliff", ".sdlxliff", ".mqxliff"), read_xml_document),
    **dict.fromkeys((".xml", ".stringsdict", ".ts", ".tmx", ".resx", ".resw"), read_xml_document),
    ".ftl": read_fluent,
    **dict.fromkeys((".json", ".arb", ".xcstrings"), read_json_document),
    ".strings": read_strings,
    ".properties": read_properties,
    **dict.fromkeys((".yml", ".yaml"), read_yaml),
    **dict.fromkeys((".csv", ".tsv"), read_csv),
    ".ini": read_ini,
    ".desktop": read_desktop,
    ".toml": read_toml,
    ".php": read_php,
    **dict.fromkeys((".ass", ".ssa"), read_ass),
    ".rst": read_rst,
    **dict.fromkeys((".adoc", ".asciidoc"), read_asciidoc),
    **dict.fromkeys((".usfm", ".sfm"), read_usfm),
}
FORMATS: OpenTable[Reader] = OpenTable("transduce.formats", ROWS)
"""Readers by suffix."""
PROSE = frozenset(
    (
        *(
            ".txt",
            ".srt",
            ".vtt",
            ".ass",
            ".ssa",
            ".html",
            ".htm",
            ".xhtml",
            ".md",
            ".markdown",
            ".mdx",
            ".epub",
            ".usfm",
            ".rst",
            ".adoc",
            ".asciidoc",
            ".sfm",
        ),
        *(suffix for suffix, r in ROWS.items() if r in (read_docx, read_pptx, read_odf, read_xlsx)),
    )
)
"""Suffixes of prose; all others are of messages."""
MARKED = frozenset((".po", ".pot", ".xlf", ".xliff", ".sdlxliff", ".mqxliff", ".ts", ".xcstrings"))
"""Suffixes of files whose translations are marked for a review."""
DATA = frozenset(
    (
        ".json",
        ".yml",
        ".yaml",
        ".csv",
        ".tsv",
        ".xml",
        ".ts",
        ".properties",
        ".ini",
        ".toml",
        ".php",
    )
)
"""Suffixes of files that often hold no text for readers: of a directory, they are left."""


def read_document(
    name: str,
    content: bytes,
    encoding: str | None = None,
    check: Check = unchecked,
    *,
    format: str | None = None,
    target_language: str | None = None,
    source_language: str | None = None,
) -> Document:
    """Read a document in the format of its suffix.

    content: bytes of the document.  check: called between steps; raises an error to end the work.
    encoding: of bytes without a byte order mark; by default as declared, else UTF-8.  format: a
    suffix to read it by, without its dot.  target_language: code, for plural forms, and for the
    name of the language in the document.  source_language: code.  A document of other languages is
    left, with a record.  Raises DataError for another format, and for bytes that are not in the
    encoding.
    """
    suffix = f".{format.lower()}" if format else PurePath(name).suffix.lower()
    if suffix == ".pdf":
        raise DataError(f"{name}: PDF cannot be edited; translate the document it was made from")
    if suffix in (".mo", ".gmo"):
        raise DataError(f"{name}: compiled from PO; translate the PO and compile it by msgfmt")
    if suffix not in FORMATS:
        known = ", ".join(FORMATS)
        raise DataError(f"{name}: no format for {suffix or 'a name without suffix'}; use {known}")
    with naming(name):
        reading = Reading(encoding, check, target_language, source_language, name)
        document = FORMATS[suffix](content, reading)
    segments = document.segments
    if suffix in PROSE:
        segments = [dataclasses.replace(s, flags=s.flags | {"prose-text"}) for s in segments]
    return dataclasses.replace(document, segments=segments)
