"""Faults of parallel data: each check, repeats, limits, and the command as a whole."""

import gzip
import itertools
import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from transduce.calls import kinds_of_faults
from transduce.cli.main import main
from transduce.data.pairs import write_pairs
from transduce.data.tables import csv_rows
from transduce.errors import DataError, RunError, SettingError
from transduce.examination import examine, language
from transduce.examination.checks import CHECKS, checked
from transduce.examination.corpora import PAIRS, Repeats, Sample, corpora_of, folded
from transduce.examination.examine import KINDS, LengthLimits, examined, misaligned_below
from transduce.making import trials
from transduce.making.data import facts_of, prepare
from transduce.tasks.evaluation import Evaluation

FAULTY = [
    ("empty", "A word.", " "),
    ("untranslated", "The small dog", "the small  dog"),
    ("encoding", "Grüße aus Köln", "GrÃ¼ÃŸe"),
    ("encoding", "cœur", "cÅ“ur"),
    ("encoding", "It’s late", "Itâ€™s late"),
    ("encoding", "无法打开", "ÎÞ·¨´ò¿ª"),
    ("encoding", "Привет", "ÐŸÑ€Ð¸Ð²ÐµÑ‚"),
    ("encoding", "naïve", "na\ufffdve"),
    ("encoding", "a bell", "une \x07cloche"),
    ("encoding", "für Köln", "f?r you"),
    ("entities", "Tom's dog", "le chien &quot;Tom&quot;"),
    ("entities", "Tom & I", "Tom &amp;amp; moi"),
    ("tags", "<b>Bold</b> text", "<b>Gras texte"),
    ("tags", "See <x>this</x>", "Voir ceci</x>"),
    ("placeholders", "Open %s", "Ouvrir"),
    ("placeholders", "{count} files", "{Anzahl} Dateien"),
    ("numbers", "In 1984 he died", "Il est mort en 1948"),
    ("numbers", "in 1987", "dans les années quatre-vingt"),
    ("spreadsheet", "the name", "#NAME?"),
    ("spreadsheet", "the name", "1-Mar"),
    ("spreadsheet", "123000 people", "1,23E+05 personnes"),
    ("spreadsheet", 'He said "no"', '"Il a dit ""non"""'),
]
SOUND = [
    ("OK", "OK"),
    ("Firefox 3.5", "Firefox 3,5"),
    ("CAFÉ’S", "« É » – “Ä“"),
    ("联通公司", "China Unicom"),
    ("1,234.50 dollars", "1 234,50 dollars"),
    ("It is 2:30 pm", "Il est 14h30"),
    ("in the 2010 model of 23 000 parts", "在2010年的23,000个零件"),
    ("30,000 on april 7", "4月7日有3万"),
    ("three dogs", "3 chiens"),
    ("%1$s of %2$s", "%2$s von %1$s"),
    ("100% sure", "sûr à 100 %"),
    ("<b>a &lt; b</b>", "<b>a &lt; b</b>"),
    ("usage: x <file>", "Aufruf: x <Datei>"),
    ("What?No", "Quoi ?"),
    ("Line<br>", "Zeile<br/>"),
    ("see index.php?id=3", "voir index.php?id=3"),
    ("系统维护", "System maintenance"),
    ("位图图像", "Bitmap images"),
    ("去学校猫。", "To school, cat."),
]


@pytest.mark.parametrize(("kind", "source", "target"), FAULTY)
def test_a_fault_is_named(kind: str, source: str, target: str) -> None:
    assert kind in checked((source, target), CHECKS)
    if kind not in ("empty", "untranslated"):
        assert kind in checked((target, source), CHECKS)


@pytest.mark.parametrize("pair", SOUND)
def test_a_sound_pair_has_none(pair: tuple[str, str]) -> None:
    assert checked(pair, CHECKS) == {}


