"""Recommendation: histories from tables, what is held out, ranks, and learning cycles."""

from __future__ import annotations

import csv
import gzip
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import transduce
from helpers.tiny_run import stack, training
from transduce.data.interactions import (
    InteractionsConfig,
    leave_one_out,
    read_histories,
    training_parts,
)
from transduce.errors import DataError, SettingError
from transduce.metrics.rankings import (
    UNRANKED,
    RankingExample,
    by_popularity,
    measure_rankings,
    ranking_scores,
    ranks_of,
)
from transduce.settings.sections import apply_overrides
from transduce.tasks.language_model.recommendation import RecommendationRecipe, recommend
from transduce.text import UNK

TABLE = """user,item,rating,time
ann,b,4.0,20
ann,a,5.0,10
bob,a,1.0,5
ann,c,3.0,30
ann,"d",5.0,40
bob,"x,y",4.5,2
bob,c,4.0,4

bob,d,4.0,3
cat,a,4.0,1
"""


def table(path: Path, text: str = TABLE, **changes: Any) -> InteractionsConfig:
    (path / "t.csv").write_text(text, encoding="utf-8")
    return InteractionsConfig(path=Path("t.csv"), **changes)


# --- histories -----------------------------------------------------------------------------------


def test_leave_one_out_by_hand(tmp_path: Path) -> None:
    found = read_histories(table(tmp_path), tmp_path, 3)
    assert found.users == ("ann", "bob")  # cat has too few
    assert [found.of(i) for i in range(2)] == [["a", "b", "c", "d"], ["x,y", "d", "c", "a"]]
    assert list(training_parts(found)) == [["a", "b"], ["x,y", "d"]]
    assert list(leave_one_out(found, "valid")) == [(["a", "b"], "c"), (["x,y", "d"], "c")]
    assert list(leave_one_out(found, "test")) == [
        (["a", "b", "c"], "d"),
        (["x,y", "d", "c"], "a"),
    ]


def test_formats_and_ratings(tmp_path: Path) -> None:
    rows = list(csv.reader(TABLE.replace("\n\n", "\n").splitlines()))
    with gzip.open(tmp_path / "t.tsv.gz", "wt", encoding="utf-8") as file:
        csv.writer(file, delimiter="\t", lineterminator="\r\n").writerows(rows)
    config = InteractionsConfig(kind="tsv", path=Path("t.tsv.gz"), rating="rating", min_rating=4.0)
    found = read_histories(config, tmp_path)
    assert [found.of(i) for i in range(3)] == [["a", "b", "d"], ["x,y", "d", "c"], ["a"]]
    dated = "who,what,when\n1,b,2024-05-02\n1,a,2024-05-01T23:59:59Z\n1,c,2024-05-02T00:00:01\n"
    found = read_histories(table(tmp_path, dated, user="who", item="what", time="when"), tmp_path)
    assert found.of(0) == ["a", "b", "c"]


def test_equal_times_do_not_keep_the_order_of_the_file(tmp_path: Path) -> None:
    items = [f"{i:02}" for i in range(40)]
    rows = [f"u,{item},7\n" for item in items]
    found = [
        read_histories(table(tmp_path, "user,item,time\n" + "".join(lines)), tmp_path).of(0)
        for lines in (rows, rows[::-1])
    ]
    assert found[0] == found[1] and sorted(found[0]) == items
    rising = sum(a < b for a, b in zip(found[0], found[0][1:], strict=False))
    assert 10 < rising < 30
    as_written = table(tmp_path, "user,item,time\n" + "".join(rows[::-1]), time="")
    assert read_histories(as_written, tmp_path).of(0) == items[::-1]


