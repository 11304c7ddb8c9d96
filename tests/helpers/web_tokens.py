"""Tokenizers of Hugging Face's library, trained on several scripts, and texts for them."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable
from typing import Any

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from helpers.hugging_face import sentence_pieces
from transduce.text import HuggingFaceTokenizer, Numbering
from transduce.text.imported import fields_of

SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]
TEXT = """
the cat sat on a mat and it's John's don't we'll 1234 3.14 naïve café Straße ŒUVRE
İstanbul ΣΑΣ 我是个学生 机器翻译很有用 今天天气很好 繁體中文
東京に行きました カタカナ ｶﾀｶﾅ 한국어 문장
مرحبا بالعالم كيف حالك
هذا نص लिखना हिन्दी में क्षत्रिय
नमस्ते दुनिया
สวัสดีชาวโลก Привет мир ёлка
\u0435\u0301\u0436
Ünïcödé ﬁne ½ ① ㎏ Ａ１ e\u0301a\u0308 😀
\U0001f468\u200d\U0001f469\u200d\U0001f467 🇩🇪 ☃ «цитата» foo_bar <b> </s> & ...
"""
WORDS = TEXT.split()
BLANKS = [" ", "  ", "\t", "\u00a0", "\u3000", "\n", "\u200b", "\u2009", "\r\n", "   "]


def texts(count: int, seed: int = 0, odd: bool = True) -> list[str]:
    """Lines of words of several scripts.  odd: with letters in disorder, and odd blanks."""
    chance = random.Random(seed)
    made = []
    for number in range(count):
        words = chance.choices(WORDS, k=chance.randint(1, 9))
        if odd and number % 3 == 0:
            words = ["".join(chance.sample(word, len(word))) for word in words]
        blanks = [chance.choice(BLANKS) if odd and number % 2 else " " for _ in words]
        text = "".join(part for pair in zip(words, blanks, strict=True) for part in pair)
        made.append(blanks[0] + text if odd and number % 5 == 0 else text.rstrip(" "))
    return made


def charsmap() -> str:
    """The compiled table of SentencePiece's nmt_nfkc, in base64."""
    model, _ = sentence_pieces(texts(200, odd=False), 300)
    rules = dict(field for field in fields_of(model) if field[0] == 3)
    return base64.b64encode(dict(fields_of(rules[3]))[2]).decode()


def trained(model: Any, trainer: Any, **parts: Any) -> tokenizers.Tokenizer:
    made = tokenizers.Tokenizer(model)
    for name, part in parts.items():
        setattr(made, name, part)
    made.train_from_iterator(texts(600, odd=False), trainer)
    return made


def unigram(**parts: Any) -> tokenizers.Tokenizer:
    settings = {"unk_token": "<unk>", "show_progress": False, "special_tokens": SPECIAL}
    trainer = trainers.UnigramTrainer(vocab_size=400, **settings)
    space = pre_tokenizers.Metaspace()
    return trained(
        models.Unigram(),
        trainer,
        **{"pre_tokenizer": space, "decoder": decoders.Metaspace(), **parts},
    )


def bpe(**parts: Any) -> tokenizers.Tokenizer:
    trainer = trainers.BpeTrainer(vocab_size=500, show_progress=False, special_tokens=SPECIAL)
    space = {"pre_tokenizer": pre_tokenizers.Metaspace(), "decoder": decoders.Metaspace()}
    return trained(models.BPE(unk_token="<unk>", fuse_unk=True), trainer, **{**space, **parts})


def byte_level(prefix: bool) -> tokenizers.Tokenizer:
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        show_progress=False,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    level = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    return trained(models.BPE(), trainer, pre_tokenizer=level, decoder=decoders.ByteLevel())


def word_piece(**settings: Any) -> tokenizers.Tokenizer:
    special = [*SPECIAL[:3], "[UNK]"]
    trainer = trainers.WordPieceTrainer(vocab_size=500, show_progress=False, special_tokens=special)
    return trained(
        models.WordPiece(unk_token="[UNK]"),
        trainer,
        normalizer=normalizers.BertNormalizer(**settings),
        pre_tokenizer=pre_tokenizers.BertPreTokenizer(),
        decoder=decoders.WordPiece(),
    )


def of_sentencepiece(make: Callable[..., tokenizers.Tokenizer], *more: Any) -> tokenizers.Tokenizer:
    """With the table of SentencePiece before all, as files of NLLB, T5 and XLM-R have it."""
    made = make()
    table = normalizers.Precompiled(base64.b64decode(charsmap()))
    made.normalizer = normalizers.Sequence([table, *more])
    return made


def nllb() -> tokenizers.Tokenizer:
    return of_sentencepiece(bpe, normalizers.Replace(tokenizers.Regex(" {2,}"), " "))


def t5() -> tokenizers.Tokenizer:
    made = of_sentencepiece(unigram)
    steps = [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]
    made.pre_tokenizer = pre_tokenizers.Sequence(steps)
    made.add_tokens([tokenizers.AddedToken("<extra_id_0>", normalized=False), "Straße ½"])
    return made


FAMILIES: dict[str, Callable[[], tokenizers.Tokenizer]] = {
    "nllb": nllb,
    "nllb-plain": bpe,
    "t5": t5,
    "mbart": lambda: of_sentencepiece(unigram),
    "gpt2": lambda: byte_level(False),
    "roberta": lambda: byte_level(True),
    "bert": lambda: word_piece(lowercase=True),
    "bert-cased": lambda: word_piece(lowercase=False),
}


def tokenizer_of(family: str) -> HuggingFaceTokenizer:
    definition = json.loads(FAMILIES[family]().to_str())
    for token in definition["added_tokens"]:
        token["special"] = token["content"] in (*SPECIAL, "[UNK]")
    entries = len(definition["model"]["vocab"]) + len(definition["added_tokens"])
    return HuggingFaceTokenizer(definition, Numbering(size=entries, bos=0, pad=1, eos=2, unk=3))
