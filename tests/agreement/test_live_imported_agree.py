"""Live pages of imported models: every number of `explain --json`, with their own tokenizers."""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import transduce
from agreement.test_import_bert import bert, distilbert, roberta
from agreement.test_import_gpt2 import gpt2
from agreement.test_import_marian import marian
from helpers.hugging_face import sentences, write_json
from helpers.live_page import differences, live_explanations, needs_node
from helpers.node import run_node
from transduce.errors import SettingError
from transduce.explain.page import engine_scripts, static
from transduce.runs.importing import import_run

pytestmark = [pytest.mark.system, needs_node]

BERT = {"vocab_size": 400, "hidden_size": 24, "num_attention_heads": 3}
GPT2 = {"n_embd": 24, "n_head": 3, "n_layer": 2, "n_positions": 48}
MARIAN = {"d_model": 24, "activation_function": "swish", "scale_embedding": True}
LINES = [*sentences(2, 3), " ".join(sentences(1, 4)[0].split()[:3]), "Ä 中 ☃ it's", "  a  b ", " "]
MASKED = ["a <mask> c.", "<mask> ab<mask>ba, <mask>", *LINES]
PAIRS = list(itertools.pairwise(LINES[:5]))
MODELS: dict[str, tuple[Callable[[Path], Any], list[Any]]] = {
    "BERT, masked words": (lambda d: bert("BertForMaskedLM", d, **BERT), MASKED),
    "RoBERTa, masked words": (partial(roberta, "RobertaForMaskedLM"), MASKED),
    "BERT, labels": (lambda d: bert("BertForSequenceClassification", d, **BERT), LINES),
    "BERT, pairs": (lambda d: bert("BertForSequenceClassification", d, **BERT), PAIRS),
    "RoBERTa, pairs": (partial(roberta, "RobertaForSequenceClassification"), PAIRS),
    "DistilBERT, labels": (partial(distilbert, "DistilBertForSequenceClassification"), LINES),
    "BERT, vectors": (lambda d: bert("BertModel", d, **BERT), LINES),
    "GPT-2": (lambda d: gpt2(d, **GPT2), [line[:30] for line in LINES]),
    "Marian": (lambda d: marian(d, **MARIAN), LINES),
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
