"""Speech models in the native engine: memory, log-probabilities and texts of PyTorch."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from torch import Tensor

import transduce
from helpers.audio import encoded, noise, saved, tone
from helpers.native import INSTRUCTIONS, needs_native, odd_stack
from helpers.whisper import timed
from transduce.decoding.backend import Decoded
from transduce.decoding.options import DecodingOptions
from transduce.engine.build import VARIABLE
from transduce.engine.model import plain_weight
from transduce.nn.precision import Precision
from transduce.runs.importing import import_run
from transduce.sequence import Padded
from transduce.speech.guards import loops
from transduce.speech.model import NativeSpeech, SpeechModel, build_speech
from transduce.speech.model_config import SpeechConfig, SpeechFrontEndConfig, WhisperFrontEndConfig
from transduce.speech.prompt import prompt_with
from transduce.speech.recipe import padded_frames
from transduce.speech.recogniser import Recogniser
from transduce.text import EOS

pytestmark = needs_native

BINS, SIZE = 10, 50
GATED = SpeechConfig(
    d_model=24,
    front_end=SpeechFrontEndConfig(n_layers=2, width=5, channels=14),
    encoder=odd_stack("sinusoidal", "pre", "relu"),
    decoder=odd_stack("sinusoidal", "post", "gelu"),
)
CONFIGS = {
    "gated": GATED,
    "once": replace(GATED, front_end=SpeechFrontEndConfig(n_layers=1, width=3, channels=7)),
    "rotary": replace(GATED, encoder=odd_stack("rotary", "post", "silu")),
    "alibi": replace(GATED, encoder=odd_stack("alibi", "pre", "gelu"), ctc=False),
    "whisper": SpeechConfig(
        d_model=24,
        front_end=WhisperFrontEndConfig(kind="whisper"),
        encoder=replace(odd_stack("learned", "pre", "gelu"), max_positions=400),
        decoder=odd_stack("learned", "pre", "gelu"),
        ctc=False,
        scale_embeddings=False,
        output_bias=True,
    ),
}
FRAMES = {"few": (40, 3, 17), "many": (1300, 70, 1201)}
"""Frames of recordings; in a batch with many, attention is of packed keys."""


def built(config: SpeechConfig) -> SpeechModel:
    torch.manual_seed(1)
    model = build_speech(config, BINS, SIZE).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model


def native(model: SpeechModel, config: SpeechConfig, precision: Precision = "float32") -> Any:
    weights = {name: plain_weight(weight) for name, weight in model.state_dict().items()}
    return NativeSpeech(config, (BINS, SIZE), weights, precision, lambda: 2)


def frames_of(config: SpeechConfig, kind: str) -> Padded:
    if config.front_end.kind == "whisper":
        return Padded.unpadded(torch.randn(3, 37 if kind == "few" else 777, BINS))
    return padded_frames([torch.randn(n, BINS) for n in FRAMES[kind]])


def results(model: Any, frames: Padded) -> list[Tensor]:
    """Memory, log-probabilities of two steps around a choice of hypotheses, and those of CTC."""
    with torch.inference_mode():
        memory = model.encode(frames)
        state = model.over(memory)
        first = model.step(Padded.unpadded(torch.arange(12).view(3, 4) + 4), state)
        state.select(torch.tensor([1, 0, 0, 2]))
        second = model.step(Padded.unpadded(torch.arange(4)[:, None] + 20), state)
        logits = [first.log_softmax(-1), second.log_softmax(-1)]
        heard = [] if model.ctc is None else [model.ctc_log_probs(memory).values[memory.real]]
        return [memory.values[memory.real], *logits, *heard]


@pytest.mark.parametrize("kind", FRAMES)
@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("instructions", INSTRUCTIONS)
def test_memory_and_log_probabilities(
    instructions: str, name: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, instructions)
    model = built(CONFIGS[name])
    frames = frames_of(CONFIGS[name], kind)
    pairs = zip(results(model, frames), results(native(model, CONFIGS[name]), frames), strict=True)
    for expected, result in pairs:
        assert float((result - expected).abs().max()) < 1e-4


@pytest.mark.parametrize("kind", FRAMES)
@pytest.mark.parametrize(("precision", "error"), [("bf16", 0.03), ("int8", 0.06)])
def test_reduced_precision_is_close(precision: Precision, error: float, kind: str) -> None:
    model, frames = built(GATED), frames_of(GATED, kind)
    pairs = zip(
        results(model, frames), results(native(model, GATED, precision), frames), strict=True
    )
    for expected, result in pairs:
        assert 1e-6 < float((result - expected).norm() / expected.norm()) < error


@pytest.mark.parametrize("precision", get_args(Precision))
def test_a_recording_is_the_same_to_the_bit_in_every_batch(precision: Precision) -> None:
    model = native(built(GATED), GATED, precision)
    frames = frames_of(GATED, "many")
    together = model.encode(frames)
    steps = Padded.unpadded(torch.arange(6).view(3, 2) + 4)
    logits = model.step(steps, model.over(together))
    for i, n in enumerate(FRAMES["many"]):
        alone = model.encode(Padded.unpadded(frames.values[i : i + 1, :n]))
        assert torch.equal(alone.values[0], together.values[i][together.real[i]])
        row = model.step(Padded.unpadded(steps.values[i : i + 1]), model.over(alone))
        assert torch.equal(row[0], logits[i])


def test_weights_of_packed_keys() -> None:
    """The attention of a long source is that of the gathered keys of PyTorch."""
    model, frames = built(GATED), frames_of(GATED, "many")
    ids = Padded.unpadded(torch.arange(6).view(3, 2) + 4)
    engine = native(model, GATED)
    with torch.inference_mode():
        expected = model.step_attended(ids, model.over(model.encode(frames)))[1]
    result = engine.step_attended(ids, engine.over(engine.encode(frames)))[1]
    assert float((result - expected).abs().max()) < 1e-5


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Whisper with random weights, of sharp distributions."""
    directory = tmp_path_factory.mktemp("whisper")
    torch.manual_seed(2)
    timed(directory, init_std=0.4)
    return import_run(directory, directory / "run")


