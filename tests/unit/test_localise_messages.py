"""Laws of formats made of messages: catalogues, resources of programs, files of translators."""

from __future__ import annotations

import json
import plistlib
import random
import subprocess
from pathlib import Path

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from helpers.message_samples import FLUENT, PO, RESX, SAMPLES
from helpers.real_documents import needs_documents, real_documents
from transduce.errors import DataError
from transduce.localise.document import Document
from transduce.localise.formats import read_document
from transduce.localise.inline import escaped
from transduce.localise.units import BREAK

TEXTS = st.lists(
    st.sampled_from(
        (
            *("Hund", "müde.", "你好", "&", "<", ">", "&amp;", "'", '"', "\\", "\\n", "\n", "\r\n"),
            *("]]>", "%s", "{0}", "#", ": ", "- ", "no", "1.0", "@", "?", "\x00", "\U0001f600"),
            *("אב", "=", "!", "\t", " ", "\u2028", "''", "*", "~", "null", ","),
        )
    )
    | st.text(max_size=3),
    max_size=7,
).map("".join)


def sample(name: str) -> Document:
    return read_document(name, SAMPLES[name][0], target_language="de")


@pytest.mark.parametrize("name", SAMPLES)
def test_nothing_set_changes_no_byte(name: str) -> None:
    content, judge = SAMPLES[name]
    document = sample(name)
    assert document.with_targets({}) == content
    keys = [segment.key for segment in document.segments]
    assert len(set(keys)) == len(keys) > 0
    assert all(one.source and one.source == one.source.strip() for one in document.segments)
    judge(content)


@pytest.mark.parametrize("name", SAMPLES)
def test_identity_gives_the_sources(name: str) -> None:
    document = sample(name)
    made = document.with_targets({one.key: one.source for one in document.segments})
    SAMPLES[name][1](made)
    again = read_document(name, made, target_language="de")
    assert [(one.source, one.target or one.source) for one in again.segments] == [
        (one.source, one.source) for one in document.segments
    ]
    if not any(one.target for one in again.segments):
        assert made == document.with_targets({})


@pytest.mark.parametrize("name", SAMPLES)
def test_any_text_is_read_again_or_refused_by_name(name: str) -> None:
    document = sample(name)

    @example("{0}''", 0)
    @example('"{0}', 4)
    @given(TEXTS, st.integers(0, 30))
    def law(text: str, number: int) -> None:
        number %= len(document.segments)
        segment = document.segments[number]
        text += "{0}" * ("{0}" in segment.source)  # a sign of MessageFormat
        text += " Zz"  # a translation without words is none
        target = (escaped(text) if segment.markup else text) + "".join(segment.tags)
        try:
            made = document.with_targets({segment.key: target})
        except DataError as error:
            assert str(error).startswith(f"{segment.key}: ")
            return
        SAMPLES[name][1](made)
        again = read_document(name, made, target_language="de")
        written = again.segments[number]  # its line may be another
        assert (written.target or written.source) == BREAK.sub("\n", target.strip())
        before, after = document.decoded.text, again.decoded.text
        assert after.startswith(before[: segment.spans[0].start])
        assert after.endswith(before[segment.spans[-1].end :])

    law()


@pytest.mark.parametrize("name", SAMPLES)
def test_what_is_complete_stays(name: str) -> None:
    document = sample(name)
    made = document.with_targets({one.key: one.source for one in document.segments})
    again = read_document(name, made, target_language="de")
    if any(one.target for one in again.segments):
        assert not again.limited(["missing"]).segments


@pytest.mark.parametrize("name", SAMPLES)
def test_a_damaged_file_is_read_or_refused_in_a_line(name: str) -> None:
    content = SAMPLES[name][0]
    chance = random.Random(0)
    for _ in range(200):
        is_cut = chance.random() < 0.5
        damaged = bytearray(content[: chance.randrange(1, len(content))] if is_cut else content)
        for _ in range(chance.randrange(4)):
            damaged[chance.randrange(len(damaged))] = chance.choice(b'\x00"\\<>&{}[]:\xff\n #')
        try:
            document = read_document(name, bytes(damaged), target_language="de")
            assert document.with_targets({}) == damaged
            document.with_targets({one.key: one.source for one in document.segments})
        except DataError as error:
            assert len(str(error).splitlines()) == 1


