"""Costs of readers and writers of documents: calls grow as the input does; a deadline ends them."""

from __future__ import annotations

import functools
import io
import json
import sys
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import PurePath
from types import FrameType
from typing import Any

import pytest

from helpers.costly import COSTLY
from helpers.costly_families import FAMILIES
from helpers.message_samples import SAMPLES
from helpers.office_samples import EPUB, xlsx
from transduce.errors import CancelledError, DataError
from transduce.localise.checks import Terms, pseudo_translated
from transduce.localise.document import Record, document_with
from transduce.localise.formats import FORMATS, read_document
from transduce.localise.translate import localisation
from transduce.text.encodings import UTF_16, declared_encoding

SIZE = 400


def n_calls(work: Callable[[], object]) -> int:
    """Calls of functions, in Python and in C, that some work makes."""
    number = 0

    def count(frame: FrameType, event: str, detail: Any) -> None:
        nonlocal number
        number += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        work()
    except DataError:
        pass
    finally:
        sys.setprofile(before)
    return number


@pytest.mark.parametrize("name", [*COSTLY, *FAMILIES])
def test_calls_grow_as_the_input(name: str) -> None:
    costly = (COSTLY | FAMILIES)[name]
    costly.work(costly.make(2))  # caches
    once, twice = (n_calls(lambda s=size: costly.work(costly.make(s))) for size in (SIZE, 2 * SIZE))
    assert twice <= 2.3 * once + 500, (once, twice)


@pytest.mark.parametrize("suffix", FORMATS)
def test_reading_and_writing_end_with_the_request(suffix: str) -> None:
    text = {".srt": "1\n00:00:01,000 --> 00:00:02,000\na\n\n", ".txt": "a\n"}.get(suffix)
    text = text or {".vtt": "WEBVTT\n\n00:01.000 --> 00:02.000\na\n\n"}.get(suffix, "<p>a</p>")
    messages = {PurePath(name).suffix: content for name, (content, _) in SAMPLES.items()}
    data = EPUB if suffix == ".epub" else messages.get(suffix, text.encode())

    def over() -> None:
        raise CancelledError("over")

    with pytest.raises(CancelledError):
        read_document(f"a{suffix}", data, None, over, target_language="de")
    document = read_document(f"a{suffix}", data, target_language="de")
    segment = document.segments[0]
    with pytest.raises(CancelledError):
        next(localisation([segment], "de", True, over))
    with pytest.raises(CancelledError):
        document_with(document, [Record(segment.key, "a", "b", "translated")], over)


@pytest.mark.parametrize("label", ["idna", "punycode", "utf-7", "hex", "unicode_escape", "cp437"])
def test_other_codecs_are_no_encodings_of_pages(label: str) -> None:
    data = f"<meta charset={label}>Rot".encode()
    with pytest.raises(DataError, match="is not an encoding"):
        read_document("a.html", data)
    units = f'<?xml version="1.0" encoding="{label}"?><resources/>'.encode()
    with pytest.raises(DataError, match="is not an encoding"):
        read_document("strings.xml", units)
    catalogue = f'msgid ""\nmsgstr "Content-Type: text/plain; charset={label}\\n"\n'.encode()
    with pytest.raises(DataError, match="is not utf-8"):
        read_document("a.po", catalogue + b"# \xff\n")
    if label in ("idna", "punycode", "hex"):
        with pytest.raises(DataError, match=label):
            read_document("a.html", b"Rot", label)


def test_labels_of_encodings() -> None:
    labels = {"ISO-8859-1": "cp1252", "Shift_JIS": "cp932", "gb2312": "gb18030", "l9": "iso8859-15"}
    assert {label: declared_encoding(label) for label in labels} == labels
    assert {declared_encoding(label) for label in UTF_16} == {"utf-8"}
    page = "<meta charset=euc-kr><p>빨강</p>".encode("cp949")
    assert read_document("a.html", page).segments[0].source == "빨강"


def test_a_document_type_is_short() -> None:
    text = '<!DOCTYPE resources [{}]><resources><string name="a">Rot</string></resources>'
    entity = '<!ENTITY e "x">'
    assert read_document("a.xml", text.format(entity * 400).encode()).segments
    defaults = "".join(f'<!ATTLIST string a{i} CDATA "">' for i in range(400))
    with pytest.raises(DataError, match="its DOCTYPE has more than 8000 bytes; remove it"):
        read_document("a.xml", text.format(defaults).encode())


def test_terms_of_many_lengths() -> None:
    """Each part of a text is compared with few terms, whatever their number."""
    entries = {"中" * n: "b" for n in range(300, 900)}
    text = "中" * 299 + "国"
    few, many = (
        n_calls(functools.partial(Terms(some).constraints, text * 4))
        for some in ({"中" * 300: "b"}, entries)
    )
    assert many <= 1.1 * few


def test_names_of_many_sheets() -> None:
    """A new name is compared with the others at once."""

    def work(n: int) -> int:
        sheets = "".join(f'<sheet name="A sheet {i}"/>' for i in range(n))
        content = xlsx("", workbook=f"<workbook><sheets>{sheets}</sheets></workbook>")
        document = read_document("a.xlsx", content)
        targets = {s.key: f"{s.source}." for s in document.segments}
        assert len(targets) == n
        return n_calls(lambda: document.with_targets(targets))

    assert work(400) <= 2.2 * work(200)