def test_repeats_name_the_first_line_across_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("transduce.examination.corpora.PENDING", 7)
    chance = np.random.default_rng(1)
    keys = chance.integers(1, 40, 200).astype(np.uint64) << np.uint64(56)
    keys[::9] = 0
    repeats, first, expected = Repeats(tmp_path, "pair"), dict[int, int](), []
    for line, key in enumerate(keys.tolist()):
        repeats.add(key)
        expected.append(line if key == 0 else first.setdefault(key, line))
    assert repeats.firsts().tolist() == expected


def test_folding_leaves_letters_and_numbers() -> None:
    assert folded(" Go  AWAY!") == folded("go away.") == "goaway"
    assert folded("क़ि") != folded("क़")
    assert folded("?!") == "?!"


def test_a_sample_is_bounded_and_spread() -> None:
    sample = Sample[int]()
    for number in range(5 * PAIRS):
        sample.add(number)
    numbers = sample.rows
    assert PAIRS <= len(numbers) < 2 * PAIRS
    assert set(np.diff(numbers)) == {4}


def test_the_limit_of_scores_follows_the_share_of_strangers() -> None:
    chance = np.random.default_rng(2)
    strangers = chance.normal(-5, 1, 4000)
    mixed = np.concatenate([chance.normal(5, 1, 3800), chance.normal(-5, 1, 200)])
    limit = misaligned_below(np.append(mixed, np.nan), np.append(strangers, np.nan))
    assert (mixed[3800:] < limit).mean() > 0.95
    assert (mixed[:3800] < limit).mean() < 0.001
    sound = misaligned_below(mixed[:3800], strangers)
    assert (mixed[:3800] < sound).mean() < 0.001


def test_lengths_are_judged_by_their_corpus() -> None:
    pairs = [("字" * n, "w" * (3 * n)) for n in range(5, 60)] * 4
    limits = LengthLimits(pairs)
    assert limits.fault(("字" * 30, "w" * 90)) is None
    assert limits.fault(("字" * 30, "w" * 30)) == "30 characters for 30"


def corpus() -> list[tuple[str, str]]:
    """Sentences of words of an invented language, and of its mirror."""
    chance, pairs = np.random.default_rng(3), []
    syllables = [first + second for first in "bdfgklmnprst" for second in "aeiou"]
    for number in range(100, 500):
        words = chance.choice(syllables, 6).tolist()
        source = f"the {' '.join(f'{word}n' for word in words)} {number}"
        pairs.append((source, f"der {' '.join(f'{word[::-1]}ch' for word in words)} {number}"))
    return pairs


def written(path: Path, pairs: Sequence[tuple[str, str]]) -> Path:
    path.write_text("".join(f"{a}\t{b}\n" for a, b in pairs), encoding="utf-8")
    return path


def test_faults_against_the_corpus_are_found_with_their_lines(tmp_path: Path) -> None:
    pairs = corpus()
    test = pairs[:20]
    train = pairs[20:]
    train[50] = train[3]
    train[60] = (train[4][0].upper() + "!", train[4][1])
    train[70] = (test[5][0] + ".", "anderes")
    train[80] = (train[80][0], "Привет мир, как дела сегодня и завтра вечером в доме")
    targets = [target for _, target in train[110:130]]
    train[90:110] = [(a, b) for (a, _), b in zip(train[90:110], targets, strict=True)]
    corpora = corpora_of(
        [written(tmp_path / "train.tsv", train)], [written(tmp_path / "test.tsv", test)], ()
    )
    lines = [line for line in examined(corpora, list(KINDS)) if line.corpus.split == "train"]
    faults = {line.line: dict(line.faults) for line in lines if line.faults}
    assert faults[51]["duplicate"] == f"as {tmp_path / 'train.tsv'}:4"
    assert faults[61]["near-duplicate"] == f"as {tmp_path / 'train.tsv'}:5"
    assert faults[71]["leak"] == f"source of {tmp_path / 'test.tsv'}:6"
    assert faults[81]["language"] == "script Cyrillic for Latin"
    assert sum("alignment" in faults.get(line, ()) for line in range(91, 111)) >= 12
    assert len(faults) <= 30


