"""Translation without PyTorch in the process: the same answers, and PyTorch where it is needed."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import subprocess
import sys
import tomllib
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import torch

import transduce
from helpers.native import needs_native
from transduce import DecodingOptions, Run, RunError, SettingError
from transduce.decoding.shortlist import Shortlist
from transduce.errors import needs_extra
from transduce.loading import load
from transduce.recipes import read_recipe
from transduce.runs.network_engine import natively as with_native_search
from transduce.tasks.table import TASKS
from transduce.tasks.translation.native import InTorch
from transduce.tasks.translation.shortlist import save_shortlist
from transduce.tasks.translation.translator import Translator
from transduce.training.weight_files import read_plain_weights
from transduce.training.weights import read_tensors, write_tensors, write_weights

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "tests" / "runs" / "0.1.0" / "translation"
NORM = "decoder.layers.0.feed_forward_residual.norm"
TEXTS = ["ab", "", "cde\nab", "abcabc", "xyz"]
WITHOUT_TORCH = """
import io, sys
sys.modules["torch"] = None  # importing it raises
from transduce.cli.main import main
run = sys.argv[1]
print(main(["translate", run, sys.argv[2], "--n-best", "2"]))
print(main(["translate", run, sys.argv[2], "--sample", "--top-p", "0.9", "--n-best", "2"]))
print(main(["translate", run, sys.argv[2], "--no-repeat-ngram", "2"]))
print(main(["translate", run, sys.argv[2], "--engine", "pytorch"]))
print(main(["translate", run + "-rnn", sys.argv[2]]))
print(main(["explain", run, "ab"]))
from transduce import load
from transduce.serve.service import Service
from transduce.serve.runs import read_specs
from transduce.serve.settings import ServeSettings
from transduce.serve.worker import Worker
from pathlib import Path
worker = Worker(load(Path(run), "auto", "int8", threads=1))
print([one.text for one in worker.attempt(["ab"], [None], 0, lambda place: False)])
Service(read_specs([Path(run)]), load, ServeSettings())
assert not any(name.startswith("torch") and sys.modules[name] for name in sys.modules)
"""


@pytest.fixture(scope="module")
def light() -> Run:
    return load(KEPT, "cpu", "float32", "native", 1)


@pytest.fixture(scope="module")
def whole() -> Run:
    """The same engine, put behind a predictor that PyTorch loaded."""
    run = transduce.load(KEPT, "cpu", engine="pytorch")
    predictor = with_native_search(run.predictor, run.recipe, run.path, "float32")
    return dataclasses.replace(run, predictor=predictor, engine="native")


def is_light(run: Run) -> bool:
    """True if PyTorch has not been loaded for a run."""
    assert isinstance(run.predictor, Translator)
    loader = getattr(run.predictor.network, "__self__", None)
    return isinstance(loader, InTorch) and loader._loaded is None


def natively(path: Path) -> Any:
    load_native = TASKS["translation"].load_native
    assert load_native is not None
    return load_native(read_recipe(path), path, "float32", 1)


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    return shutil.copytree(KEPT, tmp_path / "run")


@pytest.mark.system
@needs_native
def test_a_process_without_torch(whole: Run, copied: Path, tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("ab\ncde\n", encoding="utf-8")
    other = shutil.copytree(copied, tmp_path / "run-rnn")
    text = (other / "recipe.toml").read_text(encoding="utf-8")
    text = re.sub(r"(\[model\.encoder\]\n)[^\[]*", r'\1kind = "recurrent"\n\n', text)
    (other / "recipe.toml").write_text(text, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, copied, tmp_path / "lines.txt"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    expected = []
    for method, top_p in (("beam", 1.0), ("sample", 0.9)):
        options = dataclasses.replace(
            whole.translator.options, method=method, n_best=2, top_p=top_p
        )
        found = whole.translate_batch(["ab", "cde"], options)
        expected += [
            f"{i} ||| {one.text} ||| {one.score:.6f}"
            for i, translation in enumerate(found)
            for one in translation.candidates
        ]
        expected.append("0")
    (int8,) = transduce.load(KEPT, "cpu", "int8", "native").translate_batch(["ab"])
    assert done.stdout.splitlines() == [*expected, "2", "1", "1", "1", str([int8.text])]
    said = done.stderr.splitlines()
    needed = "needs PyTorch, which is not installed; install transduce, not transduce-runtime"
    assert said[0].endswith(f"decoding.no_repeat_ngram = 2 {needed}")
    assert said[1].endswith(f"run {needed}")
    assert "the native engine has no model.encoder.kind = 'recurrent'; without" in said[2]
    assert said[3].endswith(needed) and len(said) == 4


@needs_native
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"beam_size": 1},
        {"beam_size": 3, "n_best": 3, "length_penalty": "mean", "stop": "exact"},
        {"minimum_risk": "chrf"},
        {"min_length": 4, "max_length_extra": 1},
        {"prefix": "a"},
        {"constraints": ("ab",)},
        {"method": "sample", "n_best": 2},
    ],
    ids=str,
)
def test_the_same_answers_to_the_bit(light: Run, whole: Run, changes: dict[str, Any]) -> None:
    options = dataclasses.replace(whole.translator.options, **changes)
    light.translator.check(options)
    assert light.translate_batch(TEXTS, options) == whole.translate_batch(TEXTS, options)
    assert light.attempt(TEXTS, [options] * 5) == whole.attempt(TEXTS, [options] * 5)


@needs_native
def test_without_torch_options_are_errors_of_their_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    run = load(KEPT, "cpu", "float32", "native", 1)
    filtered = dataclasses.replace(run.translator.options, no_repeat_ngram=2)
    monkeypatch.setitem(sys.modules, "torch", None)
    fine, refused, last = run.attempt(["ab", "ab", "cde"], [None, filtered, None])
    assert [fine, last] == run.translate_batch(["ab", "cde"])
    assert isinstance(refused, SettingError) and "ngram = 2 needs PyTorch" in str(refused)


@needs_native
def test_shortlists_need_no_torch(copied: Path) -> None:
    run = load(copied, "cpu", "float32", "native", 1)
    source, target = run.translator.source, run.translator.target
    options = dataclasses.replace(run.translator.options, shortlist=True, n_best=2)
    with pytest.raises(RunError, match="has no shortlist"):
        run.translate("ab", options)
    likely = np.arange(source.size * 3).reshape(-1, 3) % target.size
    save_shortlist(Shortlist(likely, np.empty(0, np.int64), False, target.size), copied)
    run = load(copied, "cpu", "float32", "native", 1)
    shortened = run.translate_batch(TEXTS, options)
    assert is_light(run)
    pytorch = transduce.load(copied, "cpu", engine="pytorch").translate_batch(TEXTS, options)
    assert [one.text for one in shortened] == [one.text for one in pytorch]
    with pytest.raises(SettingError, match="shortlist cannot be combined"):
        run.translate("ab", dataclasses.replace(options, prefix="a"))


@needs_native
def test_what_it_lacks_is_done_with_torch(light: Run, whole: Run) -> None:
    assert "".join(light.stream("cde")) == whole.translate("cde").text
    assert list(light.score([("ab", "a")])) == pytest.approx(
        list(whole.score([("ab", "a")])), rel=1e-5
    )
    assert light.recipe == whole.recipe and light.engine == "native"
    for layer in (-1, 0):
        seen, other = (run.translator.attention("abc", "cab", layer) for run in (light, whole))
        assert np.allclose(seen, other, atol=1e-5)
    assert light.translator.align("ab", "a").source == whole.align("ab", "a").source
    assert light.evaluate("test", [("ab", "a")]) == whole.evaluate("test", [("ab", "a")])
    assert repr(light) == repr(whole)
    assert light.info() == whole.info()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_arrays_are_the_tensors(tmp_path: Path, dtype: torch.dtype) -> None:
    tensors = {"a.weight": torch.randn(3, 4).to(dtype), "b.weight": torch.ones(2).to(dtype)}
    write_weights(tmp_path / "w.safetensors", tensors)
    found = read_plain_weights(tmp_path / "w.safetensors")
    assert {name: one.shape for name, one in found.items()} == {
        "a.weight": (3, 4),
        "b.weight": (2,),
    }
    for name, one in found.items():
        values = np.frombuffer(one.read(), np.float32).reshape(one.shape)
        assert np.array_equal(values, tensors[name].float().numpy())
    with (tmp_path / "w.safetensors").open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"\x01")
    with pytest.raises(RunError, match="checksum mismatch"):
        read_plain_weights(tmp_path / "w.safetensors")


def test_weights_are_read_in_place(tmp_path: Path) -> None:
    tensors = {"a.weight": torch.ones(1024, 1024), "b.weight": torch.ones(1024, 1024)}
    write_weights(tmp_path / "w.safetensors", tensors)
    tracemalloc.start()
    weights = read_plain_weights(tmp_path / "w.safetensors")
    numbers = {name: np.frombuffer(weight.read(), np.float32) for name, weight in weights.items()}
    assert numbers["a.weight"].sum() == numbers["b.weight"].sum() == 1 << 20
    assert tracemalloc.get_traced_memory()[1] < 1 << 19
    tracemalloc.stop()
    if Path("/proc/self/smaps").is_file():
        assert resident(tmp_path / "w.safetensors") >= 8 << 10
        weights["b.weight"].release()
        assert resident(tmp_path / "w.safetensors") <= 5 << 10
    assert numbers["b.weight"].sum() == 1 << 20  # read again from the file


def resident(path: Path) -> int:
    """KiB of a mapped file that are in the memory of this process."""
    entries = re.split(r"\n(?=[0-9a-f]+-[0-9a-f]+ )", Path("/proc/self/smaps").read_text())
    fields = (re.search(r"\nRss: +(\d+) kB", text) for text in entries if f"{path}\n" in text)
    return sum(int(field[1]) for field in fields if field)


@pytest.mark.system
@needs_native
def test_without_packages_of_scores(copied: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("ab\n", encoding="utf-8")
    recipe = (copied / "recipe.toml").read_text(encoding="utf-8")
    recipe = recipe.replace("\nmetrics = []", '\nmetrics = ["bleu", "rouge-1", "f1"]')
    (copied / "recipe.toml").write_text(recipe, encoding="utf-8")
    script = """
