"""The tool that makes a corpus of synthetic speech."""

from __future__ import annotations

import ctypes.util
import gzip
import json
import sys
from pathlib import Path

import pytest

from transduce.speech.audio import read_audio
from transduce.speech.recordings import RecordingManifest, read_recordings

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

PAIRS = ("tatoeba-fr-en", "software-fr-en")

needs_espeak = pytest.mark.skipif(
    ctypes.util.find_library("espeak-ng") is None, reason="libespeak-ng is not installed"
)


@needs_espeak
def test_it_speaks_lines_into_a_manifest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import synthetic_speech  # type: ignore[import-not-found]

    spoken = ["Guten Morgen.", "Das ist sehr schön.", "!", "Ein Satz, der zu lang ist." * 9]
    for name, lines in (("de", spoken), ("en", ["Good morning.", "That is nice.", "!", "Long."])):
        (tmp_path / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    files = [str(tmp_path / name) for name in ("de", "en", "out")]
    monkeypatch.setattr(sys, "argv", ["synthetic_speech.py", *files, "--voices", "de", "de+f2"])
    synthetic_speech.main()
    assert "out.jsonl" in capsys.readouterr().out
    rows = list(map(json.loads, (tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines()))
    assert {(row["transcript"], row["text"]) for row in rows} >= set(
        zip(spoken[:2], ["Good morning.", "That is nice."], strict=True)
    )
    assert all(row["speaker"] in ("de", "de+f2") for row in rows)
    config = RecordingManifest(path=tmp_path / "out.jsonl", transcript="transcript")
    for recording, row in zip(read_recordings(config, tmp_path), rows, strict=True):
        samples = read_audio(recording.file(), 8000, recording.name, recording.excerpt(), True)
        assert len(samples) / 8000 == pytest.approx(row["duration"], abs=0.01)
        assert abs(samples).max() > 0.05
        assert recording.transcript == row["transcript"]


@needs_espeak
def test_it_speaks_each_line_in_its_language(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import synthetic_speech

    columns = {
        "lines": ["Hello.", "Buenos días.", "Привет."],
        "languages": ["en-us", "es-419", "ru"],
    }
    for name, lines in columns.items():
        (tmp_path / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    lines, languages, out = (str(tmp_path / name) for name in ("lines", "languages", "out"))
    words = ["synthetic_speech.py", lines, lines, out, "--languages", languages]
    monkeypatch.setattr(sys, "argv", words)
    synthetic_speech.main()
    rows = list(map(json.loads, (tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines()))
    assert {row["text"]: row["lang"] for row in rows} == dict(zip(*columns.values(), strict=True))
    assert all(row["speaker"].split("+")[0] == row["lang"] for row in rows)


def test_lines_before_prompts_are_in_five_languages_without_held_out_prompts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import prompt_lines  # type: ignore[import-not-found]

    data = tmp_path / "data"
    article = {
        "paragraphs": [
            {"context": "Uno, dos tres. En 1999!", "qas": [{"question": "Qué?", "answers": []}]}
        ]
    }
    files = {f"{n}/train.{k}.gz": f"{k} word\n" * 3 for n in PAIRS for k in ("en", "fr")}
    files |= {f"xquad/xquad.{k}.json.gz": json.dumps({"data": [article]}) for k in ("es", "ru")}
    files["xdailydialog/dev.jsonl.gz"] = json.dumps({"it": ["Ciao, come va?"]})
    files["sigmorphon2023-inflection/train.tsv.gz"] = "spa\tir\tV\tvoy\nrus\tидти\tV\tиду\n"
    prompts = [
        {"lang": "it", "split": split, "annotated": annotated, "text": f"{split} {annotated}"}
        for split in ("train", "dev")
        for annotated in (False, True)
    ]
    files["asterisk-prompts/manifest.jsonl"] = "\n".join(map(json.dumps, prompts))
    for name, text in files.items():
        (data / name).parent.mkdir(parents=True, exist_ok=True)
        packed = gzip.compress(text.encode()) if name.endswith(".gz") else text.encode()
        (data / name).write_bytes(packed)
    monkeypatch.setattr(prompt_lines, "SENTENCES", 3)
    monkeypatch.setattr(prompt_lines, "FORMS", 1)
    monkeypatch.setattr(sys, "argv", ["prompt_lines.py", str(data), str(tmp_path / "out")])
    prompt_lines.main()
    lines, languages = (
        (tmp_path / "out" / name).read_text(encoding="utf-8").splitlines()
        for name in ("lines.txt", "languages.txt")
    )
    of = {
        language: [a for a, b in zip(lines, languages, strict=True) if b == language]
        for language in languages
    }
    assert set(of) == {"en-us", "es-419", "fr", "it", "ru"}
    assert "twelve" in of["en-us"] and "двенадцать" in of["ru"] and "b" not in of["ru"]
    assert {"fr word"} < set(of["fr"]) and set(of["es-419"]) & {"Uno,", "dos tres.", "Qué?", "voy"}
    assert of["it"].count("train False") == 3 and {"Ciao,", "come va?"} < set(of["it"])
    assert not [line for line in lines if line.startswith("dev") or "True" in line or "19" in line]


@pytest.mark.skipif(ctypes.util.find_library("flite") is None, reason="libflite is not installed")
def test_flite_speaks_lines_of_digits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import flite_speech  # type: ignore[import-not-found]

    sizes = ["--train", "12", "--test", "3", "--voices", "slt", "rms"]
    monkeypatch.setattr(sys, "argv", ["flite_speech.py", str(tmp_path / "out"), *sizes])
    flite_speech.main()
    texts = []
    for name, count in (("train", 12), ("test", 3)):
        config = RecordingManifest(path=tmp_path / "out" / f"{name}.jsonl")
        result = list(read_recordings(config, tmp_path))
        texts += [one.text for one in result]
        assert len(result) == count and {one.speaker for one in result} <= {"slt", "rms"}
        lines = (tmp_path / "out" / f"{name}.txt").read_text(encoding="utf-8").splitlines()
        assert lines == [one.text for one in result]
        for one in result:
            samples = read_audio(one.file(), 16_000, one.location, one.excerpt(), True)
            loud = abs(samples) > 0.01
            assert loud[:1600].any() and loud[-3200:].any(), "silence is left at an edge"
    assert len(set(texts)) == 15 and set(texts[:10]) == set(flite_speech.DIGITS)
    assert all(set(text.split()) <= set(flite_speech.DIGITS) for text in texts)


def test_flite_speaks_sentences_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import flite_speech

    kept = ["Who has it now?", "It's my well-known old friend, Ann.", "she is here"]
    left = ["Go on.", "He paid 20 dollars.", "Mr. Smith is here.", "Ça va bien ?", "so " * 13, ""]
    lines = tmp_path / "lines.txt"
    lines.write_text("\n".join([*kept, *left, "who has it, now"]) + "\n", encoding="utf-8")
    assert sorted(flite_speech.sentences(lines, 3, seed=1)) == sorted(kept)
    with pytest.raises(SystemExit, match="has 3 such sentences; 4 are needed"):
        flite_speech.sentences(lines, 4, seed=1)
    if ctypes.util.find_library("flite") is None:
        pytest.skip("libflite is not installed")
    out = tmp_path / "out"
    sizes = ["--sentences", str(lines), "--train", "2", "--test", "1"]
    monkeypatch.setattr(sys, "argv", ["flite_speech.py", str(out), *sizes])
    flite_speech.main()
    texts = [(out / f"{name}.txt").read_text(encoding="utf-8") for name in ("train", "test")]
    assert sorted("".join(texts).splitlines()) == sorted(kept)
    assert len((out / "train.jsonl").read_text(encoding="utf-8").splitlines()) == 2
