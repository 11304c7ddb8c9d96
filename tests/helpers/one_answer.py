"""Outputs that have the same bits on every processor, and their hashes, which are kept.

PYTHONPATH=tests python -m helpers.one_answer         compare with the kept ones
PYTHONPATH=tests python -m helpers.one_answer --keep  keep new ones, of outputs that change
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import random
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

import transduce
from helpers.native import INSTRUCTIONS
from helpers.predictors import natively
from helpers.random_translator import STACK, WORDS
from transduce.engine.build import VARIABLE
from transduce.nn.precision import Precision
from transduce.runs.importing import import_run
from transduce.tasks.translation.recipe import TranslationRecipe
from transduce.tasks.translation.training import new_translator
from transduce.tasks.translation.translator import Translator
from transduce.text.tokenizer import CharacterTokenizer, Normalizer, SymbolTokenizer

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "tests" / "golden" / "one_answer" / "hashes.json"
SPELLED = ROOT / "tests" / "golden" / "one_answer" / "words.txt"
SPELLER = ROOT / "docs" / "see" / "speller.html"
SENTENCES = ROOT / "tests" / "golden" / "one_answer" / "sentences.txt"
FIREFOX = ROOT.parent / "shared" / "data" / "firefox-en-pt"
"""A model of Firefox, which the repository does not hold."""
LONG = 300
"""Words of the longest line: more keys than attention reads one by one."""
LEAST_FUSED = "baseline"
"""The instruction set of x86-64 without fused products and sums, whose float32 is its own."""
MODELS: Sequence[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = (
    ({}, {}, {}),
    (
        {"positions": "rotary", "norm_order": "pre"},
        {"positions": "alibi", "n_heads": 3, "d_head": 6},
        {},
    ),
    ({"activation": "swiglu", "d_ff": 21}, {"activation": "gelu"}, {"tie": "none", "d_model": 20}),
    ({"positions": "learned", "embedding_norm": True, "max_positions": 400}, {"norm": "rms"}, {}),
    ({"activation": "gelu-tanh", "d_head": 10}, {"activation": "silu", "norm_order": "pre"}, {}),
    ({"positions": "sinusoidal-halves"}, {"kind": "ssru", "n_layers": 2, "n_heads": 2}, {}),
    ({"positions": "relative"}, {"positions": "relative", "activation": "geglu"}, {"d_model": 72}),
    ({"positions": "none", "d_ff": 200}, {"positions": "sinusoidal-marian"}, {"d_model": 136}),
)
"""Encoder, decoder and model of each random translator: their settings."""


def random_translators() -> list[Translator]:
    """Translators of every kind of layer, with weights that every machine draws alike."""
    return [_random_translator(seed, *settings) for seed, settings in enumerate(MODELS)]


def random_lines() -> list[str]:
    """Lines of words, one of them long."""
    chance = random.Random(0)
    return [" ".join(chance.choices(WORDS, k=n)) for n in (1, 3, 7, 11, 30, LONG)]


def speller() -> Translator:
    """The model of a page of the documentation, in float32 from its int8."""
    page = SPELLER.read_text(encoding="utf-8")
    text = re.search(r'<script id="model" type="application/json">(.*?)</script>', page, re.DOTALL)
    assert text is not None
    facts = json.loads(text[1])
    content = base64.b64decode(facts["bytes"])
    tokenizers = [
        kind(facts["pieces"], Normalizer(lowercase=facts["lowercase"]))
        for kind, facts in zip(
            (CharacterTokenizer, SymbolTokenizer), facts["tokenizers"], strict=True
        )
    ]
    names = ("n_layers", "n_heads", "d_ff", "activation", "norm_order", "positions")
    stacks = {
        side: {name: settings[name] for name in names} for side, settings in facts["stacks"].items()
    }
    model = {"d_model": facts["d_model"], "tie": "two-way", **stacks}
    decoding = {"beam_size": 4, "length_penalty": "mean", "max_length_extra": 20}
    translator = _translator(model, {**decoding, "max_length_ratio": 2.0}, *tokenizers)
    arrays = {name: _array(content, *where) for name, *where in facts["arrays"]}
    translator.model.load_state_dict(arrays)
    return translator


def spelled_words() -> list[str]:
    """1,500 words of CMUdict."""
    return SPELLED.read_text(encoding="utf-8").splitlines()


def firefox() -> Translator:
    """Firefox's model, with its shortlist."""
    with tempfile.TemporaryDirectory() as folder:
        run = import_run(FIREFOX, Path(folder) / "run")
        translator = transduce.load(run, "cpu", engine="pytorch").translator
    assert isinstance(translator, Translator)
    return translator


SOURCES: dict[str, Callable[[], list[tuple[Translator, list[str]]]]] = {
    "random models": lambda: [(each, random_lines()) for each in random_translators()],
    "speller, 1,500 words": lambda: [(speller(), spelled_words())],
    "Firefox en-pt, 98 sentences": lambda: [
        (firefox(), SENTENCES.read_text(encoding="utf-8").splitlines())
    ],
}
"""Translators with the lines that each is to translate."""


