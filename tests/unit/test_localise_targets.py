"""Base and target: new and changed keys come into the file that people keep."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from helpers.localised_document import Output
from transduce import DecodingOptions
from transduce.cli import documents
from transduce.cli.main import main
from transduce.errors import DataError, TransduceError, UnknownTextError
from transduce.localise.document import Record, Segment
from transduce.localise.formats import read_document
from transduce.localise.target_files import target_path
from transduce.localise.translate import localised

pytest.importorskip("sentencex")


class Repository:
    """`transduce localise --target` by a translator that writes capitals."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self.language = "de"
        self.unknown = ""
        self.asked: list[str] = []
        self.rows: list[dict[str, str]] = []
        (top / "run").mkdir()

    def translation(self, *_: object) -> tuple[documents.Translate, str, str]:
        def translate(
            texts: Sequence[str], options: Sequence[DecodingOptions]
        ) -> list[Output | TransduceError]:
            self.asked += texts
            outputs = (Output(text.upper().replace("%D", "%d")) for text in texts)
            return [
                UnknownTextError("all of its words are unknown") if text == self.unknown else output
                for text, output in zip(texts, outputs, strict=True)
            ]

        def records(file: str, segments: Sequence[Segment]) -> list[Record]:
            return localised(segments, "en", translate, DecodingOptions(), None, self.language)

        return records, "en", self.language

    def write(self, name: str, content: str) -> Path:
        path = self.top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode())
        return path

    def localise(self, base: str, target: str, *options: str) -> int:
        self.asked.clear()
        report = self.top / "report.jsonl"
        command = ["localise", str(self.top / "run"), str(self.top / base)]
        command += ["--target", str(self.top / target), "--report", str(report)]
        code = main([*command, *(options or ("--in-place",))])
        self.rows = [json.loads(line) for line in report.read_text("utf-8").splitlines()]
        return code


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    made = Repository(tmp_path)
    monkeypatch.setattr(documents, "translation_by", made.translation)
    return made


def rows(form: str, comment: str = "") -> Callable[[dict[str, str]], str]:
    def write(texts: dict[str, str]) -> str:
        return comment + "".join(form.format(key, text) for key, text in texts.items())

    return write


def json_of(texts: dict[str, str]) -> str:
    return json.dumps(texts, indent=2, ensure_ascii=False) + "\n"


def android(texts: dict[str, str]) -> str:
    lines = "".join(f'    <string name="{k}">{t}</string>\n' for k, t in texts.items())
    return f"<resources>\n    <!-- {len(texts)} -->\n{lines}</resources>\n"


def plist(texts: dict[str, str]) -> str:
    return "".join(f'/* {k} */\n"{k}" = "{t}";\n\n' for k, t in texts.items())


def resx(texts: dict[str, str]) -> str:
    rows = "".join(
        f'  <data name="{k}">\n    <value>{t}</value>\n  </data>\n' for k, t in texts.items()
    )
    return f"<root>\n  <resheader/>\n{rows}</root>\n"


FORMATS: dict[str, tuple[str, str, Callable[[dict[str, str]], str]]] = {
    "json": ("locales/en.json", "locales/{lang}.json", json_of),
    "arb": ("app_en.arb", "app_{lang}.arb", lambda t: json_of({"@@locale": "xx", **t})),
    "android": ("values/strings.xml", "values-{lang}/strings.xml", android),
    "apple": ("en.lproj/L.strings", "{lang}.lproj/L.strings", plist),
    "properties": ("m.properties", "m_{lang}.properties", rows("{0} = {1}\n", "# people\n")),
    "fluent": ("en/m.ftl", "{lang}/m.ftl", rows("{0} = {1}\n\n", "# people\n")),
    "resx": ("m.resx", "m.{lang}.resx", resx),
    "yaml": ("en.yml", "{lang}.yml", rows("  {0}: {1}\n", "# people\nxx:\n")),
}
BASE = {"open": "Open it", "close": "Close it", "save": "Save all", "quit": "Quit now"}


