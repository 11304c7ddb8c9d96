"""INI, entries of desktops, TOML, arrays of PHP, and ASS subtitles."""

from __future__ import annotations

import tomllib

import pytest

from helpers.message_samples import ASS, DESKTOP, INI, PHP, TOML
from transduce.errors import DataError
from transduce.localise.document import Document
from transduce.localise.formats import read_document
from transduce.localise.inline import parts_of


def read(name: str, text: str, language: str = "de") -> Document:
    return read_document(name, text.encode(), target_language=language)


def raised(document: Document) -> str:
    """The file with its texts in capitals, but for their tags."""
    targets = {
        s.key: "".join(p if is_tag else p.upper() for is_tag, p in parts_of(s.source, s.tags))
        for s in document.segments
    }
    return document.with_targets(targets).decode()


def texts(document: Document) -> dict[str, str]:
    return {segment.key: segment.source for segment in document.segments}


def test_ini() -> None:
    document = read("a.ini", INI)
    assert texts(document) == {
        "menu.open": "Open the file",
        "menu.quoted": "Close it = now",
        "menu.path": "Save all",
    }
    assert 'quoted = "CLOSE IT = NOW"\nsize = 12\n' in raised(document)
    with pytest.raises(DataError, match=r"menu\.open: the translation has a line break"):
        document.with_targets({"menu.open": "a\nb"})
    with pytest.raises(DataError, match=r'menu\.quoted: the translation has "'):
        document.with_targets({"menu.quoted": 'a "b"'})


def test_entries_of_desktops() -> None:
    document = read("a.desktop", DESKTOP)
    states = {segment.key: segment.state for segment in document.segments}
    assert states == {
        "Desktop Entry.Name": "missing",
        "Desktop Entry.Comment": "translated",
        "Desktop Entry.Keywords": "missing",
        "Desktop Action new.Name": "missing",
    }
    made = document.with_targets({"Desktop Entry.Name": "Texteditor"}).decode()
    assert made == DESKTOP.replace("Name=Text Editor\n", "Name=Text Editor\nName[de]=Texteditor\n")
    again = read("a.desktop", made, "de-AT")
    assert [s.target for s in again.segments if s.key == "Desktop Entry.Name"] == ["Texteditor"]
    assert "Name[pt_BR]=NEW" in raised(read("a.desktop", DESKTOP, "pt-BR"))
    with pytest.raises(DataError, match="give --target-language"):
        read_document("a.desktop", DESKTOP.encode())


def test_toml() -> None:
    document = read("a.toml", TOML)
    made = tomllib.loads(raised(document))
    assert made["title"] == 'OPEN "IT" # NOW'
    assert made["more"]["a.b"]["list"] == ["FIRST ONE", "SECOND ONE", 3]
    assert made["more"]["a.b"]["long"] == "TWO\nLINES"
    assert made["more"]["a.b"]["raw"] == "A 'RAW' TEXT"
    assert made["more"]["a.b"]["inline"] == {"a": "IN LINE", "b": 1.5}
    assert "# a comment" in raised(document)
    russian = tomllib.loads(raised(read("a.toml", TOML, "ru")))
    assert set(russian["files"]) == {"one", "few", "many", "other"}
    with pytest.raises(DataError, match="the file is not TOML"):
        read("a.toml", "a = ")


def test_arrays_of_php() -> None:
    document = read("a.php", PHP)
    assert texts(document) == {
        "open": 'Open it\'s "file"',
        "close": "Close\nit",
        "menu.save": "Save all",
    }
    made = raised(document)
    assert (
        "'OPEN IT\\'S \"FILE\"'" in made and '"CLOSE\\nIT"' in made and "'no' => 'comment'" in made
    )
    assigned = read("a.php", "<?php\n$lang['a'] = 'One text';\n$lang[\"b\"] = \"Two $x\";\n")
    assert texts(assigned) == {"a": "One text", "b": "Two $x"}
    joined = read("a.php", "<?php return ['a' => 'One' . $x, 'b' => f('no'), 'c' => 'Yes it is'];")
    assert texts(joined) == {"c": "Yes it is"}
    assert [record.reason for record in joined.unread] == ["it is joined with other strings"]


def test_dialogue() -> None:
    document = read("a.ass", ASS)
    assert [s.source for s in document.segments] == ["Hello, you\nand others", "Second line"]
    made = raised(document)
    assert r",,{\an8}HELLO, YOU\NAND OTHERS" in made and r"{\p1}m 0 0" in made
    inner = read("a.ass", ASS.replace("Second line", r"A {\i1}very{\i0} long line"))
    assert inner.segments[1].tags == (r"{\i1}", r"{\i0}")
    assert r",,A {\i1}VERY{\i0} LONG LINE" in raised(inner)
    with pytest.raises(DataError, match="would be a sign of ASS"):
        document.with_targets({document.segments[0].key: "a {b}"})


@pytest.mark.parametrize("newline", ["\r\n", "\r"])
@pytest.mark.parametrize(("name", "text"), [("a.ini", INI), ("a.desktop", DESKTOP), ("a.ass", ASS)])
def test_line_ends_of_other_systems(name: str, text: str, newline: str) -> None:
    lines = read(name, text.replace("\n", newline))
    assert texts(lines) == texts(read(name, text))
    assert raised(lines).replace(newline, "\n") == raised(read(name, text))


def test_lines_of_a_string_of_toml_end_as_those_of_the_file() -> None:
    made = raised(read("a.toml", 'a = """\r\nOne two\r\nthree"""\r\nb = "Four"\r\n'))
    assert made == 'a = """\r\nONE TWO\r\nTHREE"""\r\nb = "FOUR"\r\n'


def test_an_empty_translation_of_a_desktop_entry_is_filled_in() -> None:
    document = read("a.desktop", "[Desktop Entry]\nName=Open file\nName[de]=\nExec=a\n")
    assert [segment.state for segment in document.segments] == ["missing"]
    assert raised(document) == "[Desktop Entry]\nName=Open file\nName[de]=OPEN FILE\nExec=a\n"


def test_what_is_no_array_of_php_stays() -> None:
    text = (
        "<p>It's</p><?php\n$a['x'] = 'One text';\n$a['y'] = <<<END\nSay 'two words';\n  END;\n"
        "$a['z'] = 'Three words'; ?><p>Don't = 'four words';</p><?php $a['w'] = 'Five words';"
    )
    document = read("a.php", text)
    assert texts(document) == {"x": "One text", "z": "Three words", "w": "Five words"}
    assert [(r.key, r.reason) for r in document.unread] == [("y", "it is a heredoc")]
    with pytest.raises(DataError, match="arrays are deeper than 200"):
        read("a.php", f"<?php return {'[' * 300}'a' => 'One two'{']' * 300};")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.ini", "a = One text\nb = Two\na = Other text\n"),
        ("a.php", "<?php return ['a' => 'One text', 'b' => 'Two', 'a' => 'Other text'];"),
    ],
)
def test_texts_of_a_key_that_is_there_twice_are_named(name: str, text: str) -> None:
    document = read(name, text)
    assert texts(document) == {"a": "One text", "b": "Two"}
    assert [(r.source, r.reason) for r in document.unread] == [
        ("Other text", "its key is there before")
    ]
