"""Each plural form is translated with a number of its own."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

import pytest

from helpers.localised_document import Output, localised_document
from transduce import DecodingOptions
from transduce.localise.document import Document, document_with
from transduce.localise.formats import read_document
from transduce.localise.lock import Version, lock_of, read_lock
from transduce.localise.plurals import categories
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
