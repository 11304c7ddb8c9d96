"""Every format in scripts without Latin letters: each text is a segment, and is read back."""

from __future__ import annotations

import csv
import html.parser
import io
import json
import plistlib
import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

from helpers.office_samples import packed, shown
from transduce.localise.formats import FORMATS, read_document

pytest.importorskip("markdown_it")

TEXTS = {
    "zh": ("打开文件", "文件已经保存。", "新"),
    "ru": ("Открыть файл", "Файл сохранён.", "Я"),
    "ar": ("افتح الملف", "تم حفظ الملف.", "و"),
    "hi": ("फ़ाइल खोलें", "फ़ाइल सहेजी गई।", "हाँ"),
    "th": ("เปิดไฟล์", "บันทึกไฟล์แล้ว", "ใช่"),
}
"""Texts of each language, which stand at the places ①, ② and ③ of the samples."""


def strings_of(tree: object) -> Iterator[str]:
    """All strings of a tree of lists and mappings."""
    if isinstance(tree, str):
        yield tree
    elif isinstance(tree, (list, dict)):
        for part in tree.values() if isinstance(tree, dict) else tree:
            yield from strings_of(part)


def of_xml(content: bytes) -> list[str]:
    return [
        "".join(element.itertext()).strip() for element in ElementTree.fromstring(content).iter()
    ]


def of_html(content: bytes) -> list[str]:
    strings: list[str] = []
    parser = html.parser.HTMLParser()
    parser.handle_data = strings.append  # type: ignore[method-assign]
    parser.feed(content.decode())
    return strings


def of_table(delimiter: str) -> Callable[[bytes], list[str]]:
    def read(content: bytes) -> list[str]:
        rows = csv.reader(io.StringIO(content.decode(), newline=""), delimiter=delimiter)
        return [cell for row in rows for cell in row]

    return read


def of_lines(content: bytes) -> list[str]:
    return [line.removeprefix("title: ").strip("# \t>-") for line in content.decode().splitlines()]


def of_quoted(content: bytes) -> list[str]:
    return content.decode().split('"')


def of_pairs(content: bytes) -> list[str]:
    return [line.partition("=")[2].strip() for line in content.decode().splitlines()]


def of_yaml(content: bytes) -> list[str]:
    return list(strings_of(yaml.safe_load(content)))


def of_json(content: bytes) -> list[str]:
    return list(strings_of(json.loads(content)))


def of_plist(content: bytes) -> list[str]:
    return list(strings_of(plistlib.loads(content)))


def of_toml(content: bytes) -> list[str]:
    return list(strings_of(tomllib.loads(content.decode())))


def of_dialogue(content: bytes) -> list[str]:
    return [line.rpartition(",,")[2] for line in content.decode().splitlines()]


def of_usfm(content: bytes) -> list[str]:
    return [part.strip() for part in re.split(r"\\\w+\*?(?: [0-9+]+)?", content.decode())]


def of_cells(content: bytes) -> list[str]:
    return [line.lstrip("=-| ") for line in content.decode().splitlines()]


def of_rst(content: bytes) -> list[str]:
    return [re.sub(r"^(?:- |\.\. note:: )", "", line) for line in content.decode().splitlines()]


ADOC = "= ①\n\n- ②\n\n|===\n|③\n|===\n"
USFM = "\\id MAT\n\\s ①\n\\c 1\n\\p\n\\v 1 ②\\f + \\ft ③\\f*\n"
DIALOGUE = "[Events]\n" + "".join(
    f"Dialogue: 0,0:00:0{n}.00,0:00:0{n}.50,Default,,0,0,0,,{name}\n"
    for n, name in enumerate("①②③")
)
XLIFF = (
    '<xliff version="1.2"><file><body><trans-unit id="1"><source>①</source></trans-unit>'
    '<trans-unit id="2"><source>②</source></trans-unit>'
    '<trans-unit id="3"><source>③</source></trans-unit></body></file></xliff>'
)
PO = 'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n' + "".join(
    f'\nmsgid "{name}"\nmsgstr ""\n' for name in "①②③"
)
PAGE = '<!DOCTYPE html><meta charset="utf-8"><title>①</title><p>②</p><ul><li>③</li></ul>'
RESX = "<root><resheader/>{}</root>".format(
    "".join(f'<data name="k{name}"><value>{name}</value></data>' for name in "①②③")
)
XCSTRINGS = '{"sourceLanguage": "xx", "strings": {"①": {}, "②": {}, "③": {}}}'
TMX = "<tmx><header srclang='xx'/><body>{}</body></tmx>".format(
    "".join(f"<tu><tuv xml:lang='xx'><seg>{name}</seg></tuv></tu>" for name in "①②③")
)
CUES = "".join(
    f"{n}\n00:00:{10 * n:02},000 --> 00:00:{10 * n + 2:02},000\n{name}\n\n"
    for n, name in enumerate("①②③", 1)
)
QT = "<TS>{}</TS>".format("".join(f"<message><source>{name}</source></message>" for name in "①②③"))
WORD = (
    "<w:p><w:r><w:t>①</w:t></w:r></w:p><w:tbl><w:p><w:r><w:t>②</w:t></w:r></w:p></w:tbl>"
    "<w:p><w:r><w:t>③</w:t></w:r></w:p>"
)
ODF = "<text:h>①</text:h><text:p>②</text:p><text:p>③</text:p>"
SLIDE = "".join(f"<a:p><a:r><a:t>{name}</a:t></a:r></a:p>" for name in "①②③")
STRINGS = "".join(f"<si><t>{name}</t></si>" for name in "①②③")

