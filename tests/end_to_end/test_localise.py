"""Documents through a real run: placeholders and tags once each, formats as they were."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import transduce
from helpers.command_line import Done
from helpers.localised_document import Output, localised_document
from helpers.tiny_run import reversal_pairs, train_tiny, write_tsv
from helpers.toy_translator import train_toy
from transduce import DecodingOptions
from transduce.errors import CancelledError, DataError, RunError, SettingError, TransduceError
from transduce.localise.document import Record, Segment, Span, untranslated_record
from transduce.localise.formats import read_document
from transduce.localise.placeholders import check_placeholders, protect
from transduce.localise.projection import Links
from transduce.localise.translate import Order, aligner, localisation, localised
from transduce.tasks.translation.translator import Translator

pytest.importorskip("sentencex")


Here = Callable[..., Done]


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train_toy(tmp_path_factory.mktemp("toy"))


@pytest.fixture(scope="module")
def translator(toy: Path) -> Translator:
    return transduce.load(toy, "cpu").translator


def segments(*texts: str) -> list[Segment]:
    return [Segment(f"line {i}", text, (Span(0, 1),)) for i, text in enumerate(texts)]


def translate(translator: Translator, *texts: str, align: bool = True) -> list[Record]:
    links = aligner(translator) if align else None
    return localised(segments(*texts), "de", translator.attempt, translator.options, links)


TEXTS = (
    "Ich sehe [X6X] den roten Hund.",
    'Ich kaufe <x id="6"></x> den Baum.',
    "Heute suche ich den alten %1$s.",
    "Ich sehe den <b>roten</b> Hund. Heute kaufe ich den Tisch.",
    "Ich sehe <i>den <b>neuen</b> Hund</i>.",
    "Ich suche [X1X] den [X2X] Hund. [X3X] Ich sehe den Mann!",
    "Heute kaufe ich den <a href='x'>roten Tisch</a>.",
    "Ich sehe den Hund: https://a.b/c?d=e.",
    "Ich sehe {} und {name!r:>5}.",
    "Ich sehe %s und %d.",
)


@pytest.mark.parametrize("align", [True, False])
def test_each_placeholder_comes_once_or_the_source_stays(
    translator: Translator, align: bool
) -> None:
    translations = translate(translator, *TEXTS, align=align)
    for text, one in zip(TEXTS, translations, strict=True):
        source = protect(text)
        if one.state == "translated":
            assert one.target != text and not one.reason
            check_placeholders(source, source.marked(one.target))
        else:
            assert one.target == text
            assert one.reason.startswith("placeholders are not kept: ")
    assert sum(one.state == "translated" for one in translations) >= (7 if align else 2)


def test_tags_go_around_their_words(translator: Translator) -> None:
    (translation,) = translate(
        translator, "Heute kaufe ich den Tisch. Ich sehe den roten <b>Hund</b>."
    )
    assert (translation.target, translation.state) == (
        "I buy the table today. I see the red <b>dog</b>.",
        "translated",
    )


def test_texts_without_placeholders_are_those_of_the_run(translator: Translator) -> None:
    texts = ["Ich sehe den Mann.", "Heute suche ich den Baum."]
    translations = translate(translator, *texts, "…", "{0} %s")
    assert [one.target for one in translations] == [
        *(translation.text for translation in translator.translate(texts)),
        "…",
        "{0} %s",
    ]


def test_a_document_is_translated_in_its_form(translator: Translator) -> None:
    page = "<p>Ich sehe den roten\r\n<b>Hund</b>.\r\n<pre>Ich</pre><img alt='Ich sehe den Mann.'>"
    document = read_document("a.html", page.encode())
    options = translator.options
    result = localised_document(document, "de", translator.attempt, options, aligner(translator))
    assert result.decode() == (
        "<p>I see the red <b>dog</b>.\r\n<pre>Ich</pre><img alt='I see the man.'>"
    )
    subtitles = (
        "1\n00:00:01,000 --> 00:00:02,000\n- Ich sehe\nden Mann.\n- Heute kaufe ich den Tisch.\n"
    )
    document = read_document("a.srt", subtitles.encode())
    result = localised_document(document, "de", translator.attempt, options)
    assert result.decode() == subtitles.replace(
        "Ich sehe\nden Mann.\n- Heute kaufe ich den Tisch.",
        "I see\nthe man.\n- I buy the table today.",
    )


def test_a_document_in_which_nothing_was_translated_is_an_error(translator: Translator) -> None:
    def empty(texts: Sequence[str], options: object) -> list[Output]:
        return [Output("") for _ in texts]

    document = read_document("a.txt", b"Ich %s.\nIch.\n")
    with pytest.raises(
        DataError, match="nothing was translated; line 1: placeholders are not kept"
    ):
        localised_document(document, "de", empty, DecodingOptions())
    assert (
        localised_document(read_document("a.txt", b"\n"), "de", empty, DecodingOptions()) == b"\n"
    )


def only_if_required(texts: Sequence[str], options: Sequence[DecodingOptions]) -> list[Output]:
    """The texts, without a `%s` that is no constraint."""
    return [
        Output(text if "%s" in option.constraints else text.replace("%s", ""))
        for text, option in zip(texts, options, strict=True)
    ]


def test_options_of_the_caller_stay() -> None:
    observed: list[DecodingOptions] = []

    def required(texts: Sequence[str], options: Sequence[DecodingOptions]) -> list[Output]:
        observed.extend(options)
        return only_if_required(texts, options)

    options = DecodingOptions(constraints=("x",), beam_size=3)
    (record,) = localised(segments("Ich %s. Du."), "de", required, options)
    assert record.target == "Ich %s. Du."
    assert [own.constraints for own in observed] == [("x",), ("x",), ("x", "%s"), ("x",)]
    groups = DecodingOptions(beam_size=4, beam_groups=2)
    records = localised(segments("Ich %s.", "Du."), "de", required, groups)
    assert [record.state for record in records] == ["needs-translation", "translated"]
    assert "constraints and beam_groups" in records[0].reason


def test_a_model_that_keeps_placeholders_is_asked_once() -> None:
    work = localisation(segments("Datei '%s' fehlt.", "{0} <b>fehlt</b>"), "de", can_align=True)
    assert next(work) == [Order("Datei '%s' fehlt."), Order("fehlt")]
    assert work.send(["File »%s« is missing.", "is missing"]) == [
        Order("fehlt", output="is missing")
    ]


def test_a_model_that_strays_at_a_placeholder_is_not_believed() -> None:
    def stray(texts: Sequence[str], options: Sequence[DecodingOptions]) -> list[Output]:
        plain = Output("I have a dog.")
        return [
            Output("The %s is in the house.") if option.constraints else plain for option in options
        ]

    (record,) = localised(segments("Ich habe %s Hund."), "de", stray, DecodingOptions())
    assert record.state == "needs-translation"
    assert record.reason == "placeholders are not kept: the model strays at %s"


def test_without_an_alignment_the_translations_without_constraints_are_asked_too() -> None:
    work = localisation(segments("Er %s."), "de", can_align=False)
    assert next(work) == [Order("Er %s.")]
    assert work.send(["He."]) == [Order("Er %s.", ("%s",)), Order("Er.")]


def test_an_error_of_a_text_is_raised_and_a_refused_constraint_is_not() -> None:
    def fail(
        texts: Sequence[str], options: Sequence[DecodingOptions]
    ) -> list[Output | TransduceError]:
        if "Du." in texts:
            return [CancelledError("gone")] * len(texts)
        return [SettingError("no") if option.constraints else Output("I.") for option in options]

    (record,) = localised(segments("Ich %s."), "de", fail, DecodingOptions())
    assert record == untranslated_record("line 0", "Ich %s.", "placeholders are not kept: no")
    with pytest.raises(CancelledError, match="gone"):
        localised(segments("Ich %s.", "Du."), "de", fail, DecodingOptions())


def test_equal_sentences_are_translated_once() -> None:
    """In one round, and where a second way repeats the order of the first."""
    texts = "Du. Wir.", "Wir.", "Er %s.", "Du. Wir.", "Er %s."
    work = localisation(segments(*texts), "de", can_align=True)
    assert next(work) == [Order("Du."), Order("Wir."), Order("Er %s.")]
    assert work.send(["You.", "We.", "He."]) == [Order("Er.")]
    (pair,) = work.send(["He."])
    assert pair == Order("Er.", output="He.")
    assert work.send([RunError("no alignment")]) == [Order("Er %s.", ("%s",))]
    with pytest.raises(StopIteration) as stop:
        work.send(["He %s."])
    assert [record.target for record in stop.value.value] == [
        "You. We.",
        "We.",
        "He %s.",
        "You. We.",
        "He %s.",
    ]


def test_orders_of_all_segments_come_together() -> None:
    work = localisation(segments("Ich <b>bin</b>. Du.", "Er %s.", "Wir."), "de", can_align=True)
    orders = next(work)
    assert orders == [Order("Ich bin."), Order("Du."), Order("Er %s."), Order("Wir.")]
    orders = work.send(["I am.", "You.", "He.", "We."])
    assert orders == [Order("Ich bin.", output="I am."), Order("Er.")]
    links: list[Links] = [[(Span(0, 3), Span(0, 1)), (Span(4, 7), Span(2, 4))]]
    assert work.send([*links, "He."]) == [Order("Er.", output="He.")]
    with pytest.raises(StopIteration) as stop:
        work.send([[(Span(0, 2), Span(0, 2))]])
    assert [one.target for one in stop.value.value] == ["I <b>am</b>. You.", "He %s.", "We."]


def test_the_command_translates_documents(here: Here, toy: Path, tmp_path: Path) -> None:
    page, text = tmp_path / "a.html", tmp_path / "b.txt"
    page.write_bytes(b"<p>Ich sehe den Mann.\r\n")
    text.write_text("Ich sehe den Hund.\n\nHeute kaufe ich den Tisch. \n", encoding="utf-16")
    command = ("localise", toy, page, text, "--source-language", "de", "--device", "cpu")
    done = here(*command, "--output", tmp_path / "en")
    assert done.code == 0, done.err
    assert done.lines == [str(tmp_path / "en" / "a.html"), str(tmp_path / "en" / "b.txt")]
    assert (tmp_path / "en" / "a.html").read_bytes() == b"<p>I see the man.\r\n"
    result = (tmp_path / "en" / "b.txt").read_text(encoding="utf-16")
    assert result == "I see the dog.\n\nI buy the table today. \n"
    done = here(*command, "--in-place")
    assert done.code == 0 and page.read_bytes() == b"<p>I see the man.\r\n"


def test_the_command_reports_what_is_left(here: Here, toy: Path, tmp_path: Path) -> None:
    page = tmp_path / "a.html"
    page.write_text("<p>Ich sehe den Mann.<p>Ich %s &#xF0000; &#x100000;.")
    done = here(
        "localise", toy, page, "--source-language", "de", "--in-place", "--engine", "pytorch"
    )
    assert done.code == 1
    assert "1 of 2 segments are left as they are; line 1, column 25: the text has" in done.err
    assert page.read_text() == "<p>I see the man.<p>Ich %s &#xF0000; &#x100000;."


@pytest.fixture(scope="module")
def letters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the letters a to e."""
    top = tmp_path_factory.mktemp("letters")
    data = write_tsv(top / "a.tsv", reversal_pairs(60))
    return train_tiny(data, top / "run", "data.filters.max_length=100")[0]


