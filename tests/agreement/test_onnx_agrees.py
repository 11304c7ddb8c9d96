"""Exported ONNX graphs compute what the run computes: in ONNX Runtime, and in transformers.js."""

from __future__ import annotations

import copy
import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import transduce
from helpers.hugging_face import change_json
from helpers.node import node_with, run_node
from helpers.random_predictors import random_dialogue, random_embedder, random_filler
from helpers.random_translator import random_translator
from transduce.errors import RunError, SettingError, TransduceError
from transduce.interop.onnx_graphs import write_encoder
from transduce.interop.tokenizer_json import exported_id, tokenizer_json
from transduce.models.config import EncoderOnlyConfig
from transduce.models.encoder_only import build_text_encoder
from transduce.nn.heads.label import SpanHead
from transduce.nn.state import State
from transduce.runs.exporting import export_run, write_onnx
from transduce.runs.importing import import_run
from transduce.sequence import Padded
from transduce.settings.sections import parse
from transduce.tasks.text_inputs import encode_counting_cuts, mask_id
from transduce.tasks.translation.translator import Translator
from transduce.text import (
    BOS,
    EOS,
    PAD,
    CharactersConfig,
    Normalizer,
    SubwordTokenizer,
    SymbolsConfig,
    SymbolTokenizer,
)

onnxruntime = pytest.importorskip("onnxruntime", reason="needs onnxruntime")
pytest.importorskip("onnxscript", reason="needs the extra onnx")
pytestmark = pytest.mark.timeout(600)  # tracing takes ten seconds of a processor of one's own

TOLERANCE = 2e-5
GREEDY = 200
SOURCES = [[5, 6, 7, 8, EOS], [9, EOS], [4, 5, EOS]]
PRE = {"n_layers": 1, "norm_order": "pre", "max_positions": 256}
T5 = {**PRE, "positions": "relative", "norm": "rms", "activation": "geglu", "d_head": 6}
POST = {"n_layers": 1, "max_positions": 256}
SHAPES: dict[str, dict[str, Any]] = {
    "marian": {"encoder": POST, "decoder": POST},
    "t5": {"encoder": T5, "decoder": T5, "trained": False},
    "rotary": {"encoder": PRE, "decoder": {**PRE, "positions": "rotary", "activation": "swiglu"}},
    "bart": {
        "encoder": {**POST, "positions": "learned", "embedding_norm": True},
        "decoder": {**POST, "positions": "alibi", "activation": "gelu"},
        "tie": "none",
        "output_bias": True,
    },
}


def session(path: Path) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


class Graphs:
    """The two graphs of a directory, decoding token by token."""

    def __init__(self, directory: Path, ids: NDArray[np.int64], mask: NDArray[np.int64]) -> None:
        encoder = session(directory / "onnx" / "encoder_model.onnx")
        self.decoder = session(directory / "onnx" / "decoder_model_merged.onnx")
        (self.memory,) = encoder.run(None, {"input_ids": ids, "attention_mask": mask})
        self.mask = mask
        self.cache = {
            part.name: np.zeros((len(ids), part.shape[1], 0, part.shape[3]), np.float32)
            for part in self.decoder.get_inputs()[3:]
        }

    def step(self, ids: NDArray[np.int64]) -> NDArray[np.float32]:
        feed = {"input_ids": ids, "encoder_hidden_states": self.memory}
        logits, *present = self.decoder.run(
            None, {**feed, "encoder_attention_mask": self.mask, **self.cache}
        )
        self.cache = dict(zip(self.cache, present, strict=True))
        assert isinstance(logits, np.ndarray)
        return logits


