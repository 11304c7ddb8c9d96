"""Masks in a text: what the model reads there, and how a token is put in their place."""

from pathlib import Path

import numpy as np

from helpers.hugging_face import byte_level
from transduce.interop.tokenizers import ENCODER, read_tokenizer
from transduce.tasks.text_encoder.mask_filler import MaskFiller, TokenCandidate
from transduce.tasks.text_encoder.recipes import MaskedLanguageModelRecipe
from transduce.text import SubwordConfig, SymbolsConfig, train_tokenizer


def test_masks_and_the_spaces_around_them() -> None:
    lines = ["the cat sat on the mat .", "a dog ran , and sat"] * 9
    recipe = MaskedLanguageModelRecipe.parse({"task": "masked-language-model"}, "recipe")
    filler = MaskFiller(recipe, train_tokenizer(SubwordConfig(size=300), lines))
    tokenizer = filler.tokenizer
    mask = tokenizer.size

    def shown(text: str) -> list[str]:
        return [
            "?" if token == mask else tokenizer.tokens([token])[0] for token in filler.ids(text)
        ]

    whole = tokenizer.tokens(tokenizer.encode("the cat sat on"))
    cat = tokenizer.tokens(tokenizer.encode("cat"))
    start = whole.index(cat[0])
    assert shown("the <mask> sat on") == [*whole[:start], "?", *whole[start + len(cat) :]]
    assert shown("<mask> <mask>") == ["?", "?"]
    assert shown("<mask>") == ["?"]
    behind = shown("the <mask>.")
    assert behind[-2] == "?" and not behind[-1].startswith("▁")
    begins = filler.modelling.masking._begins.tolist()
    words = [i for i in range(4, tokenizer.size) if tokenizer.tokens([i])[0] == "▁cat"]
    pieces = [i for i in range(260, tokenizer.size) if tokenizer.tokens([i])[0] == "at"]
    for ids, text, wanted in ((words, "a <mask> b", "a cat b"), (pieces, "c <mask> b", "cat b")):
        for i in ids:
            candidate = filler._candidates(np.eye(mask + 1, dtype=np.float32)[[i]])
            assert candidate[0][0].id == i
            assert filler._filled(text, [candidate[0][0]]) == wanted
            assert begins[i] == (ids is words)


def test_masks_where_tokens_hold_a_space_that_no_text_begins_with(tmp_path: Path) -> None:
    """As in RoBERTa: byte-level pieces, and no space is put before a text."""
    byte_level(tmp_path, 300, ["<s>", "</s>", "<unk>", "<mask>"])
    special = {"bos_token": "<s>", "eos_token": "</s>", "mask_token": "<mask>"}
    tokenizer = read_tokenizer(tmp_path, 300, ENCODER, special, usual="BertTokenizer")
    recipe = MaskedLanguageModelRecipe.parse({"task": "masked-language-model"}, "recipe")
    filler = MaskFiller(recipe, tokenizer)
    encode, mask = tokenizer.encode, tokenizer.size
    assert filler.ids("the <mask> of it") == [*encode("the"), mask, *encode(" of it")]
    assert filler.ids("<mask> <mask>, the") == [mask, mask, *encode(", the")]
    assert filler.ids("the <mask>.") == [*encode("the"), mask, *encode(".")]
    shown = tokenizer.tokens(range(tokenizer.size))
    word = next(i for i, token in enumerate(shown) if token[:1] == "▁" and token[1:].isalpha())
    inside = next(i for i, token in enumerate(shown) if i >= 4 and token == "t")
    for token, text, wanted in (
        (word, "the <mask> of", f"the {shown[word][1:]} of"),
        (word, "<mask> of", f"{shown[word][1:]} of"),
        (word, "<mask> <mask>", f"{shown[word][1:]} <mask>"),
        (inside, "the <mask> of", "thet of"),
    ):
        assert filler._filled(text, [TokenCandidate(token, shown[token], 1.0)]) == wanted


def test_symbols_keep_the_text_around_a_mask() -> None:
    recipe = MaskedLanguageModelRecipe.parse({"task": "masked-language-model"}, "recipe")
    filler = MaskFiller(recipe, train_tokenizer(SymbolsConfig(), ["a b c"]))
    (found,) = filler.predict([("a  z <mask> Zz",)])
    assert found.filled in {f"a  z {letter} Zz" for letter in "abc"}
