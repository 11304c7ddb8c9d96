"""Small samples of the formats of messages, with what each format's own reader says of them."""

from __future__ import annotations

import configparser
import csv
import io
import json
import plistlib
import re
import tomllib
import zipfile
from collections.abc import Callable
from xml.parsers import expat

import yaml

from helpers.office_samples import OFFICE, docx, shown
from transduce.localise.formats import read_document


def po(content: bytes) -> None:
    """Every line belongs to an entry."""
    assert not read_document("a.po", content).unread


PO = rb"""# Title
msgid ""
msgstr ""
"Language: de\nContent-Type: text/plain; charset=UTF-8\n"
"Plural-Forms: nplurals=2; plural=(n != 1);\n"

#: a.c:1
#, c-format
msgid "Open \"%s\""
msgstr ""

#, fuzzy, c-format
#| msgid "Close"
msgid "Close it"
msgstr "Schliess"

msgctxt "menu"
msgid "Close it"
msgstr "Schliessen"

msgid ""
"Usage: %s\n"
"  -a  a long line that goes on and on and on \n"
msgstr ""

msgid "One file"
msgid_plural "%d files"
msgstr[0] ""
msgstr[1] ""

#~ msgid "Old"
#~ msgstr "Alt"
"""

XLIFF = """<?xml version="1.0" encoding="UTF-8"?>
<!-- > -->
<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">
  <file original="a" source-language="en" target-language="de" datatype="plaintext"><body>
    <trans-unit id="a&amp;b" approved="yes">
      <source>Open <g id="1">the <x id="2"/>file</g> &#8220;%s&quot; &amp; go.</source>
    </trans-unit>
    <trans-unit id="b" translate="no"><source>Keep</source></trans-unit>
    <trans-unit id="c" approved="yes"><source>Yes</source><target>Ja</target></trans-unit>
    <trans-unit id="d"><source>No</source><target state="needs-translation">No</target>
      <note/></trans-unit>
    <trans-unit id="e"><source>Hi</source><target state='translated'>Hallo</target></trans-unit>
    <trans-unit id="f"><source>A b. C d.</source>
      <seg-source><g id="1"><mrk mtype="seg" mid="0">A b.</mrk> \
<mrk mid="1" mtype="seg">C d.</mrk></g></seg-source>
    </trans-unit>
    <trans-unit id="g"><source>A</source><target xml:lang="de"/></trans-unit>
    <trans-unit id="h"><source><ph id="1">x</ph></source></trans-unit>
    <trans-unit id="i"><source>
      Two
      lines <bpt id="1">&lt;b&gt;</bpt>x<ept id="1">&lt;/b&gt;</ept></source></trans-unit>
  </body></file>
</xliff>
"""

SDL = """\ufeff<?xml version="1.0" encoding="utf-8"?>\
<xliff xmlns:sdl="s" version="1.2"><file target-language="de"><body>\
<trans-unit id="1"><source>A b. C d.</source><seg-source><mrk mtype="seg" mid="1">A b.</mrk> \
<g id="2"><mrk mtype="seg" mid="2">C d.</mrk></g></seg-source><target><mrk mtype="seg" mid="1" /> \
<g id="2"><mrk mtype="seg" mid="2">X</mrk></g></target><sdl:seg-defs><sdl:seg id="1" />\
<sdl:seg id="2" conf="Draft" origin="mt"></sdl:seg></sdl:seg-defs></trans-unit>\
<trans-unit id="2"><source>L</source><seg-source><mrk mtype="seg" mid="3">L</mrk></seg-source>\
<target><mrk mtype="seg" mid="3" /></target><sdl:seg-defs><sdl:seg id="3" locked="true" />\
</sdl:seg-defs></trans-unit></body></file></xliff>"""

MEMOQ = """<xliff version="1.2" xmlns:mq="MQXliff"><file target-language="de-DE"><body>
<trans-unit id="1" mq:status="NotStarted"><source xml:space="preserve">A b</source>
<target xml:space="preserve"></target></trans-unit>
<trans-unit id="2" mq:status="ManuallyConfirmed"><source>C</source><target>D</target></trans-unit>
<trans-unit id="3" mq:locked="locked"><source>E</source><target></target></trans-unit>
</body></file></xliff>"""

XLIFF_2 = """<?xml version='1.0'?>
<xliff xmlns="urn:oasis:names:tc:xliff:document:2.0" version="2.0" srcLang="en" trgLang="de">
 <file id="f"><group id="g"><unit id="u">
  <segment id="1"><source>A <pc id="1">b</pc><ph id="2"/>.</source></segment>
  <ignorable><source> </source></ignorable>
  <segment state="reviewed"><source>C</source><target>D</target></segment>
 </unit><unit id="v" translate="no"><segment><source>E</source></segment></unit></group></file>
</xliff>"""