def test_plurals_are_filled_by_the_rule_of_the_header() -> None:
    rule = b"nplurals=3; plural=(n%10==1 && n%100!=11 ? 0 : n%10>=2 && n%10<=4 ? 1 : 2);"
    data = PO.replace(b"nplurals=2; plural=(n != 1);", rule)
    document = read_document("a.po", data)
    plural = document.segments[-1]
    assert plural.source == "%d files"  # no form is of 1 alone, and "One file" has no number
    made = document.with_targets({plural.key: "%d Dateien"}).decode()
    assert 'msgstr[0] "%d Dateien"\nmsgstr[1] "%d Dateien"\nmsgstr[2] "%d Dateien"\n' in made
    german = read_document("a.po", PO)
    targets = {one.key: one.source.upper() for one in german.segments[-2:]}
    made = german.with_targets(targets).decode()
    assert 'msgstr[0] "ONE FILE"\nmsgstr[1] "%D FILES"\n' in made
    assert '#, fuzzy\nmsgid "One file"' in made


def test_forms_that_are_there_stay_where_others_are_missing() -> None:
    rule = b"nplurals=3; plural=(n%10==1 && n%100!=11 ? 0 : n%10>=2 && n%10<=4 ? 1 : 2);"
    forms = b'msgstr[0] "%d Datei"\nmsgstr[1] ""\nmsgstr[2] "%d Dateien"\n'
    data = PO.replace(b"nplurals=2; plural=(n != 1);", rule)
    data = data.replace(b'msgstr[0] ""\nmsgstr[1] ""\n', forms)
    document = read_document("a.po", data)
    plural = document.segments[-1]
    assert plural.state == "missing"
    made = document.with_targets({plural.key: "%d NEW"}).decode()
    assert 'msgstr[0] "%d Datei"\nmsgstr[1] "%d NEW"\nmsgstr[2] "%d Dateien"\n' in made


def test_states_of_a_catalogue() -> None:
    document = read_document("a.po", PO)
    states = [(one.source, one.state, one.target) for one in document.segments[:3]]
    assert states == [
        ('Open "%s"', "missing", ""),
        ("Close it", "fuzzy", "Schliess"),
        ("Close it", "translated", "Schliessen"),
    ]
    assert document.segments[0].flags == {"c-format"}
    made = document.with_targets({document.segments[0].key: 'Öffne "%s"'}).decode()
    assert '#, fuzzy\n#, c-format\nmsgid "Open \\"%s\\""\nmsgstr "Öffne \\"%s\\""\n' in made


def test_a_wrapped_message_is_wrapped() -> None:
    document = read_document("a.po", PO)
    usage = document.segments[3]
    made = document.with_targets({usage.key: usage.source}).decode()
    assert made.count('"  -a  a long line that goes on and on and on \\n"\n') == 2


@pytest.mark.system
@needs_documents
@pytest.mark.parametrize("path", real_documents(".po", ".pot"), ids=lambda path: path.name)
def test_msgfmt_says_of_a_filled_catalogue_what_it_said(path: Path, tmp_path: Path) -> None:
    document = read_document(path.name, path.read_bytes()).limited(["missing"])
    made = document.with_targets({one.key: one.source for one in document.segments})
    (tmp_path / path.name).write_bytes(made)
    verdicts = [
        subprocess.run(["msgfmt", "-c", "-o", "/dev/null", file], capture_output=True).returncode
        for file in (path, tmp_path / path.name)
    ]
    assert verdicts[0] == verdicts[1]


