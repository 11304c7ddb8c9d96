"""Options of `transduce make`: columns, tests, tasks, destinations, starts, forecasts."""

import dataclasses
import itertools
import json
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from transduce.cli.main import main
from transduce.errors import DataError, SettingError
from transduce.making import build, data, plan, trials
from transduce.making.build import Maker
from transduce.making.collect import Collector
from transduce.making.columns import columns_of
from transduce.making.data import Plan, PreparedData, Request, prepare, read_prepared_split
from transduce.making.plan import (
    START,
    DataFacts,
    expected_score,
    is_portable,
    measured_table,
    preferred,
    suited,
)
from transduce.runs.training import train
from transduce.tasks.evaluation import Evaluation
from transduce.training.log import BudgetLine, Display

NAMES = ("bread", "house", "river", "stone", "apple", "cloud", "table", "green", "wheel", "horse")
FACTS = DataFacts("translation", 20_000, 40.0, 40.0, 90)


def rows(count: int) -> list[tuple[str, str]]:
    return [(f"one word {n:b}", f"un mot {n:b} {n:o}") for n in range(1000, 1000 + count)]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A single small candidate of translation, measured once."""
    stack = {"n_layers": 1, "d_ff": 128}
    model = {"d_model": 64, "encoder": stack, "decoder": stack}
    row: dict[str, Any] = {"cost": 1, "pieces": 100, "model": model, "n_heads": 2, "dropout": 0.0}
    row |= {"batch_tokens": 512, "optimizer": "muon", "peak": 5e-3}
    measured = {"kind": "translation", "set": "letters", "pairs": 500, "work": 1e6}
    table = {"candidates": {"translation": {"only": row}}}
    table |= {"measured": [measured | {"candidate": "only", "score": 30.0}]}
    monkeypatch.setattr(plan, "measured_table", lambda: table)
    monkeypatch.setattr(trials, "TRIAL_STEPS", (4, 4))


def test_chosen_columns_go_before_those_recognised() -> None:
    table = [["id", "a", "b", "c"], *([str(n), f"x {n}", f"y {n} w", f"z {n}"] for n in range(40))]
    assert columns_of(table, "t", chosen=("c", "A"))[:4] == (3, 1, (), 1)
    assert columns_of(table, "t", chosen=("3", "2"))[:2] == (2, 1)
    assert columns_of(table[1:], "t", chosen=("4", "2"))[:4] == (3, 1, (), 0)
    odd = [["a", "b"], *([f"text {n}", f"text {n} too"] for n in range(40))]
    assert columns_of(odd, "t", chosen=("b", "a"))[:4] == (1, 0, (), 1)
    with pytest.raises(SettingError, match="--columns c 4: t has one such column, not two"):
        columns_of(table, "t", chosen=("c", "4"))
    for column in ("d", "0", "5"):
        with pytest.raises(
            SettingError, match=rf"--columns {column}: t has no such column.*3 \(b\)"
        ):
            columns_of(table, "t", chosen=("a", column))


def test_a_test_of_its_own_is_taken_whole_and_left_out_of_training(tmp_path: Path) -> None:
    pairs, test = rows(300), [("One word 1111101000!", "x"), ("unseen", "y")]
    prepared = prepare(pairs, tmp_path, 1, None, test)
    splits = {name: list(read_prepared_split(path)) for name, path in prepared.paths.items()}
    assert splits["test"] == test
    assert pairs[0] not in splits["train"] + splits["valid"]
    assert pairs[1] in splits["train"] + splits["valid"]
    assert prepared.dropped["near test"] >= 1


def test_a_named_task_is_not_recognised(tmp_path: Path) -> None:
    letters = str.maketrans("01234567", "abcdefgh")
    words = [(f"w{n:o}".translate(letters), f"{n:o}v".translate(letters)) for n in range(64, 400)]
    assert prepare(words, tmp_path / "a", 1).facts.kind == "spelling"
    assert prepare(words, tmp_path / "b", 1, "translation").facts.kind == "translation"


@pytest.mark.parametrize(("count", "most"), [(0, 5), (5, 5), (6, 5), (999, 100), (1001, 100)])
def test_samples_are_thinned_evenly(count: int, most: int) -> None:
    pairs = [(str(n), "") for n in range(count)]
    thinned = data._thinned(pairs, most)
    assert min(count, most) / 2 <= len(thinned) <= most
    steps = {int(b) - int(a) for (a, _), (b, _) in itertools.pairwise(thinned)}
    assert thinned[:1] == pairs[:1] and len(steps) <= 1


def test_pairs_that_are_not_examined_in_time_are_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data, "PREPARE_SHARE", -1.0)
    monkeypatch.setattr(data, "LEAST_READ", 100)
    letters = str.maketrans("01234567", "abcdefgh")
    words = [(f"w{n:o}".translate(letters), f"{n:o}v".translate(letters)) for n in range(64, 464)]
    prepared = prepare([*words, ("", "a"), words[-1], words[0]], tmp_path, 1, "spelling")
    assert sum(prepared.counts.values()) == 400 and prepared.noted["time"] == 300
    assert prepared.dropped == {"empty": 1, "duplicate": 2}


def test_faults_of_pairs_that_stay_are_counted(tmp_path: Path) -> None:
    pairs = [(f"{a} &amp; a {b}", f"{b} et un {a}") for a, b in itertools.permutations(NAMES, 2)]
    prepared = prepare(pairs, tmp_path, 1, "translation")
    assert prepared.noted["entities"] == sum(prepared.counts.values()) > 50


@pytest.mark.parametrize(("stolen", "threads"), [(0.0, 2), (0.3, 1)])
def test_threads_that_wait_for_a_busy_core_are_not_used(
    monkeypatch: pytest.MonkeyPatch, stolen: float, threads: int
) -> None:
    """Two threads take half of the time but for each tenth round, in which one loses its core."""
    rounds = itertools.count()

    def seconds(layer: Any, batch: Any, count: int) -> float:
        late = stolen if count == 2 and next(rounds) % 10 == 9 else 0.0
        return 0.02 / count + late

    monkeypatch.setattr(trials, "_seconds", seconds)
    monkeypatch.setattr(trials, "available_cores", lambda: 2)
    monkeypatch.setattr(trials, "find_device", lambda name: torch.device("cpu"))
    monkeypatch.setattr(trials, "slow_bf16_hint", lambda device: "")
    assert trials.machine.__wrapped__("spelling", "speller") == {"threads": threads}


def test_destinations_take_candidates_that_can_go_there() -> None:
    facts = DataFacts("spelling", 5000, 8.0, 14.0, 30, symbols=True)
    order = [("recurrent", 0.0), ("wide", 1.0), ("speller", 40.0)]
    assert preferred(facts, order)[0] == "recurrent"
    for destination in ("page", "server", "anywhere"):
        names = preferred(facts, order, destination)
        assert names == ["speller"] and is_portable(facts, "speller")
    with pytest.raises(SettingError, match="--for page: no candidate for spelling"):
        suited(facts, ["recurrent", "wide"], "page")
    labels = DataFacts("classification", 5000, 80.0, 4.0, 200)
    with pytest.raises(SettingError, match="pages hold no models of labels"):
        suited(labels, ["attention"], "page")


@pytest.mark.parametrize("kind", ["translation", "spelling", "classification"])
@pytest.mark.parametrize("pairs", [300, 5_000, 20_000, 1_000_000])
def test_more_work_never_lowers_the_expected_score(kind: Any, pairs: int) -> None:
    facts = DataFacts(kind, pairs, 10.0, 10.0, 30)
    scores = [expected_score(facts, 10.0 ** (k / 8))[0] for k in range(16, 80)]
    measured = [row["score"] for row in measured_table()["measured"] if row["kind"] == kind]
    assert scores == sorted(scores) and 0 <= scores[0] <= scores[-1] <= max(measured)


def test_short_trainings_are_expected_to_reach_little() -> None:
    """Words of 4,000 pairs: from a tenth of the least work of the table to the whole of it."""
    facts = DataFacts("spelling", 4_000, 8.0, 14.0, 30, symbols=True)
    least = min(r["work"] for r in measured_table()["measured"] if r["kind"] == "spelling")
    whole, tenth = (expected_score(facts, work)[0] for work in (least, least / 10))
    assert tenth == pytest.approx(whole / 10) and whole > 20


def test_the_table_expects_more_of_more_work() -> None:
    few, many = (expected_score(FACTS, work)[0] for work in (2e5, 3e6))
    assert 0 <= few < many <= 100
    assert expected_score(DataFacts("translation", 25_000, 60, 60, 90), 5e6)[1] == "multi30k"


@pytest.mark.parametrize(("brief", "chosen"), [(70.0, START), (20.0, "nano"), (35.0, "nano")])
def test_a_run_to_start_from_competes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, brief: float, chosen: str
) -> None:
    """Training from nothing gets the points that the table expects of the longer training."""
    prepared = PreparedData(FACTS, {"train": "a"}, {"valid": 200}, 0, {}, {})
    steps = Plan(Request([], 30, start="base"), prepared, 5000.0, 500, [("nano", 0.0)])
    scores = {START: brief, "nano": 30.0}
    monkeypatch.setattr(Maker, "_train_briefly", lambda self, name, *_: scores[name])
    monkeypatch.setattr(Maker, "save", lambda self: None)
    maker = Maker(tmp_path, steps)
    maker.choose()
    assert steps.candidate == chosen and steps.tried == scores


@pytest.mark.parametrize(
    ("brief", "chosen"),
    [((0.0, 0.0), "nano"), ((2.3, 0.2), "nano"), ((30.0, 0.2), START)],
)
def test_a_run_that_wins_by_chance_is_not_gone_on_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, brief: tuple[float, float], chosen: str
) -> None:
    prepared = PreparedData(FACTS, {"train": "a"}, {"valid": 31}, 0, {}, {})
    steps = Plan(Request([], 3, start="base"), prepared, 500.0, 500, [("nano", 0.0)])
    scores = dict(zip((START, "nano"), brief, strict=True))
    monkeypatch.setattr(Maker, "_train_briefly", lambda self, name, *_: scores[name])
    monkeypatch.setattr(Maker, "save", lambda self: None)
    Maker(tmp_path, steps).choose()
    assert steps.candidate == chosen


@pytest.mark.parametrize(
    ("task", "gain"), [("classification", (50.0,)), ("masked-language-model", ())]
)
def test_the_result_is_compared_with_a_start_of_its_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task: str, gain: tuple[float, ...]
) -> None:
    facts = DataFacts("classification", 500, 40.0, 1.0, 90)
    prepared = PreparedData(facts, {}, {}, 0, {}, {})
    maker = Maker(tmp_path, Plan(Request([], 3, start="base"), prepared))
    after = Evaluation({}, ["a", "b"], hypotheses=["1", "2"], references=[["1"], ["2"]])
    before = dataclasses.replace(after, hypotheses=["1", "1"])
    asked: list[Any] = []

    def start(path: Path) -> Any:
        def evaluate(examples: Any) -> Evaluation:
            asked.append(examples)
            return before

        return SimpleNamespace(recipe=SimpleNamespace(task=task), evaluate=evaluate)

    monkeypatch.setattr(build, "load", start)
    model: Any = SimpleNamespace(recipe=SimpleNamespace(task="classification"))
    maker._compare_with_start(model, after)
    assert maker.plan.start_gain[:1] == gain
    assert asked == ([[("a", "1"), ("b", "2")]] if gain else [])


@pytest.mark.slow
@pytest.mark.usefixtures("small")
def test_fine_tuning_a_taught_run_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("bal", "dor", "kel", "bor", "dal", "ker")
    pairs = [
        (" ".join(row), " ".join(word[::-1].upper() for word in row))
        for row in itertools.product(words, repeat=4)
    ][::3]
    file = tmp_path / "pairs.tsv"
    file.write_text("".join("\t".join(row) + "\n" for row in pairs), encoding="utf-8")
    prepared = prepare(pairs, tmp_path / "base", 1)
    recipe = plan.recipe_of(prepared.facts, "only", 400, prepared.paths, {"steps": 400})
    base, outcome = train(recipe, tmp_path / "taught")
    assert outcome.scores["chrf"] > 60
    monkeypatch.setattr(build, "STEPS", 60)
    run = tmp_path / "run"
    command = ["make", str(file), "--start", str(base), "--minutes", "0.4", "--run", str(run)]
    assert main(command) == 0
    account = json.loads((run / "account.json").read_text(encoding="utf-8"))
    assert account["facts"]["candidate"] == str(base.resolve())
    scores = dict(row.split(" ") for row in account["facts"]["tried"].split(", "))
    assert scores.keys() == {"only", "start"} and not account["facts"]["rejected"]
    assert float(scores["start"]) > float(scores["only"])
    assert len(account["facts"]["start_gain"]) == 3
    assert f"It goes on from {base.resolve()}" in (run / "account.html").read_text(encoding="utf-8")
    assert "[fine_tune]" in (run / "recipe.toml").read_text(encoding="utf-8")


def test_wrong_options_are_refused_and_leave_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, run = tmp_path / "pairs.tsv", tmp_path / "run"
    file.write_text("".join("\t".join(row) + "\n" for row in rows(200)), encoding="utf-8")
    blank = tmp_path / "blank.tsv"
    blank.write_text("source\ttarget\n \t \n", encoding="utf-8")
    for options, message in (
        (["--start", str(tmp_path)], "no run"),
        (["--columns", "a", "b"], "no such column"),
        (["--columns", "a"], "two names"),
        (["--test", "none.tsv"], "none.tsv: no such file"),
        (["--test", str(blank)], "no pair with text"),
        (["--for", "page", "--task", "classification"], "pages hold no"),
    ):
        command = ["make", str(file), "--run", str(run), *options]
        assert main(command) in (SettingError.exit_code, DataError.exit_code)
        assert message in capsys.readouterr().err.splitlines()[-1]
        assert not run.exists()


@pytest.mark.usefixtures("small")
def test_a_dry_run_forecasts_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (row,) = plan.measured_table()["measured"]
    monkeypatch.setitem(row, "work", 1e3)  # even of a slow machine, ten minutes are above it
    file = tmp_path / "pairs.tsv"
    file.write_text("".join("\t".join(row) + "\n" for row in rows(300)), encoding="utf-8")
    assert main(["make", str(file), "--dry-run"]) == 0
    printed, log = capsys.readouterr()
    lines = printed.splitlines()
    assert lines[0].startswith("translation") and "column 1 -> column 2" in lines[1]
    assert [line.split()[:3] for line in lines[-3:]] == [
        [minutes, "only", "30"] for minutes in ("10", "40", "120")
    ]
    assert [*tmp_path.iterdir()] == [file]
    assert "step " not in log and "validation" not in log


def test_inner_trainings_are_quiet(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr("transduce.training.log.time.monotonic", lambda: clock[0])
    line = BudgetLine(100.0, 0.0)
    for seconds in (0, 4, 12, 13, 57):
        clock[0] = seconds
        with line.inner("trying nano"):
            Display().message(f"step {seconds}")
            logging.getLogger("transduce").warning("few pairs")
    Display().message("step after")
    assert capsys.readouterr().err.splitlines() == [
        *("trying nano: 0:00 of 1:40", "trying nano: 0:12 of 1:40", "trying nano: 0:57 of 1:40"),
        "step after",
    ]


def test_files_of_a_test_are_named_in_messages(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="--test"):
        Collector([tmp_path / "none"], option="--test")
    (tmp_path / "empty").mkdir()
    (tmp_path / "note.txt").write_text("no tabs\n", encoding="utf-8")
    for name in ("empty", "note.txt"):
        with pytest.raises(SettingError, match=f"^--test .*{name}"):
            list(Collector([tmp_path / name], option="--test").pairs())
