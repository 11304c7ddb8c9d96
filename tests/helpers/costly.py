"""Inputs of any length for every parser of documents and texts, made to be costly."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from helpers.localised_document import Output, word_by_word
from helpers.message_samples import RUN, docx
from helpers.office_samples import epub, odf, pptx, xlsx
from transduce.decoding.options import DecodingOptions
from transduce.errors import DataError
from transduce.localise.document import Record, document_with
from transduce.localise.formats import read_document
from transduce.localise.placeholders import PLACEHOLDER, protect
from transduce.localise.sentences import split_sentences
from transduce.localise.translate import localised

OPTIONS = DecodingOptions()


class Costly(NamedTuple):
    """make: an input of a number of parts.  work: all that reads and writes it."""

    make: Callable[[int], str]
    work: Callable[[str], object]


def rewritten(
    name: str, encoded: Callable[[str], bytes] = str.encode, target: str | None = None
) -> Callable[[str], object]:
    """A document read and written, with new texts where they have no tags and references."""

    def work(text: str) -> object:
        document = read_document(name, encoded(text), target_language=target)
        records = [
            Record(
                segment.key,
                segment.source,
                segment.source
                if segment.tags or "&" in segment.source
                else segment.source.swapcase(),
                "translated",
            )
            for segment in document.segments
        ]
        return document_with(document, records)

    return work


def protected(name: str) -> Callable[[str], object]:
    """The segments of a document with their placeholders replaced."""

    def work(text: str) -> object:
        for segment in read_document(name, text.encode()).segments:
            try:
                protect(segment.source, segment.tags, segment.markup)
            except DataError:
                continue
        return None

    return work


def localised_as_it_is(text: str) -> object:
    """The segments of a page by a translator that gives back each word."""

    segments = read_document("a.html", text.encode()).segments
    align = word_by_word(r"\w+")
    (record,) = localised(segments, "en", lambda a, _: list(map(Output, a)), OPTIONS, align)
    assert record.is_done or record.reason.startswith("the text has more than ")
    return record


def placeholders(text: str) -> object:
    """Search and protection of a text."""
    result = PLACEHOLDER.search(text)
    try:
        return result, protect(text)
    except DataError:
        return result


def sentences(language: str) -> Callable[[str], object]:
    return lambda text: split_sentences(text, language)


html, srt, vtt, txt = map(rewritten, ("a.html", "a.srt", "a.vtt", "a.txt"))
CUE = "1\n00:00:01,000 --> 00:00:02,000\n"

COSTLY: dict[str, Costly] = {
    "attributes": Costly(lambda n: "<p title=->-</p>" * n, html),
    "attributes inside": Costly(lambda n: "<p>a<b title=->x</b></p>" * n, html),
    "attributes in one block": Costly(lambda n: "<p>a" + "<b title=->x</b>" * n, html),
    "voids in front": Costly(lambda n: "<b>" + "<img>" * n + "x</b> y" + "<i></i>" * n, html),
    "open code": Costly(lambda n: "a<code>" * n, html),
    "nested tags": Costly(lambda n: "x" + "<b>" * n + "y" + "</b>" * n + "x", html),
    "open tags": Costly(lambda n: "x<a" * n, html),
    "open quotes": Costly(lambda n: "<a " + "a='b\" " * n + ">x", html),
    "blank attributes": Costly(lambda n: "<a " + "a" * n + " " * n + "b>x", html),
    "reference": Costly(lambda n: "<p>a &#" + "9" * n + "; b", html),
    "references": Costly(lambda n: "<p>" + "&nbsp;" * n + "a" + "&am" * n, html),
    "angles": Costly(lambda n: "<" * n, html),
    "comments": Costly(lambda n: "x<!--" * n, html),
    "kept elements": Costly(lambda n: "<p>a" + "<i translate=no>b" * n, html),
    "tags of many lengths": Costly(
        lambda n: "<p>x" + "".join(f"<b {'a' * i}>" for i in range(n // 400)) + "{ " * n,
        protected("a.html"),
    ),
    "choices of Fluent": Costly(lambda n: "a = { $n ->\n" * n, rewritten("a.ftl")),
    "lines of Fluent": Costly(lambda n: "a =" + " \n" * n + "  " * n + "b\n", rewritten("a.ftl")),
    "braces of Fluent": Costly(lambda n: "a = x" + '{"' * n + "\n", rewritten("a.ftl")),
    "messages of Fluent": Costly(
        lambda n: "".join(f"a{i} = {{ $n ->\n [a] x\n *[b] y\n }}\n" for i in range(n)),
        rewritten("a.ftl"),
    ),
    "nested pairs": Costly(
        lambda n: "<p>x" + "<b>. " * (n // 2) + "y" + "</b>" * (n // 2) + "z", localised_as_it_is
    ),
    "pairs around words": Costly(
        lambda n: "<p>x" + "<b>a " * (n // 2) + "</b>" * (n // 2) + "z", localised_as_it_is
    ),
    "cues": Costly(lambda n: f"{CUE}a b.\n\n" * n, srt),
    "hours": Costly(lambda n: f"{CUE}a\n\n1\n" + "9" * n + CUE[4:] + "b\n", srt),
    "cues of two lines": Costly(lambda n: f"{CUE}{'a, ' * 9}\n{'b ' * 25}\n\n" * (n // 8), srt),
    "long cue": Costly(lambda n: CUE + "a b " * n, srt),
    "long word": Costly(lambda n: CUE + "ab" * n, srt),
    "tags in a cue": Costly(lambda n: CUE + "x " + "<i>" * n + " b", srt),
    "speakers": Costly(lambda n: CUE + "- a\n" * n, srt),
    "combining": Costly(lambda n: CUE + "a" + "\u0301 \u0301" * n, srt),
    "captions": Costly(
        lambda n: "WEBVTT\n\n" + "00:01.000 --> 00:02.000\na &amp; <b>b</b>\n\n" * n, vtt
    ),
    "arrows": Costly(lambda n: "WEBVTT\n\n00:01.000 --> 00:02.000\na\n\n" + "-->" * n, vtt),
    "braces": Costly(lambda n: "WEBVTT\n\n00:01.000 --> 00:02.000\na" + "{\\" * n, vtt),
    "lines": Costly(lambda n: "a.\n" * n, txt),
    "blanks": Costly(lambda n: "a" + " " * n + "b", txt),
    "paragraphs": Costly(lambda n: "# a *b*\n\n> c\n> `d`\n\n" * (n // 8), rewritten("a.md")),
    "cells": Costly(lambda n: "|a|b|\n|-|-|\n" + "|*c*|d|\n" * (n // 4), rewritten("a.md")),
    "long paragraph": Costly(lambda n: "a **b** [c](d)\n" * (n // 4), rewritten("a.md")),
    "titles of admonitions": Costly(
        lambda n: '!!! note "a"\n    b\n' * (n // 8), rewritten("a.md")
    ),
    "paragraphs of Word": Costly(lambda n: f"<w:p>{RUN}</w:p>" * n, rewritten("a.docx", docx)),
    "runs": Costly(lambda n: f"<w:p>{RUN * n}</w:p>", rewritten("a.docx", docx)),
    "text boxes": Costly(
        lambda n: (
            (
                f"<w:p>{RUN}<mc:AlternateContent><w:p>{RUN}</w:p><w:p>{RUN}</w:p>"
                "</mc:AlternateContent></w:p>"
            )
            * (n // 4)
        ),
        rewritten("a.docx", docx),
    ),
    "paragraphs of ODF": Costly(
        lambda n: "<text:p>A <text:span>b</text:span><text:s/> c</text:p>" * n,
        rewritten("a.odt", odf),
    ),
    "strings of a workbook": Costly(
        lambda n: "".join(f"<si><t>Text {i}</t></si>" for i in range(n)), rewritten("a.xlsx", xlsx)
    ),
    "paragraphs of slides": Costly(
        lambda n: (
            "<a:p><a:r><a:rPr lang='a'/><a:t>One</a:t></a:r><a:r><a:t> b</a:t></a:r></a:p>" * n
        ),
        rewritten("a.pptx", pptx),
    ),
    "pages of a book": Costly(
        lambda n: f"<html><body>{'<p>One <b>two</b></p>' * n}</body></html>",
        rewritten("a.epub", epub),
    ),
    "lines of INI": Costly(lambda n: "a = One text\n" * n, rewritten("a.ini")),
    "blanks of INI": Costly(lambda n: "a = b" + " " * n + "c\n" + " " * n, rewritten("a.ini")),
    "entries of a desktop": Costly(
        lambda n: "".join(f"[a{i}]\nName=One\nName[fr]=Un\n" for i in range(n)),
        rewritten("a.desktop", target="de"),
    ),
    "strings of TOML": Costly(lambda n: "a = [" + '"One", ' * n + "]\n", rewritten("a.toml")),
    "arrays of PHP": Costly(
        lambda n: "<?php return [" + "'a' => ['b' => 'One text']," * n + "];", rewritten("a.php")
    ),
    "open strings of PHP": Costly(lambda n: "<?php return ['" + 'a "' * n, rewritten("a.php")),
    "dialogues": Costly(
        lambda n: "[Events]\n" + "Dialogue: 0,0,0,a,,0,0,0,,{\\an8}One\\Ntwo\n" * n,
        rewritten("a.ass"),
    ),
    "components of MDX": Costly(lambda n: "<A b={1}\n" * n + "{a {b\n" * n, rewritten("a.mdx")),
    "cells of AsciiDoc": Costly(
        lambda n: "|===\n" + "|One *two* `c` footnote:[a] 1|" * n, rewritten("a.adoc")
    ),
    "marks of AsciiDoc": Costly(lambda n: "One" + " [[a *b <<c {d" * n, rewritten("a.adoc")),
    "titles of RST": Costly(lambda n: "One *two*\n=========\n\n" * n, rewritten("a.rst")),
    "marks of RST": Costly(lambda n: "One" + " ``a``b :a: a-`*" * n, rewritten("a.rst")),
    "items of RST": Costly(lambda n: "- " * n + ".. note:: a\n" * n, rewritten("a.rst")),
    "open tables of RST": Costly(lambda n: "a\n== ==\n" * n, rewritten("a.rst")),
    "verses": Costly(
        lambda n: "\\id A\n\\c 1\n" + "\\v 1 One \\nd two\\nd*\\f + \\ft Three\\f*\n" * n,
        rewritten("a.usfm"),
    ),
    "open notes of USFM": Costly(
        lambda n: "\\v 1 One" + "\\f + \\x a" * n + " " * n, rewritten("a.usfm")
    ),
    "breaks of a verse": Costly(lambda n: "\\v 1 One" + "\n\\q two" * n, rewritten("a.usfm")),
    "catalogue": Costly(lambda n: 'msgid "a %s"\nmsgstr ""\n\n' * n, rewritten("a.po")),
    "long msgid": Costly(
        lambda n: 'msgid ""\n' + '"a b\\n"\n' * n + 'msgstr ""', rewritten("a.po")
    ),
    "units": Costly(
        lambda n: (
            "<xliff><file><body>"
            + "<trans-unit><source>a</source>\n</trans-unit>" * n
            + "</body></file></xliff>"
        ),
        rewritten("a.xlf"),
    ),
    "segments of a unit": Costly(
        lambda n: (
            "<xliff><file><body><trans-unit><source>a</source><seg-source>"
            + "".join(f'<mrk mtype="seg" mid="{i}">a</mrk>' for i in range(n))
            + "</seg-source></trans-unit></body></file></xliff>"
        ),
        lambda text: read_document("a.xlf", text.encode()),
    ),
    "resources": Costly(
        lambda n: (
            "<resources>"
            + "".join(f'<string name="a{i}">a&#160;b</string>' for i in range(n))
            + "</resources>"
        ),
        rewritten("a.xml"),
    ),
    "list of JSON": Costly(lambda n: "[" + '"a", ' * n + "1]", rewritten("a.json")),
    "open comments": Costly(lambda n: "/* a */ " * n, rewritten("a.strings")),
    "strings": Costly(
        lambda n: "".join(f'"{i}" = "a";\n' for i in range(n)), rewritten("a.strings")
    ),
    "backslashes": Costly(lambda n: "a=b" + "\\\n" * n, rewritten("a.properties")),
    "rows": Costly(lambda n: "source,target\n" + "a,\n" * n, rewritten("a.csv")),
    "open quotes of a table": Costly(lambda n: 'source,target\n"' + 'a"b,' * n, rewritten("a.csv")),
    "list of YAML": Costly(lambda n: "- a\n" * (n // 8), rewritten("a.yml")),
    "choices": Costly(lambda n: "{n, plural, other {a" * n, placeholders),
    "digits after %": Costly(lambda n: "%" + "0" * n, placeholders),
    "digits after %(a)": Costly(lambda n: "%(a)" + "0" * n, placeholders),
    "commas in an address": Costly(lambda n: "http://" + "," * n, placeholders),
    "at signs": Costly(lambda n: "a@a-" * n, placeholders),
    "open braces": Costly(lambda n: "{{w" * n, placeholders),
    "nested braces": Costly(lambda n: "{" * n + "a" + "}" * n, placeholders),
    "brackets": Costly(lambda n: "[" * n + "a](" * n, placeholders),
    "backquotes": Costly(lambda n: "`a" * n, placeholders),
    "percent": Costly(lambda n: "%<a" * n, placeholders),
    "short sentences": Costly(lambda n: "a. B! " * n, sentences("de")),
    "initials": Costly(lambda n: "A." * n, sentences("en")),
    "quotations": Costly(lambda n: "「a。」" * n, sentences("ja")),
    "stops": Costly(lambda n: "。" * n, sentences("zh")),
    "numbers": Costly(lambda n: "1. 2. " * n, sentences("de")),
    "ordinals": Costly(lambda n: "Ja. 2. " * n, sentences("de")),
    "titles": Costly(lambda n: "Dr. " * n, sentences("de")),
    "bullets": Costly(lambda n: "- " * n, sentences("de")),
    "hyphens": Costly(lambda n: "-" * n, sentences("de")),
    "notes": Costly(lambda n: "♪" * n, sentences("de")),
}
