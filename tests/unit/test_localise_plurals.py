"""Each plural form is translated with a number of its own."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

import pytest

from helpers.localised_document import Output, localised_document
from transduce import DecodingOptions
from transduce.localise.document import Document, Segment, document_with
from transduce.localise.formats import read_document
from transduce.localise.lock import Version, lock_of, read_lock
from transduce.localise.plurals import categories, ordinal_category, ordinals
from transduce.localise.translate import localised

pytest.importorskip("sentencex")

NAMES = {"21": "файл", "3": "файла", "5": "файлов"}


def inflected(texts: Sequence[str], options: Sequence[DecodingOptions]) -> list[Output]:
    """A Russian translation of numbers of files, by the number."""

    def translated(text: str) -> str:
        numbers = re.findall(r"(?<!\w)\d+", text)
        name = NAMES.get(numbers[-1] if numbers else "", "файлы")
        return re.sub(r"(?:a )?\bfiles?\b", name, text).replace("Deleted", "Удалено")

    return [Output(translated(text)) for text in texts]


def forms_of(name: str, text: str) -> tuple[Document, bytes]:
    document = read_document(name, text.encode(), target_language="ru", source_language="en")
    records = localised(document.segments, "en", inflected, DecodingOptions(), None, "ru")
    made = document_with(document, records)
    assert all(record.is_done for record in made.records)
    return document, made.content


def test_forms_of_cldr() -> None:
    text = json.dumps({"n_one": "Deleted %d file", "n_other": "Deleted %d files"}, indent=1)
    _, content = forms_of("a.json", text)
    assert json.loads(content) == {
        "n_one": "Удалено %d файлы",
        "n_other": "Удалено %d файлы",
        "n_few": "Удалено %d файла",
        "n_many": "Удалено %d файлов",
    }


def icu(text: str, target: str, names: dict[str, str] | None = None) -> str:
    """A message translated: files by their numbers, or numbers by other words."""

    def renamed(texts: Sequence[str], options: Sequence[DecodingOptions]) -> list[Output]:
        return [Output((names or {}).get(text, text)) for text in texts]

    segment = Segment("k", text, ())
    translate = inflected if names is None else renamed
    (record,) = localised([segment], "en", translate, DecodingOptions(), None, target)
    assert record.is_done
    return record.target


@pytest.mark.parametrize(
    ("text", "target"),
    [
        (
            "{n, plural, =0 {none} one {Deleted # file} other {Deleted # files}}",
            "{n, plural, =0 {none} one {Удалено # файлы} few {Удалено # файла} "
            "many {Удалено # файлов} other {Удалено # файлы}}",
        ),
        (  # the singular has no number: 21 gets that of the plural
            "{n, plural,\n one {a file}\n other {# files}\n}",
            "{n, plural,\n one {# файл}\n few {# файла}\n many {# файлов}\n other {# файлы}\n}",
        ),
        (  # by its argument, beside another
            "{rows, plural, other {{name}: {rows} files}}",
            "{rows, plural, one {{name}: {rows} файл} few {{name}: {rows} файла} "
            "many {{name}: {rows} файлов} other {{name}: {rows} файлы}}",
        ),
        (  # within a choice, and around one
            "{g, select, a {{n, plural, other {# files}}} other {none}}",
            "{g, select, a {{n, plural, one {# файл} few {# файла} many {# файлов} "
            "other {# файлы}}} other {none}}",
        ),
        (
            "{n, plural, other {{g, select, a {his # files} other {# files}}}}",
            "{n, plural, one {{g, select, a {his # файл} other {# файл}}} "
            "few {{g, select, a {his # файла} other {# файла}}} "
            "many {{g, select, a {his # файлов} other {# файлов}}} "
            "other {{g, select, a {his # файлы} other {# файлы}}}}",
        ),
        (  # an argument that does not count is no number
            "{n, plural, other {{name} files}}",
            "{n, plural, one {{name} файлы} few {{name} файлы} many {{name} файлы} "
            "other {{name} файлы}}",
        ),
        (  # with an offset the argument is another number than `#`
            "{n, plural, offset:1 other {{n} files}}",
            "{n, plural, offset:1 one {{n} файлы} few {{n} файлы} many {{n} файлы} "
            "other {{n} файлы}}",
        ),
    ],
)
def test_forms_of_icu(text: str, target: str) -> None:
    assert "".join(icu(text, "ru").split()) == "".join(target.split())


ORDINAL = "{n, selectordinal, one {#st} two {#nd} few {#rd} other {#th}}"


@pytest.mark.parametrize(
    ("language", "names", "target"),
    [
        (
            "fr",
            {"1st": "1er", "2nd": "2e", "3rd": "3e", "5th": "5e"},
            "{n, selectordinal, one {#er} two {#e} few {#e} other {#e}}",
        ),
        (
            "it",
            {"21st": "21º", "2nd": "2º", "3rd": "3º", "5th": "5º", "8th": "l’8º"},
            "{n, selectordinal, one {#º} two {#º} few {#º} many {l’#º} other {#º}}",
        ),
    ],
)
def test_ordinal_numbers(language: str, names: dict[str, str], target: str) -> None:
    assert icu(ORDINAL, language, names) == target


@pytest.mark.parametrize(
    ("language", "categories_of"),
    [
        ("de", {1: "other", 2: "other"}),
        ("en", {1: "one", 11: "other", 12: "other", 22: "two", 23: "few", 113: "other"}),
        ("it", {1: "other", 8: "many", 11: "many", 18: "other"}),
        ("ka", {0: "many", 1: "one", 20: "many", 21: "other", 40: "many", 100: "other"}),
        ("kw", {4: "one", 5: "many", 24: "one", 104: "one", 11: "other", 105: "many"}),
        ("cy", {0: "zero", 7: "zero", 3: "few", 5: "many", 10: "other"}),
        ("uk", {3: "few", 13: "other", 23: "few"}),
    ],
)
def test_categories_of_ordinal_numbers(language: str, categories_of: dict[int, str]) -> None:
    made = ordinals(language, language, ())
    for number, category in categories_of.items():
        assert ordinal_category(language, number) == category and category in made


def test_forms_of_gettext() -> None:
    rule = r"Plural-Forms: nplurals=3; plural=(n%10==1 && n%100!=11 ? 0 : n%10>=2 && n%10<=4 &&"
    head = rf'msgid ""\nmsgstr "{rule} (n%100<10 || n%100>=20) ? 1 : 2);\n"'.replace(
        "\\n\nm", "\nm"
    )
    head = head.replace(r'msgid ""\nmsgstr', 'msgid ""\nmsgstr') + "\n\n"
    entry = 'msgid "%s: a file"\nmsgid_plural "%s: %d files"\n'
    _, content = forms_of("a.po", head + entry + 'msgstr[0] ""\nmsgstr[1] ""\nmsgstr[2] ""\n')
    assert re.findall(r'msgstr\[(\d)\] "(.*)"', content.decode()) == [
        ("0", "%s: %d файл"),
        ("1", "%s: %d файла"),
        ("2", "%s: %d файлов"),
    ]


def test_a_plural_of_gettext_is_whole_or_left() -> None:
    """msgfmt refuses an empty form beside others, also in a fuzzy entry."""
    head = 'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\n'
    entry = 'msgid "one page"\nmsgid_plural "{n} pages"\nmsgstr[0] ""\nmsgstr[1] ""\n'
    other = '\nmsgid "a text"\nmsgstr ""\n'
    content = f"{head}#, python-brace-format\n{entry}{other}".encode()
    document = read_document("de.po", content, target_language="de")

    def capitals(texts: Sequence[str], options: Sequence[DecodingOptions]) -> list[Output]:
        return [Output(text.upper()) for text in texts]  # no placeholder of the file

    records = localised(document.segments, "en", capitals, DecodingOptions(), None, "de")
    made = document_with(document, records)
    assert entry in made.content.decode() and '"A TEXT"' in made.content.decode()
    assert [bool(record.reason) for record in made.records] == [True, True, False]
    assert made.records[0].reason == "another form of its plural is left"


def test_a_number_that_is_lost_leaves_the_form_as_the_others() -> None:
    text = json.dumps({"n_one": "One file", "n_other": "5 of %d files"}, indent=1)
    _, content = forms_of("a.json", text)
    made = json.loads(content)
    assert made["n_few"] == "5 of %d файла"
    assert made["n_many"] == made["n_other"] == "5 of %d файлов"  # the text has a 5 of its own


def test_forms_are_recalled() -> None:
    text = json.dumps({"n_one": "a file", "n_other": "%d files"}, indent=1)
    document = read_document("a.json", text.encode(), target_language="ru")
    records = localised(document.segments, "en", inflected, DecodingOptions(), None, "ru")
    content = document_with(document, records).content
    version = Version(read_document("a.json", content, target_language="ru"))
    lines = lock_of(document, records, version, {}, len(version.units)).lines()
    again = read_lock("\n".join(lines)).recalled(document)

    def unasked(texts: Sequence[str], options: Sequence[DecodingOptions]) -> list[Output]:
        raise AssertionError(texts)

    records = localised(again.segments, "en", unasked, DecodingOptions(), None, "ru")
    assert document_with(again, records).content == content


@pytest.mark.parametrize(
    ("language", "samples"),
    [
        ("ru", {"one": "21", "few": "3", "many": "5", "other": ""}),
        ("pl", {"one": "1", "few": "3", "many": "21", "other": ""}),
        ("lv", {"zero": "0", "one": "21", "other": "3"}),
        ("lt", {"one": "21", "few": "3", "many": "", "other": "0"}),
        ("cs", {"one": "1", "few": "3", "many": "", "other": "21"}),
    ],
)
def test_numbers_of_categories(language: str, samples: dict[str, str]) -> None:
    assert {name: form.sample for name, form in categories(language).items()} == samples


XCSTRINGS_FORMS = """{"sourceLanguage": "en", "strings": {"n": {"localizations": {"en":
{"variations": {"plural": {"one": {"stringUnit": {"state": "translated", "value": "%lld file"}},
"other": {"stringUnit": {"state": "translated", "value": "%lld files"}}}}}}}}, "version": "1.0"}"""
QT_FORMS = """<TS version="2.1" language="ru"><context><name>a</name><message numerus="yes">
<source>%n files</source><translation type="unfinished">
<numerusform></numerusform><numerusform></numerusform><numerusform></numerusform></translation>
</message></context></TS>"""


@pytest.mark.parametrize(("name", "text"), [("a.xcstrings", XCSTRINGS_FORMS), ("a.ts", QT_FORMS)])
def test_forms_of_xcstrings_and_qt_get_a_number_of_their_own(name: str, text: str) -> None:
    document = read_document(name, text.encode(), target_language="ru")
    made = localised_document(document, "ru", inflected, DecodingOptions()).decode()
    texts = re.findall(r"%(?:n|lld) (файл\w*)", made)
    assert texts[-2:] == ["файла", "файлов"] or {"файла", "файлов"} < {*texts}
    assert name != "a.ts" or texts == ["файл", "файла", "файлов"]
