"""Tokenizers made elsewhere: the same pieces as there, our ids, our promises."""

from __future__ import annotations

import json
import pickle
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import transformers

from helpers.hugging_face import (
    byte_level,
    change_json,
    sentence_pieces,
    sentences,
    word_piece,
    write_json,
)
from transduce.errors import DataError, RunError, SettingError
from transduce.interop.tokenizers import DECODER, ENCODER, read_tokenizer
from transduce.text import (
    BOS,
    EOS,
    PAD,
    UNK,
    CharactersConfig,
    HuggingFaceTokenizer,
    ImportedConfig,
    MarianTokenizer,
    Numbering,
    load_tokenizer,
    train_tokenizer,
)

WORDPIECE = {
    "unk_token": "[UNK]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "pad_token": "[PAD]",
    "mask_token": "[MASK]",
}
END = "<|endoftext|>"
BERT = "BertTokenizer"
LINES = [
    *sentences(10),
    "",
    "  two  spaces ",
    "Ünïcödé ÀÉ",
    "中文 and more",
    "tab\tand\nline\r\n",
    "don't!",
    "☃ 🎉",
    "x" * 300,
]


def test_pieces_of_sentencepiece_are_listed_once() -> None:
    model, pieces = sentence_pieces(sentences(300), 100)
    numbering = Numbering(size=len(pieces) + 7, unk=0, eos=2)
    own = {piece: i for i, piece in enumerate(pieces)}
    tokenizer, listed = (
        MarianTokenizer(model, p, numbering) for p in (own, {**own, "☃": len(own) + 3})
    )
    assert tokenizer.numbers == own and tokenizer.numbers_itself and not listed.numbers_itself
    assert "pieces" not in json.loads(tokenizer.to_bytes())
    again = MarianTokenizer.from_content(json.loads(tokenizer.to_bytes()))
    for line in LINES:
        ids = again.encode(line)
        assert ids == tokenizer.encode(line) and again.tokens(ids) == tokenizer.tokens(ids)
        assert "☃" in line or ids == listed.encode(line)
        assert again.decode(ids) == listed.decode(ids)
    assert listed.encode("☃")[-1] != UNK == again.encode("☃")[-1]
    assert again.has_piece(pieces[9]) and not again.has_piece("☃") and listed.has_piece("☃")
    assert again.tokens([again.size - 1]) == listed.tokens([UNK])  # a row without a piece
    with pytest.raises(RunError, match="the tokenizer has ids up to"):
        MarianTokenizer(model, None, Numbering(size=9))


def bert(directory: Path, size: int = 200, **settings: Any) -> HuggingFaceTokenizer:
    word_piece(directory, size, **settings)
    return read_tokenizer(directory, size, ENCODER, WORDPIECE, usual=BERT)


def gpt2(directory: Path) -> HuggingFaceTokenizer:
    byte_level(directory, 300, [END])
    change_json(
        directory / "tokenizer_config.json",
        eos_token=END,
        bos_token={"content": END, "__type": "AddedToken"},
    )
    return read_tokenizer(directory, 300, DECODER, {})


def test_pieces_are_renumbered_with_the_special_ones_first() -> None:
    numbering = Numbering(size=8, pad=6, unk=0, bos=3, eos=4, mask=5)
    assert numbering.rows == (6, 0, 3, 4, 1, 2, 7)
    assert numbering.rows_and_mask == (6, 0, 3, 4, 1, 2, 7, 5)
    assert tuple(numbering.of_text) == (UNK, 4, 5, UNK, UNK, UNK, UNK, 6)


def test_missing_and_double_special_tokens() -> None:
    numbering = Numbering(size=3, bos=1, eos=1)
    assert numbering.rows == (-1, -1, 1, 1, 0, 2)
    assert numbering.rows_and_mask[-1] == -1