def test_unknown_texts_stay_and_warnings_name_document_and_unit(
    here: Here, letters: Path, tmp_path: Path
) -> None:
    page, report = tmp_path / "page.po", tmp_path / "report.jsonl"
    texts = ("打开", "打开 %s", "打开 <b>文件</b>", "abc", "abc 打", "abcd" * 40)
    page.write_text("".join(f'msgid "{text}"\nmsgstr ""\n\n' for text in texts), encoding="utf-8")
    languages = ("--source-language", "en", "--target-language", "de")
    done = here("localise", letters, page, *languages, "--in-place", "--report", report)
    rows = [json.loads(line) for line in report.read_text(encoding="utf-8").splitlines()]
    unknown = [row["source"] for row in rows if row["reason"].startswith("all of its words are")]
    assert unknown == list(texts[:3]) and done.code == 1
    assert all(row["state"] == "needs-translation" for row in rows[:3])
    keys = {row["source"]: row["key"] for row in rows}
    assert f"{page}: {keys['abc 打']}: 2 of 5 tokens are unknown to the model" in done.err
    assert f"{page}: {keys[texts[-1]]} has 160 tokens, more than the" in done.err


def site(top: Path) -> Path:
    """Two pages of one name, a text that cannot be translated, a picture, a hidden page."""
    for name, text in [
        ("a/index.html", "<p>Ich sehe den Mann.</p>"),
        ("b/index.html", "<p>Ich kaufe den Tisch.</p><p>Ich %s &#xF0000; &#x100000;.</p>"),
        ("b/broken.txt", "Ich \U000f0000 \U00100000."),
        ("b/style.css", "p {}"),
        (".git/a.txt", "Ich sehe den Mann."),
    ]:
        file = top / "site" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return top / "site"