def greedy_agrees(translator: Translator, state: State, directory: Path, graphs: Graphs) -> None:
    """Every token is the likeliest of ours, and the logits are ours, 200 times."""
    target, model = translator.target, translator.model
    there = np.array([exported_id(target, i) for i in range(target.size)])
    known = np.unique(there[there >= 0], return_index=True)[1]  # ids of ours, each of another
    known = known[(known >= 4) | (known == EOS)]
    tokens = torch.full((len(SOURCES), 1), BOS)
    for _ in range(GREEDY):
        with torch.inference_mode():
            right = model.step(Padded.unpadded(tokens), state)[:, -1].numpy()[:, known]
        logits = graphs.step(there[tokens.numpy()])[:, -1][:, there[known]]
        assert np.abs(logits - right).max() < TOLERANCE * max(1.0, float(np.abs(right).max()))
        chosen = right.argmax(1)
        assert (logits.argmax(1) == chosen).all()
        tokens = torch.from_numpy(known[chosen])[:, None]


def exported(translator: Translator, directory: Path) -> tuple[State, Graphs]:
    """Our state before decoding, and the graphs; the export changes the model."""
    source = Padded.from_rows(SOURCES)
    with torch.inference_mode():
        state = translator.model.start(source)
        right = translator.model.encode(source).values.numpy()
    directory.mkdir(exist_ok=True)
    write_onnx(translator, "translation", directory, 256)
    rows = source.values.apply_(lambda token: exported_id(translator.source, token)).numpy()
    graphs = Graphs(directory, rows, source.real.long().numpy())
    real = source.real.numpy()
    assert np.abs(graphs.memory - right)[real].max() < TOLERANCE
    return state, graphs


def slow_but(first: str, *others: str) -> list[Any]:
    """Tracing a shape takes ten seconds: one of a kind in the quick tests."""
    return [first, *(pytest.param(name, marks=pytest.mark.slow) for name in others)]


@pytest.mark.parametrize("shape", slow_but(*SHAPES))
def test_every_token_is_ours(shape: str, tmp_path: Path) -> None:
    translator = random_translator(**SHAPES[shape])
    state, graphs = exported(translator, tmp_path / "model")
    greedy_agrees(translator, state, tmp_path / "model", graphs)


@pytest.mark.parametrize("family", slow_but("m2m100", "bart", "t5"))
def test_imported_families_keep_their_ids(family: str, tmp_path: Path) -> None:
    """Graphs, tokenizer and settings are those of the directory that was imported."""
    transformers = pytest.importorskip("transformers", reason="needs the extra import")
    from helpers.text_to_text import OF_T5, made

    depth = ("num_layers",) if family in OF_T5 else ("encoder_layers", "decoder_layers")
    sizes = {"max_position_embeddings": 256} if family not in OF_T5 else {}
    _, theirs = made(family, tmp_path / "theirs", **dict.fromkeys(depth, 1), **sizes)
    change_json(tmp_path / "theirs" / "generation_config.json", max_length=220)
    run = transduce.load(import_run(tmp_path / "theirs", tmp_path / "run"), "cpu")
    translator = run.translator
    directory = tmp_path / "model"
    state, graphs = exported(translator, directory)
    greedy_agrees(translator, state, directory, graphs)
    settings = json.loads((directory / "generation_config.json").read_text(encoding="utf-8"))
    assert settings["eos_token_id"] == theirs.eos_token_id
    assert settings["pad_token_id"] == theirs.pad_token_id
    mine = transformers.PreTrainedTokenizerFast.from_pretrained(directory)
    if family == "m2m100":
        theirs.src_lang = mine.tokenize("a", add_special_tokens=True)[0].strip("_")
    for line in ("hello there.", "abc", "of  the world"):
        assert mine(line)["input_ids"] == theirs(line)["input_ids"]


