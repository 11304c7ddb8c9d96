"""Checks of translations in documents, and pseudo-translations, both without a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from helpers.message_samples import PO, SAMPLES
from transduce.localise.checks import checked, pseudo_translated
from transduce.localise.document import Segment
from transduce.localise.formats import read_document
from transduce.localise.translate import document_with


def fault(source: str, target: str, **more: object) -> str:
    (record,) = checked([Segment("k", source, (), target=target, **more)])  # type: ignore[arg-type]
    return record.reason


@pytest.mark.parametrize(
    ("source", "target", "reason"),
    [
        ("Open %s", "Öffne %s", ""),
        ("Open %s", "Öffne", "%s is missing"),
        ("Open", "Öffne %s", "the translation has a placeholder of its own, %s"),
        ("%d of %s", "%s von %d", "placeholders without numbers are not in their order"),
        ("Open {name}", "Öffne {Name}", "{name} is missing"),
    ],
)
def test_faults_of_placeholders(source: str, target: str, reason: str) -> None:
    assert fault(source, target) == reason


def test_flags_and_tags_count() -> None:
    assert fault("50% to", "50 % zu", flags=frozenset(("python-brace-format",))) == ""
    tags = {"tags": ("<g>", "</g>"), "markup": True}
    assert fault("a <g>b</g> &lt;", "<g>c</g> d &lt;", **tags) == ""
    assert fault("a <g>b</g>", "</g>c<g>", **tags) == "the tags are not nested as in the source"


def test_a_singular_may_have_the_number_of_its_plural() -> None:
    data = PO.replace(b'msgstr[0] ""\nmsgstr[1] ""', b'msgstr[0] "%d Datei"\nmsgstr[1] "Dateien"')
    records = checked(read_document("a.po", data).segments)
    assert [record.reason for record in records if not record.is_done] == ["%d is missing"]


@pytest.mark.parametrize("name", SAMPLES)
def test_every_sample_is_pseudo_translated(name: str) -> None:
    content, judge = SAMPLES[name]
    document = read_document(name, content, target_language="de")
    made = document_with(document, pseudo_translated(document.segments))
    assert all(record.is_done for record in made.records)
    judge(made.content)
    assert made.content != content


def test_placeholders_stay_in_a_pseudo_translation() -> None:
    texts = ("Open %s", "{n, plural, one{# dog} other{# dogs}}")
    records = pseudo_translated([Segment(text, text, ()) for text in texts])
    assert [record.target for record in records] == [
        "[Óƥéñ %s]",
        "{n, plural, one{[# đóǧ]} other{[# đóǧš]}}",
    ]


def test_the_command_checks_without_a_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from transduce.cli.main import main

    path = tmp_path / "a.po"
    path.write_bytes(PO.replace(b'msgstr "Schliessen"', b'msgstr "%s"'))
    report = tmp_path / "r.jsonl"
    assert main(["localise", "-", str(path), "--check", "--report", str(report)]) == 1
    assert "line 17: the translation has a placeholder of its own, %s" in capsys.readouterr().out
    assert [json.loads(line)["key"] for line in report.read_text().splitlines()] == [
        *("line 14", "line 17"),
    ]
    assert main(["localise", "-", str(path), "--pseudo", "--in-place"]) == 0
    assert '#, fuzzy\n#, c-format\nmsgid "Open' in path.read_text()
    assert 'msgstr "[Óƥéñ \\"%s\\"]"' in path.read_text()