SAMPLES: dict[str, tuple[str, Callable[[bytes], list[str]]]] = {
    "a.txt": ("①\n②\n\n③\n", of_lines),
    "a.srt": (CUES, of_lines),
    "a.vtt": ("WEBVTT\n\n" + CUES.replace(",0", ".0"), of_lines),
    "a.html": (PAGE, of_html),
    "a.htm": (PAGE, of_html),
    "a.xhtml": (PAGE, of_html),
    "a.md": ("---\ntitle: ①\n---\n# ②\n\n> ③\n", of_lines),
    "a.markdown": ("# ①\n\n②\n\n- ③\n", of_lines),
    **{f"a{suffix}": (WORD, shown) for suffix in (".docx", ".docm")},
    **{f"a{s}": (ODF, shown) for s in (".odt", ".odp", ".ods", ".odg", ".ott", ".fodt")},
    **{f"a{suffix}": (ODF, shown) for suffix in (".fodp", ".fods")},
    **{f"a{suffix}": (SLIDE, shown) for suffix in (".pptx", ".pptm", ".ppsx")},
    **{f"a{suffix}": (STRINGS, shown) for suffix in (".xlsx", ".xlsm")},
    "a.epub": ("<html><body><p>①</p><p>②</p><p>③</p></body></html>", shown),
    "a.po": (PO, of_quoted),
    "a.pot": (PO, of_quoted),
    **{f"a{suffix}": (XLIFF, of_xml) for suffix in (".xlf", ".xliff", ".sdlxliff", ".mqxliff")},
    "strings.xml": (
        '<resources><string name="a">①</string><string name="b">②</string>'
        '<string-array name="c"><item>③</item></string-array></resources>',
        of_xml,
    ),
    "a.stringsdict": (
        "<plist version='1.0'><dict><key>a</key><string>①</string><key>b</key><string>②</string>"
        "<key>c</key><string>③</string></dict></plist>",
        of_plist,
    ),
    "a.ts": (QT, of_xml),
    "a.tmx": (TMX, of_xml),
    "a.resx": (RESX, of_xml),
    "a.resw": (RESX, of_xml),
    "a.ftl": ("a = ①\nb =\n    .title = ②\nc = ③\n", of_pairs),
    "a.json": ('{"a": "①", "b": {"c": ["②", "③"]}}', of_json),
    "a.arb": ('{"@@locale": "en", "a": "①", "b": "②", "c": "③"}', of_json),
    "a.xcstrings": (XCSTRINGS, of_json),
    "a.strings": ('"a" = "①";\n"b" = "②";\n"c" = "③";\n', of_quoted),
    "a.properties": ("a=①\nb=②\nc=③\n", of_pairs),
    "a.yml": ('en:\n  a: ①\n  b: "②"\n  c: [③]\n', of_yaml),
    "block.yaml": ("a: '①'\nb: |\n  ②\nc: >-\n  ③\n", lambda c: [s.strip() for s in of_yaml(c)]),
    "plural.yml": ("xx:\n  n:\n    one: ①\n    other: ②\n  c: ③\n", of_yaml),
    "a.csv": ("source,target\n①,\n②,\n③,\n", of_table(",")),
    "a.ini": ("[s]\na = ①\nb = ②\nc = ③\n", of_pairs),
    "a.desktop": (
        "[Desktop Entry]\nName=①\nComment=②\n[Desktop Action a]\nName=③\n",
        of_pairs,
    ),
    "a.toml": ('a = "①"\n[t]\nb = "②"\nc = ["③"]\n', of_toml),
    "a.php": ('<?php return ["a" => "①", "b" => ["c" => "②", "d" => "③"]];', of_quoted),
    **{f"a{suffix}": (DIALOGUE, of_dialogue) for suffix in (".ass", ".ssa")},
    "a.mdx": ("# ①\n\n<A b={1}>\n\n② \n\n</A>\n\n③\n", of_lines),
    **{
        f"a{suffix}": ("= ①\n\n- ②\n\n|===\n|③\n|===\n", of_cells)
        for suffix in (".adoc", ".asciidoc")
    },
    "a.rst": ("①\n========\n\n- ②\n\n.. note:: ③\n", of_rst),
    **{f"a{suffix}": (USFM, of_usfm) for suffix in (".usfm", ".sfm")},
    "a.tsv": ("source\ttarget\n①\t\n②\t\n③\t\n", of_table("\t")),
}


def test_each_format_has_a_sample() -> None:
    assert FORMATS.keys() <= {Path(name).suffix for name in SAMPLES}


@pytest.mark.parametrize("language", TEXTS)
@pytest.mark.parametrize("name", SAMPLES)
def test_each_text_is_a_segment_and_is_read_back(name: str, language: str) -> None:
    sample, read = SAMPLES[name]
    texts = TEXTS[language]
    for place, text in zip("①②③", texts, strict=True):
        sample = sample.replace(place, text)
    content = packed(name, sample)
    document = read_document(name, content, target_language="en")
    assert [segment.source for segment in document.segments] == list(texts)
    assert not document.unread
    assert document.with_targets({}) == content
    targets = {segment.key: f"{segment.source} §" for segment in document.segments}
    strings = read(document.with_targets(targets))
    assert all(target in strings for target in targets.values())
