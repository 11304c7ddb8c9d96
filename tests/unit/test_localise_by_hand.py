"""Corrections by people in an output stay where the command writes it again."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from helpers.localised_document import Output
from helpers.message_samples import SAMPLES, docx
from transduce import DecodingOptions
from transduce.cli import documents
from transduce.cli.main import main
from transduce.localise.document import Record, Segment
from transduce.localise.formats import read_document
from transduce.localise.translate import localised

pytest.importorskip("sentencex")


class Command:
    """`transduce localise` of a document by a translator that writes capitals."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self.asked: list[str] = []
        self.clock = 1_000_000_000
        self.language = "de"
        self.written: Callable[[str], str] = str.upper
        (top / "run").mkdir()

    def translation(self, *_: object) -> tuple[documents.Translate, str, str]:
        def translate(texts: Sequence[str], options: Sequence[DecodingOptions]) -> list[Output]:
            self.asked += texts
            return [Output(self.written(text)) for text in texts]

        def records(file: str, segments: Sequence[Segment]) -> list[Record]:
            return localised(segments, "en", translate, DecodingOptions(), None, self.language)

        return records, "en", self.language

    def __call__(self, name: str, content: str | bytes, *options: str) -> tuple[int, str]:
        """The exit code, and the output, of a document whose source has just changed."""
        file, out = self.top / name, self.top / "out" / name
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        self.clock += 1000
        os.utime(file, (self.clock, self.clock))
        self.asked.clear()
        report = self.top / "report.jsonl"
        command = ["localise", str(self.top / "run"), str(file), "--output", str(out.parent)]
        code = main([*command, "--report", str(report), *options])
        for path in out.parent.iterdir():  # all were written just now
            os.utime(path, (self.clock + 1, self.clock + 1))
        return code, out.read_bytes().decode("utf-8", "replace") if name[-5:] != ".docx" else ""

    def edit(self, name: str, old: str, new: str) -> None:
        out = self.top / "out" / name
        text = out.read_text("utf-8")
        assert text.count(old) == 1, text
        out.write_text(text.replace(old, new), "utf-8")
        os.utime(out, (self.clock + 1, self.clock + 1))

    def kept(self) -> list[tuple[str, str]]:
        rows = map(json.loads, (self.top / "report.jsonl").read_text("utf-8").splitlines())
        return [(row["target"], row["reason"]) for row in rows if row["state"] == "kept"]


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    made = Command(tmp_path)
    monkeypatch.setattr(documents, "translation_by", made.translation)
    return made


def lines(form: str) -> Callable[[dict[str, str]], str]:
    return lambda texts: "".join(form.format(key, text) for key, text in texts.items())


def around(before: str, form: str, after: str) -> Callable[[dict[str, str]], str]:
    return lambda texts: f"{before}\n{lines(form)(texts)}{after}\n"


XLIFF = '<xliff version="1.2"><file source-language="en" target-language="de"><body>'
XLIFF_2 = '<xliff version="2.0" srcLang="en" trgLang="de"><file id="f">'
MESSAGE = "<message><source>{1}</source><translation type='unfinished'></translation></message>\n"
HEADER = 'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n'
RESX = "<root><resheader name='version'><value>2.0</value></resheader>"
FORMS: dict[str, Callable[[dict[str, str]], str]] = {
    "a.json": lambda texts: json.dumps(texts, indent=2) + "\n",
    "a.arb": lambda texts: json.dumps({"@@locale": "en", **texts}, indent=2) + "\n",
    "a.yml": around("en:", "  {}: {}\n", ""),
    "a.properties": lines("{} = {}\n"),
    "a.strings": lines('"{}" = "{}";\n'),
    "a.ftl": lines("{} = {}\n"),
    "a.xml": around("<resources>", "<string name='{}'>{}</string>\n", "</resources>"),
    "a.resx": around(RESX, "<data name='{}'><value>{}</value></data>\n", "</root>"),
    "a.txt": lines("{1}\n"),
    "a.md": around("# Title\n", "{1}\n\n", ""),
    "a.html": around("<h1>Title</h1>", "<p>{1}</p>\n", ""),
    "a.vtt": around("WEBVTT\n", "00:01.000 --> 00:02.000\n{1}\n\n", ""),
    "a.po": around(HEADER, '\n#. {}\nmsgid "{}"\nmsgstr ""\n', ""),
    "a.xlf": around(
        XLIFF,
        "<trans-unit id='{}'><source>{}</source></trans-unit>\n",
        "</body></file></xliff>",
    ),
    "b.xlf": around(
        XLIFF_2,
        "<unit id='{}'><segment><source>{}</source></segment></unit>\n",
        "</file></xliff>",
    ),
    "a.ts": around("<TS language='de'><context>", MESSAGE, "</context></TS>"),
    "a.csv": around("id,source,target", "{},{},\n", ""),
}
FIRST = {"a": "Open the file.", "b": "Close the file.", "c": "Save it."}


