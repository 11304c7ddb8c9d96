"""Languages that documents name: those of others are left, those of a translation written."""

from __future__ import annotations

import gettext
import shutil
import subprocess
from pathlib import Path

import pytest

from transduce.cli.main import main
from transduce.errors import DataError
from transduce.localise.formats import read_document
from transduce.localise.languages import code_page, is_right_to_left, is_same_language
from transduce.localise.plurals import categories, rule_of

RUN = Path(__file__).parents[1] / "runs" / "0.1.0" / "translation"
HEADER = 'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=UTF-8\\n"\n'
PO = HEADER + '{}\nmsgid "Open"\nmsgstr ""\n'
XLIFF = (
    '<xliff version="1.2"><file {}><body><trans-unit id="1"><source>Open</source></trans-unit>'
    "</body></file></xliff>"
)
SECOND = (
    '<xliff version="2.0" {}><file id="f"><unit id="u"><segment><source>Open</source></segment>'
    "</unit></file></xliff>"
)
QT = "<TS {}><message><source>Open</source></message></TS>"


def filled(name: str, content: str, target: str = "de") -> str:
    """A document with a translation, read for English into a language."""
    document = read_document(name, content.encode(), source_language="en", target_language=target)
    return document.with_targets({s.key: "Zz" for s in document.segments}).decode()


@pytest.mark.parametrize(
    ("name", "content"),
    (
        ("a.po", PO.format('"Language: ru\\n"\n')),
        ("a.po", PO.format('"Language: fr_FR.UTF-8\\n"\n')),
        ("a.ts", QT.format('language="ru_RU"')),
        ("a.ts", QT.format('sourcelanguage="it"')),
        ("a.xlf", XLIFF.format('source-language="it" target-language="de"')),
        ("a.xlf", XLIFF.format('source-language="en" target-language="fra"')),
        ("a.xlf", SECOND.format('srcLang="en" trgLang="pt-BR"')),
        ("a.xcstrings", '{"sourceLanguage": "it", "strings": {"Open": {}}}'),
        ("a.yml", "zh-CN:\n  open: 打开文件\n"),
        ("a.yml", "hi:\n  open: फ़ाइल खोलें\n"),
    ),
)
def test_a_document_of_other_languages_is_left_and_named(name: str, content: str) -> None:
    document = read_document(name, content.encode(), source_language="en", target_language="de")
    assert not document.segments
    (record,) = document.unread
    assert record.key == "language" and "language is " in record.reason
    assert record.source in content
    assert read_document("a.po", PO.format("").encode()).segments  # without languages, all is read


@pytest.mark.parametrize(
    ("path", "is_read"),
    (
        ("po/fr.po", False),
        ("po/pt_BR.po", False),
        ("locale/fr/LC_MESSAGES/app.po", False),
        ("po/de.po", True),
        ("locale/de_AT/LC_MESSAGES/fr.po", True),
        ("po/en.po", True),
        ("app.po", True),
        ("fr.pot", True),
    ),
)
def test_a_catalogue_without_a_language_has_that_of_its_path(path: str, is_read: bool) -> None:
    content = PO.format('"Language: \\n"\n').encode()
    document = read_document(path, content, source_language="en", target_language="de")
    assert bool(document.segments) is is_read
    assert [record.key for record in document.unread] == ([] if is_read else ["language"])


@pytest.mark.parametrize("newline", ("\n", "\r\n"))
def test_captions_name_the_language_of_their_translation(newline: str) -> None:
    rows = "WEBVTT", "Kind: captions", "Language: {}", "", "00:01.000 --> 00:02.000", "{}", ""
    content = newline.join(rows)
    assert filled("a.vtt", content.format("en-US", "Open")) == content.format("de", "Zz")
    text = f"WEBVTT{newline * 2}00:01.000 --> 00:02.000{newline}Language: it{newline}"
    assert "Language" not in filled("a.vtt", text)
    document = read_document("a.vtt", content.format("it", "Open").encode(), source_language="en")
    assert not document.segments and [r.key for r in document.unread] == ["language"]


def test_messages_on_files_advise_what_can_be_followed() -> None:
    for content in (b"key,en\na,Open\n", b"source\nOpen\n"):
        with pytest.raises(DataError, match="no column of de; add an empty one"):
            read_document("a.csv", content, source_language="en", target_language="de")
    with pytest.raises(DataError, match="translate the PO"):
        read_document("de.mo", b"")


@pytest.mark.parametrize("own", ("de", "de_AT", "de-DE", "deu", "German", ""))
def test_regions_and_spellings_are_no_other_language(own: str) -> None:
    assert "Zz" in filled("a.po", PO.format(f'"Language: {own}\\n"\n'))
    assert "Zz" in filled("a.xlf", XLIFF.format(f'source-language="en-US" target-language="{own}"'))