@pytest.mark.parametrize("kind", FORMATS)
def test_two_rounds(repository: Repository, kind: str) -> None:
    base, pattern, make = FORMATS[kind]

    def write(name: str, texts: dict[str, str], code: str) -> Path:
        return repository.write(name, make(texts).replace("xx", code))

    write(base, BASE, "en")
    people = {"quit": "Beenden", "old": "Altes", "open": "Öffne es"}  # in an order of their own
    target = write(pattern.replace("{lang}", "de"), people, "de")
    was = target.read_text("utf-8")

    def values() -> dict[str, str]:
        document = read_document(str(target), target.read_bytes(), target_language="de")
        return {re.sub("^(de\\.|string )", "", s.key): s.source for s in document.segments}

    assert repository.localise(base, pattern) == 0
    assert repository.asked == ["Close it", "Save all"]
    assert values() == {**people, "close": "CLOSE IT", "save": "SAVE ALL"}
    now = target.read_text("utf-8")
    lines = iter([line.rstrip(",") for line in now.splitlines()])
    assert all(line.rstrip(",") in lines for line in was.splitlines()), now
    states = {row["target"]: row["state"] for row in repository.rows}
    assert states["CLOSE IT"] == "translated" and states["Öffne es"] == "kept"

    os.utime(target, ns=(0, 0))
    target.write_text(now.replace("SAVE ALL", "Sichere alles"), "utf-8")
    changed = {**BASE, "close": "Close the file", "open": "Open the file", "new": "New one"}
    write(base, changed, "en")
    assert repository.localise(base, pattern) == 0
    assert sorted(repository.asked) == ["Close the file", "New one"]
    expected = {**people, "close": "CLOSE THE FILE", "save": "Sichere alles", "new": "NEW ONE"}
    assert values() == expected
    reasons = {re.sub(r"^(en\.|string )", "", row["key"]): row["reason"] for row in repository.rows}
    assert reasons["open"].endswith("its source has changed since")
    again = target.read_bytes()
    assert repository.localise(base, pattern) == 0
    assert not repository.asked and target.read_bytes() == again


@pytest.mark.parametrize("kind", FORMATS)
def test_texts_left_as_they_are_are_tried_again(repository: Repository, kind: str) -> None:
    base, target, write = FORMATS[kind]
    repository.write(base, write(BASE))
    repository.unknown = "Save all"
    for _ in range(2):
        assert repository.localise(base, target) == 1
        assert "Save all" in repository.asked
        left = [row for row in repository.rows if row["state"] == "needs-translation"]
        assert [row["source"] for row in left] == ["Save all"]
        assert "unknown" in left[0]["reason"]
    repository.unknown = ""
    assert repository.localise(base, target) == 0
    assert repository.asked == ["Save all"]
    text = (repository.top / target.replace("{lang}", "de")).read_text("utf-8")
    assert "SAVE ALL" in text and "OPEN IT" in text and "Save all" not in text
    assert repository.localise(base, target) == 0 and repository.asked == []


def test_a_trial_is_no_translation_of_a_target(repository: Repository) -> None:
    repository.write("en.json", json_of(BASE))
    options = ("--in-place", "--pseudo", "--target-language", "de")
    assert repository.localise("en.json", "{lang}.json", *options) == 0
    assert repository.localise("en.json", "{lang}.json") == 0
    texts = json.loads((repository.top / "de.json").read_text("utf-8"))
    assert texts == {key: text.upper() for key, text in BASE.items()}


def test_an_output_leaves_the_target(repository: Repository) -> None:
    repository.write("en.json", json_of(BASE))
    target = repository.write("de.json", json_of({"open": "Öffne es"}))
    was = target.read_bytes()
    out = repository.top / "out"
    assert repository.localise("en.json", "{lang}.json", "--output", str(out)) == 0
    made = json.loads((out / "de.json").read_text("utf-8"))
    assert made == {"open": "Öffne es", "close": "CLOSE IT", "save": "SAVE ALL", "quit": "QUIT NOW"}
    assert target.read_bytes() == was


def test_directories_and_missing_targets(repository: Repository) -> None:
    repository.write("en.lproj/A.strings", plist(BASE))
    repository.write("en.lproj/B.strings", plist({"x": "Another one"}))
    target = repository.write("de.lproj/A.strings", plist({"open": "Öffne es"}))
    assert repository.localise("en.lproj", "{lang}.lproj") == 0
    assert '"open" = "Öffne es"' in target.read_text("utf-8")
    assert "ANOTHER ONE" in (repository.top / "de.lproj" / "B.strings").read_text("utf-8")


