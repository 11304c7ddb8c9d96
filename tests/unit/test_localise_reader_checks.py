"""Checks of translations by people: as strict as the program that reads them, and warnings."""

from __future__ import annotations

from pathlib import Path

import pytest

from transduce.localise.checks import checked, faults_by, no_glossary
from transduce.localise.document import Record, Segment
from transduce.localise.formats import read_document

HEADER = 'msgid ""\nmsgstr "Plural-Forms: nplurals={}; plural={};\\n"\n\n'


def record_of(source: str, target: str, flag: str = "") -> Record:
    flags = frozenset(filter(None, [flag]))
    segment = Segment("k", source, (), target=target, flags=flags)
    (record,) = checked([segment], faults_by(no_glossary))
    return record


@pytest.mark.parametrize(
    ("source", "target", "flag"),
    [
        ("&Edit", "B&earbeiten", ""),
        ("_Edit", "B_earbeiten", ""),
        ("&Open", "Ö&ffnen", ""),
        ("E_xit", "_Beenden", ""),
        ("&Print", "印刷(&P)", ""),
        ("&Help", "Сп&равка", ""),
        ("_File", "ק_ובץ", ""),
        ("Pre&view", "Vo&rschau", "c-format"),
        ("Delete '%s' at '%s'", "In '%2$s' '%1$s' löschen", "c-format"),
        ("%d of %s", "%2$s: %1$d", ""),
        ("%*d of %s", "%3$s: %2$*1$d", "c-format"),
        ("Directive %u is wrong", "지시자 %u번이 틀립니다", ""),
        ("Connecting to %s", "%s에 연결하는 중", ""),
        ("By %s and %d", "بـ%s و%d", ""),
        ("In %s", "ב%s", ""),
        ("Add <file> to <options>", "<Datei> zu <Optionen> hinzufügen", ""),
        ("Value %5d", "Wert %-8d", "c-format"),
        ("Value %i", "Wert %d", "c-format"),
        ("%m/%d/%y", "%d.%m.%Y", ""),
        ("{count:>5} files", "{count} Dateien", "python-brace-format"),
        ("See <a href='/en'>this</a>", "Siehe <a href='/de'>dies</a>", ""),
        ("one of {red,green}", "eins von {rot,grün}", ""),
        ("%'d items", "%I'd عنصر", ""),
    ],
)
def test_what_a_program_reads_is_taken(source: str, target: str, flag: str) -> None:
    assert record_of(source, target, flag).is_done


@pytest.mark.parametrize(
    ("source", "target", "flag", "reason"),
    [
        ("%s of %d", "%2$s of %1$d", "c-format", "%1$d stands for %s"),
        ("%d of %s", "%s: %d", "c-format", "placeholders without numbers are not in their order"),
        ("%s", "%s %s", "", "%s comes more often than in the source"),
        ("%s is %d", "ist %d", "", "%s is missing"),
        ("%d", "%s", "", "%s stands for %d"),
        ("%d", "%ld", "c-format", "%ld stands for %d"),
        ("%s, %s", "%2$s, %1$s", "python-format", "%2$s has a number, which the format does not"),
        ("%(n)d", "%(n)s", "python-format", "%(n)d is missing"),
        ("{a} {b}", "{a}", "", "{b} is missing"),
        ("{} {}", "{} {} {}", "", "{} comes more often than in the source"),
        ("a <b>c</b>", "a c</b>", "", "<b> is missing"),
        ("a <b>c</b>", "a <b>c", "", "</b> is missing"),
        ("a <b>c</b>", "a <b>c<b>", "", "</b> is missing"),
        ("a <color=#fc0>c</color>", "a c</color>", "", "<color=#fc0> is missing"),
        ("[b]a[/b] c", "a[/b] c", "", "[b] is missing"),
        ("a <b>b</b>", "</b>a<b> b", "", "the tags are not nested as in the source"),
        ("Go", "<i>Los</i>", "", "the translation has a placeholder of its own, <i>"),
        ("%0:s and %1:d", "%0:s", "object-pascal-format", "%1:d is missing"),
        ("Hi %<name>s", "Hallo", "ruby-format", "%<name>s is missing"),
        ("{n, plural, one{# of {x}} other{#}}", "{n, plural, other{#}}", "", "{x} is missing"),
    ],
)
def test_what_breaks_a_program_is_refused(source: str, target: str, flag: str, reason: str) -> None:
    record = record_of(source, target, flag)
    assert not record.is_done
    assert reason in record.reason


