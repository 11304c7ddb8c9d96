"""The model of a live page: every number of `explain --json`, for every shape of a Transformer."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import transduce
from helpers.live_page import differences, live_explanations, live_of, needs_node, tokenized
from helpers.node import run_node
from helpers.random_translator import random_translator
from helpers.tiny_run import stack, training, write_tsv
from transduce.decoding.hypotheses import length_penalty
from transduce.decoding.options import DecodingOptions
from transduce.decoding.shortlist import Shortlist
from transduce.errors import SettingError
from transduce.explain.knock_out import explain_without
from transduce.explain.page_tokenizers import tokenizer_facts
from transduce.explain.parts import KnockOut
from transduce.explain.tasks import explain_translation
from transduce.text import (
    EOS,
    CharactersConfig,
    SubwordConfig,
    SymbolsConfig,
    TokenizerConfig,
    train_tokenizer,
)

pytestmark = [pytest.mark.system, needs_node]

TEXT = "w3 w1 w4 w1 w5 w9"
PRE = {"norm_order": "pre"}
SHAPES: dict[str, dict[str, Any]] = {
    "paper": {},
    "pre-norm, rotary, GELU, two vocabularies": {
        "encoder": {**PRE, "positions": "rotary", "activation": "gelu"},
        "decoder": {**PRE, "positions": "rotary", "activation": "gelu"},
        "tie": "two-way",
    },
    "learned, embedding norm, GELU of GPT-2, untied with bias": {
        "encoder": {"positions": "learned", "embedding_norm": True, "activation": "gelu-tanh"},
        "decoder": {"positions": "learned", "activation": "gelu-tanh", "norm_epsilon": 0.01},
        "tie": "none",
        "output_bias": True,
        "scale_embeddings": False,
    },
    "ALiBi, SiLU, wide heads, mean length penalty": {
        "encoder": {"positions": "alibi", "activation": "silu", "d_head": 10},
        "decoder": {"positions": "alibi", "activation": "silu", "d_head": 6, **PRE},
        "decoding": {"length_penalty": "mean", "beam_size": 3, "stop": "exact"},
    },
    "SwiGLU, sinusoids of Marian, greedy": {
        "encoder": {"positions": "sinusoidal-marian", "activation": "swiglu"},
        "decoder": {"positions": "none", "activation": "swiglu", "n_layers": 1},
        "decoding": {"beam_size": 1, "min_length": 3, "free_end": True},
    },
    "no positions, sampled": {
        "encoder": {"positions": "none"},
        "decoder": {"positions": "none", **PRE},
        "decoding": {"method": "sample", "temperature": 0.8, "top_k": 12, "seed": 3, "top_p": 0.9},
    },
    "odd width, all sines before all cosines": {
        "encoder": {"positions": "sinusoidal-halves", "n_heads": 1},
        "decoder": {"positions": "sinusoidal-halves", "n_heads": 1},
        "d_model": 15,
    },
    "odd width, sinusoids of Marian": {
        "encoder": {"positions": "sinusoidal-marian", "n_heads": 1},
        "decoder": {"positions": "sinusoidal", "n_heads": 1},
        "d_model": 15,
    },
    "SSRU of Marian's students": {
        "encoder": {"positions": "sinusoidal-marian"},
        "decoder": {"kind": "ssru", "n_heads": 2, "d_ff": 24, "activation": "silu"},
        "output_bias": True,
    },
    "SSRU of three layers without positions": {
        "encoder": {**PRE, "positions": "rotary"},
        "decoder": {"kind": "ssru", "n_layers": 3, "n_heads": 4, "d_ff": 8, "positions": "none"},
        "decoding": {"beam_size": 3},
    },
    "untrained, ends at the greatest length": {
        "trained": False,
        "decoding": {"max_length_ratio": 1.0, "max_length_extra": 0, "stop": "present"},
    },
}


@pytest.mark.parametrize("name", SHAPES)
def test_every_number_of_a_translation(name: str, tmp_path: Path) -> None:
    translator = random_translator(**SHAPES[name])
    model = live_of(translator, "")
    texts = [(TEXT,), ("w7",), ("unknown w2 w2",), (" ",)]
    shown = live_explanations(tmp_path, model, texts)
    for text, computed in zip(texts, shown, strict=True):
        assert differences(explain_translation(translator, text), computed) == []


@pytest.mark.parametrize("joint", [True, False])
@pytest.mark.parametrize("beam_size", [1, 3])
def test_a_shortlist_is_followed(beam_size: int, joint: bool, tmp_path: Path) -> None:
    plain = random_translator(decoder={"kind": "ssru"}, decoding={"beam_size": beam_size})
    (answer,) = plain.translate([TEXT])
    written = plain.target.encode(" ".join(answer.tokens))
    size, rng = plain.target.size, np.random.default_rng(0)
    likely = rng.integers(-1, size, (size, 2))
    likely[np.isin(likely, written)] = -1
    shortlist = Shortlist(likely, np.array([4]), joint, size)
    search = replace(plain.steps, shortlist=shortlist)
    options = replace(plain.options, shortlist=True)
    translator = replace(plain, backend=search, options=options)
    ids = translator.source.encode(TEXT)
    assert not {*written} <= {*shortlist.of(ids)}
    texts = [(TEXT,), ("w7",), ("unknown w2 w2",), (" ",)]
    shown = live_explanations(tmp_path, live_of(translator, ""), texts)
    for text, computed in zip(texts, shown, strict=True):
        assert differences(explain_translation(translator, text), computed) == []
    rival = next(id for id in range(4, size) if id not in shortlist.of(ids))
    (forced,) = live_explanations(tmp_path, live_of(translator, ""), [(TEXT,)], forced=[rival])
    assert forced["steps"][0]["written"] == translator.target.tokens([rival])[0]


@pytest.mark.parametrize("beam_size", [1, 3])
def test_a_minimum_length_that_binds(beam_size: int, tmp_path: Path) -> None:
    """Of a model that would end at once: its logits are those of its biases."""
    decoding = {"beam_size": beam_size, "min_length": 3, "max_length_extra": 12}
    translator = random_translator(tie="none", output_bias=True, decoding=decoding)
    head: Any = translator.model.head  # type: ignore[attr-defined]
    with torch.no_grad():
        head.weight.zero_()
        head.bias.zero_()
        head.bias[EOS] = 1.0
    (translation,) = translator.translate([TEXT])
    assert len(translation.tokens) == 3
    (shown,) = live_explanations(tmp_path, live_of(translator, ""), [(TEXT,)])
    assert differences(explain_translation(translator, (TEXT,)), shown) == []


@pytest.mark.parametrize(
    "options",
    [
        {"length_penalty": "none"},
        {"length_penalty": "mean"},
        {"length_penalty": "gnmt", "alpha": 0.6},
        {"length_penalty": "gnmt", "alpha": 1.7},
    ],
    ids=str,
)
def test_the_shown_divisor_is_that_of_the_search(options: dict[str, Any], tmp_path: Path) -> None:
    table = resources.files("transduce.explain") / "static" / "search.js"
    script = f"const D = {json.dumps({'search': {'alpha': 1.0, **options}})};\n"
    script += table.read_text(encoding="utf-8")
    script += "process.stdout.write(JSON.stringify([1, 2, 5, 9].map(divisor)));"
    expected = [length_penalty(DecodingOptions(**options), n) for n in (1, 2, 5, 9)]
    assert run_node(tmp_path, script) == pytest.approx(expected)


def test_levels_that_came_in_int8_are_exact(tmp_path: Path) -> None:
    translator = random_translator(decoder={"kind": "ssru"})
    network: Any = translator.model
    divisors = {}
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if parameter.dim() == 2:
                divisors[name] = 127 / (parameter.abs().amax(1) * 1.1)
                levels = (parameter * divisors[name][:, None]).round()
                parameter.copy_(levels / divisors[name][:, None])
    model = replace(live_of(translator, ""), divisors=divisors)
    (shown,) = live_explanations(tmp_path, model, [(TEXT,)], "int8")
    assert differences(explain_translation(translator, (TEXT,)), shown) == []


def test_int8_is_near(tmp_path: Path) -> None:
    translator = random_translator(d_model=64)
    model = live_of(translator, "")
    (shown,) = live_explanations(tmp_path, model, [(TEXT,)], "int8")
    expected = explain_translation(translator, (TEXT,))
    pairs = zip(expected.steps, shown["steps"], strict=True)
    assert shown["answer"] == expected.answer
    assert max(abs(step.probability - computed["probability"]) for step, computed in pairs) < 0.08


WORDS = ["amber", "birch", "cedar", "delta", "ember", "flint"]
STACK = stack(n_layers=2, positions="rotary", activation="gelu")


def text_lines(directory: Path) -> Path:
    lines = [" ".join(WORDS[i % 6] for i in range(k, k + 2 + k % 5)) for k in range(200)]
    file = directory / "text.txt"
    file.write_text("\n\n".join(lines) + "\n", encoding="utf-8")
    return file


DECODINGS: list[dict[str, Any]] = [
    {"method": "beam", "max_tokens": 40},
    {"method": "sample", "max_tokens": 12, "min_p": 0.05},
]


@pytest.mark.parametrize("decoding", DECODINGS)
def test_every_number_of_a_continuation(decoding: dict[str, Any], tmp_path: Path) -> None:
    train = {"kind": "text", "path": str(text_lines(tmp_path)), "documents": "blank-line"}
    recipe = {
        "task": "language-model",
        "data": {"train": train, "hold_out": 0.2},
        "text": {"tokenizer": {"kind": "characters"}, "block": 32},
        "model": {"d_model": 16, "decoder": {**STACK, "positions": "learned"}},
        "training": training(4, 160, 1e-2),
        "decoding": decoding,
    }
    run = transduce.load(transduce.train(recipe, tmp_path / "run")[0], device="cpu")
    texts = ["amber b", "", "cedar delta ember flint amber birch cedar"]
    model = live_of(run.predictor, "run")
    for text, explanation in zip(
        texts, live_explanations(tmp_path, model, [[t] for t in texts]), strict=True
    ):
        assert differences(run.explain(text), explanation) == []


@pytest.mark.parametrize("pooling", ["mean", "first", "max"])
def test_every_number_of_a_label(pooling: str, tmp_path: Path) -> None:
    rows = [(f"{a} {b}", f"{b} {a}", a) for a in WORDS for b in WORDS]
    path = str(write_tsv(tmp_path / "a.tsv", rows))
    train = {"kind": "tsv", "path": path, "second": 1, "label": 2}
    pooled = {"pooling": pooling, "pooler": pooling == "first", "segments": True}
    recipe = {
        "task": "classification",
        "data": {"train": train, "hold_out": 0.2},
        "text": {"tokenizer": {"kind": "characters"}, "max_length": 24},
        "model": {"d_model": 16, "encoder": STACK, **pooled},
        "training": training(4, 160, 1e-2),
    }
    run = transduce.load(transduce.train(recipe, tmp_path / "run")[0], device="cpu")
    texts = [("amber birch", "cedar"), ("flint", "ÿ"), ("amber birch cedar", "delta ember flint")]
    model = live_of(run.predictor, "run")
    for text, explanation in zip(texts, live_explanations(tmp_path, model, texts), strict=True):
        assert differences(run.explain(text), explanation) == []


def test_heads_and_tokens_left_out(tmp_path: Path) -> None:
    translator = random_translator()
    heads = ("encoder.layers.1.self_attention:1", "decoder.layers.0.cross_attention:2")
    model = live_of(translator, "")
    changes = {"heads": heads, "tokens": [2, 5]}
    (shown,) = live_explanations(tmp_path, model, [(TEXT,)], changes=changes)
    what = KnockOut(heads, (2, 5))
    expected = explain_without(explain_translation, translator, (TEXT,), what)
    assert differences(expected, {**shown, "by_hand": []}) == []


REAL = [
    "The cat sat on the mat.  Two  spaces, a\ttab; “quotes” – and a dash…",
    "Größe, naïve café, Œuvre, ﬁne ligature, İstanbul, ΟΔΟΣ, ß",
    "我是个学生。他每天早上六点起床，Ａ１２。",
    "これは日本語の文章です。ﾊﾝｶｸ",
    "한국어 문장입니다. 각",
    "Привет, как дела? Ёлка",
    "שלום עולם, مرحبا بالعالم",
    "नमस्ते दुनिया ประเทศไทย",
    "e\u0301 👩‍👩‍👧 🇨🇭 \u00a0\u3000 ▁ <s> </s> <0x41> <de> text",
    "<de> <x> a tagged text",
    "",
    " ",
]


@pytest.mark.parametrize(
    "config",
    [
        SubwordConfig(kind="bpe", size=420),
        SubwordConfig(kind="unigram", size=420, normalization="nfkc", lowercase=True),
        SubwordConfig(kind="unigram", size=500, character_coverage=0.98),
        CharactersConfig(normalization="nfd", lowercase=True, min_count=2),
        CharactersConfig(),
        SymbolsConfig(normalization="nfkc"),
    ],
)
def test_tokenizers(config: TokenizerConfig, tmp_path: Path) -> None:
    tokenizer = train_tokenizer(config, [*REAL, *REAL, REAL[9]])
    lines = [*REAL, "unseen: żółw, ქართული, 🐙"]
    for line, (ids, text, tokens) in zip(
        lines, tokenized(tmp_path, tokenizer_facts(tokenizer), lines), strict=True
    ):
        assert ids == tokenizer.encode(line)
        assert text == tokenizer.decode(ids)
        assert tokens == tokenizer.tokens(ids)


def test_what_the_page_cannot_compute_is_named() -> None:
    bytenet = random_translator({"kind": "bytenet"}, {"kind": "bytenet"}, trained=False)
    with pytest.raises(SettingError, match=r"no stack of kind .*\(model\.encoder\.kind\)"):
        live_of(bytenet, "")
    beam = random_translator(decoding={"no_repeat_ngram": 3})
    with pytest.raises(SettingError, match=r"decoding\.no_repeat_ngram = 3"):
        live_of(beam, "")
