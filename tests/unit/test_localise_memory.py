"""One translation for one text: of the document itself, of a memory, of a glossary."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from helpers.localised_document import Output
from helpers.message_samples import PO, TMX, docx
from transduce import DecodingOptions
from transduce.cli.documents import terms_in
from transduce.errors import DataError
from transduce.localise.checks import Terms, read_entries
from transduce.localise.document import Document, Segment
from transduce.localise.formats import read_document
from transduce.localise.fuzzy import FuzzyMemory
from transduce.localise.memory import with_matches
from transduce.localise.term_files import in_columns, read_tbx
from transduce.localise.translate import localised
from transduce.serve.storage import Glossaries, StoredGlossary

pytest.importorskip("sentencex")


def matches(document: Document) -> dict[str, str]:
    return {segment.source: segment.match for segment in document.segments if segment.match}


def test_a_document_is_its_own_memory() -> None:
    entry = b'\nmsgctxt "%s"\nmsgid "Close it"\nmsgstr ""\n'
    data = PO.replace(b"#~", entry % b"a" + b'\nmsgid "Size %s"\nmsgstr "Gr"\n#~', 1)
    data += b'\nmsgctxt "b"\nmsgid "Size %s"\nmsgstr ""\n'
    document = with_matches(read_document("a.po", data))
    assert matches(document) == {"Close it": "Schliessen"}  # fuzzy and without it; %s is lost
    asked: list[str] = []

    def translate(texts: Sequence[str], options: Sequence[DecodingOptions]) -> list[Output]:
        asked.extend(texts)
        return [Output(text) for text in texts]

    gaps = document.limited(["missing", "fuzzy"])
    records = localised(gaps.segments, "en", translate, DecodingOptions())
    closed = [record for record in records if record.source == "Close it"]
    assert [(r.target, r.reason) for r in closed] == [("Schliessen", "as an equal segment")] * 2
    assert "Close it" not in asked and len(asked) > 1


def test_tags_of_a_memory_become_those_of_the_document() -> None:
    seg = '<seg>Press <bpt i="1">&lt;b&gt;</bpt>start<ept i="1">&lt;/b&gt;</ept> &amp; go</seg>'
    target = '<seg><bpt i="1">&lt;b&gt;</bpt>Start<ept i="1">&lt;/b&gt;</ept> &amp; los</seg>'
    unit = f'<tu><tuv xml:lang="en">{seg}</tuv><tuv xml:lang="de">{target}</tuv></tu>'
    data = TMX.replace("<tu><tuv", f"{unit}<tu><tuv", 1)
    memory = read_document("a.tmx", data.replace("en-US", "en").encode(), target_language="de")
    page = read_document("a.html", b"<p>Press <i>start</i> &amp; go</p><p>Press start &amp; go</p>")
    assert matches(with_matches(page, memory.segments)) == {
        "Press <i>start</i> &amp; go": "<i>Start</i> &amp; los"
    }
    plain = read_document("a.txt", b"Yes\n")
    assert matches(with_matches(plain, memory.segments)) == {"Yes": "Ja"}


def test_forms_of_terms() -> None:
    terms = Terms({"Vertrag|Verträge": "contract|contracts", "rot": "red"})
    assert terms.constraints("Die Verträge sind rot") == (("contract", "contracts"), ("red",))
    forms = ("contract", "contracts", "Contract", "Contracts")
    assert terms.constraints("Vertrag") == (forms,)
    assert terms.constraints("Nur %(rot)s, {rot} und --rot") == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the glossary has no entries"),
        ("a", "entry 1 of the glossary is not a source and a target"),
        ("a\tb\n\t c", "entry 2 of the glossary lacks a source"),
        ("a\tb\na\tc", "entry 2 of the glossary has the source of an earlier one"),
    ],
)
def test_glossaries_that_are_none(text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_entries(text, False)


def test_glossaries_of_the_server_survive_it(tmp_path: Path) -> None:
    file = tmp_path / "glossaries.json"
    glossaries = Glossaries(file)
    first, second = (StoredGlossary(name, "de", "en", {"Bäume": "trees"}) for name in "ab")
    for glossary in (first, second):
        glossaries.add(glossary)
    glossaries.delete(first.identity)
    assert Glossaries(file).all() == [second]
    assert json.loads(file.read_text("utf-8"))[0]["entries"] == {"Bäume": "trees"}
    file.write_text("[1]")
    with pytest.raises(DataError, match="is no file of glossaries"):
        Glossaries(file)


def test_equal_paragraphs_of_a_document_are_one_order() -> None:
    paragraph = "<w:p><w:r><w:t>One</w:t></w:r></w:p>"
    document = read_document("a.docx", docx(paragraph * 3))
    counts: list[int] = []

    def translate(texts: Sequence[str], options: Sequence[DecodingOptions]) -> list[Output]:
        counts.append(len(texts))
        return [Output(text.upper()) for text in texts]

    records = localised(document.segments, "en", translate, DecodingOptions())
    assert [record.target for record in records] == ["ONE"] * 3 and counts == [1]


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("Page 7 of 12", "Seite 7 von 12"),
        ("Page 3 of 3", "Seite 3 von 3"),
        ("Copy 2.5 MB to %1$s", "2,5 MB nach %1$s kopieren"),
        ("Copy 2.5 MB to %2$s", ""),
        ("Twice 7", ""),
        ("Spelt 9", ""),
    ],
)
def test_numbers_of_a_match_are_put_in(source: str, target: str) -> None:
    memory = (
        "source,target\nPage 3 of 10,Seite 3 von 10\nTwice 5,5 und 5\nSpelt 2,Zwei\n"
        'Copy 1.5 MB to %1$s,"1,5 MB nach %1$s kopieren"\n'
    )
    known = read_document("m.csv", memory.encode()).segments
    document = with_matches(read_document("a.txt", f"{source}\n".encode()), known)
    assert matches(document) == ({source: target} if target else {})
    if target:
        assert document.segments[0].origin == "as an equal segment with other numbers"


UNITS = """<xliff version="1.2" xmlns:mq="MQXliff"><file source-language="en" target-language="de">
<body><trans-unit id="0"><source>Open</source><target>Ouvert</target></trans-unit>
<trans-unit id="1" {}><source>Open</source><target{}>Auf</target></trans-unit>
<trans-unit id="2"><source>Open</source></trans-unit></body></file></xliff>"""


@pytest.mark.parametrize(
    ("of_unit", "of_target", "match"),
    [
        ('approved="yes"', "", "Auf"),
        ("", ' state="final"', "Auf"),
        ("", ' state="signed-off"', "Auf"),
        ('mq:locked="locked"', ' state="translated"', "Auf"),
        ('mq:locked="locked"', ' state="needs-translation"', "Ouvert"),
        ('translate="no"', "", "Ouvert"),
        ("", ' state="needs-review-translation"', "Ouvert"),
    ],
)
def test_confirmed_units_are_used_first(of_unit: str, of_target: str, match: str) -> None:
    document = read_document("a.xlf", UNITS.format(of_unit, of_target).encode())
    assert with_matches(document).segments[-1].match == match
    text = read_document("a.txt", b"Open\n")
    known = [*document.confirmed, *document.segments]
    assert matches(with_matches(text, known)) == {"Open": match}


def test_confirmed_segments_of_other_versions() -> None:
    """XLIFF 2 and Trados, whose states are beside the segments."""
    second = """<xliff version="2.0" srcLang="en" trgLang="de"><file id="f"><unit id="1">
