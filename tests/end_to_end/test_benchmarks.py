"""The commands of benchmarks/ run and print what they say, on next to no work."""

import json
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import transduce
from helpers.native import needs_native
from helpers.served import some_sentences
from helpers.served_runs import speaking_run
from transduce.nn.repeated_work import RepeatedWork
from transduce.training.signals import InterruptedTraining, handled_by

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
import decoding_options  # noqa: E402  scripts, not a package
import gpu  # noqa: E402
import gpu_multi30k  # noqa: E402
import gpu_work  # noqa: E402
import training  # noqa: E402

SMALL = ["--size=tiny", "--rounds=1", "--batches=1", "--tokens=256", "--json"]


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert training.main([*SMALL, *arguments]) == 0
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_training_ends_with_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    result = printed(capsys, "--peers=transduce,torch.nn.Transformer", "--precision=float32")[
        "tiny"
    ]
    assert result["peer"] == "torch.nn.Transformer"
    assert result["ratio"] > 0
    assert 0 < result["share_of_peak"] < 1
    assert result["tokens_per_cpu_second"] > 0


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_training_in_bfloat16(capsys: pytest.CaptureFixture[str]) -> None:
    result = printed(capsys, "--peers=torch.nn.Transformer", "--precision=bf16")["tiny"]
    assert result["ratio"] > 0
    assert result["precision"] == result["peer_precision"] == "bf16"


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_each_library_is_compared_by_its_faster_precision(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a processor that is said to multiply faster in bfloat16, and on one that is not."""
    peaks = {torch.float32: 1e12, torch.bfloat16: 2e12}
    monkeypatch.setattr(training, "peak_flops", peaks.__getitem__)
    result = printed(capsys, "--peers=torch.nn.Transformer")["tiny"]
    ours = [result[precision]["tokens_per_cpu_second"] for precision in ("float32", "bf16")]
    assert result["tokens_per_cpu_second"] == max(ours)
    assert result[result["precision"]]["tokens_per_cpu_second"] == max(ours)
    peaks[torch.bfloat16] = 0.5e12
    result = printed(capsys, "--peers=torch.nn.Transformer")["tiny"]
    assert result["precision"] == result["peer_precision"] == "float32"
    assert "bf16" not in result


def test_serving_is_measured(de_en: Path, tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    lines.write_text("\n".join(some_sentences(300)), encoding="utf-8")
    command = [sys.executable, str(ROOT / "benchmarks" / "serving.py"), de_en, "--lines", lines]
    options = ["--count", "40", "--requests", "600", "--minutes", "0.1"]
    message = subprocess.run([*command, *options], stdout=subprocess.PIPE, check=True, text=True)
    result = json.loads(message.stdout)
    assert result["outputs_unlike_library"] == 0
    assert result["many_over_one"] > 0 and result["beside_in_batches"] > 0
    assert result["memory_end_mb"] > 0 and result["mixed_requests"] > 0


def test_levers_are_all_measured(capsys: pytest.CaptureFixture[str]) -> None:
    result = printed(capsys, "--levers")["tiny"]
    assert len(result) == 9
    assert min(result.values()) > 0


@needs_native
def test_options_are_measured(capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--size=tiny", "--batch=2", "--length=5", "--rounds=1", "--json"]
    assert decoding_options.main(small) == 0
    options = json.loads(capsys.readouterr().out)
    assert set(options) == set(decoding_options.OPTIONS)
    assert all(same == 1 for _, same in options.values())


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_visit_to_a_gpu_runs_dry_on_a_cpu(tmp_path: Path) -> None:
    parts = ["checks", "recipe", "training-base", "decoding-512", "multi30k"]
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
    result = json.loads(done.stdout)
    assert json.loads(output.read_text(encoding="utf-8")) == result
    assert [part for part in parts if "error" in result[part]] == []
    assert result["checks"]["resumed_to_the_bit"] is True
    assert result["checks"]["packed_loss_to_cpu"]["cosine_of_gradients"] > 0.99
    kernel = result["checks"]["packed_kernel_to_float64"]
    assert kernel.pop("across, finite") and max(kernel["across"], kernel["causal"]) < 1e-6
    steps = result["checks"]["steps"]
    assert steps["repeated"] == pytest.approx(steps["plain"], rel=0.01)
    assert result["recipe"]["steps"] == 2
    assert result["training-base"]["transduce"]["first_tokens_per_second"] > 0
    assert result["training-base"]["share_of_peak"]["floor"] == 0.3
    assert result["decoding-512"]["batch 512, beam 4"]["transduce bf16"] > 0
    assert result["decoding-512"]["tokens_per_second"]["goal"] == 150_000
    assert result["multi30k"]["steps"] == 4
    assert result["multi30k"]["steps_per_second"]["figure"] > 0
    assert {"test_2016_flickr", "test_2017_flickr"} < result["multi30k"].keys()
    assert all(result[part]["captures"] == 0 for part in parts), "on a CPU"


def test_a_visit_repeats_only_parts_that_are_not_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    output, names = tmp_path / "gpu.json", []
    errors = {"checks": {"error": "cut short"}}

    def run(name: str, *rest: object) -> dict[str, Any]:
        names.append(name)
        return {"seconds": 1.0} | errors.get(name, {})

    monkeypatch.setattr(gpu, "run", run)
    call = ["--dry-run", "--output", str(output), "--parts", "checks,lengths"]
    assert gpu.main(call) == 0
    errors.clear()
    assert gpu.main([*call, "--parts", "checks,lengths,profiles"]) == 0
    assert gpu.main(call) == 0
    assert names == ["checks", "lengths", "checks", "profiles"]
    result = json.loads(output.read_text(encoding="utf-8"))
    assert result.keys() == {"machine", "checks", "lengths", "profiles"}
    assert "error" not in result["checks"]
    output.write_text(json.dumps(result | {"machine": {"device": "another"}}), encoding="utf-8")
    assert gpu.main(call) == 2 and "another machine" in capsys.readouterr().err
    output.write_text("{", encoding="utf-8")
    assert gpu.main(call) == 2 and "not a file of this script" in capsys.readouterr().err
    assert output.read_text(encoding="utf-8") == "{" and len(names) == 4


def test_work_of_a_part_is_counted() -> None:
    with gpu_work.counted_work() as counts:
        before = counts()
        torch.compile(lambda x: x + 1, backend="eager")(torch.zeros(3))
        assert counts()["compilations"] == before["compilations"] + 1
        with pytest.raises((AttributeError, RuntimeError, AssertionError)):  # without a GPU
            RepeatedWork(lambda: None, torch.device("cuda"), str)._record()
        assert (before["captures"], counts()["captures"]) == (0, 1)


def test_a_training_without_a_new_checkpoint_is_interrupted_and_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resumed = []

    def stop(*_: object) -> None:
        raise InterruptedTraining(signal.SIGTERM, "stopped")

    def train(recipe: Path, run: Path, settings: object, resume: bool) -> None:
        resumed.append(resume)
        run.mkdir(exist_ok=True)
        if len(resumed) < 3:
            with handled_by(stop):
                threading.Event().wait(60)
            pytest.fail("the training was not interrupted")

    monkeypatch.setattr(transduce, "train", train)
    handler = signal.getsignal(signal.SIGTERM)
    gpu_multi30k.train(tmp_path / "run", (), latest=0.3)
    assert resumed == [False, True, True]
    assert signal.getsignal(signal.SIGTERM) == handler


NAMED = sorted(
    {
        name
        for page in (ROOT / "docs").rglob("*.md")
        for name in re.findall(r"python (benchmarks/\w+\.py)", page.read_text(encoding="utf-8"))
    }
)


IMPORTING = """
import json, pathlib, runpy, sys
sys.path[:0] = [sys.argv[1]]
missing = {}
for name in sys.argv[2:]:
    try:
        runpy.run_path(name, run_name="imported")
    except ImportError as error:
        missing[name] = error.name
print(json.dumps(missing))
"""


@pytest.mark.system
def test_scripts_that_pages_name_are_there_and_import_what_is() -> None:
    assert len(NAMED) > 25
    files = [str(ROOT / name) for name in NAMED]
    command = [sys.executable, "-c", IMPORTING, str(ROOT / "benchmarks"), *files]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stderr
    missing = json.loads(done.stdout.splitlines()[-1])
    assert set(missing.values()) <= {"pocketsphinx", "marian", "faster_whisper", "argostranslate"}


@pytest.mark.system
def test_speech_is_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a recogniser that hears "a" in all that has samples."""

    class Decoder:
        def __init__(self, **options: object) -> None:
            self.samples = b""

        def process_raw(self, samples: bytes, full_utt: bool) -> None:
            self.samples = samples

        def start_utt(self) -> None: ...

        def end_utt(self) -> None: ...

        def hyp(self) -> Any:
            return SimpleNamespace(hypstr="a") if any(self.samples) else None

    monkeypatch.setitem(sys.modules, "pocketsphinx", SimpleNamespace(Decoder=Decoder))
    import judge_speech

    run = speaking_run(tmp_path)
    monkeypatch.setattr(sys, "argv", ["judge_speech.py", str(run), "--count", "2"])
    judge_speech.main()
    result = json.loads(capsys.readouterr().out)
    assert result["texts"] == 2 and result["recorded-through-griffin-lim"] > 0
    assert {"word-error-rate", "length-ratio", "mel-cepstral-distortion"} <= result.keys()