RUNS = Path(__file__).parents[1] / "runs" / "0.1.0"
LINES = ("dog", "a good hat", "the cat and the red dog")
BRIEF = transduce.DecodingOptions(beam_size=1, max_length_ratio=0.0, max_length_extra=40)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trained translator of subwords, exported."""
    return export_run(RUNS / "translation", tmp_path_factory.mktemp("models") / "run", form="onnx")


def test_the_page_translates(directory: Path) -> None:
    """The example of docs/export.md, but for the name of its directory."""
    page = (Path(__file__).parents[2] / "docs" / "export.md").read_text(encoding="utf-8")
    (snippet,) = re.findall(r"```python\n(import json, numpy.*?)```", page, re.DOTALL)
    assert {path.name for path in directory.iterdir()} == {
        *("README.md", "config.json", "generation_config.json", "onnx"),
        *("tokenizer.json", "tokenizer_config.json"),
    }
    right = transduce.load(RUNS / "translation", "cpu").translate_batch(LINES, BRIEF)
    texts: list[str] = []
    for line in LINES:
        inputs = f"model, text = {str(directory)!r}, {line!r}"
        code = snippet.replace('model, text = "onnx", "Guten Tag!"', inputs)
        exec(code, {"print": texts.append})
    assert texts == [translation.text for translation in right] and any(texts)


def test_the_tokenizer_splits_as_ours(directory: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers", reason="needs the extra onnx")
    theirs = tokenizers.Tokenizer.from_file(str(directory / "tokenizer.json"))
    ours = transduce.load(RUNS / "translation", "cpu").translator.source
    for line in (*LINES, "Zürich  isn't 犬🙂 far.", " a", "x▁y", "İİ ﬁ"):
        assert theirs.encode(line).ids == ours.as_source(ours.encode(line))
        assert theirs.decode(ours.encode(line)) == ours.decode(ours.encode(line))


TRANSFORMERS_JS = """
import { AutoModelForSeq2SeqLM, AutoTokenizer, env } from "@huggingface/transformers";
const [path, name, ...lines] = process.argv.slice(2);
env.localModelPath = path;
env.allowRemoteModels = false;
const tokenizer = await AutoTokenizer.from_pretrained(name);
const model = await AutoModelForSeq2SeqLM.from_pretrained(name, { dtype: "fp32" });
const inputs = tokenizer(lines, { padding: true });
const outputs = await model.generate({ ...inputs, max_new_tokens: 40, num_beams: 1 });
const texts = tokenizer.batch_decode(outputs, { skip_special_tokens: true });
process.stdout.write(JSON.stringify(texts));
"""


@pytest.mark.slow
def test_transformers_js_translates(directory: Path, tmp_path: Path) -> None:
    node = node_with(tmp_path, "@huggingface/transformers@4")
    texts = run_node(node, TRANSFORMERS_JS, str(directory.parent) + "/", directory.name, *LINES)
    right = transduce.load(RUNS / "translation", "cpu").translate_batch(LINES, BRIEF)
    assert texts == [translation.text for translation in right]


def test_pairs_of_texts_get_our_marks_and_segments() -> None:
    tokenizers = pytest.importorskip("tokenizers", reason="needs the extra onnx")
    ours = transduce.load(RUNS / "translation", "cpu").translator.source
    assert isinstance(ours, SubwordTokenizer)
    around = [BOS, "A", EOS], [BOS, "A", EOS, EOS, "B", EOS]
    definition = tokenizer_json(ours, [PAD, BOS, EOS, mask_id(ours)], *around)
    theirs = tokenizers.Tokenizer.from_str(json.dumps(definition))
    (row,), _ = encode_counting_cuts(with_two_marks(ours), [("a good", "hat dog")], 99)
    pair = theirs.encode("a good", "hat dog")
    assert (pair.ids, pair.type_ids) == ([*row.ids], [*row.segments])
    assert theirs.token_to_id("<mask>") == mask_id(ours)


def with_two_marks(tokenizer: SubwordTokenizer) -> SubwordTokenizer:
    twin = copy.copy(tokenizer)
    twin.marks_between = 2
    return twin


def test_a_classifier(tmp_path: Path) -> None:
    run = transduce.load(RUNS / "classification", "cpu")
    directory = export_run(RUNS / "classification", tmp_path / "model", form="onnx")
    rows = run.predictor.rows([("a good film",)], [0])
    ids = np.array([rows[0].ids])
    graph = session(directory / "onnx" / "model.onnx")
    feed = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": 0 * ids}
    (scores,) = graph.run(None, {part.name: feed[part.name] for part in graph.get_inputs()})
    config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    (label,) = run.predict(["a good film"])
    assert config["id2label"][str(scores[0].argmax())] == label.text
    (right,) = run.predictor.outputs(rows)
    assert (directory / "transduce_tokenizer.json").is_file()  # of letters
    assert np.abs(scores[0] - np.array(right)).max() < TOLERANCE


def encoder_graph(predictor: Any, task: str, directory: Path) -> tuple[Any, Any]:
    """Outputs of our model and of its graph, for two padded rows."""
    rows = Padded.from_rows([[BOS, 5, 6, 7, EOS], [BOS, 8, EOS]])
    with torch.inference_mode():
        right = predictor.model(rows)
    directory.mkdir()
    write_onnx(predictor, task, directory, 64)
    graph = session(directory / "onnx" / "model.onnx")
    real = rows.real.long().numpy()
    feed = {"input_ids": rows.values.numpy(), "attention_mask": real, "token_type_ids": 0 * real}
    outputs = graph.run(None, {part.name: feed[part.name] for part in graph.get_inputs()})
    names = [part.name for part in graph.get_outputs()]
    return right.numpy(), dict(zip(names, outputs, strict=True))


@pytest.mark.slow
def test_masked_tokens(tmp_path: Path) -> None:
    filler = random_filler(CharactersConfig(), segments=True)
    right, outputs = encoder_graph(filler, "masked-language-model", tmp_path / "model")
    assert np.abs(outputs["logits"] - right)[0].max() < TOLERANCE
    assert np.abs(outputs["logits"] - right)[1, :3].max() < TOLERANCE


@pytest.mark.slow
def test_embeddings(tmp_path: Path) -> None:
    embedder = random_embedder(SymbolsConfig())
    right, outputs = encoder_graph(embedder, "embedding", tmp_path / "model")
    assert np.abs(outputs["sentence_embedding"] - right).max() < TOLERANCE
    assert outputs["last_hidden_state"].shape == (2, 5, 16)


@pytest.mark.slow
def test_spans_of_answers(tmp_path: Path) -> None:
    stack = {"n_layers": 1, "n_heads": 2, "d_ff": 24, "positions": "rotary", "norm_order": "post"}
    config = parse(EncoderOnlyConfig, {"d_model": 16, "encoder": stack})
    tokenizer = SymbolTokenizer([f"w{i}" for i in range(12)], Normalizer())
    model = build_text_encoder(config, tokenizer.size + 1, SpanHead(16)).eval()
    rows = Padded.from_rows([[BOS, 5, 6, 7, EOS], [BOS, 8, EOS]])
    with torch.inference_mode():
        right = model(rows).numpy()
    write_encoder(model, tokenizer, 64, tmp_path)
    feed = {"input_ids": rows.values.numpy(), "attention_mask": rows.real.long().numpy()}
    graph = session(tmp_path / "model.onnx")
    assert [part.name for part in graph.get_outputs()] == ["start_logits", "end_logits"]
    outputs = np.stack(graph.run(None, feed), 2)
    assert np.abs(outputs - right)[rows.real.numpy()].max() < TOLERANCE


def broken(*arguments: Any) -> None:
    raise KeyboardInterrupt


def test_whole_or_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transduce.runs.exporting.write_encoder", broken)
    with pytest.raises(KeyboardInterrupt):
        export_run(RUNS / "classification", tmp_path / "new" / "model", form="onnx")
    assert list((tmp_path / "new").iterdir()) == []


def test_what_cannot_be_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingError, match="holds float32, not int8; remove --precision"):
        export_run(RUNS / "translation", tmp_path / "a", "int8", "onnx")
    with pytest.raises(RunError, match="for translation and encoders of texts, not dialogue"):
        write_onnx(random_dialogue(), "dialogue", tmp_path, 64)
    student = random_translator(decoder={"kind": "ssru", "n_layers": 1, "n_heads": 2, "d_ff": 8})
    with pytest.raises(RunError, match=r"train with model\.decoder\.kind = 'transformer'"):
        write_onnx(student, "translation", tmp_path, 64)
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(TransduceError, match="needs the extra 'onnx';"):
        export_run(RUNS / "translation", tmp_path / "a", form="onnx")
    assert not (tmp_path / "a").exists()