def test_files_of_a_document_are_left_one_by_one() -> None:
    files = XLIFF.replace("</xliff>", "") * 2 + "</xliff>"
    content = files.replace('<xliff version="1.2">', "", 1).join(('<xliff version="1.2">', ""))
    content = content.replace('</file><xliff version="1.2">', "</file>")
    content = content.format('target-language="fr"', 'target-language="de"')
    document = read_document("a.xlf", content.encode(), target_language="de")
    assert [segment.key for segment in document.segments] == ["unit 2 (1)"]
    assert [record.key for record in document.unread] == ["language of file 1"]


def test_the_target_language_is_written() -> None:
    assert 'trgLang="de"' in filled("a.xlf", SECOND.format('srcLang="en"'))
    assert 'target-language="de"' in filled("a.xlf", XLIFF.format('source-language="en"'))
    assert 'target-language="de-AT"' in filled("a.xlf", XLIFF.format('target-language="de-AT"'))
    assert '<TS language="de">' in filled("a.ts", QT.format("")).replace(" >", ">").replace(
        "TS  ", "TS "
    )
    assert '"Language: pt_BR\\n"' in filled("a.po", PO.format(""), "pt-BR")
    assert '"Language: zh_TW\\n"' in filled("a.po", PO.format('"Language: \\n"\n'), "zh-Hant")
    assert '"Language: de_AT\\n"' in filled("a.po", PO.format('"Language: de_AT\\n"\n'))


def test_a_page_gets_the_direction_of_its_language() -> None:
    page = "<!doctype html><html lang=en{}><body><p dir=ltr>Open"
    assert filled("a.html", page.format(""), "ar") == (
        '<!doctype html><html dir="rtl" lang=ar><body><p dir=ltr>Zz'
    )
    assert "<html lang=he dir=rtl>" in filled("a.html", page.format(" dir=ltr"), "he")
    assert "<html lang=de dir='ltr'>" in filled("a.html", page.format(" dir='rtl'"))
    assert "<html lang=de>" in filled("a.html", page.format(""))


def test_names_of_languages() -> None:
    assert is_same_language("zh", "zh_CN") and is_same_language("no", "nb-NO")
    assert not is_same_language("zh-CN", "zh_TW") and not is_same_language("zh-HK", "zh-Hans")
    assert not is_same_language("sr-Latn", "sr-Cyrl") and is_same_language("sr", "sr-Latn")
    assert is_right_to_left("fa-IR") and is_right_to_left("he") and not is_right_to_left("hi")
    assert code_page("zh-TW") == "big5hkscs" and code_page("zh") == "gb18030"


@pytest.mark.parametrize(
    "language", ("ar", "cs", "de", "fr", "ga", "he", "ja", "lv", "pl", "ru", "sl")
)
def test_rules_of_plurals_have_the_categories_of_whole_numbers(language: str) -> None:
    number, _, plural = rule_of(language).partition("; plural=")
    form_of = gettext.c2py(plural.rstrip(";"))
    n_forms = int(number.removeprefix("nplurals="))
    assert {form_of(n) for n in range(1000)} == set(range(n_forms))
    fractions = {"cs", "ga", "fr", "pl", "ru", "lt"} & {language}
    assert n_forms == len(categories(language)) - len(fractions - {"ga"})


@pytest.mark.system
@pytest.mark.skipif(shutil.which("msgfmt") is None, reason="needs msgfmt")
@pytest.mark.parametrize("language", ("ar", "de", "ja", "ru", "sl"))
def test_a_template_becomes_a_catalogue_of_any_language(language: str, tmp_path: Path) -> None:
    template = (
        '#, fuzzy\nmsgid ""\nmsgstr ""\n"Language: \\n"\n'
        '"Content-Type: text/plain; charset=CHARSET\\n"\n'
        '"Plural-Forms: nplurals=INTEGER; plural=EXPRESSION;\\n"\n\n'
        '#, c-format\nmsgid "%d file"\nmsgid_plural "%d files"\nmsgstr[0] ""\nmsgstr[1] ""\n\n'
        'msgid "%d dog"\nmsgid_plural "%d dogs"\nmsgstr[0] ""\nmsgstr[1] ""\n'
    )
    document = read_document("a.pot", template.encode(), target_language=language)
    targets = {s.key: f"Ж {s.source}" for s in document.segments if "file" in s.source}
    path = tmp_path / "a.po"
    path.write_bytes(document.with_targets(targets))
    assert not path.read_text(encoding="utf-8").startswith("#, fuzzy")
    n_forms = int(rule_of(language).removeprefix("nplurals=")[0])
    assert path.read_text(encoding="utf-8").count('] "Ж') == n_forms
    told = subprocess.run(
        ["msgfmt", "-c", "--use-fuzzy", "-o", "/dev/null", path], capture_output=True, check=False
    )
    assert told.returncode == 0, told.stderr