def test_the_command_reports_and_writes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [{"source": a, "target": b} for a, b in corpus()]
    rows[7]["target"] += " &quot;"
    lines = [json.dumps(row) for row in rows]
    lines.insert(3, "")
    with gzip.open("pairs.jsonl.gz", "wt", encoding="utf-8") as file:
        file.write("\n".join(lines))
    command = ["doctor", "pairs.jsonl.gz", "--ignore", "alignment", "--write", "clean.tsv"]
    assert main([*command, "--report", "faults.tsv"]) == 3
    assert "entities                 1    0.25%" in capsys.readouterr().out
    assert Path("faults.tsv").read_text() == "pairs.jsonl.gz:9\tentities\tentity &quot;\n"
    assert len(Path("clean.tsv").read_text().splitlines()) == 399
    assert main([*command, "--json"]) == 3
    fault, counts = map(json.loads, capsys.readouterr().out.splitlines())
    assert (fault["line"], list(fault["faults"])) == (9, ["entities"])
    assert (counts["pairs"], counts["kinds"]["entities"]) == (400, 1)
    assert main(["doctor", "clean.tsv", "--ignore", "alignment"]) == 0
    Path("broken.tsv").write_text("a\nc\n")
    assert main(["doctor", "broken.tsv", "--write", "none.tsv"]) == 1
    assert not Path("none.tsv").exists()


def test_a_written_file_is_judged_by_the_limits_beside_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [("lang " * (i % 7), "very long " * (i % 7)) for i in range(99)]
    source, clean = tmp_path / "a.tsv", tmp_path / "clean.tsv"
    rows = (f"ein Satz {a}{i}\ta clause {b}{i}\n" for i, (a, b) in enumerate(words))
    source.write_text("".join(rows))
    assert main(["doctor", str(source), "--write", str(clean)]) == 0
    assert main(["doctor", str(clean)]) == 0
    limits = tmp_path / "clean.tsv.limits.gz"
    assert f"are those of {limits}" in capsys.readouterr().err
    short = [f"{'sehr lang ' * (6 + i % 3)}{i}\ta {i}\n" for i in range(40)]
    clean.write_text("".join(short))
    assert main(["doctor", str(clean), "--ignore", "alignment", "--ignore", "language"]) == 3
    limits.unlink()  # judged by itself, it is as usual
    assert main(["doctor", str(clean), "--ignore", "alignment", "--ignore", "language"]) == 0


def test_a_table_says_how_its_columns_are_separated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "a.csv"
    table.write_text("id;Deutsch;English\n" + "".join(f"{i};Satz {i};text {i}\n" for i in range(9)))
    assert main(["doctor", str(table), "--column", "Deutsch", "--column", "English"]) == 0
    assert main(["doctor", str(table)]) == 1
    wanted = "no column 'source' (it has 'id', 'Deutsch', 'English'); name one by --column"
    assert wanted in capsys.readouterr().err
    with pytest.raises(DataError, match='set delimiter = ";" in place of ","'):
        list(csv_rows(table, ("Deutsch", "English")))
    with pytest.raises(DataError, match=r'has 1 of 2 columns, .*set delimiter = ";"'):
        list(csv_rows(table, (0, 1)))