ANDROID = r"""<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE resources [<!ENTITY app "My > app">]>
<resources xmlns:xliff="urn:oasis:names:tc:xliff:document:1.2">
    <!-- A comment -->
    <string name="a">Don\'t open \"%1$s\" &amp; &app;\u2026\nNow</string>
    <string name="b" translatable="false">Keep</string>
    <string name="c">@string/a</string>
    <string name="d">Hello <xliff:g id="n">%1$s</xliff:g>, <b>bold</b></string>
    <string name="e">"It's  quoted "</string>
    <string name="f"><![CDATA[Go <a href=\"x\">there</a>]]></string>
    <string name="g">Two
        lines</string>
    <string-array name="h"><item>One</item><item>\@two</item></string-array>
    <plurals name="i">
        <item quantity="one">%d file</item>
        <item quantity="other">%d files</item>
    </plurals>
</resources>
"""

PLIST = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<plist version="1.0">
<dict>
  <key>files</key>
  <dict>
    <key>NSStringLocalizedFormatKey</key>
    <string>%#@n@ in all</string>
    <key>n</key>
    <dict>
      <key>NSStringFormatSpecTypeKey</key>
      <string>NSStringPluralRuleType</string>
      <key>NSStringFormatValueTypeKey</key>
      <string>d</string>
      <key>one</key>
      <string>One file</string>
      <key>other</key>
      <string>%d files</string>
    </dict>
  </dict>
  <key>title</key><string>Title</string>
</dict>
</plist>
"""

QT = """<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE TS>
<TS version="2.1" language="de">
<context>
    <name>A</name>
    <message>
        <source>&amp;Open %1 &apos;x&apos;</source>
        <translation type="unfinished"></translation>
    </message>
    <message numerus="yes">
        <source>%n file(s)</source>
        <translation type="unfinished">
            <numerusform></numerusform>
            <numerusform></numerusform>
        </translation>
    </message>
    <message><source>Old</source><translation type="vanished">Alt</translation></message>
    <message><source>Yes</source><translation>Ja</translation></message>
    <message>
        <source>No</source>
    </message>
</context>
</TS>
"""


JSON = """{
  "title": "Hello \\"%s\\"",
  "nested": {"a": "Caf\u00e9 \\/ {{name}}", "n": 3, "list": ["One", "Two", null]},
  "file_one": "One file",
  "file_other": "{{count}} files",
  "empty": "", "app": {"message": "Go", "description": "A button"}
}
"""
ARB = """{
    "@@locale": "de",
    "a": "Hello {name}!",
    "@a": {"description": "Greeting", "placeholders": {"name": {}}},
    "n": "{count, plural, one{# dog} other{# dogs}}"
}"""
XCSTRINGS = """{
  "sourceLanguage" : "en",
  "strings" : {
    "" : {

    },
    "%lld files" : {
      "extractionState" : "manual",
      "localizations" : {
        "en" : {
          "variations" : {
            "plural" : {
              "one" : {
                "stringUnit" : {
                  "state" : "translated",
                  "value" : "%lld file"
                }
              },
              "other" : {
                "stringUnit" : {
                  "state" : "translated",
                  "value" : "%lld files"
                }
              }
            }
          }
        },
        "fr" : {
          "stringUnit" : {
            "state" : "translated",
            "value" : "x"
          }
        }
      }
    },
    "Cancel" : {

    },
    "Close" : {
      "localizations" : {
        "de" : {
          "stringUnit" : {
            "state" : "translated",
            "value" : "Schliessen"
          }
        }
      }
    },
    "Keep" : {
      "shouldTranslate" : false
    }
  },
  "version" : "1.0"
}
"""


STRINGS = r"""/* Title * of a window */
"title" = "Open \"%@\"\nnow";
// x
bare = "Caf\U00e9 ";
"a" /* b */ = /* c */ "Yes" ;
"k;=";
"""
PROPERTIES = r"""# Title
! other
open=Open \u201cthe\u201d file
  spaced key\ x : Two \
      lines\n and tab\t!
message=Don''t delete {0}
it=It's
path=C\:\\x
empty=
alone
last = Value"""


YAML = """---
# A locale
de:
  plain: Hello %{name}  # note
  single: 'It''s "here"'
  double: "Tab\\t and \\u00e9"
  wrapped: One line
    and another
  block: |
    First
      second

  folded: >-
    A text
    that is folded
  files:
    one: One file
    other: "%{count} files"
  flow: {a: Yes it is, b: [1, "no", text]}
  anchor: &x Anchor
  alias: *x
  format: "%d. %B %Y"
  order:
    - :day
    - :month
  truth: yes
  number: 12
