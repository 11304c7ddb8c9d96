"""Segments out as XLIFF, edited by people and their tools, and back into the documents."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from helpers.message_samples import PO, SAMPLES
from transduce.cli.main import main
from transduce.errors import DataError
from transduce.localise.checks import pseudo_translated
from transduce.localise.document import Document, Record, document_with
from transduce.localise.formats import read_document
from transduce.localise.xliff import Exchange, Translations, written_xliff

NAMESPACE = "{urn:oasis:names:tc:xliff:document:1.2}"
PAGE = (
    '<p>See <a href="x">the <b>file</b></a> &amp; <b>go</b> "now" %s<br>Next</p><i title="A">B</i>'
)
CUE = b"1\n00:00:01,000 --> 00:00:02,000\n"
PLAIN = {
    "a.txt": b"One {0}\r\n\r\n  Two & <b>three</b>\n",
    "a.srt": CUE + b"<i>one,\n\n2\n00:00:02,500 --> 00:00:05,0\nof</i>\n",
    "a.vtt": b"WEBVTT\n\n00:01.000 --> 00:02.000\n<v Roger>one &amp; two.\n",
    "a.html": PAGE.encode(),
    "a.md": b"# One\n\nTwo **three** and `four`,\n[five](six) <b>seven</b>.\n\n<p title=x>y\n",
}
CONTENTS = PLAIN | {name: content for name, (content, _) in SAMPLES.items()}


def exchange(document: Document, records: list[Record]) -> bytes:
    documents = [Translations("x/a", document.segments, records)]
    return written_xliff(documents, "en", "de")


def as_other_tools_write_it(content: bytes) -> bytes:
    """Units in another order, other attributes and prefixes, targets in marked segments."""
    root = ElementTree.fromstring(content)
    for body in root.iter(f"{NAMESPACE}body"):
        body[:] = reversed(list(body))
    for target in root.iter(f"{NAMESPACE}target"):
        target.attrib = {"approved": "no", "state": "translated", "a": "<ph id='7'>"}
        mark = ElementTree.Element(f"{NAMESPACE}mrk", mid="0", mtype="seg")
        mark.text, mark[:] = target.text, list(target)
        target.text, target[:] = "\n", [mark]
    for code in root.iter(f"{NAMESPACE}ph"):
        code.attrib = {"x": "id", "equiv-text": "x id='9'>", **code.attrib}
        code.text = "tag"
    return ElementTree.tostring(root, encoding="utf-8")


@pytest.mark.parametrize("name", CONTENTS)
def test_a_pseudo_translation_goes_out_and_comes_back(name: str) -> None:
    document = read_document(name, CONTENTS[name], target_language="de")
    records = pseudo_translated(document.segments)
    made = document_with(document, records).content
    assert made != CONTENTS[name]
    file = exchange(document, records)
    for content in (file, as_other_tools_write_it(file)):
        returned = Exchange(content).records("a", document.segments)
        assert [r.reason for r in returned if not r.is_done] == []
        assert document_with(document, returned).content == made


def test_what_is_not_translated_stays_and_says_why() -> None:
    document = read_document("a.html", PAGE.encode())
    records = pseudo_translated(document.segments)
    file = exchange(document, records).decode()
    edits = {
        r'(<target.*)<ept id="2">.*?</ept>': r"\1",
        "Next</source>": "Other</source>",
        r"<target[^\n]*Á[^\n]*": "<target/>",
        r'<trans-unit id="[^"]*" xml:space="preserve">\n<source>B(?s:.*?)</trans-unit>': "",
    }
    for pattern, new in edits.items():
        file, count = re.subn(pattern, new, file, count=1)
        assert count == 1, pattern
    returned = Exchange(file.encode()).records("a", document.segments)
    assert [record.reason for record in returned] == [
        "</b> is missing",
        "its source is another in the XLIFF file; write the file anew",
        "it is not translated in the XLIFF file",
        "it is not in the XLIFF file",
    ]
    assert document_with(document, returned).content == PAGE.encode()


def test_people_may_move_tags_and_add_brackets() -> None:
    document = read_document("a.html", b"<p>a <b>c</b> <i>d</i></p>")
    file = exchange(document, pseudo_translated(document.segments)).decode()
    codes = dict(re.findall(r'(<[be]pt id="(?:1|3)">&lt;(/?\w)&gt;</[be]pt>)', file))
    b, end_b, i, end_i = codes
    file = re.sub("<target.*?</target>", f"<target>[{i}e{end_i} {b}f{end_b}]</target>", file)
    (record,) = Exchange(file.encode()).records("a", document.segments)
    assert record.target == "[<i>e</i> <b>f</b>]"
    made = Exchange(file.replace(f"{i}e", "<ph id='1'/>e").encode()).records("a", document.segments)
    assert made[0].reason == "<ph id='1'/> is no tag of its source"


def test_characters_that_xml_does_not_have() -> None:
    document = read_document("a.json", b'["a\\u0000\\fb", "d"]')
    file = exchange(document, pseudo_translated(document.segments))
    returned = Exchange(file).records("a", document.segments)
    assert [record.target for record in returned] == ["[áƀ]", "[đ]"]


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page, file, report = tmp_path / "a.html", tmp_path / "a.xlf", tmp_path / "r.html"
    page.write_text(PAGE)
    common = ["localise", "-", str(page)]
    merged = [*common, "--merge", str(file)]
    pseudo = [*common, "--pseudo", "--source-language", "en", "--target-language", "de"]
    assert main([*common, "--xliff", str(file)]) == 0
    assert "<target" not in file.read_text() and file.read_text().count("<source>") == 4
    assert main(["localise", "-", str(tmp_path), "--xliff", str(tmp_path / "all.xliff")]) == 0
    assert (tmp_path / "all.xliff").read_text().count("<file ") == 2
    assert main([*pseudo, "--xliff", str(file)]) == 0
    assert 'source-language="en" target-language="de"' in file.read_text()
    assert page.read_text() == PAGE
    for command, folder in ((merged, "a"), (pseudo, "b")):
        assert main([*command, "--output", str(tmp_path / folder)]) == 0
    results = [(tmp_path / folder / "a.html").read_bytes() for folder in "ab"]
    assert results[0] == results[1] != PAGE.encode()
    file.write_text(file.read_text().replace('<ept id="1">', '<ept id="8">'))
    capsys.readouterr()
    assert main([*merged, "--in-place", "--report", str(report)]) == 1
    errors = capsys.readouterr().err
    assert "1 of 4 segments are left as they are; line 1, column 4: <ept id=" in errors
    rows = report.read_text()
    assert rows.index('class="left"') < rows.index('class="done"')
    assert "<h1>3 segments translated, 1 left</h1>" in rows
    assert "See &lt;a href=" in rows
    file.write_text("x")
    assert main([*merged, "--in-place"]) == 1
    assert "a.xlf: the file is not well-formed XML" in capsys.readouterr().err


def test_a_document_of_another_name() -> None:
    document = read_document("a.txt", b"One\n")
    file = exchange(document, pseudo_translated(document.segments))
    with pytest.raises(DataError, match="b: the XLIFF file has no translations of it"):
        Exchange(file).records("b", document.segments)
    (record,) = Exchange(file).records("y/a", document.segments)
    assert record.target == "[Óñé]"


def test_an_approved_translation_is_fuzzy_no_more() -> None:
    document = read_document("a.po", PO).limited(["missing", "fuzzy"])
    file = exchange(document, pseudo_translated(document.segments)).decode()
    file = re.sub('(<trans-unit id="line (?:9|14|26)")', r'\1 approved="yes"', file)
    file = re.sub('(<trans-unit id="line 21"(?:.|\n)*?<target state=)"[^"]*"', r'\1"final"', file)
    assert 'approved="yes"' in file and '"final"' in file
    returned = Exchange(file.encode()).records("a", document.segments)
    made = document_with(document, returned).content.decode()
    assert '\n#: a.c:1\n#, c-format\nmsgid "Open' in made and '"[Óƥéñ' in made
    assert '\n#, c-format\n#| msgid "Close"\nmsgid "Close it"\nmsgstr "[' in made
    assert made.count("fuzzy") == 1 and '#, fuzzy\nmsgid "One file"' in made  # its plural waits


def reviewed(content: bytes, name: str = "a.md") -> tuple[Document, str]:
    """A document, and the file of its review, in which each target is its source in capitals."""
    document = read_document(name, content)
    targets = [
        re.sub("(?<!<)(?<!/)[a-z]+(?![a-z]*[0-9])", lambda word: word[0].upper(), s.source)
        for s in document.segments
    ]
    records = [
        Record(s.key, s.source, target, "translated")
        for s, target in zip(document.segments, targets, strict=True)
    ]
    return document, exchange(document, records).decode()


@pytest.mark.parametrize(
    ("name", "before", "after", "targets"),
    [
        (  # a paragraph above, and one that has changed
            "a.md",
            "# One\n\nTwo **b**.\n\nThree.\n",
            "# One\n\nNew.\n\nTwo **b**.\n\nThree now.\n",
            ["ONE", "", "TWO <STRONG4>B</STRONG4>.", ""],
        ),
        (  # equal texts, of which the second is what the neighbours say
            "a.txt",
            "Menu\nOpen\nDoor\nOpen\nEnd\n",
            "New\nNew too\nMenu\nOpen\nDoor\nOpen\nEnd\n",
            ["", "", "MENU", "OPEN1", "DOOR", "OPEN2", "END"],
        ),
        (  # the keys are names
            "a.json",
            '{"x": "Yes", "a": "Open", "b": "Open", "y": "No"}',
            '{"y": "No", "b": "Open", "a": "Open", "n": "New", "x": "Yes"}',
            ["NO", "OPEN2", "OPEN1", "", "YES"],
        ),
        (  # one more of an equal text, whose translation is the same
            "a.txt",
            "Yes\n",
            "Yes\nYes\n",
            ["YES", "YES"],
        ),
        (
            "a.txt",
            "Top\nOpen\nOpen\n",
            "Top\nNew\nOpen\nOpen\nEnd\n",
            ["TOP", "", "OPEN1", "OPEN2", ""],
        ),
    ],
)  # fmt: skip
def test_a_review_is_found_by_sources_and_neighbours(
    name: str, before: str, after: str, targets: list[str]
) -> None:
    _, file = reviewed(before.encode(), name)
    if file.count(">OPEN<") == 2:
        file = file.replace(">OPEN<", ">OPEN1<", 1).replace(">OPEN<", ">OPEN2<", 1)
    document = read_document(name, after.encode())
    returned = Exchange(file.encode()).records("a", document.segments)
    assert [r.target.upper() if r.is_done else "" for r in returned] == targets
    assert all(record.is_done or "XLIFF file" in record.reason for record in returned)


def test_a_changed_source_is_named_where_it_stands() -> None:
    _, file = reviewed(b"One.\n\nTwo.\n\nThree.\n")
    document = read_document("a.md", b"New.\n\nOne.\n\nTwo now.\n\nThree.\n")
    reasons = [r.reason for r in Exchange(file.encode()).records("a", document.segments)]
    assert reasons == [
        "it is not in the XLIFF file",
        "",
        "its source is another in the XLIFF file; write the file anew",
        "",
    ]


def test_a_memory_fills_the_gaps_of_a_review(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, file, memory = (tmp_path / name for name in ("a.txt", "a.xlf", "m.csv"))
    text.write_text("One.\nTwo.\nThree.\n")
    memory.write_text("source,target\nOne.,Eins.\nTwo.,Zwei.\n")
    output = ("--output", str(tmp_path / "de"))
    command = ["localise", "-", str(text), "--memory", str(memory)]
    assert main([*command, "--xliff", str(file)]) == 1
    assert file.read_text().count("<target") == 2
    file.write_text(file.read_text().replace(">Eins.<", ">Einer.<"))
    for pattern in ("<target[^>]*>Zwei.</target>",):
        file.write_text(re.sub(pattern, "", file.read_text()))
    assert main([*command, "--merge", str(file), *output]) == 1
    assert (tmp_path / "de/a.txt").read_text() == "Einer.\nZwei.\nThree.\n"
    assert main([*command, *output, "--only", "all"]) == 1
    assert "line 3: the memory has no match" in capsys.readouterr().err
    assert (tmp_path / "de/a.txt").read_text() == "Eins.\nZwei.\nThree.\n"
    assert main([*command, *output, "--pseudo"]) == 2
    assert "leave it out with --check and --pseudo" in capsys.readouterr().err


def test_a_review_in_another_format_names_the_right_option() -> None:
    with pytest.raises(DataError, match=r"not well-formed XML.*; --merge takes .* give --memory$"):
        Exchange(b'msgid "a"\nmsgstr "b"\n')


def test_a_review_of_another_language_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, file, catalogue = (tmp_path / name for name in ("a.html", "a.xlf", "de.po"))
    page.write_text(f'<html lang="en">{PAGE}</html>')
    catalogue.write_text('msgid "One"\nmsgstr ""\n')
    pseudo = ["--pseudo", "--source-language", "en", "--target-language", "fr"]
    inputs = ["localise", "-", str(page), str(catalogue)]
    assert main([*inputs, *pseudo, "--xliff", str(file), "--format", "html"]) == 0
    merged = ["localise", "-", str(page), "--merge", str(file), "--output", str(tmp_path / "de")]
    for option, code in (("--target-language", "de"), ("--source-language", "it")):
        assert main([*merged, option, code]) == 1
        assert f"not {code}; leave it" in capsys.readouterr().err
    assert not (tmp_path / "de").exists()
    assert main([*merged, "--target-language", "fr-CA"]) == 0
    assert 'lang="fr-CA"' in (tmp_path / "de" / "a.html").read_text()
    assert main([*merged, "--only", "all"]) == 0
    assert 'lang="fr"' in (tmp_path / "de" / "a.html").read_text()
    main(["localise", "-", str(catalogue), "--merge", str(file), "--in-place"])
    assert catalogue.read_text() == 'msgid "One"\nmsgstr ""\n'
    assert "its target language is de, not fr" in capsys.readouterr().err


def test_a_memory_of_another_language_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, memory = tmp_path / "a.txt", tmp_path / "fr.po"
    text.write_text("One\n")
    memory.write_text('msgid "One"\nmsgstr "Un"\n')
    command = ["localise", "-", str(text), "--memory", str(memory), "--target-language", "de"]
    main([*command, "--output", str(tmp_path / "de")])
    assert f"{memory}: its target language is fr, not de" in capsys.readouterr().err