def test_nested_objects_and_plurals(repository: Repository) -> None:
    repository.language = "ru"
    base = {"menu": {"a": "One", "sub": {"b": "Two", "c": "Three"}}, "n_one": "%d file", "z": "End"}
    repository.write("en.json", json.dumps({**base, "n_other": "%d files"}, indent=4))
    target = repository.write(
        "ru.json", json.dumps({"z": "Конец", "n_one": "%d файл", "n_other": "%d файла"}, indent=4)
    )
    assert repository.localise("en.json", "{lang}.json") == 0
    made = json.loads(target.read_text("utf-8"))
    assert made["menu"] == {"a": "ONE", "sub": {"b": "TWO", "c": "THREE"}}
    assert (made["n_one"], made["n_other"], made["z"]) == ("%d файл", "%d файла", "Конец")
    assert made["n_few"] == made["n_many"] == "%d FILES"


def test_equal_texts_are_as_people_wrote_them(repository: Repository) -> None:
    repository.write("en.json", json_of({"a": "Open it", "b": "Open it"}))
    target = repository.write("de.json", json_of({"a": "Öffne es"}))
    assert repository.localise("en.json", "de.json") == 0
    assert not repository.asked
    assert json.loads(target.read_text("utf-8")) == {"a": "Öffne es", "b": "Öffne es"}


@pytest.mark.parametrize("value", [True, False, None, 0, 1.5, [1, True], {"deep": 12}])
def test_values_beside_texts_stay(repository: Repository, value: object) -> None:
    repository.write("en.json", json.dumps({"a": "Open it", "v": value, "b": "Close it"}, indent=2))
    target = repository.write("de.json", json.dumps({"a": "Öffne es", "v": value}, indent=2))
    assert repository.localise("en.json", "de.json") == 0
    made = json.loads(target.read_text("utf-8"))
    assert made == {"a": "Öffne es", "v": value, "b": "CLOSE IT"}


def test_line_ends_and_indents_of_a_target_stay(repository: Repository) -> None:
    repository.write("en.json", json.dumps(BASE, indent=4))
    texts = {"open": "Öffne es", "quit": "Beenden"}
    target = repository.write("de.json", json.dumps(texts, indent=1).replace("\n", "\r\n"))
    assert repository.localise("en.json", "de.json") == 0
    text = target.read_bytes().decode()
    assert json.loads(text).keys() == BASE.keys()
    assert '\r\n "quit": "Beenden"' in text and not re.search("[^\r]\n", text)