@pytest.mark.parametrize(
    ("ids", "message"), [({"pad": 9}, "id of pad, 9"), ({"mask": 2}, "of mask")]
)
def test_numbers_that_cannot_be(ids: dict[str, int], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        Numbering(size=5, bos=2, **ids)


@pytest.mark.parametrize("settings", [{}, {"do_lower_case": False}, {"strip_accents": False}])
def test_word_pieces_agree(settings: dict[str, Any], tmp_path: Path) -> None:
    tokenizer = bert(tmp_path, **settings)
    reference = transformers.BertTokenizer.from_pretrained(tmp_path, **settings)
    rows = tokenizer.numbering.rows
    for line, ids in zip(LINES, tokenizer.encode_batch(LINES), strict=True):
        assert ids == tokenizer.encode(line)
        assert [rows[i] for i in ids] == reference(line, add_special_tokens=False)["input_ids"]


def test_byte_level_pieces_agree(tmp_path: Path) -> None:
    tokenizer = gpt2(tmp_path)
    reference = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    for line in LINES:
        ids = tokenizer.encode(line)
        assert [tokenizer.numbering.rows[i] for i in ids] == reference.encode(line).ids
        assert tokenizer.decode(ids) == line  # nothing is lost
    pieces = tokenizer.tokens(tokenizer.encode("the cat ☃"))
    assert "".join(pieces).replace("\ufffd", "") == "the▁cat▁"


def test_merges_make_the_same_tokenizer(tmp_path: Path) -> None:
    whole = gpt2(tmp_path)
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    old = tmp_path / "old"
    old.mkdir()
    model = content["model"]
    (old / "vocab.json").write_text(json.dumps(model["vocab"]))
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in model["merges"]]
    (old / "merges.txt").write_text("\n".join(["#version: 0.2", *merges, ""]))
    again = read_tokenizer(
        old, 300, DECODER, {"eos_token": END, "bos_token": END}, usual="GPT2Tokenizer"
    )
    assert again.encode_batch(LINES) == whole.encode_batch(LINES)


@pytest.mark.parametrize("make", [bert, gpt2])
def test_special_tokens_in_a_text_are_text(make: Any, tmp_path: Path) -> None:
    tokenizer = make(tmp_path)
    for token in ("[MASK]", "[CLS]", "[SEP]", "[PAD]", END, "</s>", "<mask>", "<s>"):
        ids = tokenizer.encode(f"ab {token} cd")
        assert not {PAD, BOS, EOS} & set(ids)
        assert max(ids) < tokenizer.size
        assert len(ids) > 4
        if make is gpt2:
            assert tokenizer.decode(ids) == f"ab {token} cd"
        # Data are encoded by other processes, which get it by pickle.
        assert pickle.loads(pickle.dumps(tokenizer.encode_batch))([f"ab {token} cd"]) == [ids]


