"""Imported tokenizers in a page divide texts as in Python, and its models translate as natively."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from helpers.hugging_face import sentences
from helpers.live_page import engine, tokenized
from helpers.native import needs_native
from helpers.node import run_node
from helpers.text_to_text import FAMILIES as MODELS
from helpers.text_to_text import made
from helpers.web import COMPILING, assert_same_as_engine, needs_node, needs_wasm
from helpers.web_tokens import FAMILIES, texts, tokenizer_of
from transduce.errors import RunError, SettingError
from transduce.explain.page import static
from transduce.explain.page_tokenizers import tokenizer_facts
from transduce.runs.exporting import export_run
from transduce.runs.importing import import_run
from transduce.tasks.translation.recipe import LanguageTokens
from transduce.text import UNK, HuggingFaceTokenizer
from transduce.web.page import SCRIPTS

SPACE = "\u2581"
SPECIAL = ("<pad>", "<unk>", "<s>", "</s>")
ODD = ["", " ", "<extra_id_0>a Straße ½b", "a<extra_id_0> </s> <unk> ▁ a▁b", "\0a\ufeffb", "'s'LL"]
LINES = [
    *sentences(12, 7),
    " ".join(sentences(30, 7)),
    "  a  b ",
    "Ä 中 ☃",
    ">>a<< b",
    "ab\n\ncd\r\n",
]


@needs_node
@pytest.mark.system
@pytest.mark.parametrize("family", FAMILIES)
def test_texts_have_the_tokens_of_python(family: str, tmp_path: Path) -> None:
    tokenizer = tokenizer_of(family)
    lines = [*texts(600, 1), *ODD]
    answers = tokenized(tmp_path, tokenizer_facts(tokenizer), lines)
    for line, answer in zip(lines, answers, strict=True):
        ids = tokenizer.encode(line)
        assert answer == [ids, tokenizer.decode(ids), tokenizer.tokens(ids)], line


UNKNOWN = """
const { readFileSync } = require("fs");
const { facts, lines } = JSON.parse(readFileSync("lines.json", "utf8"));
const tokenizer = tokenizerOf(facts);
process.stdout.write(JSON.stringify(lines.map((line) => unknownParts(tokenizer, [line]))));
"""


@needs_node
@pytest.mark.system
@pytest.mark.parametrize("family", FAMILIES)
def test_unknown_parts_are_those_without_a_token_in_python(family: str, tmp_path: Path) -> None:
    tokenizer = tokenizer_of(family)
    lines = [*texts(60, 2, odd=False), "a \u16a0 cat \u16a2\u16a0", "   ", ""]
    (tmp_path / "lines.json").write_text(
        json.dumps({"facts": tokenizer_facts(tokenizer), "lines": lines}), encoding="utf-8"
    )
    named = run_node(tmp_path, engine() + UNKNOWN)
    for line, unknown in zip(lines, named, strict=True):
        assert bool(unknown) == (UNK in tokenizer.encode(line) and bool(line.strip())), line
        assert all(UNK in tokenizer.encode(part) for part in unknown.removesuffix(" …").split())


BPE: dict[str, Any] = {
    "kind": "bpe",
    "normalization": "none",
    "lowercase": False,
    "pieces": [*SPECIAL, *(SPACE + "cat"), "ca", "cat", "catcat", SPACE + "cat"],
}
IMPORTED = {**BPE, "replacements": {}, "single_blanks": True, "dummy_prefix": True}
IMPORTED["scores"] = [None] * len(SPECIAL) + [-9.0] * 4 + [0.0, -1.0, -1.5, 0.0]


@needs_node
@pytest.mark.system
@pytest.mark.parametrize("facts", [None, BPE, IMPORTED], ids=["nllb", "own", "imported"])
def test_words_of_any_length_are_merged_with_as_many_looks_a_letter(
    facts: dict[str, Any] | None, tmp_path: Path
) -> None:
    tokenizer = tokenizer_of("nllb")
    words = ["cat" * n for n in (200, 2000)]
    content = {"facts": facts or tokenizer_facts(tokenizer), "texts": words}
    (tmp_path / "texts.json").write_text(json.dumps(content), encoding="utf-8")
    code = """