def test_a_target_that_cannot_be_filled_in_is_kept_aside(
    repository: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    repository.write("en.php", "<?php\nreturn ['x' => 'One text', 'y' => 'Two texts'];\n")
    text = "<?php\nreturn ['y' => 'Zwei', 'old' => 'Alt'];\n"
    target = repository.write("de.php", text)
    assert repository.localise("en.php", "de.php") == 0
    assert (repository.top / "de.php.~1~").read_text() == text
    assert "de.php: the new one has no place for what people wrote" in capsys.readouterr().err
    values = read_document("de.php", target.read_bytes()).segments
    assert {s.key: s.source for s in values} == {"x": "ONE TEXT", "y": "Zwei"}


@pytest.mark.parametrize(
    ("name", "base", "target", "expected"),
    [
        (
            "ini",
            "[a]\nx = One\n\n# of z\n[c]\nz = Six\n\n[b]\ny = Two\nw = Four\n\n[d]\nq = Last\n",
            "; people\n[b]\n; mine\ny = Zwei\n\n; c\n[a]\nold = Alt\n",
            "; people\n\n# of z\n[c]\nz = SIX\n\n[b]\n; mine\ny = Zwei\nw = FOUR\n\n"
            "[d]\nq = LAST\n\n; c\n[a]\nx = ONE\nold = Alt\n",
        ),
        ("ini", "[a]\nx = One\n[b]\ny = Two\n", "[a]\nx = Eins", "[a]\nx = Eins\n\n[b]\ny = TWO"),
        ("ini", "top = Head\n[a]\nx = One\n", "[a]\nx = Eins\n", "top = HEAD\n[a]\nx = Eins\n"),
        ("ini", "[a]\nx = One\n", "; none\n[a]\n", "; none\n[a]\nx = ONE\n"),
        (
            "toml",
            '[a]\nx = "One"\n\n[a.b]\ny = "Two"\n\n[[l]]\nn = "First"\n\n[[l]]\nn = "Next"\n',
            '# people\n[[l]]\nn = "Erste"\n\n[a.b]\ny = "Zwei"\n',
            '# people\n\n[a]\nx = "ONE"\n\n[[l]]\nn = "Erste"\n\n[[l]]\nn = "NEXT"\n\n'
            '[a.b]\ny = "Zwei"\n',
        ),
        (
            "json",
            '{"a": "One", "b": "Two", "c": "Three"}',
            '{"old": "Alt, {mit} [Zeichen]", "b": "Zwei"}',
            '{"a": "ONE", "old": "Alt, {mit} [Zeichen]", "b": "Zwei", "c": "THREE"}',
        ),
        (
            "json",
            '{\n  "a": "One",\n  "b": {\n    "x": "Two",\n    "y": "Six"\n  }\n}',
            '{"b":{"y":"Sechs"},"old":"Alt"}',
            '{"a":"ONE","b":{"x":"TWO","y":"Sechs"},"old":"Alt"}',
        ),
        (
            "json",
            '{\n  "m": {"x": "Two", "n": {\n    "y": "Six"\n  }, "l": ["One", "Two"]}\n}\n',
            '{\n\t"m": {\n\t\t"old": "Alt",\n\t\t"l": ["Eins"]\n\t}, "n": 1\n}\n',
            '{\n\t"m": {\n\t\t"x": "TWO",\n\t\t"n": {\n\t\t\t"y": "SIX"\n\t\t},\n\t\t"old": "Alt",'
            '\n\t\t"l": ["Eins", "TWO"]\n\t}, "n": 1\n}\n',
        ),
        (  # as people and tools write gaps, and other forms of a text
            "json",
            '{"a": "One", "b": "Two", "c": {"d": "Six"}, "e": "Ten", "f": ["Old"], "g": "New"}',
            '{"a": "", "b": null, "c": null, "e": ["Zehn", "10"], "f": "Alt", "g": 7}',
            '{"a": "ONE", "b": "TWO", "c": {"d": "SIX"}, "e": ["Zehn", "10"], "f": "Alt", "g": 7}',
        ),
        ("json", '{\n  "a": "One"\n}\n', "{}\n", '{\n  "a": "ONE"\n}\n'),
        (
            "php",
            "<?php\nreturn [\n    'a' => 'One',\n    'm' => [\n        'x' => 'Two',\n    ],\n];\n",
            "<?php\nreturn [\n    'old' => 'Alt'\n];\n",
            "<?php\nreturn [\n    'old' => 'Alt',\n    'a' => 'ONE',\n    'm' => [\n"
            "        'x' => 'TWO',\n    ],\n];\n",
        ),
        (
            "yml",
            "en:\n  a: One\n  m:\n    x: Two\n    y: Six\n  z: Four\n",
            "de:\n  m:\n    old: Alt\n  z: Vier\n",
            "de:\n  m:\n    old: Alt\n    x: TWO\n    y: SIX\n  a: ONE\n  z: Vier\n",
        ),
    ],
)
def test_sections_and_objects_that_a_target_lacks(
    repository: Repository, name: str, base: str, target: str, expected: str
) -> None:
    repository.write(f"en.{name}", base)
    path = repository.write(f"de.{name}", target)
    assert repository.localise(f"en.{name}", f"de.{name}") == 0
    assert path.read_text() == expected
    assert not path.with_name(f"{path.name}.~1~").exists()


VALUE = "\n  <value>{}</value>"
RESX = f'<root>\n <resheader/>\n <data name="a">{VALUE}\n </data>\n <data name="b">{VALUE}'


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("ini", "[s]\nx = {}\ny = {}\n"),
        ("properties", "# c\na={}\nb={}\n"),
        ("strings", '"a" = "{}";\n"b" = "{}";\n'),
        ("xml", '<resources>\n <string name="a">{}</string>\n <string name="b">{}</string>\n'),
        ("yml", 'k:\n  a: "{}"\n  b: "{}"\n'),
        ("toml", 'a = "{}"\nb = "{}"\n'),
        ("php", "<?php\nreturn [\n    'a' => '{}',\n    'b' => '{}',\n];\n"),
        ("resx", f"{RESX}\n </data>\n"),
    ],
)
def test_keys_without_a_text_get_one(repository: Repository, name: str, form: str) -> None:
    form += {"xml": "</resources>\n", "resx": "</root>\n"}.get(name, "")
    repository.write(f"en.{name}", form.format("One", "Two"))
    path = repository.write(f"de.{name}", form.format("", "Zwei"))
    assert repository.localise(f"en.{name}", f"de.{name}") == 0
    assert path.read_text() == form.format("ONE", "Zwei")