def named_run(toy: Path, top: Path) -> Path:
    """The run with its source language in its recipe."""
    run = shutil.copytree(toy, top / "de-en")
    recipe = run / "recipe.toml"
    before, heading, after = recipe.read_text(encoding="utf-8").partition("[languages]\n")
    after = after.replace("source = []", 'source = "de"', 1)
    recipe.write_text(before + heading + after, encoding="utf-8")
    return run


def test_a_directory_keeps_its_tree_and_goes_on_after_a_bad_file(
    here: Here, toy: Path, tmp_path: Path
) -> None:
    run, pages, report = named_run(toy, tmp_path), site(tmp_path), tmp_path / "report.jsonl"
    output = pages / "en"  # inside: its files are no documents
    (output / "a").mkdir(parents=True)
    (output / "old.txt").write_text("Ich")
    command = ("localise", run, pages, "--output", output, "--report", report)
    done = here(*command)
    assert done.code == 1
    assert done.lines == [str(output / "a/index.html"), str(output / "b/index.html")]
    assert (output / "a/index.html").read_text() == "<p>I see the man.</p>"
    assert (output / "b/style.css").read_text() == "p {}"
    assert not (output / "b/broken.txt").exists()
    assert "broken.txt: nothing was translated; line 1: the text has" in done.err
    assert f"1 files have no known format, such as {pages / 'b/style.css'}" in done.err
    rows = [json.loads(line) for line in report.read_text(encoding="utf-8").splitlines()]
    assert [(Path(row["file"]).name, row["state"]) for row in rows] == [
        ("index.html", "translated"),
        ("broken.txt", "needs-translation"),
        ("broken.txt", "unread"),
        ("index.html", "translated"),
        ("index.html", "needs-translation"),
        ("style.css", "unread"),
    ]
    assert rows[0] == {
        "key": "line 1, column 4",
        "source": "Ich sehe den Mann.",
        "target": "I see the man.",
        "state": "translated",
        "reason": "",
        "file": str(pages / "a/index.html"),
    }
    assert all(bool(row["reason"]) is (row["state"] != "translated") for row in rows)
    assert rows[4]["target"] == rows[4]["source"]


