"""The open table of small models: SCAN by its grammar, data by sha256, claims."""

import hashlib
import sys
from pathlib import Path
from typing import Any

import pytest

GOLF = Path(__file__).parents[2] / "benchmarks" / "golf"
sys.path.insert(0, str(GOLF))

import golf  # noqa: E402
import scan  # noqa: E402

from transduce.recipes import parse_recipe  # noqa: E402
from transduce.settings.sections import load_toml  # noqa: E402

CLAIM: dict[str, Any] = {"score": 50.0, "interval": [48.0, 52.0], "items": 400, "bytes": 10_000}
CLAIM |= {"digest": "a", "processor": "p", "cpu_minutes": 1.0, "metric": "bleu"}
ENTRIES = sorted((GOLF / "entries").glob("*.toml"))


def test_scan_has_the_published_counts_and_actions() -> None:
    every = dict(scan.commands())
    assert len(every) == 20_910
    assert max(len(actions.split()) for actions in every.values()) == 48
    assert every["jump opposite left after walk around left"] == " ".join(
        ["I_TURN_LEFT", "I_WALK"] * 4 + ["I_TURN_LEFT", "I_TURN_LEFT", "I_JUMP"]
    )
    assert every["turn around right twice"] == " ".join(["I_TURN_RIGHT"] * 8)
    assert every["run and look thrice"] == "I_RUN I_LOOK I_LOOK I_LOOK"
    for name, counts in scan.COUNTS.items():
        train, test = scan.split(name)
        assert (len(train), len(test)) == counts
        assert not {*train} & {*test}
    assert {source for source, _ in scan.split("jump")[0] if "jump" in source} == {"jump"}


def test_data_of_another_sha256_are_refused(tmp_path: Path) -> None:
    files = {"a.txt": hashlib.sha256(b"a").hexdigest()}
    with pytest.raises(SystemExit, match=r"a\.txt is not there"):
        golf.checked(tmp_path, files)
    (tmp_path / "a.txt").write_text("a", encoding="utf-8")
    golf.checked(tmp_path, files)
    (tmp_path / "a.txt").write_text("b", encoding="utf-8")
    with pytest.raises(SystemExit, match="another sha256"):
        golf.checked(tmp_path, files)


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({}, ""),
        ({"digest": "b"}, "other weights"),
        ({"digest": "b", "processor": "q"}, ""),
        ({"score": 47.0, "processor": "q"}, "score 47"),
        ({"bytes": 20_000}, "20,000 bytes"),
        ({"items": 300}, "300 test items"),
    ],
)
def test_claims_hold_to_the_bit_on_the_same_processor(change: dict[str, Any], wrong: str) -> None:
    points = golf.disagreements(CLAIM, CLAIM | change)
    assert bool(points) == bool(wrong) and wrong in "; ".join(points)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"golf: .*entry\.toml: No such file or directory; give the TOML file of an entry"),
        ("task = ", "is no TOML"),
        ('task = "none"', "task is to be one of cmudict"),
        ('task = "scan-jump"', r"has no \[recipe\]"),
        ('task = "scan-jump"\n[recipe]', r"has no \[claim\]; --claim writes it"),
        ('task = "scan-jump"\n[recipe]\n[claim]\nscore = 1', "the claim has no bytes"),
    ],
)
def test_entries_that_cannot_be_verified_are_one_line(
    tmp_path: Path, content: str | None, message: str
) -> None:
    path = tmp_path / "entry.toml"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    with pytest.raises(SystemExit, match=message) as ended:
        golf.verify(path, tmp_path / "none", tmp_path / "place", claims=False)
    assert "\n" not in str(ended.value)
    with pytest.raises(SystemExit, match="Is a directory"):
        golf.verify(tmp_path, tmp_path, tmp_path / "place", claims=False)


def test_mistakes_behind_an_entry_are_one_line(tmp_path: Path) -> None:
    path = tmp_path / "entry.toml"
    path.write_text('task = "scan-jump"\n[recipe]\nmodels = 1\n', encoding="utf-8")
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit, match=r"golf: --place .*Not a directory"):
        golf.verify(path, tmp_path, tmp_path / "file" / "place", claims=True)
    with pytest.raises(SystemExit, match=r"golf: .*entry\.toml: .*models"):
        golf.verify(path, tmp_path, tmp_path / "place", claims=True)


def test_a_comparison_names_what_was_equal_and_what_is_allowed() -> None:
    equal = "; ".join(golf.comparison(CLAIM, CLAIM | {"bytes": 9_998}))
    assert "weights equal to the bit" in equal
    assert "50.0 (48.0 to 52.0)" in equal and "10,000 (1 % allowed)" in equal
    other = "; ".join(golf.comparison(CLAIM, CLAIM | {"digest": "b", "processor": "q"}))
    assert "weights others (here q; claimed on p)" in other


@pytest.mark.parametrize("path", ENTRIES, ids=lambda path: path.stem)
def test_entries_are_recipes_of_tasks_with_claims(path: Path) -> None:
    entry = load_toml(path)
    task = golf.TASKS[entry["task"]]
    data = {**task["data"], **entry["recipe"].get("data", {})}
    parse_recipe({**entry["recipe"], "task": "translation", "data": data}, path.stem)
    assert CLAIM.keys() <= entry["claim"].keys()
    assert entry["claim"]["metric"] == task["metric"]
    low, high = entry["claim"]["interval"]
    assert low <= entry["claim"]["score"] <= high
    assert any(path.stem in row for row in golf.table())


def test_every_task_is_fixed_by_digests() -> None:
    assert {"cmudict", "scan-length", "scan-jump", "multi30k-en-de"} <= golf.TASKS.keys()
    for name, task in golf.TASKS.items():
        assert task["files"] or name.startswith("scan-")
        assert all(len(digest) == 64 for digest in task["files"].values())
