"""Bytes of documents, read and written: marks, declarations, UTF-8, old files."""

from __future__ import annotations

import pytest

from transduce.errors import DataError
from transduce.localise.formats import read_document

PO = 'msgid ""\nmsgstr "Content-Type: text/plain; charset={}\\n"\n\nmsgid "{}"\nmsgstr ""\n'
PAGE = "<html><head><!-- charset=utf-16 {} --><script>'charset=x'</script>{}</head><p>{}</p></html>"
META = (
    "<meta charset={}>",
    "<META CHARSET = '{}' >",
    '<meta http-equiv="Content-Type" content="text/html; charset={}">',
)
CUE = "1\n00:00:01,000 --> 00:00:02,000\n{}\n"


def translated(name: str, content: bytes, target: str, language: str = "fr") -> bytes:
    document = read_document(name, content, target_language=language)
    return document.with_targets({segment.key: target for segment in document.segments[-1:]})


@pytest.mark.parametrize("label", ("ISO-8859-1", " iso-8859-15", "windows-1252 ", " latin1"))
@pytest.mark.parametrize("source", ("Open", "Öffne"))
def test_a_catalogue_is_written_as_it_declares(label: str, source: str) -> None:
    content = PO.format(label, source).encode("latin-1")
    made = translated("a.po", content, "Café")
    assert f'msgid "{source}"' in made.decode("latin-1")
    assert 'msgstr "Café"' in made.decode("latin-1")


@pytest.mark.parametrize("label", ("ASCII", "us-ascii", "CHARSET"))
def test_ascii_becomes_utf8_with_its_declaration(label: str) -> None:
    made = translated("a.po", PO.format(label, "Open").encode(), "Открыть", "ru").decode()
    assert "charset=UTF-8" in made and 'msgstr "Открыть"' in made


def test_characters_that_a_catalogue_cannot_hold_are_refused_by_name() -> None:
    with pytest.raises(DataError, match="line 4: 'О' is not in the file's encoding"):
        translated("a.po", PO.format("ISO-8859-1", "Open").encode(), "Открыть", "ru")


def test_bytes_in_utf8_are_that_under_another_declaration() -> None:
    content = PO.format("ISO-8859-1", "Öffne").encode()
    assert read_document("a.po", content).segments[0].source == "Öffne"
    page = PAGE.format("", "<meta charset=latin1>", "Öffne").encode()
    assert read_document("a.html", page).segments[0].source == "Öffne"


def test_chinese_encodings() -> None:
    content = PO.format("GBK", "打开文件夹里的所有文件").encode("gbk")
    made = translated("a.po", content, "Open", "en")
    assert made.decode("gbk").count("打开文件夹里的所有文件") == 1
    made = translated("a.po", PO.format("GBK", "Open").encode(), "打开文件", "zh")
    assert made.decode("gbk").count("打开文件") == 1


@pytest.mark.parametrize("meta", META)
@pytest.mark.parametrize("gap", (0, 5000))
def test_a_page_is_read_as_browsers_do(meta: str, gap: int) -> None:
    declared = PAGE.format("x" * gap, meta.format("windows-1251"), "Файл открыт")
    document = read_document("a.html", declared.encode("cp1251"))
    assert [segment.source for segment in document.segments] == ["Файл открыт"]
    ascii_page = PAGE.format("x" * gap, meta.format("windows-1251"), "Open").encode()
    made = translated("a.html", ascii_page, "Öffne Файл", "ru")
    assert "&#214;ffne Файл".encode("cp1251") in made


@pytest.mark.parametrize("codec", ("utf-16-le", "utf-16-be", "utf-16", "utf-8-sig"))
def test_bytes_that_show_their_encoding(codec: str) -> None:
    document = read_document("a.txt", "Open the file\n".encode(codec))
    assert [segment.source for segment in document.segments] == ["Open the file"]
    (key,) = (segment.key for segment in document.segments)
    assert document.with_targets({key: "Файл"}).decode(codec) == "Файл\n"


@pytest.mark.parametrize(
    ("language", "codec", "text"),
    (
        (None, "cp1252", "Ça va, dit-il"),
        ("fr", "cp1252", "Ça va, dit-il"),
        ("ru", "cp1251", "Открыть файл"),
        ("pl_PL", "cp1250", "Żółta łódź"),
        ("zh", "gb18030", "打开所有的文件"),
        ("ja", "cp932", "ファイルを開く"),
    ),
)
def test_old_subtitles_are_read_by_the_language_of_their_texts(
    language: str | None, codec: str, text: str
) -> None:
    content = CUE.format(text).encode(codec)
    document = read_document("a.srt", content, source_language=language)
    assert document.segments[0].source == text
    assert document.decoded.note.startswith("it is not in UTF-8 and is read as ")
    assert document.with_targets({document.segments[0].key: text}) == content
    assert not read_document("a.srt", CUE.format(text).encode()).decoded.note