def test_a_tree_goes_on_with_what_is_missing(here: Here, toy: Path, tmp_path: Path) -> None:
    run, pages, output = named_run(toy, tmp_path), site(tmp_path), tmp_path / "en"
    (pages / "b/broken.txt").write_text("Ich sehe den Hund.")
    command = ("localise", run, pages, "--output", output)
    first, text, second = (
        str(output / name) for name in ("a/index.html", "b/broken.txt", "b/index.html")
    )

    def written(*options: str) -> list[str]:
        done = here(*command, *options)
        assert done.code == 1 and "b/index.html: 1 of 2 segments are left" in done.err
        return done.lines

    def age(path: Path, seconds: int) -> None:
        time = path.stat().st_mtime_ns + seconds * 10**9
        os.utime(path, ns=(time, time))

    for path in (*run.iterdir(), *pages.rglob("*.*")):
        age(path, -1000)
    assert written() == [first, text, second]
    assert written() == [second]  # as it is not complete
    Path(first).unlink()
    assert written() == [first, second]
    (pages / "b/broken.txt").write_text("Ich sehe den Baum.")
    age(pages / "b/broken.txt", 1000)
    (pages / "b/style.css").write_text("q {}")
    age(pages / "b/style.css", 1000)
    assert written() == [text, second]
    assert Path(text).read_text() == "I see the tree."
    assert (output / "b/style.css").read_text() == "q {}"
    assert written("--only", "all") == [first, text, second]
    age(run / "recipe.toml", 5000)
    assert written() == [first, text, second]


def test_a_complete_tree_needs_no_model(here: Here, tmp_path: Path) -> None:
    text, output = tmp_path / "a" / "a.txt", tmp_path / "en"
    for file in (text, output / "a.txt"):
        file.parent.mkdir()
        file.write_text("Ich")
    os.utime(text, (1, 1))
    done = here("localise", tmp_path / "none", text, "--output", output)
    assert (done.code, done.lines) == (0, [])
    assert "1 files are there already; --only all writes them again" in done.err
    for _ in range(2):
        done = here("localise", "-", text, "--pseudo", "--output", output)
        assert (done.code, done.lines) == (0, [str(output / "a.txt")])
    done = here("localise", tmp_path / "none", text, "--output", output)
    assert done.code and "none" in done.complaint  # a trial is no translation


