"""Images on the command line: trained on files, asked about paths, measured."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from helpers.command_line import Done, transduce
from helpers.pictures import KINDS, squares, stripes, write_folder, write_table

Here = Callable[..., Done]

TRAINING = """
[training]
steps = {steps}
batch_tokens = 288
label_smoothing = 0.0
schedule = {{ kind = "constant", peak = {peak}, warmup_steps = 10 }}
validate_every = 50
threads = 1
device = "cpu"
"""
STACK = """{ n_layers = 1, n_heads = 2, d_ff = 48, norm_order = "pre", positions = "learned", \
dropout = 0.0 }"""
CLASSIFIER = f"""
task = "image-classification"
[data]
root = "ROOT"
train = {{ kind = "folder", path = "train" }}
test = {{ kind = "folder", path = "test" }}
[image]
size = 8
[model]
d_model = 24
patch_size = 4
encoder = {STACK}
{TRAINING.format(steps=100, peak="1e-2")}
select_by = "accuracy"
"""
CAPTIONER = f"""
task = "captioning"
[data]
root = "ROOT"
train = {{ kind = "table", path = "train.tsv", image = "file", label = "says" }}
test = {{ kind = "table", path = "test.tsv", image = "file", label = "says" }}
[image]
size = 15
[text]
tokenizer = {{ kind = "symbols" }}
max_length = 16
[model]
vision = {{ d_model = 32, patch_size = 5, encoder = {STACK} }}
decoder = {{ n_layers = 1, n_heads = 2, d_ff = 48, norm_order = "pre", dropout = 0.0 }}
{TRAINING.format(steps=150, peak="5e-3")}
"""


def trained(directory: Path, recipe: str) -> Path:
    file = directory / "recipe.toml"
    file.write_text(recipe.replace("ROOT", str(directory)), encoding="utf-8")
    done = transduce("train", file, "--run", directory / "run")
    assert done.code == 0, done.err
    assert done.lines == [str(directory / "run")]
    return directory / "run"


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("stripes")
    write_folder(directory / "train", *stripes(400))
    write_folder(directory / "test", *stripes(40, seed=1))
    return trained(directory, CLASSIFIER)


@pytest.fixture(scope="module")
def captioner(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("squares")
    write_table(directory / "train", *squares(300))
    write_table(directory / "test", *squares(20, seed=1))
    return trained(directory, CAPTIONER)


def pictures(run: Path) -> list[Path]:
    """The test images, those of one kind after those of another."""
    return sorted((run.parent / "test").rglob("*.png"))


def write_lines(path: Path, lines: list[object]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def test_a_record_gives_probabilities(classifier: Path, tmp_path: Path, here: Here) -> None:
    records = [{"id": 7, "image": str(pictures(classifier)[0])}, {"image": " "}]
    file = write_lines(tmp_path / "in.jsonl", [*map(json.dumps, records), ""])
    done = here("predict", classifier, file, "--jsonl")
    assert done.code == 0, done.err
    first, blank = map(json.loads, done.lines[:2])
    assert (first["id"], first["image"]) == (7, records[0]["image"])
    assert set(first["probabilities"]) == set(KINDS)
    assert sum(first["probabilities"].values()) == pytest.approx(1)
    assert first["probability"] == first["probabilities"][first["label"]]
    assert (blank["label"], blank["probabilities"]) == ("", {})
    assert done.lines[2:] == [""]


def test_evaluate_on_other_files(classifier: Path, tmp_path: Path, here: Here) -> None:
    paths = pictures(classifier)[:4]
    source = write_lines(tmp_path / "paths", list(paths))
    answers = here("predict", classifier, source).lines
    wrong = ["upright" if answers[0] == "flat" else "flat"]
    reference = write_lines(tmp_path / "labels", [*wrong, *answers[1:]])
    files = ("--source", source, "--reference", reference)
    done = here("evaluate", classifier, *files, "--against", classifier, "--json")
    assert done.code == 0, done.err
    scores = json.loads(done.lines[0])
    assert scores["accuracy"] == 75 and scores["against"]["accuracy"]["difference"] == 0


@pytest.mark.parametrize("name", ["classifier", "captioner"])
def test_held_out_images_against_another_run(
    name: str, here: Here, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    run = request.getfixturevalue(name)
    other = tmp_path / "other"
    recipe = run.parent / "recipe.toml"
    settings = ["--set", "training.steps=2", "--set", "training.validate_every=2"]
    assert here("train", recipe, "--run", other, *settings).code == 0
    done = here("evaluate", run, "--against", other, "--json")
    assert done.code == 0, done.err
    scores = json.loads(done.lines[0])
    metric = "accuracy" if name == "classifier" else "chrf"
    theirs = json.loads(here("evaluate", other, "--json").lines[0])[metric]
    assert scores["against"][metric]["score"] == pytest.approx(theirs)
    assert scores["against"][metric]["difference"] == pytest.approx(scores[metric] - theirs)


def test_held_out_images_against_a_run_with_others(
    classifier: Path, captioner: Path, here: Here, tmp_path: Path
) -> None:
    complaint = here("evaluate", classifier, "--against", captioner).complaint
    assert f"{captioner} and {classifier} have different test data; give image paths" in complaint


def test_a_path_gives_a_caption(captioner: Path, tmp_path: Path, here: Here) -> None:
    paths = pictures(captioner)
    file = write_lines(tmp_path / "in", [paths[0], "", *paths[1:]])
    done = here("predict", captioner, file, "--beam-size", 2)
    assert done.code == 0, done.err
    assert len(done.lines) == 21 and done.lines[1] == ""
    assert all(line.startswith("there ") for line in done.lines if line)
    file = write_lines(tmp_path / "in.jsonl", [json.dumps({"image": str(paths[0])})])
    (record,) = map(json.loads, here("predict", captioner, file, "--jsonl").lines)
    assert record["caption"] and record["score"] <= 0


WRONG = "no\0\x1b[31mpe.png"
SAID = r"no\x00\x1b[31mpe.png cannot be read as an image: embedded null"


def test_what_stands_before_a_wrong_line_is_answered(
    classifier: Path, tmp_path: Path, here: Here
) -> None:
    good = pictures(classifier)[0]
    lines = [good, "", good, WRONG, good]
    file = write_lines(tmp_path / "all", lines)
    done = here("predict", classifier, file)
    assert done.code == 1
    assert done.complaint.startswith(f"{file}: line 4: {SAID}")
    before = write_lines(tmp_path / "before", lines[:3])
    assert done.lines == here("predict", classifier, before).lines
    assert len(done.lines) == 3 and done.lines[0] == done.lines[2] and not done.lines[1]


def test_a_wrong_record_has_an_error_and_the_others_an_answer(
    classifier: Path, tmp_path: Path, here: Here
) -> None:
    good = str(pictures(classifier)[0])
    records: list[dict[str, object]] = [
        {"image": WRONG},
        {"image": good},
        {"image": None},
        {"image": "nope.png"},
        {"image": good},
    ]
    file = write_lines(tmp_path / "all", list(map(json.dumps, records)))
    done = here("predict", classifier, file, "--jsonl")
    assert done.code == 0, done.err
    result = [json.loads(line) for line in done.lines]
    assert [set(record) for record in result[::2][:2]] == [{"image", "error"}] * 2
    assert "cannot be read as an image: embedded null" in result[0]["error"]
    assert "no such file" in result[3]["error"]
    assert result[1] == result[4] and result[1]["label"] in KINDS
    assert "all: line 1: " in done.err and "3 records failed; each has a field" in done.err


def test_mistakes_are_one_line(classifier: Path, tmp_path: Path, here: Here) -> None:
    recipe = classifier.parent / "recipe.toml"
    options = ("--run", tmp_path / "run", "--set", "data.train.path=trian")
    assert "trian" in here("train", recipe, *options).complaint
    file = write_lines(tmp_path / "in", [pictures(classifier)[0], "", recipe])
    assert (
        f"{file}: line 3: {recipe} is not an image" in here("predict", classifier, file).complaint
    )
    assert "--beam-size applies only to tasks that decode" in (
        here("predict", classifier, file, "--beam-size", 3).complaint
    )
