"""Tokenizers, text to token ids and back: subwords, characters, and symbols such as phones."""

from transduce.text.build import (
    AnyTokenizer,
    FileConfig,
    TokenizerConfig,
    load_tokenizer,
    train_tokenizer,
)
from transduce.text.hugging_face import HuggingFaceTokenizer
from transduce.text.imported import ImportedConfig, MarianTokenizer, Numbering
from transduce.text.subword import SubwordConfig, SubwordTokenizer
from transduce.text.tokenizer import (
    BOS,
    EOS,
    PAD,
    SPECIAL_TOKENS,
    UNK,
    CharactersConfig,
    CharacterTokenizer,
    Normalizer,
    SymbolsConfig,
    SymbolTokenizer,
    Tokenizer,
    token_names,
)

__all__ = [
    "BOS",
    "EOS",
    "PAD",
    "SPECIAL_TOKENS",
    "UNK",
    "AnyTokenizer",
    "CharacterTokenizer",
    "CharactersConfig",
    "FileConfig",
    "HuggingFaceTokenizer",
    "ImportedConfig",
    "MarianTokenizer",
    "Normalizer",
    "Numbering",
    "SubwordConfig",
    "SubwordTokenizer",
    "SymbolTokenizer",
    "SymbolsConfig",
    "Tokenizer",
    "TokenizerConfig",
    "load_tokenizer",
    "token_names",
    "train_tokenizer",
]