@pytest.mark.parametrize("name", FORMS)
def test_corrections_stay_and_only_what_is_new_is_translated(command: Command, name: str) -> None:
    form = FORMS[name]
    code, made = command(name, form(FIRST))
    assert code == 0 and "CLOSE THE FILE." in made
    command.edit(name, "CLOSE THE FILE.", "Shut the thing.")
    second = {"n": "Print it.", **FIRST, "c": "Save it now."}
    code, again = command(name, form(second))
    assert code == 0 and command.asked == ["Print it.", "Save it now."]
    for text in ("PRINT IT.", "OPEN THE FILE.", "Shut the thing.", "SAVE IT NOW."):
        assert again.count(text) == 1
    assert "CLOSE THE FILE." not in again
    assert command.kept() == [("Shut the thing.", "")]
    code, last = command(name, form(second), "--only", "all")
    assert code == 0 and last == again and len(command.asked) >= 3
    assert not [*command.top.glob("out/*~")]


MONOLINGUAL = [name for name in FORMS if name not in ("a.po", "a.xlf", "b.xlf", "a.ts", "a.csv")]


@pytest.mark.parametrize("name", MONOLINGUAL)
def test_a_correction_whose_source_has_changed_is_named(
    command: Command, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    form = FORMS[name]
    command(name, form(FIRST))
    command.edit(name, "CLOSE THE FILE.", "Shut the thing.")
    third = {**FIRST, "b": "Close both files.", "a": "Open both files."}
    code, made = command(name, form(third))
    assert code == 0 and "OPEN BOTH FILES." in made and "Shut the thing." in made
    assert "CLOSE" not in made
    reason = "kept as it was corrected by hand; its source has changed since"
    assert command.kept() == [("Shut the thing.", reason)]
    assert f"1 segments: {reason}" in capsys.readouterr().err
    command(name, form(third))
    assert command.kept() == [("Shut the thing.", reason)] and command.asked == []
    command.edit(name, "Shut the thing.", "Shut both.")
    code, made = command(name, form(third))
    assert command.kept() == [("Shut both.", "")] and "Shut both." in made


def paragraphs(*texts: str) -> bytes:
    return docx("".join(f"<w:p><w:r><w:t>{text}</w:t></w:r></w:p>" for text in texts))


def texts_of(content: bytes) -> list[str]:
    return [segment.source for segment in read_document("a.docx", content).segments]


def test_corrections_in_word(command: Command) -> None:
    out = command.top / "out" / "a.docx"
    command("a.docx", paragraphs("Open the file.", "Close it."))
    assert texts_of(out.read_bytes()) == ["OPEN THE FILE.", "CLOSE IT."]
    out.write_bytes(paragraphs("OPEN THE FILE.", "Shut."))
    command("a.docx", paragraphs("New.", "Open the file.", "Close it."))
    assert texts_of(out.read_bytes()) == ["NEW.", "OPEN THE FILE.", "Shut."]
    assert command.asked == ["New."] and command.kept() == [("Shut.", "")]


def test_a_correction_after_the_change_of_its_source(command: Command) -> None:
    """The output is newer than the source, and lacks a key nevertheless."""
    command("a.json", '{"a": "Open"}')
    command.edit("a.json", "OPEN", "Auf")
    file, out = command.top / "a.json", command.top / "out" / "a.json"
    file.write_text('{"a": "Open", "b": "Close"}')
    os.utime(file, (command.clock + 5, command.clock + 5))
    os.utime(out, (command.clock + 9, command.clock + 9))
    assert main(["localise", str(command.top / "run"), str(file), "--output", str(out.parent)]) == 0
    assert json.loads(out.read_text()) == {"a": "Auf", "b": "CLOSE"}


def test_forms_of_a_plural_are_corrected_one_by_one(command: Command) -> None:
    command.language = "ru"
    source = '{"n_one": "One file", "n_other": "Many files"%s}'
    command("a.json", source % "")
    out = command.top / "out" / "a.json"
    texts = json.loads(out.read_text())
    assert texts.keys() == {"n_one", "n_few", "n_many", "n_other"}
    out.write_text(json.dumps(texts | {"n_few": "By hand"}))
    _, made = command("a.json", source % ', "b": "New"')
    assert json.loads(made) == texts | {"n_few": "By hand", "b": "NEW"}
    assert command.kept() == [("By hand", "")]


@pytest.mark.parametrize(
    ("name", "source", "edit", "named"),
    [
        ("a.json", '{"a": "Open", "b": "Close"}', ("{", '{"x": "Mehr", '), "x"),
        ("a.md", "Open.\n\nClose.\n", ("OPEN.", "OPEN.\n\nMehr."), "line 3"),
        ("a.md", "Open.\n\nClose.\n", ("OPEN.", "- OPEN."), "the text around"),
        ("a.html", "<p>Open</p>", ("<p>", "<p class=x>"), "the text around"),
    ],
)
def test_what_has_no_place_in_the_new_output_is_kept_aside(
    command: Command,
    name: str,
    source: str,
    edit: tuple[str, str],
    named: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    command(name, source)
    out = command.top / "out" / name
    command.edit(name, *edit)
    last = out.read_text()
    command(name, source.replace("Open", "Open it"))
    assert "OPEN IT" in out.read_text()
    assert (out.parent / f"{name}.~1~").read_text() == last
    error = capsys.readouterr().err
    assert f"{out}: the new one has no place for what" in error and named in error
    command.edit(name, *(text.replace("OPEN", "OPEN IT") for text in edit))
    command(name, source.replace("Open", "Open both"))
    assert (out.parent / f"{name}.~2~").exists() and (out.parent / f"{name}.~1~").exists()


def test_a_correction_whose_source_has_gone_is_kept_aside(command: Command) -> None:
    command("a.json", '{"a": "Open", "b": "Close"}')
    command.edit("a.json", "CLOSE", "Zu")
    _, made = command("a.json", '{"a": "Open"}')
    assert made == '{"a": "OPEN"}' and command.asked == []
    assert "Zu" in (command.top / "out/a.json.~1~").read_text()


@pytest.mark.parametrize("name", ["a.json", "a.po", "a.txt"])
def test_an_output_without_a_lock(
    command: Command, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its units are by hand, where their places are known, else it is kept aside."""
    command(name, FORMS[name](FIRST))
    (command.top / "out" / f".{name}.lock").unlink()
    command.edit(name, "SAVE IT.", "Sichern.")
    _, made = command(name, FORMS[name]({**FIRST, "d": "Print."}))
    aside = command.top / "out" / f"{name}.~1~"
    assert "PRINT." in made and aside.exists() == (name == "a.txt")
    assert "Sichern." in (aside.read_text() if aside.exists() else made)
    error = capsys.readouterr().err
    assert ("without a lock, its texts count as corrections" in error) != aside.exists()


def test_outputs_and_locks_that_cannot_be_read(
    command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    command("a.json", '{"a": "Open"}')
    command.edit("a.json", "}", "")
    code, made = command("a.json", '{"a": "Open", "b": "Close"}')
    assert code == 1 and made == '{"a": "OPEN"'
    assert "out/a.json: the file is not JSON" in capsys.readouterr().err
    (command.top / "out/.a.json.lock").write_text("[]")
    code, made = command("a.json", '{"a": "Open", "b": "Close it"}')
    assert code == 1 and made == '{"a": "OPEN"'
    assert ".a.json.lock: it is no lock of an output" in capsys.readouterr().err


def test_states_that_people_set_stay(command: Command) -> None:
    """A message that is fuzzy no more, and a unit that is final."""
    form = FORMS["a.po"]
    command("a.po", form(FIRST))
    out = command.top / "out" / "a.po"
    first = out.read_text()
    assert first.count("#, fuzzy") == 3
    out.write_text(first.replace("#, fuzzy\n", "", 1))
    _, made = command("a.po", form({"n": "Print it.", **FIRST}))
    assert made.count("#, fuzzy") == 3 and made.index("PRINT IT.") < made.index("OPEN THE FILE.")
    assert '#. a\nmsgid "Open the file."\nmsgstr "OPEN THE FILE."\n' in made
    command("a.xlf", FORMS["a.xlf"](FIRST))
    out = command.top / "out" / "a.xlf"
    out.write_text(out.read_text().replace('state="needs-review-translation"', 'state="final"', 1))
    _, made = command("a.xlf", FORMS["a.xlf"]({"n": "Print it.", **FIRST}))
    assert made.count('state="final"') == 1 and command.asked == ["Print it."]
    assert 'state="final">OPEN THE FILE.' in made


def test_a_newer_run_translates_all_but_corrections_again(command: Command) -> None:
    command("a.json", '{"a": "Open", "b": "Close"}')
    command.edit("a.json", "CLOSE", "Zu")
    (command.top / "run" / "recipe.toml").write_text("")
    _, made = command("a.json", '{"a": "Open", "b": "Close"}')
    assert command.asked == ["Open", "Close"] and made == '{"a": "OPEN", "b": "Zu"}'
    assert command.kept() == [("Zu", "")]


def test_a_segment_that_was_left_is_done_by_hand(command: Command) -> None:
    command.written = lambda text: text.replace("%s", "")
    code, made = command("a.json", '{"a": "Open %s", "b": "Close"}')
    assert code == 1 and made == '{"a": "Open %s", "b": "Close"}'
    command.edit("a.json", "Open %s", "%s auf")
    code, made = command("a.json", '{"a": "Open %s", "b": "Close", "c": "New"}')
    assert code == 0 and made == '{"a": "%s auf", "b": "Close", "c": "New"}'


CUES = (
    "He goes to the",
    "house now. <i>And then</i> he",
    "stops there, tired.",
)
PAGES = {
    "z.srt": "".join(
        f"{i}\n00:00:0{i},000 --> 00:00:0{i},900\n{cue}\n\n" for i, cue in enumerate(CUES, 1)
    ),
    "z.md": "---\ntitle: My page\n---\n# Title\n\nSome *text* with a [link](x.html) in\ntwo "
    "lines.\n\n- Item one\n- Item two\n\n|a|b|\n|-|-|\n| cell one | cell two |\n",
    "z.html": '<h1 title="Tip here">Head</h1><p>Some <b>bold</b> text <img alt="A picture"> end.'
    '</p><ul><li>One item<li>Two items</ul><input placeholder="Your name">',
}
DOCUMENTS = {name: content for name, (content, _) in SAMPLES.items() if content[:2] != b"PK"}


@pytest.mark.parametrize("name", [*DOCUMENTS, *PAGES])
def test_a_word_by_hand_in_each_format(command: Command, name: str) -> None:
    """Nothing else changes, nothing is asked, and nothing has no place."""
    command.written = lambda text: f"Zz {text}"
    content = DOCUMENTS.get(name) or PAGES[name].encode()
    command(name, content)
    out = command.top / "out" / name
    decoded = read_document(name, out.read_bytes(), target_language="de").decoded
    for place in [match.start() for match in re.finditer("Zz", decoded.text)][::3]:
        text = f"{decoded.text[:place]}Xx{decoded.text[place + 2 :]}"
        out.write_bytes(decoded.bom + text.encode(decoded.encoding))
        command(name, content)
        assert out.read_bytes() == decoded.bom + text.encode(decoded.encoding)
        assert command.asked == [] and len(command.kept()) >= 1
        out.unlink()
        command(name, content)
    assert not [*out.parent.glob("*~")]
