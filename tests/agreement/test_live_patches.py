"""Vectors that are put in: the same logits in the page and in Python."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from helpers.live_page import engine, live_of, needs_node
from helpers.node import run_node
from helpers.one_answer import SPELLER
from helpers.random_translator import random_translator
from transduce.errors import SettingError
from transduce.explain.credit import (
    Choice,
    Pair,
    Patch,
    Way,
    head_path,
    patched,
    recovered,
    substitute,
)
from transduce.explain.page import static
from transduce.sequence import Padded
from transduce.text import BOS, EOS

TEXT = "w3 w1 w4 w1 w5 w9"
PATCHES = 200
LOGITS = """
const { readFileSync } = require("fs");
const { facts, text, written, patches } = JSON.parse(readFileSync("case.json", "utf8"));
const model = new LiveModel(facts, Uint8Array.from(Buffer.from(facts.bytes, "base64")));
const rows = model.rowsOf([text], written);
const none = { heads: [], layers: [], tokens: [], parts: [] };
const answers = patches.map((patch) => rows({ ...none, patches: [patch] }).map((row) => [...row]));
process.stdout.write(JSON.stringify(answers));
"""

LABORATORY = """
const { readFileSync } = require("fs");
const asked = JSON.parse(readFileSync("case.json", "utf8")),
  { facts, text, donor, patches, paths } = asked;
