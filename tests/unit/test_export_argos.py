"""Argos packages: one folder, the answers of the run, and a sentence splitter of our own."""

from __future__ import annotations

import itertools
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece
from numpy.lib.stride_tricks import sliding_window_view

import transduce
from helpers.tiny_run import reversal_pairs, tiny_settings, write_tsv
from transduce import RunError
from transduce.errors import SettingError
from transduce.interop.argos import argos_languages, splitter
from transduce.localise.sentences import split_sentences
from transduce.runs.exporting import export_run
from transduce.text.scripts import is_unspaced

ctranslate2 = pytest.importorskip("ctranslate2", reason="needs the extra ctranslate2")

RUN = Path(__file__).parents[1] / "runs" / "0.1.0" / "translation"
LINES = ["dog", "a good hat", "the cat and the red dog", "fine fine film"]
PAIR = ("de", "en")


def test_a_package_is_one_folder_and_gives_our_answers(tmp_path: Path) -> None:
    path = export_run(RUN, tmp_path / "a.argosmodel", form="argos", languages=("de", "pt-BR"))
    again = export_run(RUN, tmp_path / "b.argosmodel", form="argos", languages=("de", "pt-BR"))
    assert path.read_bytes() == again.read_bytes()
    with zipfile.ZipFile(path) as package:
        assert all(info.compress_type == zipfile.ZIP_STORED for info in package.infolist())
        package.extractall(tmp_path)
    assert {one.name for one in tmp_path.iterdir()} == {
        *("a.argosmodel", "b.argosmodel", "translate-de_pb-1_0")
    }
    folder = tmp_path / "translate-de_pb-1_0"
    assert json.loads((folder / "metadata.json").read_text()) == {
        "package_version": "1.0",
        "argos_version": "1.9.0",
        "from_code": "de",
        "from_name": "German",
        "to_code": "pb",
        "to_name": "Portuguese (Brazil)",
    }
    assert (folder / "minisbd" / "de.onnx").stat().st_size < 200_000
    pieces = sentencepiece.SentencePieceProcessor(str(folder / "sentencepiece.model"))
    model = ctranslate2.Translator(str(folder / "model"), intra_threads=1)
    tokens = [pieces.encode(line, out_type=str) for line in LINES]
    translations = model.translate_batch(tokens, beam_size=5, max_decoding_length=30)
    options = transduce.DecodingOptions(length_penalty="mean", max_length_extra=30)
    right = transduce.load(RUN, "cpu").translate_batch(LINES, options)
    assert [pieces.decode(one.hypotheses[0]) for one in translations] == [one.text for one in right]


def test_argos_translates_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ARGOS_PACKAGES_DIR", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    package = pytest.importorskip("argostranslate.package", reason="needs argos-translate-lt")
    translate = pytest.importorskip("argostranslate.translate")
    path = export_run(RUN, tmp_path / "a.argosmodel", form="argos", languages=PAIR)
    package.install_from_path(path)
    result = [translate.translate(line, *PAIR) for line in LINES]
    options = transduce.DecodingOptions(beam_size=4, length_penalty="mean")
    right = [
        translation.text
        for translation in transduce.load(RUN, "cpu").translate_batch(LINES, options)
    ]
    assert sum(a == b for a, b in zip(result, right, strict=True)) >= len(LINES) - 1


@pytest.mark.parametrize(
    ("options", "name", "message"),
    [
        ({}, "a.argosmodel", "--format argos needs both languages, such as --languages de-en"),
        ({"languages": PAIR}, "a", "a must end in .argosmodel; write a.argosmodel"),
        ({"languages": ("de", "../x")}, "a.argosmodel", "'../x' is not a code of a language"),
    ],
)
def test_wrong_options_are_one_line(
    tmp_path: Path, options: dict[str, Any], name: str, message: str
) -> None:
    with pytest.raises(SettingError, match=message):
        export_run(RUN, tmp_path / name, form="argos", **options)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            (),
            "Argos has no text.target = 'of its own', .*; train with text.target = None",
        ),
        (
            ("text.target=none", "model.tie=three-way"),
            "Argos has no text.source.kind = .*; train with text.source.kind = 'bpe'",
        ),
    ],
)
def test_what_a_package_cannot_express(
    tmp_path: Path, overrides: tuple[str, ...], message: str
) -> None:
    data = write_tsv(tmp_path / "a.tsv", reversal_pairs(60))
    settings = tiny_settings(data, *overrides[1:], "training.steps=2", "training.validate_every=2")
    if overrides:
        del settings["text"]["target"]
    run, _ = transduce.train(settings, tmp_path / "run")
    with pytest.raises(RunError, match=message):
        export_run(run, tmp_path / "a.argosmodel", form="argos", languages=PAIR)
    assert not (tmp_path / "a.argosmodel").exists()


# --- The splitter, by a reader of protocol buffers and an interpreter of its few operators.


def fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Numbers and contents of the fields of a protocol buffer."""

    def varint() -> int:
        nonlocal place
        value = shift = 0
        while True:
            byte = data[place]
            place += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    place = 0
    while place < len(data):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
        else:
            assert key & 7 == 2
            size = varint()
            yield key >> 3, data[place : place + size]
            place += size


def every(data: bytes, number: int) -> list[Any]:
    return [content for field, content in fields(data) if field == number]


class Splitter:
    """A graph as ONNX describes it, and the calls that MiniSBD makes."""

    def __init__(self, data: bytes) -> None:
        (graph,) = every(data, 7)
        self.metadata = {
            every(one, 1)[0].decode(): every(one, 2)[0].decode() for one in every(data, 14)
        }
        self.nodes = every(graph, 1)
        self.values: dict[str, Any] = {}
        for tensor in every(graph, 5):
            (kind,) = every(tensor, 2)
            array = np.frombuffer(every(tensor, 9)[0], "<f4" if kind == 1 else "<i8")
            self.values[every(tensor, 8)[0].decode()] = array.reshape(every(tensor, 1))

    def run(self, units: Any) -> Any:
        values = self.values | {"units": units}
        for node in self.nodes:
            given = [values[name.decode()] for name in every(node, 1)]
            values[every(node, 2)[0].decode()] = self.operator(node, given)
        return values["out"]

    def operator(self, node: bytes, given: list[Any]) -> Any:
        attributes = {every(one, 1)[0]: every(one, 8) for one in every(node, 5)}
        assert all(every(one, 20) == [7] for one in every(node, 5))
        match every(node, 4)[0].decode():
            case "Gather":
                return given[0][given[1]]
            case "Transpose":
                return given[0].transpose(attributes[b"perm"])
            case "Conv":
                padded = np.pad(given[0], ((0, 0), (0, 0), attributes[b"pads"]))
                windows = sliding_window_view(padded, given[1].shape[2], axis=2)
                return np.einsum("bctk,fck->bft", windows, given[1]) + given[2][:, None]
            case "Relu":
                return np.maximum(given[0], 0)
            case "MatMul":
                return given[0] @ given[1]
            case "Add":
                return given[0] + given[1]
        raise AssertionError(node)

    def sentences(self, text: str) -> list[str]:
        ids = json.loads(self.metadata["vocab"])["_unit2id"]
        units = np.array([[*(ids.get(c, ids["<UNK>"]) for c in text), ids["<PAD>"]]])
        scores = self.run(units)
        assert scores.shape == (1, len(text) + 1, 5)
        ends = [i + 1 for i, best in enumerate(scores[0, :-1].argmax(1)) if best == 2]
        places = [0, *(end for end in ends if end < len(text)), len(text)]
        return [text[a:b].strip() for a, b in itertools.pairwise(places)]


@pytest.mark.parametrize(
    ("language", "sentences"),
    [
        ("de", ["Ich sehe den Hund.", "Heute kaufe ich Brot!", "Wirklich?", "Ja"]),
        ("de", ["Der 3. Oktober ist z. B. frei, bzw. fast."]),
        ("de", ["E. T. A. Hoffmann ist tot.", "Gut."]),
        ("de", ["Version 2.0 kostet 3.50 Euro.", "Aha."]),
        ("de", ["Der 2. Weltkrieg war ca. Acht Jahre lang."]),
        ("de", ["1. Ich sehe den Hund.", "2. Ich kaufe (bzw. Suche) ihn."]),
        ("en", ["1. First point.", "IV. Fourth point.", "He left in 1990.", "Gone."]),
        ("en", ["Mr. Smith met Dr. Who.", "Approx. Five kg, vol. 2."]),
        ("fr", ["M. Dupont est là.", "Voir l'art. 5 et p. 12."]),
        ("ru", ["1. Первый.", "2. Второй."]),
        ("zh", ["你好。", "我很好！", "吗？", "好"]),
        ("zh", ["他说：“你好！”然后走了。", "“好！”", "“不。”", "我走了。"]),
        ("ja", ["「行け！」と言った。", "「行く。」と言った。"]),
        ("de", ["a"]),
    ],
)
def test_the_splitter_cuts_as_the_library_does(language: str, sentences: list[str]) -> None:
    text = ("" if is_unspaced(sentences[0][-1]) else " ").join(sentences)
    assert Splitter(splitter(language)).sentences(text) == sentences
    pytest.importorskip("sentencex")
    pieces = split_sentences(text, language).texts
    assert len(pieces) == len(sentences)
    assert all(map(str.endswith, sentences, pieces))


def test_the_splitter_takes_batches_and_single_characters() -> None:
    graph = Splitter(splitter("en"))
    units = np.array([[4], [0]])
    assert graph.run(units).shape == (2, 1, 5)
    assert graph.metadata["lang_code"] == "en"
    assert json.loads(graph.metadata["config"])["feat_funcs"] == ["space_before"]
    assert graph.metadata["lexicon"] == "null"


@pytest.mark.parametrize("content", ["", "{}", "[" * 100_000])
def test_a_damaged_package_names_no_languages(tmp_path: Path, content: str) -> None:
    (tmp_path / "metadata.json").write_text(content)
    assert argos_languages(tmp_path / "model") == {}