@pytest.mark.parametrize(
    ("text", "changes", "message"),
    [
        (TABLE, {"user": "usr"}, r"line 1 has no column 'usr'; did you mean 'user'\?"),
        (TABLE + "eve,a,1\n", {}, r"t.csv: line 12 has 3 columns, but line 1 has 4"),
        (TABLE + "eve,a b,1,2\n", {}, r"line 12: 'item' 'a b' contains a space"),
        (TABLE + "eve,,1,2\n", {}, r"line 12: 'item' is empty"),
        (TABLE + "eve,a,1,noon\n", {}, r"line 12: 'time' must be a number or a date .*'noon'"),
        (TABLE + "eve,a,1,nan\n", {}, r"line 12: 'time' must be a number or"),
        (
            TABLE + "eve,a,good,2\n",
            {"rating": "rating", "min_rating": 1.0},
            r"line 12: 'rating' must be a number, not 'good'",
        ),
        (TABLE + 'eve,"a,1,2\n', {}, r"is not valid CSV: unexpected end of data"),
        ("user,item,time\n", {}, r"none of 0 users has at least 3 interactions"),
        ("", {}, r"t.csv is empty"),
    ],
)
def test_tables_that_cannot_be(
    tmp_path: Path, text: str, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        read_histories(table(tmp_path, text, **changes), tmp_path, 3)


# --- ranks ---------------------------------------------------------------------------------------


def test_ranks_by_hand() -> None:
    scores = np.array([[0.1, 0.7, 0.2], [0.5, 0.5, 0.5], [0.5, 0.5, 0.5], [0.3, -np.inf, 0.1]])
    assert ranks_of(scores, np.array([2, 0, 2, 1])).tolist() == [2, 1, 3, UNRANKED]


def test_what_ranks_are_worth() -> None:
    found = ranking_scores(np.array([1.0, 2.0, 3.0, 11.0, UNRANKED]), 3)
    assert found["hit_rate_3"] == pytest.approx(60)
    assert found["ndcg_3"] == pytest.approx(20 * (1 + 1 / math.log2(3) + 1 / 2))
    assert found["mrr"] == pytest.approx(20 * (1 + 1 / 2 + 1 / 3 + 1 / 11))
    with pytest.raises(DataError, match="nothing to measure"):
        ranking_scores(np.array([]))


def test_popularity_by_hand() -> None:
    counts = np.array([0, 0, 0, 0, 5, 4, 3, 3])
    questions = [
        RankingExample([4], 5),  # first of what is left
        RankingExample([4, 5], 7),  # behind its equal, 6
        RankingExample([5], 5),  # had it before, and again
        RankingExample([4], UNK),
    ]
    found = measure_rankings(by_popularity(counts), questions, 2)
    ranks = [1, 2, 2, UNRANKED]
    assert found.items() >= ranking_scores(np.array(ranks), 2).items()
    everything = ranking_scores(np.array([2, 4, 2, UNRANKED]), 2)
    assert [found[f"{name}_with_seen"] for name in everything] == list(everything.values())
    assert found["loss"] == pytest.approx(-np.log(np.array([4, 3, 4]) / 15).mean())
    (first, second) = recommend(by_popularity(counts), [[4], [4, 5, 6, 7]], 2)
    assert [item for item, _ in first] == [5, 6] and second == []
    assert [p for _, p in first] == pytest.approx([0.4, 0.3])


# --- training ------------------------------------------------------------------------------------

ROUND = 30


def write_rounds(path: Path, users: int = 60) -> Path:
    """Everybody goes through the same round of items, from where he begins; nobody all of it."""
    with (path / "rounds.csv").open("w", encoding="utf-8") as file:
        file.write("user,item,time\n")
        for user in range(users):
            for step in range(8 + user % 7):
                file.write(f"u{user},i{(7 * user + step) % ROUND},{step}\n")
    return path


def settings(data: Path, *overrides: str) -> dict[str, Any]:
    given = {
        "task": "recommendation",
        "data": {
            "root": str(data),
            "train": {"kind": "csv", "path": "rounds.csv"},
            "block": 16,
        },
        "model": {"d_model": 32, "decoder": stack(d_ff=64, positions="rotary", dropout=0.1)},
        "training": training(
            8, 128, 1e-2, validate_every=4, log_every=1,
            label_smoothing=0.0, select_by="ndcg_10", optimizer={"epsilon": 1e-8},
        ),
    }  # fmt: skip
    return apply_overrides(given, overrides)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_rounds(tmp_path_factory.mktemp("rounds"))


@pytest.fixture(scope="module")
def path(data: Path) -> Path:
    steps = "training.steps=100", "training.validate_every=100", "training.select_by=loss"
    return transduce.train(settings(data, *steps), data / "runs" / "learnt")[0]


def test_learns_what_comes_next(data: Path, path: Path) -> None:
    run = transduce.load(path)
    found = run.evaluate().scores
    assert float(found["hit_rate_10"]) == 100 and float(found["mrr"]) > 97
    assert float(found["ndcg_10"]) > 2 * float(found["popularity_ndcg_10"])
    assert run.info()["items"] == ROUND


def test_recommends_what_is_new(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = transduce.load(path)
    known, empty, odd = run.predict(["i3 i4 i5 i6", "", "i3 i4 nothing i5 i6"])
    items = known.fields()["items"]
    assert known.text.split() == [one["item"] for one in items] and len(items) == 10
    assert items[0]["item"] == "i7" and items[0]["probability"] > 0.9
    assert not {"i3", "i4", "i5", "i6"} & set(known.text.split())
    assert len(set(empty.text.split())) == 10 and "nothing" not in odd.text
    assert odd.text == known.text
    assert "ignoring 1 unknown items in histories 1 to 3" in caplog.text
    json.dumps(known.fields())
    every = " ".join(f"i{i}" for i in range(ROUND))
    (none,) = run.predict([every])
    assert none.text == "" and none.fields() == {"items": []}


def test_only_the_last_items_are_read(path: Path) -> None:
    run = transduce.load(path)
    long = " ".join(f"i{i % ROUND}" for i in range(3, 24))  # 21 items, 16 of which fit
    tail = " ".join(f"i{i}" for i in range(8, 24))
    (a,), (b,) = run.predict([long]), run.predict([tail])
    assert a.fields()["items"][0]["item"] == b.fields()["items"][0]["item"] == "i24"
    assert not set(a.text.split()) & set(long.split()), (
        "what is no longer read is seen all the same"
    )


def test_examples_of_ones_own(path: Path) -> None:
    run = transduce.load(path)
    found = run.evaluate(examples=[("i1 i2 i3", "i4"), ("i8 i9", "i10"), ("i1 i2", "i99")])
    assert found.scores["hit_rate_10"] == pytest.approx(200 / 3)
    assert not any(name.startswith("popularity") for name in found.scores)
    assert found.sources[0] == "i1 i2 i3"
    with pytest.raises(DataError, match="one item to follow a history, not 'i4 i5'"):
        run.evaluate(examples=[("i1", "i4 i5")])
    with pytest.raises(DataError, match="items are held out only for validation and test"):
        run.evaluate("train")


def test_held_out_items_are_not_trained_on(data: Path, tmp_path: Path) -> None:
    """The vocabulary is that of the training part; what is not in it cannot be hit."""
    text = "user,item,time\n" + "".join(
        f"u{u},{item},{t}\n"
        for u in range(4)
        for t, item in enumerate(["a", "b", "c", "a2", "b" if u else "only-valid", f"test{u}"])
    )
    (tmp_path / "rounds.csv").write_text(text)
    run, _ = transduce.train(settings(tmp_path, "training.steps=1"), tmp_path / "runs" / "r")
    known = json.loads((run / "tokenizer.json").read_text())["symbols"]
    assert sorted(known) == ["a", "a2", "b", "c"]
    scores = transduce.load(run).evaluate().scores
    assert scores["hit_rate_10"] == 0 == scores["mrr"] and "loss" not in scores


def test_mistakes(data: Path, tmp_path: Path) -> None:
    for override, message in [
        ("data.min_interactions=2", "data.min_interactions"),
        ("training.select_by=perplexty", "select_by = 'perplexty', but validation measures"),
        ("data.train.min_rating=3", "min_rating needs a rating column"),
        ("training.batch_tokens=8", "is less than one row of data.block = 16"),
        ("data.train.kind='json'", "data.train.kind"),
        ("data.train.usr='a'", "data.train.usr is not a setting; did you mean 'user'"),
    ]:
        with pytest.raises(SettingError, match=message):
            RecommendationRecipe.parse(settings(data, override), "recipe")
    lonely = "user,item,time\n" + "".join(
        f"u{u},i{u}-{t},{t}\n" for u in range(3) for t in range(6)
    )
    (tmp_path / "rounds.csv").write_text(lonely)
    with pytest.raises(DataError, match="no item held out for validation"):
        transduce.train(settings(tmp_path), tmp_path / "runs" / "r")
