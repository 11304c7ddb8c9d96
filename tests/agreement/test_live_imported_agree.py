"""Live pages of imported models: every number of `explain --json`, with their own tokenizers."""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import transformers

import transduce
from helpers.hugging_face import (
    byte_level,
    save,
    sentence_pieces,
    sentences,
    word_piece,
    write_json,
)
from helpers.live_page import differences, live_explanations, needs_node
from helpers.node import run_node
from transduce.errors import SettingError
from transduce.explain.page import engine_scripts, static
from transduce.runs.importing import import_run

pytestmark = [pytest.mark.system, needs_node]

SHAPE = {
    "hidden_size": 24,
    "num_attention_heads": 3,
    "num_hidden_layers": 2,
    "intermediate_size": 40,
    "max_position_embeddings": 64,
}
ANGLED = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
END = "<|endoftext|>"


def bert(directory: Path, kind: str = "BertForMaskedLM", **changes: Any) -> None:
    config = transformers.BertConfig(vocab_size=400, **{**SHAPE, **changes})
    save(getattr(transformers, kind)(config), directory)
    word_piece(directory, 400)


def roberta(directory: Path, kind: str = "RobertaForMaskedLM") -> None:
    settings = {"vocab_size": 300, "type_vocab_size": 1, "pad_token_id": 1}
    save(getattr(transformers, kind)(transformers.RobertaConfig(**SHAPE, **settings)), directory)
    byte_level(directory, 300, ANGLED)


def distilbert(directory: Path) -> None:
    shape = {"dim": 24, "n_heads": 3, "n_layers": 2, "hidden_dim": 31}
    config = transformers.DistilBertConfig(vocab_size=400, max_position_embeddings=30, **shape)
    save(transformers.DistilBertForSequenceClassification(config), directory)
    word_piece(directory, 400)


def gpt2(directory: Path) -> None:
    shape = {"n_embd": 24, "n_head": 3, "n_layer": 2, "n_positions": 48}
    end = {"bos_token_id": 0, "eos_token_id": 0}
    config = transformers.GPT2Config(vocab_size=300, **shape, **end)
    save(transformers.GPT2LMHeadModel(config), directory)
    byte_level(directory, 300, [END])


def marian(directory: Path) -> None:
    directory.mkdir(parents=True)
    model, pieces = sentence_pieces(sentences(300, 1), 90)
    special = ["</s>", "<unk>", ">>xyz<<"]
    plain = [piece for piece in dict.fromkeys(pieces) if piece not in ("</s>", "<unk>", "<s>")]
    vocabulary = {piece: i for i, piece in enumerate([*special, *plain, "<pad>"])}
    for side in ("source", "target"):
        (directory / f"{side}.spm").write_bytes(model)
    write_json(directory / "vocab.json", vocabulary)
    names = {"source_lang": "en", "target_lang": "de", "tokenizer_class": "MarianTokenizer"}
    write_json(directory / "tokenizer_config.json", names)
    sides = {f"{side}_{name}": n for side in ("encoder", "decoder") for name, n in WIDTHS.items()}
    pad = len(vocabulary) - 1
    config = transformers.MarianConfig(
        vocab_size=len(vocabulary),
        d_model=24,
        pad_token_id=pad,
        decoder_start_token_id=pad,
        max_position_embeddings=64,
        activation_function="swish",
        scale_embedding=True,
        **sides,
    )
    save(transformers.MarianMTModel(config), directory)


WIDTHS = {"layers": 2, "attention_heads": 3, "ffn_dim": 40}
LINES = [*sentences(2, 3), " ".join(sentences(1, 4)[0].split()[:3]), "Ä 中 ☃ it's", "  a  b ", " "]
MASKED = ["a <mask> c.", "<mask> ab<mask>ba, <mask>", *LINES]
PAIRS = list(itertools.pairwise(LINES[:5]))
MODELS: dict[str, tuple[Callable[[Path], Any], list[Any]]] = {
    "BERT, masked words": (bert, MASKED),
    "RoBERTa, masked words": (roberta, MASKED),
    "BERT, labels": (lambda d: bert(d, "BertForSequenceClassification"), LINES),
    "BERT, pairs": (lambda d: bert(d, "BertForSequenceClassification"), PAIRS),
    "RoBERTa, pairs": (lambda d: roberta(d, "RobertaForSequenceClassification"), PAIRS),
    "DistilBERT, labels": (distilbert, LINES),
    "BERT, vectors": (lambda d: bert(d, "BertModel"), LINES),
    "GPT-2": (gpt2, [line[:30] for line in LINES]),
    "Marian": (marian, LINES),
}


@pytest.mark.parametrize("name", MODELS)
def test_every_number_of_an_imported_model(name: str, tmp_path: Path) -> None:
    make, texts = MODELS[name]
    make(tmp_path / "saved")
    overrides = ["data.pairs=true"] if texts is PAIRS else []
    path = import_run(tmp_path / "saved", tmp_path / "run", overrides=overrides)
    run = transduce.load(path, "cpu")
    inputs = [(text,) if isinstance(text, str) else text for text in texts]
    shown = live_explanations(tmp_path, run.live_model(), inputs)
    for parts, page in zip(inputs, shown, strict=True):
        python = run.explain(parts)
        same = {"answer": python.answer} if run.info()["task"] == "embedding" else {}
        assert differences(python, {**page, **same}) == [], parts


def test_the_code_of_imported_tokenizers_stands_only_where_they_are(tmp_path: Path) -> None:
    gpt2(tmp_path / "saved")
    run = transduce.load(import_run(tmp_path / "saved", tmp_path / "run"), "cpu")
    facts = run.live_model().facts
    assert "imported" in engine_scripts(facts)
    assert "imported" not in engine_scripts({"tokenizers": [{"kind": "unigram"}]})


def test_what_a_page_lacks_of_a_tokenizer_is_named(tmp_path: Path) -> None:
    gpt2(tmp_path / "saved")
    content = json.loads((tmp_path / "saved" / "tokenizer.json").read_text(encoding="utf-8"))
    content["normalizer"] = {"type": "Nmt"}
    write_json(tmp_path / "saved" / "tokenizer.json", content)
    run = transduce.load(import_run(tmp_path / "saved", tmp_path / "run"), "cpu")
    with pytest.raises(SettingError, match=r'a page has no normalizer .*"Nmt"') as caught:
        run.live_model()
    assert "\n" not in str(caught.value)


BYTES = """
const { encoded } = JSON.parse(require("fs").readFileSync("bytes.json", "utf8"));
process.stdout.write(JSON.stringify(encoded.map((text) => [...bytes(text)])));
"""


def test_bytes_of_a_model_are_decoded_in_blocks(tmp_path: Path) -> None:
    contents = [bytes(range(n)) for n in range(6)] + [bytes(range(256)) * 3100 + b"a"]
    encoded = [base64.b64encode(content).decode() for content in contents]
    write_json(tmp_path / "bytes.json", {"encoded": encoded})
    state = static("transduce.explain", "state.js")
    decoder = state[state.index("function bytes(") : state.index("function halves(")]
    assert run_node(tmp_path, decoder + BYTES) == [list(content) for content in contents]