def test_states_of_xliff_and_what_is_confirmed() -> None:
    document = read_document("a.xlf", SAMPLES["a.xlf"][0])
    states = {one.source: one.state for one in document.segments}
    assert "Yes" not in states and "Keep" not in states and states["No"] == "missing"
    assert (states["Hi"], states["A b."]) == ("translated", "missing")
    keys = {one.source: one.key for one in document.segments}
    made = document.with_targets({keys["A b."]: "E.", keys["C d."]: "F.", keys["A"]: "Z"}).decode()
    assert (
        '</seg-source>\n      <target state="needs-review-translation"><g id="1"><mrk mtype="seg"'
        ' mid="0">E.</mrk> <mrk mid="1" mtype="seg">F.</mrk></g></target>\n'
    ) in made
    assert '<target xml:lang="de" state="needs-review-translation">Z</target>' in made
    first = document.segments[0]
    assert first.source == 'Open <g id="1">the <x id="2"/>file</g> “%s" &amp; go.'
    made = document.with_targets({first.key: first.source}).decode()
    assert '<trans-unit id="a&amp;b" approved="no">' in made
    assert made.count('<g id="1">the <x id="2"/>file</g> &#8220;%s&quot; &amp; go.') == 2


def test_states_of_translators_tools() -> None:
    trados = read_document("a.sdlxliff", SAMPLES["a.sdlxliff"][0])
    assert [(one.source, one.state) for one in trados.segments] == [
        ("A b.", "missing"),
        ("C d.", "fuzzy"),
    ]
    made = trados.with_targets({one.key: "x" for one in trados.segments}).decode()
    assert '<sdl:seg id="1" conf="Draft" />' in made and " state=" not in made
    memoq = read_document("a.mqxliff", SAMPLES["a.mqxliff"][0])
    (segment,) = memoq.segments
    assert 'mq:status="Pretranslated"' in memoq.with_targets({segment.key: "x"}).decode()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"<a><b></a>", "not well-formed XML: mismatched tag: line 1"),
        (b"<a>" * 201 + b"</a>" * 201, "elements are deeper than 200"),
        (b"<html/>", "no format for <html>; use xliff"),
    ],
)
def test_xml_that_is_refused(content: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_document("a.xlf", content)


def in_russian(name: str, **targets: str) -> str:
    """A sample with targets of sources, which end in these words, for Russian."""
    document = read_document(name, SAMPLES[name][0], target_language="ru")
    keys = {one.source.rpartition(" ")[2]: one.key for one in document.segments}
    return document.with_targets({keys[word]: text for word, text in targets.items()}).decode()


def test_plurals_of_android_get_the_categories_of_the_language() -> None:
    made = in_russian("strings.xml", file="%d файл", files="%d файлов")
    assert (
        '        <item quantity="one">%d файл</item>\n'
        '        <item quantity="few">%d файлов</item>\n'
        '        <item quantity="many">%d файлов</item>\n'
        '        <item quantity="other">%d файлов</item>\n'
    ) in made


def test_plurals_of_apple_get_the_categories_and_keep_the_number() -> None:
    made = in_russian("a.stringsdict", files="%d файлов")
    assert "<key>one</key>\n      <string>%d файлов</string>" in made  # also of 21
    assert "<key>few</key>\n      <string>%d файлов</string>\n      <key>many</key>" in made
    assert plistlib.loads(made.encode())["files"]["n"]["many"] == "%d файлов"


def test_escapes_of_android() -> None:
    document = sample("strings.xml")
    sources = [one.source for one in document.segments]
    assert sources[:5] == [
        'Don\'t open "%1$s" &amp; &app;…\nNow',
        'Hello <xliff:g id="n">%1$s</xliff:g>, <b>bold</b>',
        "It's  quoted",
        'Go &lt;a href="x"&gt;there&lt;/a&gt;',
        "Two lines",
    ]
    keys = [one.key for one in document.segments]
    made = document.with_targets({keys[0]: "&app; &amp;app;"}).decode()
    assert ">&app; &amp;app;</string>" in made
    made = document.with_targets({keys[3]: "'&lt;b&gt;' &amp;", keys[4]: "?  @…"}).decode()
    assert "<![CDATA[\\'<b>\\' &]]>" in made
    assert '"g">\\? \\u0020@\\u2026</string>' in made


def test_forms_and_states_of_qt() -> None:
    document = sample("a.ts")
    assert [(one.source, one.state) for one in document.segments] == [
        ("&amp;Open %1 'x'", "missing"),
        ("%n file(s)", "missing"),
        ("Yes", "translated"),
        ("No", "missing"),
    ]
    made = document.with_targets({one.key: one.source for one in document.segments}).decode()
    assert made.count("<numerusform>%n file(s)</numerusform>") == 2
    assert '</source>\n        <translation type="unfinished">No</translation>\n' in made
    assert '<translation type="unfinished">&amp;Open %1 &apos;x&apos;</translation>' in made


def test_strings_of_xcode_get_a_language_in_its_order() -> None:
    document = sample("a.xcstrings")
    assert [(one.source, one.state) for one in document.segments] == [
        ("%lld file", "missing"),
        ("%lld files", "missing"),
        ("Cancel", "missing"),
        ("Close", "translated"),
    ]
    keys = [one.key for one in document.segments]
    made = document.with_targets({keys[2]: "Abbrechen"}).decode()
    assert (
        '    "Cancel" : {\n'
        '      "localizations" : {\n'
        '        "de" : {\n'
        '          "stringUnit" : {\n'
        '            "state" : "needs_review",\n'
        '            "value" : "Abbrechen"\n'
        "          }\n        }\n      }\n    },\n"
    ) in made
    made = document.with_targets({keys[0]: "a", keys[1]: "b"}).decode()
    assert '"localizations" : {\n        "de" : {\n          "variations" : {' in made
    russian = read_document("a.xcstrings", SAMPLES["a.xcstrings"][0], target_language="ru")
    made = russian.with_targets({keys[0]: "a", keys[1]: "b"}).decode()
    parts = json.loads(made)["strings"]["%lld files"]["localizations"]["ru"]["variations"]["plural"]
    assert {name: part["stringUnit"]["value"] for name, part in parts.items()} == {
        "one": "a",
        **dict.fromkeys(("few", "many", "other"), "b"),
    }
    with pytest.raises(DataError, match="the target language is not known"):
        read_document("a.xcstrings", SAMPLES["a.xcstrings"][0])


def test_plurals_of_i18next_get_the_categories() -> None:
    made = json.loads(in_russian("a.json", files="{{count}} файлов"))
    assert [made[f"file_{name}"] for name in ("few", "many", "one", "other")] == [
        "{{count}} файлов"
    ] * 4
    document = sample("a.json")
    assert [one.key for one in document.segments[:4]] == [
        *("title", "nested.a", "nested.list.1", "nested.list.2"),
    ]


def test_metadata_of_arb_stay_and_the_locale_changes() -> None:
    made = json.loads(in_russian("a.arb", **{"{name}!": "Привет {name}!"}))
    assert (made["@@locale"], made["a"]) == ("ru", "Привет {name}!")
    assert made["@a"]["description"] == "Greeting"


def test_strings_of_rails_keep_their_style_and_get_categories() -> None:
    document = sample("a.yml")
    keys = {one.key: one.source for one in document.segments}
    assert keys["de.folded"] == "A text that is folded" and "de.format" not in keys
    targets = {
        "de.plain": "no: %{name}",
        "de.single": "That's 'it'",
        "de.block": "Eins\n\n  zwei",
        "de.folded": "Ein: #Text",
        "de.flow.a": "a, b",
        "de.wrapped": "Kurz",
    }
    made = document.with_targets(targets)
    parts = yaml.safe_load(made)["de"]
    assert [parts[name] for name in ("plain", "single", "block", "folded", "wrapped")] == [
        *("no: %{name}", "That's 'it'", "Eins\n\n  zwei\n", "Ein: #Text", "Kurz"),
    ]
    assert parts["flow"]["a"] == "a, b"
    for row in (
        'plain: "no: %{name}"  # note',
        "block: |\n    Eins\n\n      zwei\n",
        ">-\n    Ein: #",
    ):
        assert row in made.decode()
    russian = yaml.safe_load(in_russian("a.yml", files="%{count} файлов"))
    assert set(russian["ru"]["files"].values()) == {"%{count} файлов"}
    assert list(russian["ru"]["files"]) == ["one", "other", "few", "many"]


def test_a_memory_gets_a_variant_and_a_table_its_cells() -> None:
    memory = sample("a.tmx")
    assert [(one.state, one.target) for one in memory.segments] == [
        ("missing", ""),
        ("translated", "Ja"),
    ]
    made = memory.with_targets({"unit 1": memory.segments[0].source}).decode()
    assert made.count('</tuv>\n    <tuv xml:lang="de">\n      <seg>Press <bpt') == 1
    table = sample("a.csv")
    made = table.with_targets({"row 2": "Zwei, x", "row 4": "Nein"}).decode()
    assert ',x,"Zwei, x"\n' in made and "3,No,,Nein\n" in made
    with pytest.raises(DataError, match="call two of them source and target"):
        read_document("a.csv", b"a,b\n1,2\n")


def test_texts_of_fluent() -> None:
    mixed = "mixed = Some { $n ->\n   *[other] things\n} here\n"
    document = read_document("a.ftl", (FLUENT + mixed).encode(), target_language="ru")
    assert [(s.key, s.source) for s in document.segments] == [
        ("open", "Open { $file } in { -brand }"),
        ("open.title", "Open it"),
        ("open.accesskey", "O"),
        ("long", "A text on\ntwo lines\n\nand one { more"),
        ("files[other]", "{ NUMBER($n) } files\nin all"),
        ("who[female]", "She"),
        ("who[unknown]", "They"),
    ]
    assert [(r.key, r.reason) for r in document.unread] == [
        ("mixed", "it has nested braces or a choice in it")
    ]
    targets = {"open": ".a { $file }{b", "files[other]": "{ NUMBER($n) } F", "who[female]": "Она"}
    made = document.with_targets(targets).decode()
    assert 'open = {"."}a { $file }{"{"}b\n    .title' in made
    few = "".join(f"   [{name}] {{ NUMBER($n) }} F\n" for name in ("few", "many"))
    assert f"    [one] {{ NUMBER($n) }} F\n{few}   *[other]\n" in made
    assert "    [female] Она\n   *[unknown] They\n" in made


def test_resources_of_net() -> None:
    document = read_document("a.resx", RESX.encode())
    assert [(s.key, s.source) for s in document.segments] == [
        ("open", "Open {0} &amp; &lt;close&gt;"),
        ("lines", "Two\nlines"),
    ]
    with pytest.raises(DataError, match="no format for <root>"):
        read_document("a.xml", b"<root><data/></root>")


def unit_of(value: str) -> dict[str, object]:
    return {"stringUnit": {"state": "translated", "value": value}}


VARIED = {
    "sourceLanguage": "en",
    "strings": {
        "files": {
            "localizations": {
                "en": {
                    **unit_of("You have %#@n@."),
                    "substitutions": {
                        "n": {
                            "argNum": 1,
                            "formatSpecifier": "lld",
                            "variations": {
                                "plural": {"one": unit_of("a file"), "other": unit_of("%arg files")}
                            },
                        }
                    },
                }
            }
        },
        "tap": {
            "localizations": {
                "en": {
                    "variations": {
                        "device": {
                            "iphone": unit_of("Tap here"),
                            "mac": {"variations": {"plural": {"other": unit_of("Click %lld")}}},
                        }
                    }
                }
            }
        },
        "varied": {"localizations": {"en": unit_of("Text"), "ru": {"variations": {"device": {}}}}},
    },
}


def test_numbers_in_place_of_strings_of_xcode_are_no_text() -> None:
    unit = {"localizations": {"en": {"stringUnit": {"state": 1, "value": 7}}}}
    catalog = {"sourceLanguage": "en", "strings": {"a": unit, "Open it": {}}, "version": "1.0"}
    document = read_document("a.xcstrings", json.dumps(catalog).encode(), target_language="de")
    assert [segment.source for segment in document.segments] == ["Open it"]


def test_variables_and_devices_of_xcode_are_written() -> None:
    content = json.dumps(VARIED, indent=2).encode()
    document = read_document("a.xcstrings", content, target_language="ru")
    assert {s.key: s.source for s in document.segments} == {
        "files": "You have %#@n@.",
        "files, n, other": "%arg files",
        "tap, iphone": "Tap here",
        "tap, mac, other": "Click %lld",
    }
    reason = "its translation is varied in another way, or it has no text"
    assert [(record.key, record.reason) for record in document.unread] == [("varied", reason)]
    targets = {"files": "Ж %#@n@", "tap, mac, other": "Ж %lld"}
    made = json.loads(document.with_targets(targets))["strings"]
    new = made["files"]["localizations"]["ru"]
    assert new["stringUnit"] == {"state": "needs_review", "value": "Ж %#@n@"}
    variable = new["substitutions"]["n"]
    assert (variable["argNum"], variable["formatSpecifier"]) == (1, "lld")
    plural = variable["variations"]["plural"]
    assert plural.keys() == {"one", "few", "many", "other"}
    assert plural["many"]["stringUnit"] == {"state": "new", "value": "%arg files"}
    devices = made["tap"]["localizations"]["ru"]["variations"]["device"]
    assert devices["iphone"]["stringUnit"] == {"state": "new", "value": "Tap here"}
    assert devices["mac"]["variations"]["plural"]["few"]["stringUnit"]["value"] == "Ж %lld"
    again = read_document("a.xcstrings", document.with_targets(targets), target_language="ru")
    missing = {segment.key for segment in again.segments if segment.state == "missing"}
    assert missing == {"files, n, other", "tap, iphone"}


AMBIGUOUS = (
    *("no", "yes", "On", "OFF", "y", "N", "null", "~", "1.5", "012", "0o14", "1_000", "1e3"),
    *("2024-01-05", "12:30:45", ".inf", "true", "0x1F", "=", "<<", "+1", "1,000", ".5", "1."),
)


@pytest.mark.parametrize("text", AMBIGUOUS)
def test_strings_of_yaml_that_any_version_reads_otherwise_are_quoted(text: str) -> None:
    document = read_document("a.yml", b"en:\n  a: Hello you\n  b: [Hi]\n", target_language="no")
    made = document.with_targets({s.key: text for s in document.segments}).decode()
    assert made == f'"no":\n  a: "{text}"\n  b: ["{text}"]\n'
    quoted = read_document("a.yml", b"'en':\n  a: Hello\n", target_language="no")
    made = quoted.with_targets({"en.a": "Hei du"}).decode()
    assert yaml.safe_load(made) == {"no": {"a": "Hei du"}}


IDENTIFIERS = ("main_menu", "MAX_SIZE", "#ff0000", "#fff", "fa-home", "btn btn-primary", "fas fa-x")
WORDS = ("log-in", "e-mail", "Fa-home", "#1 choice", "main menu", "icon", "user_Name x", "#abcde")


@pytest.mark.parametrize("name", ("a.json", "a.yml", "a.properties", "a.strings"))
def test_names_for_programs_are_no_texts(name: str) -> None:
    def file(texts: tuple[str, ...]) -> bytes:
        pairs = {f"k{i}": text for i, text in enumerate(texts)}
        if name == "a.properties":
            return "".join(f"{key}={text}\n" for key, text in pairs.items()).encode()
        if name == "a.strings":
            return "".join(f'"{key}" = "{text}";\n' for key, text in pairs.items()).encode()
        return json.dumps(pairs).encode()

    assert not read_document(name, file(IDENTIFIERS)).segments
    assert [s.source for s in read_document(name, file(WORDS)).segments] == list(WORDS)