def test_a_folder_that_cannot_be_read_is_named(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = site(tmp_path)
    scan = os.scandir

    def closed(path: Path) -> object:
        if Path(path) == pages / "b":
            raise PermissionError(13, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", closed)
    done = here("localise", "-", pages, "--pseudo", "--output", tmp_path / "en")
    assert done.code == 1 and f"{pages / 'b'}" in done.complaint
    assert done.lines == [str(tmp_path / "en/a/index.html")]


def test_files_of_one_name_go_to_different_places(here: Here, toy: Path, tmp_path: Path) -> None:
    run, pages = named_run(toy, tmp_path), site(tmp_path)
    files = (pages / "a/index.html", pages / "none.txt", pages / "b/index.html")
    done = here("localise", run, *files, "--output", tmp_path / "en")
    assert done.code == 1 and "none.txt: no such file" in done.err
    assert done.lines == [str(tmp_path / "en" / name / "index.html") for name in "ab"]


def test_the_language_of_the_source_is_named_somewhere(
    here: Here, toy: Path, tmp_path: Path
) -> None:
    done = here("localise", toy, site(tmp_path), "--in-place")
    assert done.code == 2 and "names no source language; give --source-language" in done.complaint


def test_languages_that_a_recipe_does_not_name_are_believed(
    here: Here, toy: Path, tmp_path: Path
) -> None:
    table = tmp_path / "a.csv"
    table.write_text("German,en-GB\nIch sehe den Hund.,\n", encoding="utf-8")
    options = ("--source-language", "de", "--target-language", "en", "--output", tmp_path / "en")
    done = here("localise", toy, table, *options)
    assert done.lines == [str(tmp_path / "en/a.csv")], done.complaint
    assert (tmp_path / "en/a.csv").read_text(encoding="utf-8").count("I see the dog.") == 1


def test_a_model_that_cannot_align_goes_on_with_constraints() -> None:
    def align(pairs: Sequence[tuple[str, str]]) -> list[Links]:
        raise RunError("alignment needs cross-attention")

    (record,) = localised(segments("Ich %s."), "de", only_if_required, DecodingOptions(), align)
    assert record == Record("line 0", "Ich %s.", "Ich %s.", "translated")


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("a.txt", (), "give one of --output DIRECTORY, --in-place and --xliff"),
        ("a.indd", ("--in-place",), "no format for .indd"),
        ("none.txt", ("--in-place",), "none.txt: no such file"),
        ("a.txt", ("--output", "."), "is the document itself; give --in-place"),
        ("empty", ("--in-place",), "empty has no documents"),
    ],
)
def test_mistakes_are_one_line(
    here: Here,
    toy: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    options: tuple[str, ...],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    for document in ("a.txt", "a.indd"):
        (tmp_path / document).write_text("Ich sehe den Mann.\n")
    done = here("localise", toy, name, "--source-language", "de", *options)
    assert done.code in (1, 2) and message in done.complaint
    assert (tmp_path / "a.txt").read_text() == "Ich sehe den Mann.\n"


def test_a_memory_and_a_glossary(here: Here, toy: Path, tmp_path: Path) -> None:
    text, memory, terms = (tmp_path / name for name in ("a.txt", "m.csv", "g.tsv"))
    text.write_text("Ich sehe den Mann.\nIch sehe den Hund.\n")
    memory.write_text("source,target\nIch sehe den Mann.,There he is.\n")
    terms.write_text("Hund|Hunde\thound|hounds\n")
    options = ("--source-language", "de", "--output", tmp_path / "en")
    done = here("localise", toy, text, "--memory", memory, "--glossary", terms, *options)
    assert done.code == 0
    first, second = (tmp_path / "en" / "a.txt").read_text().splitlines()
    assert first == "There he is." and "hound" in second
    terms.write_text("Hund")
    done = here("localise", toy, text, "--glossary", terms, *options)
    assert done.code == 1
    assert done.complaint.endswith("g.tsv: entry 1 of the glossary is not a source and a target")