def test_a_recipe_names_its_splits(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(
        f"""task = "translation"
data.root = "{tmp_path}"
data.train = {{ kind = "tsv", path = "train.tsv" }}
data.test = {{ kind = "tsv", path = "test.tsv" }}
""",
        encoding="utf-8",
    )
    assert [corpus.split for corpus in corpora_of([recipe], (), ())] == ["test", "train"]
    with pytest.raises(SettingError, match="a recipe names its test data"):
        corpora_of([recipe], [recipe], ())
    with pytest.raises(SettingError, match="give a recipe, one table"):
        corpora_of([tmp_path / "text.txt"], (), ())


@pytest.mark.parametrize("name", ["pairs.tsv", "pairs.csv", "pairs.jsonl"])
def test_lines_that_are_not_utf_8_are_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    row = {
        "pairs.tsv": "{}\t{}\n",
        "pairs.csv": "{},{}\n",
        "pairs.jsonl": '{{"source": "{}", "target": "{}"}}\n',
    }[name]
    rows = [row.format(f"a dog {n}", f"ein Hund {n}").encode() for n in range(40)]
    rows[3] = row.format("a broken XX line", "eine Zeile").encode().replace(b"XX", b"\xff\xfe")
    head = b"source,target\n" if name.endswith("csv") else b""
    (tmp_path / name).write_bytes(head + b"".join(rows))
    assert main(["doctor", str(tmp_path / name), "--json"]) == 3
    *faults, counts = map(json.loads, capsys.readouterr().out.splitlines())
    assert counts["kinds"]["encoding"] == 1
    assert [f["line"] for f in faults if "encoding" in f["faults"]] == [4 + bool(head)]


def test_prices_are_of_trainings_with_and_without_each_fault(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    pairs = corpus()
    pairs += pairs[40:60]  # duplicates
    pairs[30] = (pairs[30][0], pairs[30][1] + " &quot;")
    written(Path("pairs.tsv"), pairs)
    trained: list[tuple[int, int]] = []

    def outputs(facts: Any, paths: Any, run: Path, steps: int, seed: int) -> Evaluation:
        rows = Path(paths["train"]).read_text().splitlines()
        test = [json.loads(line) for line in Path(paths["test"]).read_text().splitlines()]
        trained.append((seed, len(rows)))
        assert not {row["source"] for row in test} & {json.loads(row)["source"] for row in rows}
        targets = [row["target"] for row in test]
        right = len(rows) < 366  # without the duplicates every output is right
        hypotheses = targets if right else [" ".join(t.split()[:6]) for t in targets]
        sources = [row["source"] for row in test]
        return Evaluation({}, sources, hypotheses=hypotheses, references=[[t] for t in targets])

    monkeypatch.setattr(trials, "_trained", outputs)
    monkeypatch.setattr(trials, "tokens_per_second", lambda *_: (1.0, 10, 1.0))
    command = ["doctor", "pairs.tsv", "--ignore", "alignment", "--price", "--json"]
    assert main(command) == 0
    rows = {row["kind"]: row for row in map(json.loads, capsys.readouterr().out.splitlines())}
    assert {kind: row["pairs"] for kind, row in rows.items()} == {
        "any fault": 21,
        "duplicate": 20,
        "entities": 1,
    }
    assert [rows[kind]["verdict"] for kind in ("duplicate", "entities")] == [
        "leave them out",
        "leave it",
    ]
    assert rows["duplicate"]["gain"] == pytest.approx(100 - rows["duplicate"]["score"])
    assert rows["duplicate"]["low"] > 5
    assert rows["entities"]["gain"] == 0
    assert len(trained) == 12 and {seed for seed, _ in trained} == {1, 2, 3}
    assert main(command[:-1]) == 0  # all are there: nothing is trained again
    assert "duplicate: −20 pairs, +" in capsys.readouterr().out and len(trained) == 12
    written(Path("pairs.tsv"), pairs[:-1])
    assert main(command) == RunError.exit_code
    assert "prices of other data" in capsys.readouterr().err


def test_prices_keep_their_minutes_and_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    count = [0]

    def outputs(facts: Any, paths: Any, run: Path, steps: int, seed: int) -> Evaluation:
        clock[0] += 20
        count[0] += 1
        return Evaluation({}, [], hypotheses=["a"], references=[["b"]])

    monkeypatch.setattr(trials.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(trials, "_trained", outputs)
    monkeypatch.setattr(trials, "tokens_per_second", lambda *_: (1.0, 10, 1.0))
    pairs = corpus()
    table = written(tmp_path / "pairs.tsv", pairs + pairs[:3])

    def prices(minutes: float) -> trials.Prices:
        lines = examined(corpora_of([table], (), ()), ["duplicate"])
        return trials.priced(lines, tmp_path / "prices", minutes)[0]

    assert [len(rows) for rows in prices(1.6).outputs.values()] == [2, 1, 1]
    assert clock[0] <= 96
    assert [len(rows) for rows in prices(60).outputs.values()] == [3, 3, 3]
    assert count[0] == 9


@pytest.mark.slow
def test_a_training_is_tested_on_the_same_pairs(tmp_path: Path) -> None:
    pairs = corpus()
    paths = {"train": str(write_pairs(pairs[20:], tmp_path / "train.jsonl"))}
    paths |= dict.fromkeys(("valid", "test"), str(write_pairs(pairs[:20], tmp_path / "t.jsonl")))
    evaluation = trials._trained(facts_of(pairs), paths, tmp_path / "run", 4, 1)
    assert evaluation.references == [[target] for _, target in pairs[:20]]
    assert len(evaluation.hypotheses) == 20


def test_a_lexicon_learnt_in_parts_is_that_of_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    chance = np.random.default_rng(0)
    rows = [
        (chance.integers(1, 40, n).tolist(), chance.integers(1, 30, n + 1).tolist())
        for n in chance.integers(1, 9, 200).tolist()
    ]
    whole = language._learn(rows, 41)
    monkeypatch.setattr(language, "CELLS", 100)
    parts = language._learn(rows, 41)
    assert np.array_equal(parts.keys, whole.keys)
    np.testing.assert_allclose(parts.ratios, whole.ratios, rtol=1e-9)


@pytest.mark.system
def test_processes_change_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examine, "TOGETHER", 4)
    sound = [(f"Ein Hund {n} läuft", f"A dog {n} runs") for n in range(60)]
    pairs = [*sound, *sound[:5], ("Ein Hund läuft", " "), *((s, t) for _, s, t in FAULTY)]
    file = tmp_path / "pairs.jsonl"
    with file.open("wb") as lines:
        lines.writelines(json.dumps({"source": s, "target": t}).encode() + b"\n" for s, t in pairs)
    corpora = corpora_of([file], [], [])
    alone, together = (list(examined(corpora, list(KINDS), processes=n)) for n in (1, 2))
    assert alone == together and len(alone) == len(pairs)
    assert {"duplicate", "empty", "encoding"} <= {kind for row in together for kind in row.faults}


ROWS = {
    "pairs.tsv": ("{}\t{}\n", "a lone text\n"),
    "pairs.csv": ("{},{}\n", "one,cut,in three\n"),
    "pairs.jsonl": ('{{"source": "{}", "target": "{}"}}\n', '{"source": "a lone text"}\n'),
}


@pytest.mark.parametrize("name", ROWS)
def test_rows_that_lack_a_column_are_reported_by_their_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    row, broken = ROWS[name]
    rows = [row.format(f"a dog {n}", f"ein Hund {n}") for n in range(40)]
    at = (4, *range(11, 17))
    for line in at:
        rows[line - 1] = broken
    head = "source,target\n" if name.endswith("csv") else ""
    (tmp_path / name).write_text(head + "".join(rows), encoding="utf-8")
    assert main(["doctor", str(tmp_path / name), "--json"]) == 3
    done = capsys.readouterr()
    *faults, counts = map(json.loads, done.out.splitlines())
    assert counts["pairs"] == 40 and counts["kinds"]["empty"] == 7
    lines = [line + bool(head) for line in at]
    assert [f["line"] for f in faults if "empty" in f["faults"]] == lines
    (warning,) = done.err.splitlines()
    shown = ", ".join(map(str, lines[:5]))
    assert f"{name}: line {lines[0]} has" in warning and "counted from 0" not in warning
    assert warning.endswith(f"read as blank: 7 of 40 rows (line {shown}, …)")


def test_a_table_without_any_whole_row_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pairs.tsv").write_text("a,b\nc,d\n", encoding="utf-8")
    assert main(["doctor", str(tmp_path / "pairs.tsv")]) == DataError.exit_code
    assert "line 1 has 1 of 2 columns; " in capsys.readouterr().err


def untranslated(path: Path, pairs: Sequence[tuple[str, str]]) -> int:
    """Number of untranslated pairs that are reported."""
    corpora = corpora_of([written(path, pairs)], (), ())
    kinds = [kind for kind in kinds_of_faults(corpora, ()) if kind != "alignment"]
    return sum("untranslated" in line.faults for line in examined(corpora, kinds))


def test_equal_sides_are_no_fault_of_a_task_that_copies(tmp_path: Path) -> None:
    words = ["one", "two", "three", "four", "five", "six"]
    sources = [f"{a} {b} {c}" for a in words for b in words for c in words]
    backwards = [(source, " ".join(source.split()[::-1])) for source in sources]
    assert sum(source == target for source, target in backwards) == 36
    assert untranslated(tmp_path / "backwards.tsv", backwards) == 0
    assert "untranslated" not in prepare(backwards, tmp_path / "data", 1, "translation").dropped
    assert untranslated(tmp_path / "same.tsv", [(source, source) for source in sources]) == 0
    german = dict(zip(words, ["eins", "zwei", "drei", "vier", "fünf", "sechs"], strict=True))
    translated = [(s, " ".join(map(german.__getitem__, s.split()))) for s in sources]
    some = [(s, s if n % 2 else t) for n, (s, t) in enumerate(translated)]
    assert untranslated(tmp_path / "german.tsv", some) == 108
    digits = {word: str(number) for number, word in enumerate(words, 1)}
    spelt = [
        (" ".join(map(digits.__getitem__, s.split())) if n % 2 else s, s)
        for n, s in enumerate(sources)
    ]
    assert untranslated(tmp_path / "spelt.tsv", spelt) == 0


COPIED = (
    "warning: {} share most words of their sides: equal sides are not looked for; if these were to "
    "be translated, export them with their translations, or leave them out"
)


@pytest.mark.parametrize(("n_left", "n_reported"), [(190, 0), (60, 60), (0, 0)])
def test_an_export_without_translations_is_warned_of(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    n_left: int,
    n_reported: int,
) -> None:
    """Equal sides of 95 % of the pairs look like a task that copies, fewer like faults."""
    words = ["one", "two", "three", "four", "five", "six"]
    german = dict(zip(words, ["eins", "zwei", "drei", "vier", "fünf", "sechs"], strict=True))
    sources = [" ".join(row) for row in itertools.product(words, repeat=4)][:200]
    pairs = [
        (s, s if n < n_left else " ".join(map(german.__getitem__, s.split())))
        for n, s in enumerate(sources)
    ]
    file = written(tmp_path / "pairs.tsv", pairs)
    main(["doctor", str(file), "--json", "--ignore", "alignment"])
    shown = capsys.readouterr()
    warning = COPIED.format("190 of 200 pairs")
    assert (warning in shown.err.splitlines()) is (n_left == 190)
    assert "equal sides" not in shown.out
    counts = json.loads(shown.out.splitlines()[-1])
    assert counts["kinds"].get("untranslated", 0) == n_reported
    main(["doctor", str(file), "--ignore", "alignment", "--ignore", "untranslated"])
    assert "equal sides" not in capsys.readouterr().err
    logging.getLogger("transduce").propagate = True
    prepared = prepare(pairs, tmp_path / "data", 1, "translation")
    assert ("190 of 200 pairs share" in caplog.text) is (n_left == 190)
    assert prepared.dropped.get("untranslated", 0) == n_reported