@pytest.mark.parametrize(
    "header",
    ("key,en-US,de-DE", "ID;en;de", "English\tGerman", "en_GB,de", "fr,English,German", "de,en"),
)
def test_columns_named_by_languages_in_any_spelling(header: str) -> None:
    sign = next(c for c in ",;\t" if c in header)
    names = header.split(sign)
    cells = ["Open" if name.startswith(("en", "En")) else "" for name in names]
    content = f"{header}\n{sign.join(cells)}\n"
    document = read_document("a.csv", content.encode(), source_language="en", target_language="de")
    made = document.with_targets({"row 2": "Zz"}).decode().splitlines()[1].split(sign)
    assert made == [
        "Zz" if name.lower().startswith(("de", "german")) else cell
        for name, cell in zip(names, cells, strict=True)
    ]


def test_columns_without_a_choice_are_refused_with_the_way_out() -> None:
    with pytest.raises(DataError, match=r"\(en, fr, de\); .* or give --source-language"):
        read_document("a.csv", b"en,fr,de\nOpen,,\n", target_language="de")


@pytest.mark.parametrize("language", ("ru_RU", "ja", "ar", "de"))
@pytest.mark.parametrize("there", ("", "<numerusform></numerusform>"))
def test_forms_of_qt_are_as_many_as_its_language_has(language: str, there: str) -> None:
    content = (
        f'<TS language="{language}"><message numerus="yes"><source>%n files</source>'
        f'<translation type="unfinished">{there}</translation></message></TS>'
    )
    n_forms = {"ru_RU": 3, "ja": 1, "ar": 6, "de": 2}[language]
    assert filled("a.ts", content, language).count("<numerusform>Zz</numerusform>") == n_forms


def test_a_single_key_that_names_no_language_stays() -> None:
    assert filled("a.yml", "app:\n  open: Open it\n") == "app:\n  open: Zz\n"
    assert filled("a.yml", "en:\n  open: Open it\n") == "de:\n  open: Zz\n"


def test_texts_that_cannot_be_read_are_named() -> None:
    picture = read_document("a.html", b"<p>Open</p><svg><text>Shut it</text></svg>")
    assert [record.reason for record in picture.unread] == ["it is a text of a picture"]
    tmx = b'<tmx><body><tu><tuv xml:lang="fr"><seg>Ouvrir</seg></tuv></tu></body></tmx>'
    memory = read_document("a.tmx", tmx, source_language="en", target_language="de")
    assert memory.unread[0].reason.startswith("it has no text in the source language")


@pytest.mark.parametrize("name", ["text", "Value", "message"])
def test_a_table_of_texts_of_one_language_is_replaced(name: str) -> None:
    content = f'key,{name}\r\na,Open it.\r\nb,"Save, or %s"\r\nc,5\r\n'.encode()
    document = read_document("a.csv", content, source_language="en", target_language="de")
    assert [(s.key, s.source, s.state) for s in document.segments] == [
        ("row 2", "Open it.", "missing"),
        ("row 3", "Save, or %s", "missing"),
        ("row 4", "5", "missing"),
    ]
    translated = document.with_targets({"row 2": "Öffnen, bitte.", "row 3": "Sichern"}).decode()
    assert translated == f'key,{name}\r\na,"Öffnen, bitte."\r\nb,"Sichern"\r\nc,5\r\n'
    with pytest.raises(DataError, match="does not name the columns"):
        read_document("a.csv", b"text,value\nA,B\n", target_language="de")


@pytest.mark.parametrize(
    ("languages", "message"),
    [
        ("", "names no source language; give --source-language CODE, that of the documents"),
        ("source = ['fr', 'it']", "several source languages; give --source-language: fr, it"),
        (
            "source = 'fr'\ntarget = ['pt', 'gl']",
            "several target languages; give --target-language: pt, gl",
        ),
        (
            f"source = 'fr'\ntarget = {[f'a{letter}' for letter in 'abcdefghi']}",
            "give --target-language: aa, ab, ac, ad, ae, af, ag, ah, …",
        ),
    ],
)
def test_advice_names_the_languages_of_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], languages: str, message: str
) -> None:
    run = shutil.copytree(RUN, tmp_path / "run")
    with (run / "recipe.toml").open("a", encoding="utf-8") as recipe:
        recipe.write(f"\n[languages]\n{languages}\n")
    (tmp_path / "a.txt").write_text("dog\n", encoding="utf-8")
    assert main(["localise", str(run), str(tmp_path / "a.txt"), "--in-place"]) == 2
    assert capsys.readouterr().err.endswith(f"{message}\n")