@pytest.mark.parametrize(
    ("source", "target", "warning"),
    [
        ("Open it.", "Öffnen", "the end is without a mark, in the source a full stop"),
        ("Open it.", "Öffnen!", "the end is an exclamation mark, in the source a full stop"),
        ("Open it…", "Öffnen", "the end is without a mark, in the source an ellipsis"),
        ("Open it.", "打开它。", ""),
        ("Open it?", "هل تفتحه؟", ""),
        ("Open it.", "เปิดมัน", ""),
        ("Open it...", "Öffnen…", ""),
        ("Open (it) now", "Jetzt öffnen", "another number of ( or )"),
        ('Open "it" now', "Öffne „es jetzt", "another number of quotes"),
        ('Open "it" now', "Öffne „es“ jetzt", ""),
        ("Open the file", "Öffne die die Datei", "the word die is doubled"),
        ("Open the file", "Öffne  die Datei", "a blank is doubled"),
        ("Open the file", "Open the file", "it is a copy of the source"),
        ("Bash", "Bash", ""),
        ("Open the file and read all of it", "Auf", "it is far shorter than the source"),
        ("Open the file and read all of it", "Auf! " * 60, "it is far longer than the source"),
        ("Open the file", "öffne die Datei", "it begins with a small letter"),
        ("&Edit", "Bearbeiten", "the accelerator & is missing"),
        ("&Edit", "&Be&arbeiten", "the accelerator & comes more than once"),
        ("Use --all now", "Jetzt verwenden", "--all is missing"),
        ("See https://x.org/a", "Siehe https://x.org/b", "https://x.org/a is missing"),
        ("%1$s is here", "%1$s ist %1$s", "%1$s comes more often than in the source"),
        ("{x} is here", "{x} ist {x}", "{x} comes more often than in the source"),
        ("One\tcolumn", "Eine Spalte", "another number of tabs"),
    ],
)
def test_warnings(source: str, target: str, warning: str) -> None:
    record = record_of(source, target)
    assert record.is_done
    assert warning in record.reason
    assert warning or not record.reason


def po(body: str, number: int = 2, rule: str = "(n != 1)") -> list[Record]:
    content = (HEADER.format(number, rule) + body).encode()
    return checked(read_document("a.po", content).segments, faults_by(no_glossary))


@pytest.mark.parametrize(
    ("source", "target", "reason"),
    [
        ("A line.\\n", "Eine Zeile.", "the line break at the end is missing"),
        ("A line.", "Eine Zeile.\\n", "the line break at the end is not in the source"),
    ],
)
def test_a_line_break_at_the_end_counts_as_msgfmt_counts_it(
    source: str, target: str, reason: str
) -> None:
    (record,) = po(f'msgid "{source}"\nmsgstr "{target}"\n')
    assert not record.is_done
    assert record.reason == reason


def test_blanks_at_the_ends_are_warnings() -> None:
    (record,) = po('msgid " Name: "\nmsgstr "Name:"\n')
    assert record.is_done
    assert "the blanks at the beginning are others" in record.reason
    assert "the blanks at the end are others" in record.reason


ARABIC = "n==0 ? 0 : n==1 ? 1 : n==2 ? 2 : n%100>=3 && n%100<=10 ? 3 : n%100>=11 ? 4 : 5"
RUSSIAN = "n%10==1 && n%100!=11 ? 0 : n%10>=2 && n%10<=4 && (n%100<10 || n%100>=20) ? 1 : 2"


@pytest.mark.parametrize(
    ("number", "rule", "without", "is_done"),
    [
        (2, "(n != 1)", 0, True),
        (2, "(n != 1)", 1, False),
        (2, "(n > 1)", 0, True),
        (6, ARABIC, 0, True),
        (6, ARABIC, 1, True),
        (6, ARABIC, 2, True),
        (6, ARABIC, 3, False),
        (3, RUSSIAN, 0, False),
        (3, RUSSIAN, 2, False),
    ],
)
def test_a_form_of_few_numbers_may_leave_the_number_out(
    number: int, rule: str, without: int, is_done: bool
) -> None:
    forms = "".join(f'msgstr[{i}] "{"x" if i == without else "%d x"}"\n' for i in range(number))
    records = po(f'#, c-format\nmsgid "%d day"\nmsgid_plural "%d days"\n{forms}', number, rule)
    assert all(record.is_done for record in records) == is_done


def test_warnings_leave_the_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from transduce.cli.main import main

    path = tmp_path / "a.po"
    path.write_text('msgid "Open it."\nmsgstr "Öffnen"\n')
    assert main(["localise", "-", str(path), "--check"]) == 0
    assert "line 1: warning: the end is without a mark" in capsys.readouterr().out
    path.write_text('msgid "Open %s."\nmsgstr "Öffnen"\n')
    assert main(["localise", "-", str(path), "--check"]) == 1