@pytest.mark.parametrize("option", ["--review", "--xliff", "--report"])
def test_results_do_not_replace_documents(
    repository: Repository, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    page = repository.write("a.html", "<p>One text</p>")
    options = [option, str(page)]
    if option == "--report":
        options += ["--output", str(repository.top / "out")]
    assert main(["localise", "-", str(page), "--pseudo", *options]) == 2
    assert "a.html is an input, which this would replace" in capsys.readouterr().err
    assert page.read_text() == "<p>One text</p>"


def test_a_base_is_no_target(repository: Repository, capsys: pytest.CaptureFixture[str]) -> None:
    base = repository.write("en.json", '{"a": "One text"}')
    command = ["localise", "-", str(base), "--target", str(base), "--in-place", "--pseudo"]
    assert main(command) == 2
    assert "en.json is the document itself" in capsys.readouterr().err
    assert base.read_text() == '{"a": "One text"}'


def test_files_with_sources_are_refused(
    repository: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    repository.write("a.po", 'msgid "One"\nmsgstr ""\n')
    repository.write("de.po", 'msgid "One"\nmsgstr "Eins"\n')
    assert repository.localise("a.po", "de.po") != 0
    assert "--target is for files of keys in one language" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("pattern", "language", "path"),
    [
        ("values-{lang}/strings.xml", "pt-BR", "values-pt-rBR/strings.xml"),
        ("values-{lang}/strings.xml", "zh-Hant", "values-b+zh+Hant/strings.xml"),
        ("{lang}.lproj", "pt-BR", "pt-BR.lproj"),
        ("locales/{lang}/app.json", "de", "locales/de/app.json"),
    ],
)
def test_paths_of_targets(pattern: str, language: str, path: str) -> None:
    assert target_path(Path(pattern), language) == Path(path)
    with pytest.raises(DataError, match="give --target-language"):
        target_path(Path(pattern), None)


@pytest.mark.parametrize("pattern", ["{language}.json", "{}/a.json", "{lang}/{locale}.json"])
def test_other_placeholders_of_targets_are_refused(
    repository: Repository, pattern: str, capsys: pytest.CaptureFixture[str]
) -> None:
    base = repository.write("en.json", '{"a": "One text"}')
    target = str(repository.top / pattern)
    command = ["localise", "none", str(base), "--target", target, "--in-place"]
    assert main(command) == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1 and "} is no placeholder" in message and "{lang}" in message
    assert not repository.top.joinpath(pattern).exists()


@pytest.mark.parametrize("code", ["../../x", "..", "de/x", "de\nx", "", "de]", r"de\x"])
def test_a_language_is_no_path(
    repository: Repository, code: str, capsys: pytest.CaptureFixture[str]
) -> None:
    base = repository.write("a/b/en.json", '{"a": "One text"}')
    options = ["--target", str(base.with_name("{lang}.json")), "--in-place", "--pseudo"]
    assert main(["localise", "-", str(base), *options, "--target-language", code]) == 2
    assert "is no code of a language; give such as de or pt-BR" in capsys.readouterr().err
    repository.language = code  # of a recipe
    (repository.top / "report.jsonl").write_text("")
    assert repository.localise("a/b/en.json", "a/b/{lang}.json") == 2
    assert [path.name for path in base.parent.iterdir()] == ["en.json"]
