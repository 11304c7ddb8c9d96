"""Small encoder-decoders of the families of BART and T5, with tokenizers, as `transformers` saves
them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tokenizers
import torch
import transformers

from helpers.hugging_face import (
    byte_level,
    change_json,
    save,
    sentence_pieces,
    sentences,
    write_json,
)

LANGUAGES = ("eng_Latn", "deu_Latn", "fra_Latn", "zho_Hans", "zho_Hant")
CODES = ("de_DE", "en_XX", "ro_RO")
ANGLED = ("<s>", "<pad>", "</s>", "<unk>")
SMALL = {
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
    "max_position_embeddings": 96,
    "bos_token_id": 0,
    "pad_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
}
LONGEST = 30
ROUNDS = 20
"""Of 30 steps."""


def nllb_tokenizer(directory: Path, fast: bool = True) -> Any:
    trained = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token="<unk>"))
    trained.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=120, show_progress=False, special_tokens=list(ANGLED)
    )
    trained.train_from_iterator(sentences(300), trainer)
    model = json.loads(trained.to_str())["model"]
    merges = [tuple(pair) for pair in model["merges"]]
    made = transformers.NllbTokenizer(
        vocab=model["vocab"], merges=merges, extra_special_tokens=list(LANGUAGES)
    )
    made.save_pretrained(directory)
    return transformers.NllbTokenizer.from_pretrained(directory)


def m2m100_tokenizer(directory: Path) -> Any:
    model, pieces = sentence_pieces(sentences(300), 100)
    (directory / "sentencepiece.bpe.model").write_bytes(model)
    plain = [piece for piece in pieces if piece not in ("<s>", "</s>", "<unk>")]
    write_json(directory / "vocab.json", {p: i for i, p in enumerate([*ANGLED, *plain])})
    write_json(directory / "tokenizer_config.json", {"tokenizer_class": "M2M100Tokenizer"})
    made = transformers.M2M100Tokenizer.from_pretrained(directory)
    made.save_pretrained(directory)
    return made


def mbart_tokenizer(directory: Path, kind: Any = transformers.MBart50Tokenizer) -> Any:
    _, pieces = sentence_pieces(sentences(300), 100)
    scored = [("<unk>", 0.0), ("<s>", 0.0), ("</s>", 0.0)]
    scored += [(piece, -float(i)) for i, piece in enumerate(pieces[3:], 1)]
    if kind is transformers.MBartTokenizer:  # its unknown has the id 3
        scored = [(token, 0.0) for token in ANGLED] + scored[3:]
        scored += [(code, 0.0) for code in CODES]
    kind(vocab=scored).save_pretrained(directory)
    return kind.from_pretrained(directory)


def cc25_tokenizer(directory: Path) -> Any:
    return mbart_tokenizer(directory, transformers.MBartTokenizer)


def legacy_tokenizer(directory: Path) -> Any:
    nllb_tokenizer(directory)
    change_json(directory / "tokenizer_config.json", legacy_behaviour=True)
    return transformers.NllbTokenizer.from_pretrained(directory)


def bart_tokenizer(directory: Path) -> Any:
    byte_level(directory, 320, [*ANGLED, "<mask>"])
    named = {
        "bos": "<s>",
        "eos": "</s>",
        "unk": "<unk>",
        "pad": "<pad>",
        "cls": "<s>",
        "sep": "</s>",
    }
    settings = {f"{name}_token": token for name, token in named.items()}
    write_json(
        directory / "tokenizer_config.json",
        {
            "tokenizer_class": "BartTokenizer",
            **settings,
            "sep_token": "</s>",
            "mask_token": "<mask>",
        },
    )
    return transformers.AutoTokenizer.from_pretrained(directory)


def size_of(tokenizer: Any) -> int:
    extra = 8 if isinstance(tokenizer, transformers.M2M100Tokenizer) else 0
    if isinstance(tokenizer, transformers.M2M100Tokenizer):
        return max(tokenizer.lang_token_to_id.values()) + 1 + extra
    return max(tokenizer.get_vocab().values()) + 2  # a row that no token has


def t5_tokenizer(directory: Path) -> Any:
    _, pieces = sentence_pieces(sentences(300), 100)
    scored = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
    scored += [(piece, -float(i)) for i, piece in enumerate(pieces[3:], 1)]
    transformers.T5Tokenizer(vocab=scored, extra_ids=2).save_pretrained(directory)
    return transformers.T5Tokenizer.from_pretrained(directory)


def byt5_tokenizer(directory: Path) -> Any:
    transformers.ByT5Tokenizer(extra_ids=2).save_pretrained(directory)
    return transformers.ByT5Tokenizer.from_pretrained(directory)


_M2M100 = transformers.M2M100Config, transformers.M2M100ForConditionalGeneration
FAMILIES = {
    "nllb": (nllb_tokenizer, *_M2M100),
    "m2m100": (m2m100_tokenizer, *_M2M100),
    "mbart": (
        mbart_tokenizer,
        transformers.MBartConfig,
        transformers.MBartForConditionalGeneration,
    ),
    "cc25": (
        cc25_tokenizer,
        transformers.MBartConfig,
        transformers.MBartForConditionalGeneration,
    ),
    "nllb-legacy": (legacy_tokenizer, *_M2M100),
    "bart": (bart_tokenizer, transformers.BartConfig, transformers.BartForConditionalGeneration),
    "t5": (t5_tokenizer, transformers.T5Config, transformers.T5ForConditionalGeneration),
    "mt5": (t5_tokenizer, transformers.MT5Config, transformers.MT5ForConditionalGeneration),
    "byt5": (byt5_tokenizer, transformers.T5Config, transformers.T5ForConditionalGeneration),
}
OF_T5 = ("t5", "mt5", "byt5")
SMALL_T5 = {
    "d_model": 16,
    "d_kv": 6,
    "d_ff": 24,
    "num_layers": 2,
    "num_heads": 3,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 14,
    "initializer_factor": 0.2,
    "decoder_start_token_id": 0,
}


def made(family: str, directory: Path, seed: int = 0, **changes: Any) -> tuple[Any, Any]:
    """A model with random weights, and its tokenizer, both saved."""
    directory.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(seed)
    make_tokenizer, config, kind = FAMILIES[family]
    tokenizer = make_tokenizer(directory)
    settings: dict[str, Any] = {**(SMALL_T5 if family in OF_T5 else SMALL), **changes}
    if family == "cc25":
        settings["decoder_start_token_id"] = tokenizer.convert_tokens_to_ids("de_DE")
    model = kind(config(vocab_size=size_of(tokenizer), **settings))
    with torch.no_grad():
        bias = getattr(model, "final_logits_bias", None)
        if bias is not None:
            bias.copy_(torch.randn(bias.shape))
    model.generation_config.update(num_beams=4, max_length=LONGEST, early_stopping=True)
    if family == "bart":
        model.generation_config.update(forced_bos_token_id=0, forced_eos_token_id=2)
    save(model, directory, seed)
    return model, tokenizer


def language_pair(tokenizer: Any) -> tuple[str, str] | None:
    """The library's codes of two languages; None without languages."""
    if isinstance(tokenizer, transformers.NllbTokenizer):
        return "eng_Latn", "zho_Hant"
    if isinstance(tokenizer, transformers.M2M100Tokenizer):
        return "en", "de"
    if isinstance(tokenizer, transformers.MBart50Tokenizer | transformers.MBartTokenizer):
        return "en_XX", "de_DE"
    return None


def taught(
    family: str, directory: Path, learnt: Callable[[Any, Any], bool], **changes: Any
) -> tuple[Any, Any]:
    """A model that has seen a few sentences until a property holds, such as outputs that end."""
    dropout = "dropout_rate" if family in OF_T5 else "dropout"
    model, tokenizer = made(family, directory, d_model=32, **{dropout: 0.0}, **changes)
    pair = language_pair(tokenizer)
    if pair is not None:
        tokenizer.src_lang, tokenizer.tgt_lang = pair
    targets = [line[: 6 + i] for i, line in enumerate(sentences(12, 4))]
    batch = tokenizer(sentences(12, 3), text_target=targets, return_tensors="pt", padding=True)
    pad = tokenizer.pad_token_id
    labels = batch["labels"].masked_fill(batch["labels"] == pad, -100)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(ROUNDS):
        model.train()
        for _ in range(30):
            optimizer.zero_grad()
            model(batch["input_ids"], batch["attention_mask"], labels=labels).loss.backward()
            optimizer.step()
        if learnt(model.eval(), tokenizer):
            model.save_pretrained(directory)
            return model, tokenizer
    raise AssertionError(f"{family} has not learnt it in {30 * ROUNDS} steps")