def workbook(n_tables: int, n_columns: int) -> bytes:
    """A sheet with tables below each other, of columns with names of their own."""
    openpyxl = pytest.importorskip("openpyxl")
    from openpyxl.utils import get_column_letter
    from openpyxl.worksheet.table import Table

    book = openpyxl.Workbook()
    last = get_column_letter(n_columns)
    for k in range(n_tables):
        book.active.append([f"a{k}b{i}" for i in range(n_columns)])
        book.active.append([1] * n_columns)
        book.active.add_table(Table(displayName=f"T{k}", ref=f"A{2 * k + 1}:{last}{2 * k + 2}"))
    out = io.BytesIO()
    book.save(out)
    return out.getvalue()


def test_equal_columns_of_a_table() -> None:
    """The next number of a name is known."""

    def work(n: int) -> int:
        document = read_document("a.xlsx", workbook(1, n))
        targets = {s.key: "same" for s in document.segments}
        return n_calls(lambda: document.with_targets(targets))

    assert work(400) <= 2.2 * work(200)


def test_tables_of_a_sheet() -> None:
    """Rows are sought once for all of them."""

    def work(n: int) -> int:
        content = workbook(n, 2)
        return n_calls(lambda: read_document("a.xlsx", content))

    assert work(200) <= 2.2 * work(100)


def test_references_of_thousands_of_digits() -> None:
    (segment,) = read_document("a.html", b"<p>a &#" + b"9" * 5000 + b"; b</p>").segments
    assert segment.source == "a \ufffd b"


def docx_with_a_long_name(name: str, n: int) -> bytes:
    content = io.BytesIO()
    paragraphs = "<w:p><w:r><w:t>Open</w:t></w:r></w:p>" * n
    namespace = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr(f"word/{name}.xml", f"<w:hdr {namespace}>{paragraphs}</w:hdr>")
    return content.getvalue()


XLIFF = '<xliff version="{}"><file source-language="en" {}><{} id="{}">{}</{}></file></xliff>'
PLIST = "<plist><dict><key>{}</key><dict>{}</dict></dict></plist>"
LONG_NAMES: dict[str, Callable[[str, int], str | bytes]] = {
    "a.json": lambda key, n: json.dumps({key: ["Open"] * n}),
    "b.json": lambda key, n: json.dumps({key: {f"k{i}": "Open" for i in range(n)}}),
    "a.yml": lambda key, n: f"? {key}\n: " + "\n  ".join(["- Open"] * n) + "\n",
    "1.xlf": lambda key, n: XLIFF.format(
        "1.2",
        'target-language="de"',
        "trans-unit",
        key,
        f"<source>{'Open. ' * n}</source><seg-source>"
        + "".join(f'<mrk mtype="seg" mid="{i}">Open.</mrk> ' for i in range(n))
        + "</seg-source>",
        "trans-unit",
    ),
    "2.xlf": lambda key, n: XLIFF.format(
        "2.0", "", "unit", key, "<segment><source>Open</source></segment>" * n, "unit"
    ),
    "a.xml": lambda key, n: (
        f'<resources><string-array name="{key}">{"<item>Open</item>" * n}'
        "</string-array></resources>"
    ),
    "a.stringsdict": lambda key, n: PLIST.format(
        key, "".join(f"<key>k{i}</key><string>Open</string>" for i in range(n))
    ),
    "a.ftl": lambda key, n: f"{key} = Open\n" + "".join(f"    .k{i} = Open\n" for i in range(n)),
    "a.docx": docx_with_a_long_name,
    "a.ini": lambda key, n: f"[{key}]\n" + "".join(f"k{i} = Open\n" for i in range(n)),
    "a.toml": lambda key, n: f"[{key}]\n" + "".join(f'k{i} = "Open"\n' for i in range(n)),
    "a.php": lambda key, n: (
        f"<?php return ['{key}' => [" + "".join(f"'k{i}' => 'Open', " for i in range(n)) + "]];"
    ),
}


@pytest.mark.parametrize("name", LONG_NAMES)
def test_memory_grows_as_a_name_over_many_texts(name: str) -> None:
    def peak(n: int) -> int:
        content = LONG_NAMES[name]("k" * (8 * n), n)
        data = content if isinstance(content, bytes) else content.encode()
        tracemalloc.start()
        try:
            document = read_document(name, data, target_language="de")
            made = document_with(document, pseudo_translated(document.segments))
            assert len(made.records) == n + (name == "a.ftl")
            assert all(len(record.key) < 250 for record in made.records)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(4)  # caches
    once, twice = peak(400), peak(800)
    assert twice <= 2.8 * once, (once, twice)


def test_a_catalogue_takes_at_most_24_times_its_size() -> None:
    message = '#: a.c:%d\nmsgid "Message %d of the file, which is opened"\nmsgstr "Nachricht"\n\n'
    content = "".join(message % (i, i) for i in range(3000)).encode()
    read_document("de.po", content[: content.index(b"#", 1)])  # caches
    tracemalloc.start()
    try:
        document = read_document("de.po", content)
        size = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert len(document.segments) == 3000
    assert size < 24 * len(content), size / len(content)