def missing(source: str) -> str | None:
    """What a source needs and this machine lacks."""
    return f"needs {FIREFOX}" if "Firefox" in source and not FIREFOX.is_dir() else None


PRECISIONS: tuple[Precision, ...] = ("int8", "float32", "bf16")


def hash_of(lines: Iterable[str]) -> str:
    """SHA-256 of lines."""
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def line_of(text: str, score: float, log_prob: float) -> str:
    """An output and the bits of its scores."""
    return f"{text}\t{float(score).hex()}\t{float(log_prob).hex()}\n"


def native_hash(source: str, precision: Precision) -> str:
    """Hash of the outputs of the engine with the instruction set of the environment."""
    answers = (
        answer
        for translator, lines in SOURCES[source]()
        for answer in natively(translator, precision=precision).translate(lines)
    )
    return hash_of(line_of(answer.text, answer.score, answer.log_prob) for answer in answers)


def kept_hashes() -> dict[str, dict[Precision, str]]:
    """The hashes of the repository."""
    hashes: dict[str, dict[Precision, str]] = json.loads(KEPT.read_text(encoding="utf-8"))
    return hashes


def has_one_answer(instructions: str, precision: Precision) -> bool:
    """True where outputs are promised to be those of other processors."""
    if instructions == "amx":
        return precision != "bf16"
    return precision != "float32" or instructions != LEAST_FUSED


def _random_translator(
    seed: int, encoder: dict[str, Any], decoder: dict[str, Any], model: dict[str, Any]
) -> Translator:
    stacks: dict[str, dict[str, Any]] = {"encoder": {**STACK, **encoder}, "decoder": decoder}
    if "kind" not in decoder:
        stacks["decoder"] = {**STACK, **decoder}
    decoding = {"beam_size": 1 + seed % 4, "max_length_extra": 8, "length_penalty": "gnmt"}
    tokenizer = SymbolTokenizer(WORDS, Normalizer())
    decoding |= {"max_length_ratio": 0.2}
    translator = _translator({"d_model": 16, **stacks, **model}, decoding, tokenizer, tokenizer)
    chance = random.Random(seed)
    with torch.no_grad():
        for name, weight in translator.model.named_parameters():
            numbers = np.array([chance.random() - 0.5 for _ in range(weight.numel())])
            is_norm = "norm" in name and name.endswith("weight")
            scaled = 1 + 0.1 * numbers if is_norm else 1.5 * numbers
            weight.copy_(torch.from_numpy(scaled).view_as(weight))
    return translator


def _translator(
    model: dict[str, Any], decoding: dict[str, Any], source: Any, target: Any
) -> Translator:
    """A translator of these settings, without data."""
    text: dict[str, Any] = {"source": {"kind": source.kind}}
    if model.get("tie", "three-way") != "three-way":
        text["target"] = {"kind": target.kind}
    settings = {
        "task": "translation",
        "data": {
            "train": {"kind": "tsv", "path": "none.tsv"},
            "filters": {"max_length": LONG},
        },
        "text": text,
        "model": model,
        "decoding": decoding,
    }
    made = new_translator(TranslationRecipe.parse(settings, "recipe"), source, target)
    made.model.eval()
    return made


def _array(content: bytes, shape: Sequence[int], kind: str, offset: int) -> torch.Tensor:
    count = int(np.prod(shape))
    if kind == "float32":
        return torch.from_numpy(np.frombuffer(content, "<f4", count, offset).copy()).view(*shape)
    scale = np.frombuffer(content, "<f4", shape[0], offset)
    levels = np.frombuffer(content, np.int8, count, offset + 4 * shape[0]).reshape(shape)
    return torch.from_numpy(levels * scale[:, None])


def main(arguments: Sequence[str]) -> int:
    """Print hashes; exit status 1 if any differs from the kept one."""
    hashes: dict[str, dict[str, str]] = kept_hashes()  # type: ignore[assignment]
    present = [source for source in SOURCES if missing(source) is None]
    for source in SOURCES.keys() - present:
        sys.stdout.write(f"{source} left out: {missing(source)}\n")
    if "--keep" in arguments:
        hashes = {source: kept for source, kept in hashes.items() if source not in present}
    differing = 0
    for instructions in INSTRUCTIONS:
        os.environ[VARIABLE] = instructions
        for source in present:
            for precision in PRECISIONS:
                found = native_hash(source, precision)
                if not has_one_answer(instructions, precision):
                    continue
                is_same = hashes.setdefault(source, {}).setdefault(precision, found) == found
                differing += not is_same
                verdict = "equal" if is_same else "DIFFERS"
                sys.stdout.write(f"{found[:16]} {verdict} {instructions} {precision} {source}\n")
    if "--keep" in arguments:
        KEPT.write_text(json.dumps(hashes, indent=2) + "\n", encoding="utf-8")
    return int(differing > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