const model = new LiveModel(facts, Uint8Array.from(Buffer.from(facts.bytes, "base64")));
const none = { heads: [], layers: [], tokens: [], parts: [], patches: [] };
var transduce = { model, facts }, S = { donor };
var live = { texts: () => [text], changes: () => none, decoding: () => ({}) };
const written = recordedOf([text]).steps.map(({ id }) => id), rows = model.rowsOf([text], written);
const logits = (name) => rows({ ...none, patches: patchOf(name) }).map((row) => [...row]);
const changed = paths.map((ends) => headPath(...ends, written, ...asked.chosen));
process.stdout.write(JSON.stringify({ written, logits: patches.map(logits), paths: changed }));
"""


def random_patch(
    rng: random.Random, lengths: dict[str, int], recurs: bool
) -> tuple[Patch, dict[str, Any]]:
    """A patch in Python and in the page, of a module or of a head of width 8.

    recurs: True for an SSRU decoder.
    """
    side = rng.choice(list(lengths))
    layer = f"{side}.layers.{rng.randrange(2)}"
    kinds = ["self_attention", "feed_forward", *(["cross_attention"] * (side == "decoder"))]
    names = [f"{side}.embedding_norm", layer]
    if recurs and side == "decoder":
        kinds, names = ["cross_attention", "feed_forward"], [layer, f"{layer}.recurrence"]
    kind, position = rng.choice(kinds), rng.randrange(lengths[side])
    name = rng.choice([*names, f"{layer}.{kind}"])
    if rng.random() < 0.3:
        attention, head = f"{layer}.{rng.choice(kinds[::2])}", rng.randrange(2)
        numbers = [rng.gauss(0, 1) for _ in range(8)]
        in_page = {str(8 * head + k): number for k, number in enumerate(numbers)}
        shown = {"name": f"{attention}.heads.mixed", "position": position, "numbers": in_page}
        return Patch(f"{attention}:{head + 1}", position, torch.tensor(numbers)), shown
    numbers = [rng.gauss(0, 1) for _ in range(16)]
    in_page = {str(k): number for k, number in enumerate(numbers)}
    shown = {"name": name, "position": position, "numbers": in_page}
    return Patch(name, position, torch.tensor(numbers)), shown


@pytest.mark.system
@needs_node
@pytest.mark.parametrize("order", ["pre", "post", "ssru"])
def test_patches_change_the_logits_alike(order: str, tmp_path: Path) -> None:
    stack = {"norm_order": order, "positions": "rotary" if order == "pre" else "sinusoidal"}
    ssru = {"kind": "ssru", "n_heads": 2, "d_ff": 24}
    stacks = ({}, ssru) if order == "ssru" else (stack, stack)
    translator = random_translator(*stacks)
    model, rng = translator.model, random.Random(1)
    ids, written = translator.source.encode(TEXT), [5, 7, 6, EOS]
    read = [BOS, *written[:-1]]
    patches = [
        random_patch(rng, {"encoder": len(ids) + 1, "decoder": len(read)}, order == "ssru")
        for _ in range(PATCHES // 2)
    ]
    facts = live_of(translator, "").packed("float32")
    case = {"facts": facts, "text": TEXT, "written": written, "patches": [p for _, p in patches]}
    (tmp_path / "case.json").write_text(json.dumps(case), encoding="utf-8")
    computed = run_node(tmp_path, engine() + LOGITS)
    source, target = Padded.from_rows([[*ids, EOS]]), Padded.from_rows([read])
    with torch.inference_mode():
        plain, moved = model(source, target)[0], 0
        for (patch, _), shown in zip(patches, computed, strict=True):
            with patched(model, [patch]):
                logits = model(source, target)[0]
            assert (logits - torch.tensor(shown)).abs().max() < 1e-4, patch.name
            moved += int((logits - plain).abs().max() > 1e-3)
        assert moved > PATCHES // 4
        assert torch.equal(model(source, target)[0], plain)


WAYS: tuple[Way, ...] = ("zero", "mean", "noise")
HEAD_PATHS = [
    ("encoder.layers.0.self_attention:1", "encoder.layers.1.self_attention:2"),
    ("encoder.layers.1.self_attention:2", "decoder.layers.0.cross_attention:1"),
    ("decoder.layers.0.self_attention:2", "decoder.layers.0.cross_attention:2"),
    ("decoder.layers.0.cross_attention:1", "decoder.layers.1.self_attention:1"),
    ("decoder.layers.1.cross_attention:1", "decoder.layers.0.self_attention:1"),
]
"""The last receiver stands before its sender."""


@pytest.mark.system
@needs_node
def test_ways_to_take_out_and_paths_of_heads(tmp_path: Path) -> None:
    translator = random_translator(decoding={"max_length_extra": 4})
    model: Any = translator.model
    modules = ["encoder.embedding_norm", "encoder.layers.0.feed_forward", "decoder.layers.1"]
    cells = [(name, position) for name in modules for position in (0, 2)]
    head = "decoder.layers.0.cross_attention"
    patches = [f"{name}@{at}<{way}" for name, at in cells for way in WAYS]
    heads = [f"{head}:2@1<{way}" for way in WAYS]
    case = {
        "facts": live_of(translator, "").packed("float32"),
        "text": TEXT,
        "donor": "w9",
        "patches": [*patches, *heads, f"{modules[1]}@*<zero"],
        "paths": HEAD_PATHS,
        "chosen": [1, 7, 9],
    }
    (tmp_path / "case.json").write_text(json.dumps(case), encoding="utf-8")
    scripts = [static("transduce.explain", f"{name}.js") for name in ("laboratory", "pairs")]
    computed = run_node(tmp_path, "\n".join([engine(), *scripts, LABORATORY]))
    source = Padded.from_rows([[*translator.source.encode(TEXT), EOS]])
    target = Padded.from_rows([[BOS, *computed["written"][:-1]]])
    assert target.values.shape[1] > 2
    expected = [
        [Patch(name, at, substitute(vectors_of(model, name, source, target), at, way))]
        for name, at in cells
        for way in WAYS
    ]
    mixed = vectors_of(model, f"{head}.output", source, target, inputs=True)
    expected += [[Patch(f"{head}:2", 1, substitute(mixed, 1, way)[8:])] for way in WAYS]
    expected.append([Patch(modules[1], at, torch.zeros(16)) for at in range(7)])
    with torch.inference_mode():
        plain = model(source, target)[0]
        for patch, shown in zip(expected, computed["logits"], strict=True):
            with patched(model, patch):
                logits = model(source, target)[0]
            assert (logits - torch.tensor(shown)).abs().max() < 1e-4, patch[0].name
            assert (logits - plain).abs().max() > 1e-4
    paths = [
        head_path(model, lambda: model(source, target), *ends, Choice(1, 7, 9))
        for ends in HEAD_PATHS
    ]
    assert paths == pytest.approx(computed["paths"], abs=1e-4)
    assert min(map(abs, paths[:-1])) > 1e-3
    assert paths[-1] == pytest.approx(0.0, abs=1e-6)


NEAREST = """
const { readFileSync } = require("fs");
const facts = JSON.parse(readFileSync("case.json", "utf8"));
const model = new LiveModel(facts, Uint8Array.from(Buffer.from(facts.bytes, "base64")));
var transduce = { model, facts };
const [tokenizer] = model.tokenizers.slice(-1), table = tableOf("decoder"), near = {};
for (let id = SPECIAL.length; id < tokenizer.size; id++)
  near[tokenizer.token(id)] = neighboursOf("decoder", table[id], 2, id).map(([token]) => token);
