"""Presets of BERT, GPT-2 and ViT have the parameters of the published models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from helpers.small_network import count
from transduce.errors import SettingError
from transduce.models.config import BERT_BASE, ENCODER_PRESETS, PRESETS
from transduce.models.decoder_only import DECODER_PRESETS, GPT2, build_decoder_only
from transduce.models.encoder_only import build_text_encoder
from transduce.nn.heads.label import LabelHead
from transduce.recipes import parse_recipe
from transduce.settings.sections import to_dict
from transduce.vision.vit import VISION_PRESETS, VIT_B16, build_vision

PAIRS = {"train": {"kind": "tsv", "path": "a.tsv"}}
IMAGES: dict[str, Any] = {"task": "image-classification", "data": {}, "image": {"size": 224}}
TEXTS = {"train": {"kind": "text", "path": "a.txt"}}


def test_bert_base() -> None:
    with torch.device("meta"):
        theirs = transformers.BertModel(transformers.BertConfig())
        head = LabelHead(768, 2, BERT_BASE.pooling, BERT_BASE.pooler, 0.1, "tanh")
        ours = build_text_encoder(BERT_BASE, 30_522, head)
    labels = count(ours.head.output)  # type: ignore[arg-type]
    assert count(ours) - labels == count(theirs) == 109_482_240


def test_gpt2() -> None:
    with torch.device("meta"):
        theirs = transformers.GPT2LMHeadModel(transformers.GPT2Config())
        ours = build_decoder_only(GPT2, 50_257)
    assert count(ours) == count(theirs) == 124_439_808


def test_vit_b16() -> None:
    config = transformers.ViTConfig(num_labels=1000)
    with torch.device("meta"):
        theirs = transformers.ViTForImageClassification(config)
        ours = build_vision(VIT_B16, 224, 3, VIT_B16.label_head(1000))
    assert count(ours) == count(theirs) == 86_567_656


RECIPES: list[tuple[dict[str, Any], str, Any]] = [
    ({"task": "masked-language-model", "data": TEXTS}, "bert-base", ENCODER_PRESETS),
    ({"task": "classification", "data": PAIRS}, "bert-base", ENCODER_PRESETS),
    ({"task": "language-model", "data": TEXTS}, "gpt2", DECODER_PRESETS),
    ({"task": "dialogue", "data": {"train": {"path": "a.jsonl"}}}, "gpt2", DECODER_PRESETS),
    (
        {"task": "image-classification", "data": {}, "image": {"size": 224}},
        "vit-b16",
        VISION_PRESETS,
    ),
]


@pytest.mark.parametrize(("recipe", "name", "presets"), RECIPES)
def test_a_recipe_may_name_them_and_change_them(
    recipe: dict[str, Any], name: str, presets: Any, tmp_path: Path
) -> None:
    stack = "decoder" if presets is DECODER_PRESETS else "encoder"
    named = {"preset": name, stack: {"dropout": 0.25}}
    parsed = to_dict(parse_recipe({**recipe, "model": named}, "recipe").model)
    expected = to_dict(presets[name])
    expected[stack]["dropout"] = 0.25
    assert parsed == expected
    with pytest.raises(SettingError, match=rf"unknown model\.preset .* choose from {name}"):
        parse_recipe({**recipe, "model": {"preset": "tiny"}}, "recipe")


def test_names_are_of_one_table_each() -> None:
    tables = (PRESETS, ENCODER_PRESETS, DECODER_PRESETS, VISION_PRESETS)
    assert len({name for table in tables for name in table}) == sum(map(len, tables))