<segment state="final"><source>Open it</source><target>Auf</target></segment>
<segment><source>Open it</source></segment></unit></file></xliff>"""
    mark = '<mrk mtype="seg" mid="{}">{}</mrk>'
    trados = f"""<xliff version="1.2"><file source-language="en" target-language="de"><body>
<trans-unit id="1"><source>Open it. Open it.</source>
<seg-source>{mark.format(1, "Open it.")} {mark.format(2, "Open it.")}</seg-source>
<target>{mark.format(1, "Auf.")} {mark.format(2, "")}</target>
<seg-defs><seg id="1" conf="ApprovedTranslation" /><seg id="2" conf="Draft" /></seg-defs>
</trans-unit></body></file></xliff>"""
    for name, content, match in (("a.xlf", second, "Auf"), ("a.sdlxliff", trados, "Auf.")):
        document = with_matches(read_document(name, content.encode()))
        assert [segment.match for segment in document.segments] == [match]


def test_a_number_that_comes_twice_is_not_renumbered() -> None:
    """Which of two equal numbers becomes which of two others is not known."""
    po = 'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n'
    for source, target in (("Page 2 of 2", "Seite 2 von 2"), ("Page 1 of 7", "Seite 1 von 7")):
        po += f'\nmsgid "{source}"\nmsgstr "{target}"\n'
    asked = "".join(f'\nmsgid "Page {a} of {b}"\nmsgstr ""\n' for a, b in ((3, 4), (8, 9), (5, 5)))
    twice = po.partition('\nmsgid "Page 1')[0]
    assert matches(with_matches(read_document("a.po", (twice + asked).encode()))) == {}
    once = po.replace("Page 2 of 2", "Go").replace("Seite 2 von 2", "Los")
    assert matches(with_matches(read_document("a.po", (once + asked).encode()))) == {
        "Page 3 of 4": "Seite 3 von 4",
        "Page 8 of 9": "Seite 8 von 9",
        "Page 5 of 5": "Seite 5 von 5",
    }


def fuzzy(source: str, name: str = "a.po", is_reviewed: bool = True) -> Segment:
    """The segment of a text with the matches of a memory of a unit."""
    unit = 'msgid "Open the red file %s."\nmsgstr "Die rote Datei %s öffnen."\n'
    memory = read_document("m.po", unit.encode()).segments
    content = f'msgid "{source}"\nmsgstr ""\n'
    (segment,) = (
        FuzzyMemory(memory).suggested(read_document(name, content.encode()), is_reviewed).segments
    )
    return segment


@pytest.mark.parametrize(
    ("source", "share"),
    [
        ("Open the red file %s.", 100),
        ("Open the blue file %s.", 90),  # of 11 tokens, 5 words, % and s, 4 blanks and a stop
        ("Open the blue book %s.", 81),
        ("Close the blue book %s.", 0),
        ("Open the red file %d.", 0),  # its placeholder is another
    ],
)
def test_fuzzy_matches_have_their_share(source: str, share: int) -> None:
    segment = fuzzy(source)
    assert (segment.match != "") == (share > 0)
    assert segment.origin.startswith(f"{share} % like a segment" if share else "")
    if share == 90:
        assert segment.origin.endswith("'blue' for 'red'")


def test_fuzzy_matches_are_suggested_where_no_one_reviews() -> None:
    segment = fuzzy("Open the blue file %s.", is_reviewed=False)
    assert not segment.match
    assert segment.origin.endswith("'blue' for 'red': Die rote Datei %s öffnen.")


def test_fuzzy_matches_of_many_segments_cost_few_comparisons() -> None:
    words = [f"word{i} and other{i % 7} of a text {i % 3}" for i in range(400)]
    rows = "".join(f'msgid "{text}"\nmsgstr "{text}"\n\n' for text in words)
    memory = FuzzyMemory(read_document("m.po", rows.encode()).segments)
    gaps = "".join(f'msgid "x{text}"\nmsgstr ""\n\n' for text in words)
    document = memory.suggested(read_document("a.po", gaps.encode()), True)
    assert all(segment.match for segment in document.segments)


TBX = """<tbx><text><body>{}</body></text></tbx>"""
CONCEPT = (
    '<termEntry><langSet xml:lang="en-US"><tig><term>file</term></tig><ntig><termGrp><term>files'
    '</term></termGrp></ntig></langSet><langSet xml:lang="de"><tig><term>Datei</term></tig><tig>'
    '<term>File</term><termNote type="administrativeStatus">deprecatedTerm-admn-sts</termNote>'
    "</tig></langSet></termEntry>"
)


def test_glossaries_of_tbx() -> None:
    assert read_tbx(TBX.format(CONCEPT).encode(), "en", "de") == {"file|files": "Datei"}
    version_3 = CONCEPT.replace("termEntry", "conceptEntry").replace("langSet", "langSec")
    assert read_tbx(TBX.format(version_3).encode(), "en", "de") == {"file|files": "Datei"}
    with pytest.raises(DataError, match="no terms of both en and fr"):
        read_tbx(TBX.format(CONCEPT).encode(), "en", "fr")
    with pytest.raises(DataError, match="give --source-language and --target-language"):
        read_tbx(TBX.format(CONCEPT).encode(), "en", None)


def test_columns_of_a_glossary() -> None:
    text = "de,note,en-GB\nDatei|Dateien,x,file|files\n,,empty\n"
    assert in_columns(text, "en", "de") == {}
    text = "de,en-GB,note\nDatei|Dateien,file|files,x\n,empty,\n"
    assert in_columns(text, "en", "de") == {"file|files": "Datei|Dateien"}
    assert in_columns("file,Datei\n", "en", "de") == {}
    assert in_columns("en,de\nfile,Datei\nfile,Datei\n", None, "de") == {"file": "Datei"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("en,fr,es\nfile,fichier,archivo\n", "no column de; its first row names en, fr, es"),
        ("en,de\nfile,Datei\nfile,Akte\n", "row 3 of the glossary has another translation"),
        ("en,de\nfile,\n", "no terms of both en and de"),
        ('en,de\n"file,Datei\n', "the glossary is not CSV"),
    ],
)
def test_columns_that_give_no_glossary(text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        in_columns(text, "en", "de")


def test_a_glossary_in_another_encoding_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "terms.csv"
    file.write_text("en,es\nfile,rólo\n", "latin-1")
    with pytest.raises(DataError, match=r"terms.csv: byte 12 is not utf-8"):
        terms_in(file, "en", "es")
    file.write_text("en,es\nfile,rólo\n", "utf-16")
    assert terms_in(file, "en", "es")("the file") == (("rólo",),)