const { facts, texts } = JSON.parse(require("fs").readFileSync("texts.json", "utf8"));
const tokenizer = tokenizerOf(facts), { get } = Map.prototype;
let looks = 0;
Map.prototype.get = function (key) {
  looks++;
  return get.call(this, key);
};
const answer = (text) => ((looks = 0), [tokenizer.encode(text), looks]);
process.stdout.write(JSON.stringify(texts.map(answer)));
"""
    scripts = "".join(static(*script) for script in SCRIPTS[:2])
    answers = run_node(tmp_path, scripts + code)
    if facts is None:
        assert [ids for ids, _ in answers] == [tokenizer.encode(word) for word in words]
    else:
        ids = {piece: k for k, piece in enumerate(facts["pieces"])}
        for word, (got, _) in zip(words, answers, strict=True):
            n = len(word) // 6
            by_learning = [SPACE, *["catcat"] * n]
            by_score = [SPACE + "cat", *["catcat"] * (n - 1), "cat"]
            assert got == [ids[piece] for piece in (by_learning if facts is BPE else by_score)]
    assert answers[1][1] < 12 * answers[0][1]


@needs_node
@pytest.mark.system
def test_tags_of_languages_are_read_in_any_spelling(tmp_path: Path) -> None:
    sources, targets = ("de", "fr", "zh-Hans"), ("en", "pt-BR", "zh-Hant")
    lines = [
        "<EN> a",
        "<Fr> <en> b",
        "c",
        "<fra_Latn> <PT_br> d",
        "<zh> <zh-TW> e",
        "<de_AT> <eng> f",
        "<B> <en> g",
        "<constructor> h",
    ]
    tokenizer = tokenizer_of("nllb")
    assert isinstance(tokenizer, HuggingFaceTokenizer)
    tokens = LanguageTokens(tokenizer, tokenizer, sources, targets)
    bare, pairs = tokens.separate(lines)
    sides = [{code: code for code in codes} for codes in (sources, targets)]
    (tmp_path / "lines.json").write_text(json.dumps({"pairs": sides, "lines": lines}))
    code = """
const { pairs, lines } = JSON.parse(require("fs").readFileSync("lines.json", "utf8"));
const separated = (...asked) => Translator.prototype.separated.call({ facts: { pairs } }, ...asked);
const chosen = [["DE", "EN"], ["fr-CA", "pt_BR"]].map((codes) => separated(["a"], ...codes));
process.stdout.write(JSON.stringify([separated(lines), ...chosen]));
"""
    scripts = "".join(static(*script) for script in SCRIPTS[:3])
    separated, chosen, regional = run_node(tmp_path, scripts + code)
    assert separated == [[line, *pair] for line, pair in zip(bare, pairs, strict=True)]
    assert chosen == [["a", "de", "en"]] and regional == [["a", "fr", "pt-BR"]]


@needs_node
@needs_wasm
@needs_native
@pytest.mark.system
@pytest.mark.timeout(COMPILING)
@pytest.mark.parametrize("family", MODELS)
def test_imported_models_translate_as_the_engine(family: str, tmp_path: Path) -> None:
    made(family, tmp_path / "saved")
    assert_same_as_engine(import_run(tmp_path / "saved", tmp_path / "run"), tmp_path, LINES)


@pytest.mark.parametrize("family", ["t5", "gpt2", "bert"])
def test_a_model_without_a_type_is_of_the_same_kind(family: str) -> None:
    definition, numbering = tokenizer_of(family).definition, tokenizer_of(family).numbering
    untyped = {name: part for name, part in definition["model"].items() if name != "type"}
    facts = tokenizer_facts(HuggingFaceTokenizer({**definition, "model": untyped}, numbering))
    assert facts["model"]["type"] == definition["model"]["type"]


def test_all_that_a_page_lacks_is_named_at_once(tmp_path: Path) -> None:
    definition = {**tokenizer_of("gpt2").definition}
    expression = {"type": "Replace", "pattern": {"Regex": "a+"}, "content": "b"}
    definition["normalizer"] = {"type": "Sequence", "normalizers": [{"type": "Nmt"}, expression]}
    definition["pre_tokenizer"] = {"type": "Digits", "individual_digits": True}
    definition["model"] = {**definition["model"], "dropout": None, "byte_fallback": True}
    numbering = tokenizer_of("gpt2").numbering
    with pytest.raises(SettingError) as caught:
        tokenizer_facts(HuggingFaceTokenizer(definition, numbering))
    for part in ('"Nmt"', '"a+"', '"Digits"'):
        assert part in str(caught.value)


def test_an_export_names_what_a_page_lacks_and_what_is_possible(tmp_path: Path) -> None:
    made("bart", tmp_path / "saved")
    run = import_run(tmp_path / "saved", tmp_path / "run")
    for file in run.glob("*tokenizer.json"):
        content = json.loads(file.read_text(encoding="utf-8"))
        content["tokenizer"]["normalizer"] = {"type": "Nmt"}
        file.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(RunError, match=r'normalizer .*"Nmt".*can become .*onnx') as caught:
        export_run(run, tmp_path / "page.html", form="html")
    assert "\n" not in str(caught.value) and not (tmp_path / "page.html").exists()