import sys
for name in ("torch", "numpy", "sacrebleu", "sacremoses", "rapidfuzz"):
    sys.modules[name] = None  # importing it raises
from transduce.cli.main import main
run, text = sys.argv[1:]
codes = [main(["translate", run, text])]
codes += [main(["translate", run, text, *option]) for option in (
    ["--precision", "int8"], ["--sample"], ["--minimum-risk", "chrf"])]
codes.append(main(["evaluate", run, "--source", text, "--reference", text]))
print(codes)
"""
    command = [sys.executable, "-c", script, str(copied), str(tmp_path / "a.txt")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert len(done.stdout.splitlines()) == 3
    assert done.stdout.splitlines()[-1] == "[0, 0, 2, 2, 1]"
    remedy = "needs the extra 'evaluate'; from its wheel: "
    subjects = ("decoding.method = 'sample'", "decoding.minimum_risk = 'chrf'", "evaluate`")
    for line, subject in zip(done.stderr.splitlines(), subjects, strict=True):
        assert f"{subject} {remedy}" in line


def test_requirements_of_the_light_wheel() -> None:
    project = tomllib.loads((ROOT / "packaging/runtime/pyproject.toml").read_text())["project"]
    names = {re.split("[>=]", text)[0] for text in project["dependencies"]}
    assert names.isdisjoint({"torch", "numpy", "sacrebleu", "sacremoses", "rapidfuzz"})
    extra = {re.split("[>=]", text)[0] for text in project["optional-dependencies"]["evaluate"]}
    assert extra == {"numpy", "sacrebleu", "sacremoses", "rapidfuzz"}


def test_an_extra_comes_from_a_clone_or_from_the_light_wheel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert "in a clone of transduce: pip install '.[serve]' " in needs_extra("it", "serve")
    monkeypatch.setitem(sys.modules, "torch", None)
    expected = "from its wheel: pip install 'transduce_runtime-….whl[serve]' (docs/install.md)"
    assert needs_extra("it", "serve").endswith(expected)


NOT_COMPLETE = "is not a complete safetensors file"
FLOATS = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


@pytest.mark.parametrize(
    ("header", "n_bytes", "message"),
    [
        ({"a": FLOATS}, 4, NOT_COMPLETE),
        ({"a": FLOATS}, 12, NOT_COMPLETE),
        ({"a": FLOATS, "b": FLOATS}, 16, NOT_COMPLETE),
        ({"a": {**FLOATS, "data_offsets": [4, 12]}}, 12, NOT_COMPLETE),
        ({"a": {**FLOATS, "shape": [3]}}, 8, NOT_COMPLETE),
        ({"a": {**FLOATS, "shape": [-1, -2]}}, 8, NOT_COMPLETE),
        ({"a": {**FLOATS, "shape": [1 << 40], "data_offsets": [0, 1 << 42]}}, 8, NOT_COMPLETE),
        ({"a": {**FLOATS, "shape": "2"}}, 8, NOT_COMPLETE),
        ({"a": {"dtype": "F32"}}, 8, NOT_COMPLETE),
        ([FLOATS], 8, NOT_COMPLETE),
        ({"__metadata__": {"transduce_format": "3"}}, 0, "has format 3"),
    ],
)
def test_damaged_headers(tmp_path: Path, header: Any, n_bytes: int, message: str) -> None:
    text = json.dumps(header).encode()
    path = tmp_path / "w.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(n_bytes))
    with pytest.raises(RunError, match=message):
        read_plain_weights(path)
    path.write_bytes((len(text) + n_bytes + 1).to_bytes(8, "little") + text + bytes(n_bytes))
    with pytest.raises(RunError, match=NOT_COMPLETE):
        read_plain_weights(path)


def test_names_of_format_1(tmp_path: Path) -> None:
    arrays = {"source.embedding.weight": np.ones((2, 2), np.float32), "encoder.a": np.ones(1)}
    safetensors.numpy.save_file(arrays, tmp_path / "w.safetensors")
    assert set(read_plain_weights(tmp_path / "w.safetensors")) == {
        "front_end.embedding.weight",
        "encoder.a",
    }


@needs_native
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda w: w.pop(f"{NORM}.weight"), "residual.norm"),
        (
            lambda w: w.update({"more.weight": torch.ones(2), "more.bias": torch.ones(2)}),
            "weight more.weight is unknown",
        ),
        (lambda w: w.update({"head.bias": torch.ones(2)}), "head has a bias"),
        (lambda w: w.pop("encoder.layers.0.feed_forward.inner.bias"), "inner has no bias"),
        (lambda w: w[f"{NORM}.bias"].fill_(torch.nan), "norm.bias is not finite"),
        (lambda w: w[f"{NORM}.weight"].fill_(torch.inf), "norm.weight is not finite"),
        (lambda w: w.update({f"{NORM}.weight": torch.ones(3)}), "has another shape"),
        (lambda w: w.update({f"{NORM}.bias": torch.ones(3)}), "has another shape"),
        (lambda w: w.update({f"{NORM}.weight": torch.ones(0)}), "has another shape"),
        (lambda w: w.update({f"{NORM}.weight": torch.ones(1, 2, 3)}), "has another shape"),
        (lambda w: w.update({f"{NORM}.lora_a": torch.ones(1)}), "low-rank adapter"),
        (lambda w: w.update({f"{NORM}.weight": torch.ones(3).long()}), "unsupported type int64"),
    ],
)
def test_weights_of_another_model_are_refused(copied: Path, change: Any, message: str) -> None:
    weights = read_tensors(copied / "weights.safetensors")
    change(weights)
    write_tensors(copied / "weights.safetensors", weights)
    with pytest.raises(RunError, match=message):
        natively(copied)
    with pytest.raises(RunError):  # with PyTorch too
        load(copied, "cpu", "float32", "native", 1)


@needs_native
@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        ("n_layers = ", "n_layers = 2", RunError),
        ("n_heads = ", "n_heads = 3", SettingError),
        ("d_ff = ", "d_ff = 1000000", RunError),
        ("d_model = ", "d_model = 99999998", SettingError),
        ('task = "', 'task = "dialogue', SettingError),
    ],
)
def test_hostile_settings(copied: Path, before: str, after: str, kind: type[Exception]) -> None:
    text = (copied / "recipe.toml").read_text(encoding="utf-8")
    lines = [
        after + '"' * (before[-1] == '"') if line.startswith(before) else line
        for line in text.splitlines()
    ]
    (copied / "recipe.toml").write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(kind):
        natively(copied)


@needs_native
def test_other_runs_and_devices_get_torch(light: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transduce.runs.arguments.GPUS", ("/",))
    assert not is_light(load(KEPT, "auto", "float32", "auto"))
    assert is_light(load(KEPT, "cpu", "float32", "auto"))
    classifier = load(KEPT.parent / "classification", "auto", "float32", "auto")
    assert classifier.engine == "pytorch"
    network = load(KEPT, "cpu", engine="pytorch")
    assert not is_light(network) and network.engine == "pytorch"
    with pytest.raises(SettingError, match="runs on a CPU only"):
        load(KEPT, "cuda", "float32", "native", None)
    assert light.translate("ab", DecodingOptions(beam_size=1)).text
