"""The commands of benchmarks/ run and print what they say, on next to no work."""

import gzip
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tomli_w
import torch

from helpers.command_line import some_words, transduce
from helpers.native import needs_native
from helpers.served import some_sentences

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
import attention  # noqa: E402  scripts, not a package
import costs  # noqa: E402
import decoding_options  # noqa: E402
import generation  # noqa: E402
import gpu  # noqa: E402
import products  # noqa: E402
import sigmorphon2021  # noqa: E402
import training  # noqa: E402

SMALL = ["--size=tiny", "--rounds=1", "--batches=1", "--tokens=256", "--json"]


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert training.main([*SMALL, *arguments]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_training_ends_with_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    found = printed(capsys, "--peers=transduce,torch.nn.Transformer", "--precision=float32")["tiny"]
    assert found["peer"] == "torch.nn.Transformer"
    assert found["ratio"] > 0
    assert 0 < found["share_of_peak"] < 1
    assert found["tokens_per_cpu_second"] > 0


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_training_in_bfloat16(capsys: pytest.CaptureFixture[str]) -> None:
    found = printed(capsys, "--peers=torch.nn.Transformer", "--precision=bf16")["tiny"]
    assert found["ratio"] > 0
    assert found["precision"] == found["peer_precision"] == "bf16"


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_each_library_is_compared_by_its_faster_precision(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a processor that is said to multiply faster in bfloat16, and on one that is not."""
    peaks = {torch.float32: 1e12, torch.bfloat16: 2e12}
    monkeypatch.setattr(training, "peak_flops", peaks.__getitem__)
    found = printed(capsys, "--peers=torch.nn.Transformer")["tiny"]
    ours = [found[precision]["tokens_per_cpu_second"] for precision in ("float32", "bf16")]
    assert found["tokens_per_cpu_second"] == max(ours)
    assert found[found["precision"]]["tokens_per_cpu_second"] == max(ours)
    peaks[torch.bfloat16] = 0.5e12
    found = printed(capsys, "--peers=torch.nn.Transformer")["tiny"]
    assert found["precision"] == found["peer_precision"] == "float32"
    assert "bf16" not in found


def test_each_term_is_there(tmp_path: Path) -> None:
    words = [" ".join(some_words(5, seed)) for seed in range(30)]
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_text("\n".join(words))
    target.write_text("\n".join(words).upper())
    recipe = tmp_path / "recipe.toml"
    settings = {
        "task": "translation",
        "data": {"train": {"kind": "parallel", "source": str(source), "target": str(target)}},
        "text": {"source": {"kind": "bpe", "size": 300}},
        "model": {"preset": "tiny"},
        "training": {"steps": 2, "batch_tokens": 256},
    }
    recipe.write_text(tomli_w.dumps(settings), encoding="utf-8")
    assert transduce("train", recipe, "--run", tmp_path / "run").code == 0
    command = [sys.executable, str(ROOT / "benchmarks" / "terminology.py")]
    options = ["--run", tmp_path / "run", "--source", source, "--target", target]
    said = subprocess.run([*command, *options], stdout=subprocess.PIPE, check=True, text=True)
    there = re.findall(r"(\d+) of (\d+) terms there", said.stdout)
    assert len(there) == 3
    assert all(found == wanted != "0" for found, wanted in there)


def test_serving_is_measured(de_en: Path, tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    lines.write_text("\n".join(some_sentences(300)), encoding="utf-8")
    command = [sys.executable, str(ROOT / "benchmarks" / "serving.py"), de_en, "--lines", lines]
    options = ["--count", "40", "--requests", "600", "--minutes", "0.1"]
    said = subprocess.run([*command, *options], stdout=subprocess.PIPE, check=True, text=True)
    found = json.loads(said.stdout)
    assert found["outputs_unlike_library"] == 0
    assert found["many_over_one"] > 0 and found["beside_in_batches"] > 0
    assert found["memory_end_mb"] > 0 and found["mixed_requests"] > 0


def test_levers_are_all_measured(capsys: pytest.CaptureFixture[str]) -> None:
    found = printed(capsys, "--levers")["tiny"]
    assert len(found) == 9
    assert min(found.values()) > 0


@pytest.mark.parametrize("point", [("pairs", "500"), ("output", "2")])
def test_a_point_of_costs(capsys: pytest.CaptureFixture[str], point: tuple[str, str]) -> None:
    assert costs.main(["--point", *point]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["mib"] > 0


@needs_native
def test_a_language_model_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    names = "native float32,native int8,pytorch float32"
    small = ["--size=tiny", "--batch=2", "--rounds=1", "--tokens=6", f"--peers={names}"]
    for way in (["--beam=2", "--json"], ["--sample"]):
        assert generation.main([*small, *way]) == 0
    found, *lines = capsys.readouterr().out.splitlines()
    assert json.loads(found)["native float32"]["same_outputs"] == 1
    assert sum(line.startswith("| native") for line in lines) == 2


@needs_native
def test_options_and_products_are_measured(capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--size=tiny", "--batch=2", "--length=5", "--rounds=1", "--json"]
    assert decoding_options.main(small) == products.main(["--turns=1", "--json"]) == 0
    options, speeds = map(json.loads, capsys.readouterr().out.splitlines())
    assert set(options) == set(decoding_options.OPTIONS)
    assert all(same == 1 for _, same in options.values())
    assert all(speed > 0 for one in speeds.values() for speed in one.values())


def test_ways_of_attention_are_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert attention.main(["--rounds", "1"]) == 0
    _, _, *rows = capsys.readouterr().out.splitlines()
    assert len(rows) == len(attention.SHAPES)
    assert all(float(cell) > 0 for row in rows for cell in row.strip("| ").split(" | ")[1:])


def test_ranks_are_measured() -> None:
    command = [sys.executable, "-W", "ignore", str(ROOT / "benchmarks" / "ranks.py")]
    options = ["--size=tiny", "--rounds=1", "--tokens=256", "--json"]
    said = subprocess.run([*command, *options], stdout=subprocess.PIPE, check=True).stdout
    found = json.loads(said)
    assert set(found) == {"one process", "data parallel", "sharded"}
    assert all(one["times_per_cpu_second"] > 0 for one in found.values())


def test_models_of_a_language_are_asked_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of 2020 come words of the language that 2021 has nowhere, in phones that it has."""
    one_step = ("training.steps=1", "training.average_last=0")
    monkeypatch.setattr(sigmorphon2021, "MEMBERS", {"fre": "J1 T1 A3+", "geo": "J1"})
    monkeypatch.setattr(sigmorphon2021, "JOINT", {"J1": one_step})
    monkeypatch.setattr(sigmorphon2021, "TUNING", one_step)
    monkeypatch.setattr(sigmorphon2021, "LEARNING", ("model.d_model=168", *one_step))
    some = [(word, " ".join(word)) for word in ("ab", "ba", "abba", "baba", "bab", "aba")]
    held_out = {"dev": [("aab", "a a b")], "test": [("bba", "b b a")]}
    rows = {"train": some, **held_out}
    of_2020 = [("aaa", "a a a"), ("abc", "a b c"), ("bba", "b b a"), ("ab", "a b")]
    for split, words in rows.items():
        lines = [("medium", name, *row) for name in ("fre", "geo") for row in words]
        sigmorphon2021.write(tmp_path / "sigmorphon2021-g2p" / f"{split}.tsv.gz", lines)
        lines = [("fre", *row) for row in of_2020] if split == "train" else []
        sigmorphon2021.write(tmp_path / "sigmorphon2020-g2p" / f"{split}.tsv.gz", lines)
    place = tmp_path / "place"
    asked = ["--data", str(tmp_path), "--place", str(place)]
    assert sigmorphon2021.main(asked) == 0
    with gzip.open(place / "words" / "fre+" / "train.tsv.gz", "rt") as file:
        learnt = file.read().splitlines()
    assert learnt == [f"medium\tfre\t{word}\t{sound}" for word, sound in [*some, of_2020[0]]]
    printed = capsys.readouterr().out
    assert re.search(r"^mean +dev +\d+\.\d\d  test +\d+\.\d\d$", printed, re.MULTILINE)
    made = (place / "runs").stat().st_mtime_ns
    assert sigmorphon2021.main(asked) == 0
    assert capsys.readouterr().out == printed
    assert (place / "runs").stat().st_mtime_ns == made, "each model is trained once"


@pytest.mark.timeout(900)
def test_the_visit_to_a_gpu_runs_dry_on_a_cpu(tmp_path: Path) -> None:
    """Each result is kept as soon as it is there."""
    parts = ["checks", "recipe", "training-base", "decoding-base"]
    assert set(parts) < set(gpu.PARTS)
    output = tmp_path / "gpu.json"
    command = [sys.executable, ROOT / "benchmarks" / "gpu.py", "--dry-run", "--seconds", "800"]
    done = subprocess.run(
        [*command, "--parts", ",".join(parts), "--output", output],
        check=True,
        capture_output=True,
        text=True,
        encoding="utf-8",
    )
    found = json.loads(done.stdout)
    assert json.loads(output.read_text(encoding="utf-8")) == found
    assert [part for part in parts if "error" in found[part]] == []
    assert found["checks"]["resumed_to_the_bit"] is True
    assert found["recipe"]["float32"]["steps"] == 2
    assert found["training-base"]["transduce"]["tokens_per_second"] > 0
    assert found["decoding-base"]["batch 1, beam 4"]["transduce float32"] > 0