def test_special_tokens_that_the_vocabulary_would_find(tmp_path: Path) -> None:
    """A unigram model has them among its pieces; they become UNK, never what they mean."""
    pieces = [("<s>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("<mask>", 0.0), ("a", -1.0)]
    library = tokenizers.Tokenizer(tokenizers.models.Unigram(pieces, unk_id=2))
    library.save(str(tmp_path / "tokenizer.json"))
    customary = {"bos_token": "<s>", "eos_token": "</s>", "mask_token": "<mask>"}
    tokenizer = read_tokenizer(tmp_path, 5, ENCODER, customary)
    assert tokenizer.encode("a</s>a<mask>") == [5, UNK, 5, UNK]


def test_truncation_and_padding_are_off(tmp_path: Path) -> None:
    byte_level(tmp_path, 300, [END])
    library = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    library.enable_truncation(4)
    library.enable_padding(length=10)
    library.save(str(tmp_path / "tokenizer.json"))
    tokenizer = read_tokenizer(tmp_path, 300, DECODER, {"eos_token": END})
    assert tokenizer.decode(tokenizer.encode("a much longer line than that")) == (
        "a much longer line than that"
    )
    assert len(tokenizer.encode("a")) == 1


@pytest.mark.parametrize("make", [bert, gpt2])
def test_a_file_gives_it_back(make: Any, tmp_path: Path) -> None:
    tokenizer = make(tmp_path)
    tokenizer.save(tmp_path / "saved.json")
    again = load_tokenizer(tmp_path / "saved.json")
    assert isinstance(again, HuggingFaceTokenizer)
    assert again.to_bytes() == tokenizer.to_bytes()
    assert again.encode_batch(LINES) == tokenizer.encode_batch(LINES)
    assert again.size == tokenizer.size


@pytest.mark.parametrize("make", [bert, gpt2])
def test_any_ids_can_be_decoded(make: Any, tmp_path: Path) -> None:
    tokenizer = make(tmp_path)
    assert tokenizer.decode([]) == ""
    assert tokenizer.decode([PAD, BOS, EOS]) == ""
    assert tokenizer.decode([UNK]) == "\ufffd"
    outside = [tokenizer.size, 10**9, -1]
    assert tokenizer.decode(outside).replace(" ", "") == "\ufffd" * 3
    assert tokenizer.tokens([PAD, UNK, BOS, EOS, 10**9]) == [
        "<pad>",
        "<unk>",
        "<s>",
        "</s>",
        "<unk>",
    ]
    assert isinstance(tokenizer.decode(range(tokenizer.size)), str)
    assert len(tokenizer.tokens(range(tokenizer.size))) == tokenizer.size


@pytest.mark.parametrize("make", [bert, gpt2])
def test_what_comes_back_is_what_normalize_says(make: Any, tmp_path: Path) -> None:
    tokenizer = make(tmp_path)
    for line in [*LINES, "lone \ud800 surrogate"]:
        assert tokenizer.decode(tokenizer.encode(line)) == tokenizer.normalize(line)


def test_rows_without_a_token_are_unknown(tmp_path: Path) -> None:
    word_piece(tmp_path, 100)
    tokenizer = read_tokenizer(tmp_path, 128, ENCODER, WORDPIECE, usual=BERT)
    assert tokenizer.size == 127  # MASK is not counted
    assert tokenizer.tokens([126]) == ["<unk>"]
    assert tokenizer.decode([126]) == "\ufffd"


def test_damaged_files(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    for content, message in (
        ({"kind": "hugging-face"}, "is missing"),
        ({"kind": "hugging-face", "numbering": {"size": 3}, "tokenizer": {}}, "cannot read it"),
        ({"kind": "marian", "numbering": {"size": 3}, "pieces": {}, "model": "?"}, "not base64"),
        ({"kind": "marian", "numbering": {"size": 3}, "pieces": {}, "model": "AAAA"}, "Sentence"),
    ):
        path.write_text(json.dumps(content))
        with pytest.raises(RunError, match=message) as caught:
            load_tokenizer(path)
        assert str(path) in str(caught.value)
        assert "\n" not in str(caught.value)


def test_a_tokenizer_file_that_the_library_cannot_read(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text('{"model": {"type": "Other"}}')
    with pytest.raises(DataError, match="cannot read it"):
        read_tokenizer(tmp_path, 10, ENCODER, WORDPIECE, usual=BERT)


def test_it_cannot_be_trained() -> None:
    with pytest.raises(SettingError, match=r"fine_tune\.run"):
        train_tokenizer(ImportedConfig(kind="hugging-face"), ["a"])


def test_without_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bert(tmp_path).save(tmp_path / "saved.json")
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(RunError, match="needs the extra 'import'"):
        load_tokenizer(tmp_path / "saved.json")


@pytest.mark.parametrize("marks_between", [1, 2])
def test_marks_between_texts_are_kept(marks_between: Any, tmp_path: Path) -> None:
    made = bert(tmp_path)
    result = HuggingFaceTokenizer(made.definition, made.numbering, marks_between)
    result.save(tmp_path / "kept.json")
    assert load_tokenizer(tmp_path / "kept.json").marks_between == marks_between
    assert made.marks_between == 1
    assert train_tokenizer(CharactersConfig(), ["ab"]).marks_between == 1


def written(directory: Path, **settings: Any) -> Path:
    """A word-piece vocabulary with these settings beside it."""
    word_piece(directory, 100, **settings)
    return directory


@pytest.mark.parametrize(
    "named", ["HerbertTokenizer", "BertJapaneseTokenizer", "XTokenizerFast", ["BertTokenizer"], 3]
)
def test_other_classes_are_refused_by_name(named: Any, tmp_path: Path) -> None:
    written(tmp_path, tokenizer_class=named)
    with pytest.raises(DataError, match="is not supported, only BertTokenizer") as caught:
        read_tokenizer(tmp_path, 100, ENCODER, WORDPIECE, usual=BERT)
    assert repr(named) in str(caught.value) and "tokenizer_config.json" in str(caught.value)


def test_the_class_in_the_model_s_configuration_counts_too(tmp_path: Path) -> None:
    written(tmp_path)
    write_json(tmp_path / "config.json", {"tokenizer_class": "PhobertTokenizer"})
    with pytest.raises(DataError, match=r"config\.json: tokenizer_class = 'PhobertTokenizer'"):
        read_tokenizer(tmp_path, 100, ENCODER, WORDPIECE, usual=BERT)
    change_json(tmp_path / "tokenizer_config.json", tokenizer_class="BertTokenizerFast")
    read_tokenizer(tmp_path, 100, ENCODER, WORDPIECE, usual=BERT)


@pytest.mark.parametrize("name", [BERT, None])
def test_code_and_files_elsewhere_are_left_alone(name: str | None, tmp_path: Path) -> None:
    directory = tmp_path / "model"
    directory.mkdir()
    written(directory, tokenizer_class=name)
    (directory / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nX = object\n")
    (tmp_path / "secret.txt").write_text("[UNK]\n[CLS]\n[SEP]\n[PAD]\n[MASK]\nsecret\n")
    change_json(
        directory / "tokenizer_config.json",
        auto_map={"AutoTokenizer": ["evil.X", "evil.X"]},
        vocab_file=str(tmp_path / "secret.txt"),
        tokenizer_file=str(tmp_path / "secret.json"),
    )
    write_json(directory / "config.json", {"auto_map": {"AutoConfig": "evil.X"}})
    tokenizer = read_tokenizer(directory, 100, ENCODER, WORDPIECE, usual=BERT)
    assert tokenizer.tokens(tokenizer.encode("secret")) != ["secret"]
    assert len(tokenizer.encode("secret")) > 1
    assert not (tmp_path / "ran").exists()


def test_a_vocabulary_of_another_class(tmp_path: Path) -> None:
    byte_level(tmp_path, 300, [END])
    change_json(tmp_path / "tokenizer_config.json", tokenizer_class="BertTokenizer")
    with pytest.raises(DataError, match="the model is BPE, but BertTokenizer needs WordPiece"):
        read_tokenizer(tmp_path, 300, ENCODER, WORDPIECE, usual=BERT)
    change_json(tmp_path / "tokenizer_config.json", tokenizer_class="RobertaTokenizer")
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(
        DataError, match=r"no tokenizer for RobertaTokenizer; expected tokenizer.json, or vocab"
    ):
        read_tokenizer(tmp_path, 300, ENCODER, WORDPIECE, usual=BERT)


@pytest.mark.parametrize("kind", ["PreTrainedTokenizerFast", "GPT2Tokenizer"])
def test_dropout_is_for_training(kind: str, tmp_path: Path) -> None:
    plain = gpt2(tmp_path)
    change_json(tmp_path / "tokenizer_config.json", tokenizer_class=kind)
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    content["model"]["dropout"] = 0.5
    write_json(tmp_path / "tokenizer.json", content)
    tokenizer = read_tokenizer(tmp_path, 300, DECODER, {})
    assert (
        tokenizer.encode_batch(LINES) == plain.encode_batch(LINES) == tokenizer.encode_batch(LINES)
    )
    # A run that was imported before it was known has it in its file.
    again = HuggingFaceTokenizer(content, tokenizer.numbering)
    assert again.encode_batch(LINES) == plain.encode_batch(LINES)


def test_settings_beside_the_file_win(tmp_path: Path) -> None:
    lower = bert(tmp_path, do_lower_case=True)
    write_json(tmp_path / "tokenizer.json", lower.definition)
    for message in (True, False):
        change_json(tmp_path / "tokenizer_config.json", tokenizer_class=BERT, do_lower_case=message)
        tokenizer = read_tokenizer(tmp_path, 200, ENCODER, WORDPIECE, usual=BERT)
        assert (tokenizer.encode("AB") == tokenizer.encode("ab")) is message


@pytest.mark.parametrize(
    "settings",
    [
        {"do_lower_case": None},
        {"strip_accents": "no"},
        {"added_tokens_decoder": ["x"]},
        {"added_tokens_decoder": {"x": {"content": "y"}}},
        {"added_tokens_decoder": {"99": {"content": 3}}},
        {"added_tokens_decoder": {"99": {"content": "y", "lstrip": "yes"}}},
        {"additional_special_tokens": "x"},
        {"additional_special_tokens": [3]},
        {"mask_token": {"lstrip": True}},
        {"fast_tokenizer_files": ["tokenizer.4.0.0.json"]},
    ],
)
def test_settings_that_mean_nothing(settings: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(DataError, match=re.escape(str(tmp_path))) as caught:
        read_tokenizer(written(tmp_path, **settings), 100, ENCODER, WORDPIECE, usual=BERT)
    assert "\n" not in str(caught.value)


def test_added_tokens_beyond_the_model(tmp_path: Path) -> None:
    """Further tokens are refused there; named special ones are text, and need no row."""
    written(tmp_path, pad_token="<new>")
    assert read_tokenizer(tmp_path, 100, ENCODER, WORDPIECE, usual=BERT).numbering.pad is None
    change_json(tmp_path / "tokenizer_config.json", additional_special_tokens=["<|user|>"])
    with pytest.raises(DataError, match=r"has ids up to 10[01], but the model has only 100"):
        read_tokenizer(tmp_path, 100, ENCODER, WORDPIECE, usual=BERT)


def test_an_added_token_gets_the_next_free_id(tmp_path: Path) -> None:
    written(tmp_path, added_tokens_decoder={"110": {"content": "covid", "normalized": True}})
    tokenizer = read_tokenizer(tmp_path, 120, ENCODER, WORDPIECE, usual=BERT)
    reference = transformers.BertTokenizer.from_pretrained(tmp_path)
    assert [tokenizer.numbering.rows[i] for i in tokenizer.encode("covid")] == [100]
    assert reference("covid", add_special_tokens=False)["input_ids"] == [100]


def test_small_letters_before_all_else(tmp_path: Path) -> None:
    """As sentence encoders say it, so that added tokens are looked for in small letters."""
    token = {"content": "xyz", "normalized": False}
    written(tmp_path, do_lower_case=False, added_tokens_decoder={"100": token})
    made = read_tokenizer(tmp_path, 101, ENCODER, WORDPIECE, lower_case=True, usual=BERT)
    made.save(tmp_path / "kept.json")
    for result in (made, load_tokenizer(tmp_path / "kept.json"), pickle.loads(pickle.dumps(made))):
        assert result.encode("A XYZ") == result.encode("a xyz")
        assert len(result.encode("A XYZ")) == 2
    assert made.spans("İ XYZ A")[-2:] == [(2, 5), (6, 7)]


def test_files_of_before_added_tokens_were_known(tmp_path: Path) -> None:
    made = bert(tmp_path)
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    special = [{"id": 4, "content": "[q]", **flags, "special": True}]
    definition = {**made.definition, "added_tokens": special}
    content = {
        "kind": "hugging-face",
        "numbering": {"size": 201, "bos": 1, "eos": 2},
        "tokenizer": definition,
    }
    write_json(tmp_path / "old.json", content)
    tokenizer = load_tokenizer(tmp_path / "old.json")
    assert len(tokenizer.encode("[q]")) == 3
