"""An imported voice of Piper, made by construction: each phone is a stretch of its own level."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import transduce
from transduce.cli.main import main
from transduce.errors import DataError, InputError, SettingError
from transduce.interop.new_language import NewLanguage
from transduce.runs.importing import import_run
from transduce.serve.dialects.openai_audio import FORMS, encoded_audio
from transduce.speech.audio import read_audio
from transduce.speech.voices import KokoroVoice, Voice

onnx = pytest.importorskip("onnx", reason="the extra onnx is not installed")
pytest.importorskip("onnxruntime", reason="the extra voices is not installed")
pytest.importorskip("num2words", reason="the extra voices is not installed")
if shutil.which("espeak-ng") is None:
    pytest.skip("the program espeak-ng is not installed", allow_module_level=True)

PHONES = ["_", "^", "$", " ", ".", ",", *"abdefhijklmnoprstuvwzæðŋɐɑɒɔəɚɛɜɡɪɹʃʊʌʒθˈˌː"]


def save_graph(file: Path, *parts: list[Any]) -> None:
    """Write a graph; parts: nodes, inputs, outputs, constants."""
    nodes, inputs, outputs, constants = parts
    graph = onnx.helper.make_graph(nodes, "voice", inputs, outputs, constants)
    opset = onnx.helper.make_opsetid("", 17)
    onnx.save(onnx.helper.make_model(graph, opset_imports=[opset], ir_version=9), file)


def voice_file(directory: Path, speakers: int = 1, rate: int = 16_000) -> Path:
    """Graph that repeats each id a hundred times per unit of length, divided by a thousand."""
    helper, kinds = onnx.helper, onnx.TensorProto
    inputs = [
        helper.make_tensor_value_info("input", kinds.INT64, ["b", "n"]),
        helper.make_tensor_value_info("input_lengths", kinds.INT64, ["b"]),
        helper.make_tensor_value_info("scales", kinds.FLOAT, [3]),
    ]
    if speakers > 1:
        inputs.append(helper.make_tensor_value_info("sid", kinds.INT64, ["b"]))
    constants = [
        helper.make_tensor("thousand", kinds.FLOAT, [], [1000.0]),
        helper.make_tensor("place", kinds.INT64, [], [1]),
        helper.make_tensor("ones", kinds.FLOAT, [1], [1.0]),
        helper.make_tensor("hundred", kinds.FLOAT, [1], [100.0]),
        helper.make_tensor("shape", kinds.INT64, [4], [1, 1, 1, -1]),
        helper.make_tensor("none", kinds.FLOAT, [0], []),
    ]
    nodes = [
        helper.make_node("Cast", ["input"], ["ids"], to=kinds.FLOAT),
        helper.make_node("Div", ["ids", "thousand"], ["levels"]),
        helper.make_node("Gather", ["scales", "place"], ["length"]),
        helper.make_node("Mul", ["hundred", "length"], ["times"]),
        helper.make_node("Concat", ["ones", "times"], ["repeats"], axis=0),
        helper.make_node("Resize", ["levels", "none", "repeats"], ["long"], mode="nearest"),
        helper.make_node("Reshape", ["long", "shape"], ["output"]),
    ]
    outputs = [helper.make_tensor_value_info("output", kinds.FLOAT, [1, 1, 1, "t"])]
    file = directory / "en.onnx"
    save_graph(file, nodes, inputs, outputs, constants)
    config = {
        "audio": {"sample_rate": rate},
        "espeak": {"voice": "en-us"},
        "phoneme_id_map": {phone: [i] for i, phone in enumerate(PHONES)},
        "speaker_id_map": {"ann": 0, "bob": 1} if speakers > 1 else {},
    }
    (directory / "en.onnx.json").write_text(json.dumps(config), encoding="utf-8")
    return file


@pytest.mark.system
def test_a_voice_speaks_behind_the_same_calls(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SettingError, match="a language cannot be added to a voice"):
        import_run(voice_file(tmp_path), tmp_path / "voice", language=NewLanguage("lld"))
    path = import_run(voice_file(tmp_path), tmp_path / "voice")
    run = transduce.load(path, "cpu")
    assert isinstance(run.predictor, Voice) and run.recipe.task == "speech-synthesis"
    one, again, slow = run.speak("Dad."), run.speak("Dad."), run.speak("Dad.", speed=0.5)
    assert one.rate == 16_000 and np.array_equal(one.samples, again.samples)
    assert len(slow.samples) == pytest.approx(2 * len(one.samples))
    levels = [round(1000 * float(x)) for x in one.samples[50::100]]
    spoken = [PHONES[i] for i in levels]
    assert spoken[0] == "^" and spoken[-1] == "$" and spoken[-3] == "." and spoken[1::2]
    assert [phone for phone in spoken if phone in "dæ"] == ["d", "æ", "d"]
    long = run.speak("A sentence. " * 60)
    assert len(long.samples) > 50 * len(one.samples) / 2 and long.wav()[:4] == b"RIFF"
    assert len(run.speak("three").samples) == len(run.speak("3").samples)
    assert not run.speak("").samples.size
    with pytest.raises(InputError, match="cannot say 'да'"):
        run.speak("да")
    lines = tmp_path / "lines"
    lines.write_text("Dad\n\nда\n", encoding="utf-8")
    assert main(["speak", str(path), str(lines), "-o", str(tmp_path / "out")]) == 1
    assert capsys.readouterr().out.splitlines() == [str(tmp_path / "out" / "1.wav"), "", ""]
    with pytest.raises(SettingError, match="no explanation"):
        run.explain("Dad")
    assert run.predictor.facts()["phones"] == len(PHONES)


@pytest.mark.system
def test_all_formats_hold_speech_of_any_rate(tmp_path: Path) -> None:
    """Opus takes neither 22,050 samples a second, the rate of most voices, nor 44,100."""
    pytest.importorskip("soundfile")
    for rate in (22_050, 44_100):
        run = transduce.load(
            import_run(voice_file(tmp_path, rate=rate), tmp_path / str(rate)), "cpu"
        )
        speech = run.speak("Dad, a sentence of words.")
        level = np.sqrt(np.mean(np.square(speech.samples)))
        for form in FORMS.keys() - {"pcm"}:
            samples = read_audio(encoded_audio(speech, form), rate, form)
            assert len(samples) == pytest.approx(len(speech.samples), abs=rate / 10), form
            assert np.sqrt(np.mean(np.square(samples))) == pytest.approx(level, rel=0.2), form


@pytest.mark.system
def test_speakers_and_mistakes(tmp_path: Path) -> None:
    run = transduce.load(import_run(voice_file(tmp_path, 2), tmp_path / "voice"), "cpu")
    assert run.predictor.inputs == ("text", "speaker")
    with pytest.raises(SettingError, match="'x' is unknown; the run has 'ann', 'bob'"):
        run.speak("a", speaker="x")
    assert len(run.speak("a", speaker="bob").samples)
    for description in ("{}", "[" * 100_000):
        (tmp_path / "en.onnx.json").write_text(description, encoding="utf-8")
        with pytest.raises(DataError, match="no description of a Piper voice"):
            import_run(tmp_path / "en.onnx", tmp_path / "other")
    assert not (tmp_path / "other").exists()


LETTERS = [*"$;:,.!? AIOQWY", *"abdfhijklmnopstuvwzðŋɑɔəɛɜɡɪɹɾʃʊʌʒθʤʧᵊˈˌ"]


def kokoro_file(directory: Path) -> Path:
    """Graph that gives each id, divided by a thousand and the speed, plus the style."""
    helper, kinds = onnx.helper, onnx.TensorProto
    inputs = [
        helper.make_tensor_value_info("input_ids", kinds.INT64, [1, "n"]),
        helper.make_tensor_value_info("style", kinds.FLOAT, [1, 256]),
        helper.make_tensor_value_info("speed", kinds.FLOAT, [1]),
    ]
    constants = [
        helper.make_tensor("thousand", kinds.FLOAT, [], [1000.0]),
        helper.make_tensor("first", kinds.INT64, [1], [0]),
    ]
    nodes = [
        helper.make_node("Cast", ["input_ids"], ["ids"], to=kinds.FLOAT),
        helper.make_node("Div", ["ids", "thousand"], ["levels"]),
        helper.make_node("Div", ["levels", "speed"], ["scaled"]),
        helper.make_node("Gather", ["style", "first"], ["level"], axis=1),
        helper.make_node("Add", ["scaled", "level"], ["audio"]),
    ]
    outputs = [helper.make_tensor_value_info("audio", kinds.FLOAT, [1, "t"])]
    save_graph(directory / "kokoro.onnx", nodes, inputs, outputs, constants)
    vocabulary = {"vocab": {letter: i for i, letter in enumerate(LETTERS)}}
    (directory / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    styles = np.arange(40, dtype=np.float32)[:, None, None].repeat(256, 2) / 100
    np.savez(directory / "voices.npz", af_one=styles, jf_two=-styles)
    return directory / "kokoro.onnx"


@pytest.mark.system
def test_a_kokoro_speaks_by_its_phones_and_the_style_of_their_number(tmp_path: Path) -> None:
    run = transduce.load(import_run(kokoro_file(tmp_path), tmp_path / "voice"), "cpu")
    assert isinstance(run.predictor, KokoroVoice)
    assert run.predictor.facts()["speakers"] == ["af_one", "jf_two"]
    speech = run.speak("Judge Joe.")
    assert speech.rate == 24_000
    n = len(speech.samples) - 2  # without the borders
    levels = 1000 * (speech.samples - (n - 1) / 100)
    spoken = "".join(LETTERS[round(float(level))] for level in levels[1:-1])
    assert spoken.replace("ˈ", "").replace("ˌ", "") == "ʤʌʤ ʤO."
    slow, fast = run.speak("a"), run.speak("a", speed=2)
    assert fast.samples[1] < slow.samples[1]
    with pytest.raises(InputError, match="cannot say '漢'"):
        run.speak("漢", speaker="jf_two")
    assert run.speak("か", speaker="jf_two").samples[-1] < 0 < slow.samples[1]
    assert len(run.speak("3").samples) == len(run.speak("three").samples)
    german = import_run(kokoro_file(tmp_path), tmp_path / "de", overrides=["text.language=de"])
    run = transduce.load(german, "cpu")
    assert len(run.speak("3 Worte.").samples) == len(run.speak("drei Worte.").samples)


def test_tables_of_a_kokoro_that_are_no_tables(tmp_path: Path) -> None:
    source = kokoro_file(tmp_path)
    (tmp_path / "vocab.json").write_text("{}", encoding="utf-8")
    with pytest.raises(DataError, match="no tables of a Kokoro voice"):
        import_run(source, tmp_path / "voice")
    kokoro_file(tmp_path)
    for content, message in ((b"PK", "no tables"), (b"", "no tables")):
        (tmp_path / "voices.npz").write_bytes(content)
        with pytest.raises(DataError, match=message):
            import_run(source, tmp_path / "voice")
    np.savez(tmp_path / "voices.npz", a=np.zeros((3, 2)))
    with pytest.raises(DataError, match="not of the shape"):
        import_run(source, tmp_path / "voice")
    (tmp_path / "voices.npz").unlink()
    with pytest.raises(DataError, match=r"0 files .npz or .bin"):
        import_run(source, tmp_path / "voice")
    assert not (tmp_path / "voice").exists()