"""


TMX = """<?xml version="1.0"?>
<!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4"><header srclang="en-US" datatype="plaintext"/><body>
  <tu tuid="a">
    <tuv xml:lang="en-US">
      <seg>Press <bpt i="1">&lt;b&gt;</bpt>start<ept i="1">&lt;/b&gt;</ept>.</seg>
    </tuv>
  </tu>
  <tu><tuv xml:lang="EN"><seg>Yes</seg></tuv><tuv xml:lang="de-DE"><seg>Ja</seg></tuv></tu>
  <tu><tuv xml:lang="fr"><seg>Oui</seg></tuv></tu>
</body></tmx>
"""
CSV = """id,Source,note,Target
1,"Two ""words"", here",x,
2,Yes,"a
b","Ja"
3,No,,
4,,,
5,"Multi
line",,""
"""


def paragraphs(content: bytes) -> None:
    """Every member is there and is XML."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert archive.testzip() is None and len(archive.namelist()) == 3
        for name in archive.namelist():
            xml(archive.read(name))


RUN = "<w:r><w:rPr><w:lang/></w:rPr><w:t>One </w:t></w:r>"
DOCX = docx(
    f"<w:p><w:pPr/>{RUN}<w:r><w:t>two &amp;#8364; &#38; three</w:t></w:r></w:p><w:p/>"
    "<w:tbl><w:p><w:r><w:t xml:space='preserve'> Four </w:t><w:tab/></w:r></w:p></w:tbl>",
    header1=f"<w:p>{RUN}</w:p>",
)


def table(content: bytes) -> None:
    """Rows of four columns, but for what sources have."""
    rows = list(csv.reader(io.StringIO(content.decode(), newline="")))
    assert {len(row) for row in rows} == {4} and len(rows) == 6


def properties(content: bytes) -> None:
    """As many lines of text as of the sample."""
    assert content.count(b"\n") in (PROPERTIES.count("\n"), PROPERTIES.count("\n") - 1)


def xml(content: bytes) -> None:
    """An XML parser reads all of it."""
    expat.ParserCreate().Parse(content, True)


RESX = """<?xml version="1.0" encoding="utf-8"?>
<root>
  <resheader name="resmimetype"><value>text/microsoft-resx</value></resheader>
  <data name="open" xml:space="preserve">
    <value>Open {0} &amp; &lt;close&gt;</value>
    <comment>A button</comment>
  </data>
  <data name="size" type="System.Drawing.Size"><value>12, 13</value></data>
  <data name="&gt;&gt;a.Name" xml:space="preserve"><value>a</value></data>
  <data name="brand"><value>Brand</value><comment>{Locked}</comment></data>
  <data name="open"><value>Again</value></data>
  <data name="empty"><value /></data>
  <data name="lines"><value>Two
lines </value></data>
</root>"""
FLUENT = """# A comment = no message
### Title

-brand = Firefox
open = Open { $file } in { -brand }
    .title = Open it
    .accesskey = O
long =
    A text on
    two lines

    and one { "{" } more{ " " }
files = { $n ->
    [one] One file
   *[other]
        { NUMBER($n) } files
            in all
}
who = { $gender ->
    [female] She
   *[unknown] They
  }
only = { $x }
"""


def fluent(content: bytes) -> None:
    """The same messages, attributes and choices as of the sample."""
    text = content.decode().replace("\r\n", "\n")
    for pattern in (r"^[\w-]+ =", r"^ +\.\w+ =", r"->$", r"^ +\*?\[\w+\]", r"^ *\}$"):
        assert re.findall(pattern, text, re.M) == re.findall(pattern, FLUENT, re.M)


