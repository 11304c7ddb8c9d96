"""Checks of translations in documents, and pseudo-translations, both without a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from helpers.message_samples import PO, SAMPLES, XLIFF
from transduce.localise.checks import Terms, checked, faults_by, pseudo_translated
from transduce.localise.document import Segment, document_with
from transduce.localise.formats import read_document
from transduce.localise.translate import localisation


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


@pytest.mark.parametrize(
    ("source", "target", "reason"),
    [
        ("Wait 30 s", "30 s warten", ""),
        ("Wait 30 s", "3 s warten", "the number 30 is missing"),
        ("%2$s of 1,000.5", "%2$s von 1.000,5", ""),
        ("1,000,000 bytes", "1\u202f000\u202f000 octets", ""),
        ("10 files", "١٠ ملفات", ""),
        ("%s of 12 and 007", "%s von 21", "the number 12 is missing; the number 7 is missing"),
        ("A contract, 5 days", "5 Tage Vertrag", ""),
        ("A contract ends", "Die Verträge enden", ""),
        ("A contract ends", "Ein Vertragsende", "the term Vertrag is missing"),
        ("A contract of %s", "Ein Vertrag", "%s is missing"),
        ("Much too long", "Viel zu viel Text", "the translation has 17 characters, of at most 16"),
    ],
)
def test_faults_of_numbers_terms_and_length(source: str, target: str, reason: str) -> None:
    terms = Terms({"contract": "Vertrag|Verträge"}).constraints
    segment = Segment("k", source, (), target=target, limit=16 * source.startswith("Much"))
    (record,) = checked([segment], faults_by(terms))
    assert record.reason == reason


def test_limits_of_formats() -> None:
    po = PO.replace(b"#, c-format", b"#, c-format, max-length:5")
    assert [s.limit for s in read_document("a.po", po).segments] == [5, 0, 0, 0, 0, 0]
    unit = '<trans-unit id="d" maxwidth="12" size-unit="{}">'
    for name, limit in (("char", 12), ("pixel", 0)):
        xliff = XLIFF.replace('<trans-unit id="d">', unit.format(name))
        assert read_document("a.xlf", xliff.encode()).segments[1].limit == limit


def test_a_translation_above_the_limit_is_left() -> None:
    segments = [Segment("k", "Open", (), limit=n) for n in (4, 3)]
    work = localisation(segments, "en", False)
    next(work)
    with pytest.raises(StopIteration) as stop:
        work.send(["Auf!"])
    first, second = stop.value.value
    assert first.is_done
    assert second.reason == "the translation has 4 characters, of at most 3"


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
    left = [record.key for record in made.records if not record.is_done]
    # In French alone; a repeated key.
    assert left == {"a.tmx": ["unit 3"], "a.resx": ["open"], "a.resw": ["open"]}.get(name, [])
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
