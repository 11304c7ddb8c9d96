"""Directories with the small tokenizers of each family, saved in the ways that are in use."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tokenizers
import transformers
from tokenizers import AddedToken

from helpers.hugging_face import LETTERS, byte_level, save, sentence_pieces, sentences, write_json

ROWS = 420
"""Rows of every embedding, more than any of the vocabularies has entries."""
ANGLED = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
BRACKETED = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
END = "<|endoftext|>"
NAMES = {
    "bert": dict(zip(("pad", "unk", "cls", "sep", "mask"), BRACKETED, strict=True)),
    "roberta": dict(zip(("cls", "pad", "sep", "unk", "mask"), ANGLED, strict=True)),
    "gpt2": {"bos": END, "eos": END, "unk": END},
    "marian": {"eos": "</s>", "unk": "<unk>", "pad": "<pad>"},
}
SMALL = {
    "hidden_size": 8,
    "num_attention_heads": 1,
    "num_hidden_layers": 1,
    "intermediate_size": 8,
    "max_position_embeddings": 20,
}


def bert_model(directory: Path) -> None:
    save(transformers.BertModel(transformers.BertConfig(vocab_size=ROWS, **SMALL)), directory)


def distilbert_model(directory: Path) -> None:
    config = transformers.DistilBertConfig(
        vocab_size=ROWS, dim=8, n_layers=1, n_heads=1, hidden_dim=8, max_position_embeddings=20
    )
    save(transformers.DistilBertModel(config), directory)


def roberta_model(directory: Path) -> None:
    config = transformers.RobertaConfig(vocab_size=ROWS, pad_token_id=1, **SMALL)
    save(transformers.RobertaModel(config), directory)


def gpt2_model(directory: Path) -> None:
    config = transformers.GPT2Config(
        vocab_size=ROWS, n_embd=8, n_layer=1, n_head=1, n_positions=20, bos_token_id=0
    )
    save(transformers.GPT2LMHeadModel(config), directory)


def marian_model(directory: Path) -> None:
    config = transformers.MarianConfig(
        vocab_size=ROWS,
        d_model=8,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=1,
        decoder_attention_heads=1,
        encoder_ffn_dim=8,
        decoder_ffn_dim=8,
        max_position_embeddings=20,
        pad_token_id=2,
        decoder_start_token_id=2,
        eos_token_id=0,
    )
    save(transformers.MarianMTModel(config), directory)


def word_piece_files(directory: Path) -> int:
    """Capital letters among the pieces, so that lower-casing has an effect."""
    letters = [*LETTERS, *LETTERS.upper(), *"<>|/![]._é"]
    pieces = [*BRACKETED, *letters, *(f"##{letter}" for letter in letters), "the", "The", "中"]
    (directory / "vocab.txt").write_text("\n".join(pieces) + "\n", encoding="utf-8")
    return len(pieces)


def byte_level_files(directory: Path, special: Sequence[str]) -> int:
    byte_level(directory, 300, special)
    made = directory / "tokenizer.json"
    model = json.loads(made.read_text(encoding="utf-8"))["model"]
    made.unlink()
    write_json(directory / "vocab.json", model["vocab"])
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in model["merges"]]
    text = "\n".join(["#version: 0.2", *merges]) + "\n"
    (directory / "merges.txt").write_text(text, encoding="utf-8")
    return len(model["vocab"])


def marian_files(directory: Path) -> int:
    model, pieces = sentence_pieces(sentences(300, 1, "abcdefgh<|>"), 60)
    (directory / "source.spm").write_bytes(model)
    (directory / "target.spm").write_bytes(model)
    special = ("</s>", "<unk>", "<pad>")
    plain = [piece for piece in dict.fromkeys(pieces) if piece not in (*special, "<s>")]
    vocabulary = [*special, ">>xyz<<", *plain]
    write_json(directory / "vocab.json", {piece: i for i, piece in enumerate(vocabulary)})
    return len(vocabulary)


def unigram_file(directory: Path) -> int:
    """The `tokenizer.json` of multilingual sentence encoders, whose model is a BERT."""
    pieces = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁the", -3.0)]
    pieces += [(letter, -9.0) for letter in (*LETTERS, *LETTERS.upper(), "▁")] + [("<mask>", 0.0)]
    library = tokenizers.Tokenizer(tokenizers.models.Unigram(pieces, unk_id=3))
    library.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    library.add_special_tokens(list(ANGLED))
    library.save(str(directory / "tokenizer.json"))
    return len(pieces)


FAMILIES: dict[str, tuple[str, Callable[[Path], None], Callable[[Path], int], str]] = {
    "bert": ("BertTokenizer", bert_model, word_piece_files, "bert"),
    "distilbert": ("DistilBertTokenizer", distilbert_model, word_piece_files, "bert"),
    "roberta": (
        "RobertaTokenizer",
        roberta_model,
        lambda directory: byte_level_files(directory, ANGLED),
        "roberta",
    ),
    "gpt2": (
        "GPT2Tokenizer",
        gpt2_model,
        lambda directory: byte_level_files(directory, [END]),
        "gpt2",
    ),
    "unigram": ("XLMRobertaTokenizer", bert_model, unigram_file, "roberta"),
    "marian": ("MarianTokenizer", marian_model, marian_files, "marian"),
}
"""For each the class of its tokenizer, writers of a model and a tokenizer, and its NAMES."""


def flags(token: AddedToken) -> dict[str, Any]:
    names = ("content", "single_word", "lstrip", "rstrip", "normalized", "special")
    return {name: getattr(token, name) for name in names}


def saved(
    family: str,
    way: str,
    directory: Path,
    added: Sequence[AddedToken],
    further: Sequence[str] = (),
    settings: Mapping[str, Any] | None = None,
) -> Path:
    """A model with its tokenizer, in the way that a version of `transformers` saves it.

    way: `slow` and `slow-older` as the tokenizers in Python did it, without and with the flags of
    added tokens in `tokenizer_config.json`; `fast` as it is done today; `fast-older`, with special
    tokens in a file of their own; `fast-alone`, without the class; `file-alone`, the file of the
    library with nothing beside it.
    further: special tokens of no name.
    """
    directory.mkdir(parents=True)
    kind, write_model, write_tokenizer, names = FAMILIES[family]
    write_model(directory)
    size = write_tokenizer(directory)
    named = {f"{name}_token": token for name, token in NAMES[names].items()}
    config = {"tokenizer_class": kind, **named, **(settings or {})}
    if further:
        config["additional_special_tokens"] = list(further)
    numbered = {size + i: token for i, token in enumerate(added)}
    write_json(
        directory / "added_tokens.json", {str(token.content): i for i, token in numbered.items()}
    )
    objects = {name: flags(AddedToken(token)) for name, token in named.items()}
    if way == "slow-older":
        write_json(directory / "special_tokens_map.json", objects)
    else:
        config["added_tokens_decoder"] = {str(i): flags(token) for i, token in numbered.items()}
    write_json(directory / "tokenizer_config.json", config)
    if way.startswith("slow"):
        return directory
    library = transformers.AutoTokenizer.from_pretrained(directory)
    for file in ("vocab.txt", "vocab.json", "merges.txt", "added_tokens.json"):
        if family != "marian":
            (directory / file).unlink(missing_ok=True)
    (directory / "tokenizer_config.json").unlink()
    library.save_pretrained(directory)
    content = json.loads((directory / "tokenizer_config.json").read_text(encoding="utf-8"))
    if way == "fast-older":
        for name in ("added_tokens_decoder", "extra_special_tokens", *named):
            content.pop(name, None)
        more = {"additional_special_tokens": list(further)}
        write_json(directory / "special_tokens_map.json", objects | more)
        write_json(directory / "tokenizer_config.json", content)
    if way == "fast-alone":
        content["tokenizer_class"] = "PreTrainedTokenizerFast"
        write_json(directory / "tokenizer_config.json", content)
    if way == "file-alone":
        (directory / "tokenizer_config.json").unlink()
    return directory