process.stdout.write(JSON.stringify(near));
"""


@pytest.mark.system
@needs_node
def test_the_speller_finds_voiced_and_voiceless_pairs(tmp_path: Path) -> None:
    """Embeddings of phonemes that differ in the voice alone are near in the finished page."""
    page = SPELLER.read_text(encoding="utf-8")
    model = re.search(r'<script id="model" type="application/json">(.*?)</script>', page, re.S)
    assert model
    (tmp_path / "case.json").write_text(model[1], encoding="utf-8")
    laboratory = static("transduce.explain", "laboratory.js")
    near = run_node(tmp_path, "\n".join([engine(), laboratory, NEAREST]))
    for a, b in [("S", "Z"), ("SH", "ZH"), ("TH", "DH")]:
        assert (near[a][0], near[b][0]) == (b, a)
    assert near["V"][0] == "F"
    assert "V" in near["F"]


def vectors_of(model: Any, name: str, *call: Padded, inputs: bool = False) -> torch.Tensor:
    """Vectors (t, m) that a module gives in a pass, or those that go into it."""
    noted: list[Any] = []
    hook = model.get_submodule(name).register_forward_hook(
        lambda module, args, output: noted.append(args[0] if inputs else output)
    )
    with torch.inference_mode():
        model(*call)
    hook.remove()
    (seen,) = noted
    vectors: torch.Tensor = seen.values if isinstance(seen, Padded) else seen
    return vectors.reshape(-1, vectors.shape[-1])


def test_recovery_over_pairs() -> None:
    """One source token: its vector is all that is known of the source.  A row that the choice does
    not read from brings nothing."""
    model = random_translator().model
    target = Padded.from_rows([[BOS, 5, 6]])

    def pair(a: int, b: int, position: int) -> Pair:
        first, second = Padded.from_rows([[a]]), Padded.from_rows([[b]])
        return Pair((first, target), (second, target), Choice(1, 7, 8), position)

    tokens = [(9, 10), (11, 12), (13, 14), (15, 16)]
    whole = recovered(model, "encoder.layers.0", [pair(*two, 0) for two in tokens])
    assert whole.shares == pytest.approx([1.0] * 4, abs=1e-3)
    assert whole.low <= whole.mean <= whole.high
    later = recovered(model, "decoder.layers.0", [pair(*two, 2) for two in tokens])
    assert later.shares == pytest.approx([0.0] * 4, abs=1e-3)
    part = recovered(model, "decoder.layers.0", [pair(*two, 1) for two in tokens])
    assert part.low < part.mean < part.high
    with pytest.raises(SettingError, match="same difference"):
        recovered(model, "encoder", [pair(9, 9, 0)])
    with pytest.raises(SettingError, match="is no hidden state; they are encoder, "):
        recovered(model, "encoder.layer", [pair(9, 10, 0)])


def test_patches_that_do_not_fit_are_refused_by_name() -> None:
    model = random_translator().model
    source = Padded.from_rows([[5, 6, EOS]])
    for patch, message in [
        (Patch("encoder.layer.0", 0, torch.zeros(16)), "no such module"),
        (Patch("encoder.layers.0.self_attention:9", 0, torch.zeros(8)), "heads of .* are 1 to 2"),
        (Patch("encoder.layers.0", 3, torch.zeros(16)), "there are 3 positions of width 16"),
        (Patch("encoder.layers.0", 0, torch.zeros(8)), "there are 3 positions of width 16"),
    ]:
        with pytest.raises(SettingError, match=message), patched(model, [patch]):
            model.encode(source)