INI = """; a comment
[menu]
open = Open the file
quoted = "Close it = now"
size = 12
flag = true
path: Save all
"""
DESKTOP = """[Desktop Entry]
Type=Application
Name=Text Editor
Name[fr]=Éditeur de texte
Comment=Edit text files
Comment[de]=Textdateien bearbeiten
Exec=edit %U
Keywords=text;editor;

[Desktop Action new]
Name=New window
"""
TOML = """# a comment = "no"
title = "Open \\"it\\" # now" # another
[files]
one = "One file"
other = "Many files"
[more."a.b"]
list = ["First one", 'Second one', 3]
long = \"\"\"
Two
lines\"\"\"
raw = '''A 'raw' text'''
inline = { a = "In line", b = 1.5 }
"""
PHP = """<?php
// 'no' => 'comment'
return [
    'open' => 'Open it\\'s "file"',
    "close" => "Close\\nit",
    'menu' => array(
        'save' => 'Save all', // here
    ),
];
"""
ASS = """[Script Info]
Title: A title
[V4+ Styles]
Format: Name, Fontname
Style: Default,Arial
[Events]
Format: Layer, Start, End, Style, Name, MarginL, MarginR, MarginV, Effect, Text
Dialogue: 0,0:00:01.00,0:00:02.00,Default,,0,0,0,,{\\an8}Hello, you\\Nand others
Comment: 0,0:00:01.00,0:00:02.00,Default,,0,0,0,,A comment
Dialogue: 0,0:00:03.00,0:00:04.00,Default,,0,0,0,,{\\p1}m 0 0 l 1 1
Dialogue: 0,0:00:05.00,0:00:06.00,Default,,0,0,0,,Second line
"""


def ini(content: bytes) -> None:
    """The same keys, and values that are no texts."""
    parser = configparser.RawConfigParser()
    parser.read_string(content.decode())
    assert list(parser["menu"]) == ["open", "quoted", "size", "flag", "path"]
    assert parser["menu"]["size"] == "12"


def desktop(content: bytes) -> None:
    """Translations of other languages and commands stay."""
    parser = configparser.RawConfigParser(strict=False)
    parser.read_string(content.decode())
    assert parser["Desktop Entry"]["name[fr]"] == "Éditeur de texte"
    assert parser["Desktop Entry"]["exec"] == "edit %U"


def dialogues(content: bytes) -> None:
    """As many lines as of the sample, with their times and what is before the texts."""
    lines = content.decode().splitlines()
    heads = [line.rpartition(",,")[0] for line in ASS.splitlines() if "Dialogue" in line]
    assert [line[: len(heads[0])] for line in lines if "Dialogue" in line] == heads


SAMPLES: dict[str, tuple[bytes, Callable[[bytes], object]]] = {
    "a.po": (PO, po),
    "crlf.pot": (PO.replace(b"\n", b"\r\n"), po),
    "a.xlf": (XLIFF.encode(), xml),
    "latin.xliff": (XLIFF.replace("UTF-8", "ISO-8859-1").encode("latin-1"), xml),
    "utf16.xlf": (XLIFF.replace("UTF-8", "UTF-16").replace("\n", "\r\n").encode("utf-16"), xml),
    "two.xlf": (XLIFF_2.encode(), xml),
    "a.sdlxliff": (SDL.encode(), xml),
    "a.mqxliff": (MEMOQ.encode(), xml),
    "strings.xml": (ANDROID.encode(), xml),
    "a.stringsdict": (PLIST.encode(), plistlib.loads),
    "a.ts": (QT.encode(), xml),
    "a.strings": (STRINGS.encode(), str),
    "utf16.strings": (STRINGS.encode("utf-16"), str),
    "xml.strings": (PLIST.encode(), plistlib.loads),
    "a.properties": (PROPERTIES.encode(), properties),
    "latin.properties": (PROPERTIES.encode() + " ä\nü=Ü".encode("latin-1"), bytes),
    "utf8.properties": ("ü=Größe\n".encode(), bytes),
    "a.yml": (YAML.encode(), yaml.safe_load),
    "crlf.yaml": (YAML.replace("\n", "\r\n").encode("utf-8-sig"), yaml.safe_load),
    "a.tmx": (TMX.encode(), xml),
    "a.csv": (CSV.encode(), table),
    "a.tsv": (b"key\ten\tde\r\na\tOpen it\t\r\nb\tNo\tNein", bytes),
    "a.json": (JSON.encode(), json.loads),
    "a.arb": (ARB.encode(), json.loads),
    "a.resx": (RESX.encode(), xml),
    "a.resw": (RESX.encode("utf-8-sig"), xml),
    "a.ftl": (FLUENT.encode(), fluent),
    "crlf.ftl": (FLUENT.replace("\n", "\r\n").encode(), fluent),
    "a.docx": (DOCX, paragraphs),
    **{name: (content, shown) for name, content in OFFICE.items()},
    "a.xcstrings": (XCSTRINGS.encode(), json.loads),
    "a.ini": (INI.encode(), ini),
    "a.desktop": (DESKTOP.encode(), desktop),
    "a.toml": (TOML.encode(), lambda content: tomllib.loads(content.decode())),
    "a.php": (PHP.encode(), bytes),
    "a.ass": (ASS.encode(), dialogues),
    "a.ssa": (ASS.encode(), dialogues),
}
"""Content and judge by name."""