@pytest.mark.parametrize(
    "settings",
    [
        {"beam_size": 1},
        {"beam_size": 4},
        {"beam_size": 3, "prefix": "be", "n_best": 2},
        {"beam_size": 2, "no_repeat_ngram": 2, "repetition_penalty": 1.5},
        {"method": "sample", "temperature": 0.7},
    ],
    ids=str,
)
def test_texts_of_a_whisper(run: Path, tmp_path: Path, settings: dict[str, Any]) -> None:
    samples = np.concatenate([np.zeros(16_000, np.float32), tone(1.3) + noise(1.3)])
    files = [
        saved(tmp_path / "a.wav", encoded(samples)),
        saved(tmp_path / "b.wav", encoded(noise(3.0))),
    ]
    loaded = (
        transduce.load(run, "cpu", engine="pytorch"),
        transduce.load(run, "cpu", engine="native"),
    )
    assert [one.engine for one in loaded] == ["pytorch", "native"]
    options = DecodingOptions(**{"length_penalty": "mean", "stop": "first", **settings})
    answers = [[*one.predict([(str(file),) for file in files], options)] for one in loaded]
    for expected, result in zip(*answers, strict=True):
        assert result.text == expected.text and result.language == expected.language
        assert result.score == pytest.approx(expected.score, abs=1e-4)


def test_segments_and_words_of_a_whisper(run: Path, tmp_path: Path) -> None:
    syllable = np.concatenate([tone(0.3) + noise(0.3), np.zeros(3200, np.float32)])
    file = saved(tmp_path / "long.wav", encoded(np.tile(syllable, 72)))
    engines = (
        transduce.load(run, "cpu", engine="pytorch"),
        transduce.load(run, "cpu", engine="native"),
    )
    expected, result = ([*one.transcribe(file, words=True)] for one in engines)
    assert expected and len(result) == len(expected)
    for one, other in zip(expected, result, strict=True):
        assert (other.text, other.start, other.end, other.temperature) == (
            one.text,
            one.start,
            one.end,
            one.temperature,
        )
        assert other.no_speech == pytest.approx(one.no_speech, abs=1e-4)
        assert [word.text for word in other.words] == [word.text for word in one.words]


def heard(recogniser: Recogniser, files: list[Path], options: DecodingOptions) -> list[Decoded]:
    frames = [recogniser.read_file(str(file)) for file in files]
    return [*recogniser.each(frames, options, 0, lambda _, decoded: decoded[0])]


@pytest.mark.parametrize("timed_output", [False, True])
@pytest.mark.parametrize(
    "settings",
    [
        {"beam_size": 5, "n_best": 5},
        {"beam_size": 3, "min_length": 8, "length_penalty": "none", "stop": "exact"},
        {"method": "sample", "temperature": 2.0, "n_best": 4},
    ],
    ids=str,
)
def test_rules_of_a_whisper(
    run: Path, tmp_path: Path, settings: dict[str, Any], timed_output: bool
) -> None:
    """Times, detected languages, loops and the probability of no speech are PyTorch's."""
    files = [saved(tmp_path / f"{i}.wav", encoded(noise(2.0 + i, seed=i))) for i in range(3)]
    options = DecodingOptions(**{"length_penalty": "mean", "stop": "first", **settings})
    results = []
    for engine in ("pytorch", "native"):
        loaded: Any = transduce.load(run, "cpu", engine=engine).predictor  # type: ignore[arg-type]
        whole = loaded.prompted(prompt_with(loaded.recipe.prompt, "auto"), timed_output)
        prompt = replace(whole.prompt, no_speech=40)
        recogniser = replace(whole, backend=replace(whole.backend, prompt=prompt))
        results.append(heard(recogniser, files, options))
    for expected, result in zip(*results, strict=True):
        assert result.language == expected.language in ("en", "de", "yue")
        assert result.no_speech == pytest.approx(expected.no_speech, rel=1e-3)
        pairs = zip(expected.hypotheses, result.hypotheses, strict=True)
        for one, other in pairs:
            assert (other.tokens, other.finished) == (one.tokens, one.finished)
            assert other.score == pytest.approx(one.score, abs=1e-4)


def test_an_output_that_loops_ends(run: Path, tmp_path: Path) -> None:
    loaded: Any = transduce.load(run, "cpu", engine="native").predictor
    words = [token for token in range(4, loaded.tokenizer.size) if token not in (40, 41)]
    prompt = replace(loaded.prompt, forbidden=tuple(words), forbidden_first=(EOS,))
    recogniser = replace(loaded, backend=replace(loaded.backend, prompt=prompt))
    file = saved(tmp_path / "a.wav", encoded(noise(2.0)))
    options = DecodingOptions(beam_size=1, length_penalty="mean", stop="first", min_length=100)
    ((output,), *_), *_ = heard(recogniser, [file], options)
    assert not output.finished and loops(output.tokens) and not loops(output.tokens[:-1])


WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None  # importing it raises
from transduce.cli.main import main
run, *files = sys.argv[1:]
print(main(["transcribe", run, *files, "--format", "json"]))
print(main(["transcribe", run, files[0], "--format", "srt"]))
print(main(["transcribe", run, files[0], "--format", "json", "--words"]))
print(main(["transcribe", run, files[0], "--no-repeat-ngram", "2"]))
assert not any(name.startswith("torch") and sys.modules[name] for name in sys.modules)
"""


@pytest.mark.system
def test_a_whisper_needs_no_pytorch(run: Path, tmp_path: Path) -> None:
    """Text as with PyTorch; none in silence or steady noise; one line for what it cannot do."""
    syllable = np.concatenate([tone(0.3) + noise(0.3), np.zeros(3200, np.float32)])
    sounds = {"a": np.tile(syllable, 9), "silent": np.zeros(32_000), "steady": noise(3.0)}
    files = [saved(tmp_path / f"{name}.wav", encoded(sound)) for name, sound in sounds.items()]
    files.append(saved(tmp_path / "broken.wav", b"RIFF\0\0\0\0WAVEfmt "))
    command = [sys.executable, "-c", WITHOUT_TORCH, str(run), *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    records = [json.loads(line) for line in done.stdout.splitlines() if line[:1] == "{"]
    expected = [*transduce.load(run, "cpu", engine="pytorch").transcribe(files[0])]
    assert [segment["text"] for segment in records[0]["segments"]] == [s.text for s in expected]
    assert expected and [len(record["segments"]) for record in records[1:3]] == [0, 0]
    assert expected[0].text in done.stdout.partition("-->")[2]
    errors = [line for line in done.stderr.splitlines() if line.startswith("transduce: ")]
    assert "broken.wav" in errors[0]
    needs = [line.partition(" needs PyTorch")[0].split()[-1] for line in errors[1:]]
    assert needs == ["word", "2"] and "Traceback" not in done.stderr
