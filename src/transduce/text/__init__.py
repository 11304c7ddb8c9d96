"""Tokenizers, text to token ids and back: subwords, characters, and symbols such as phones."""

from transduce.text.build import (
    AnyTokenizer,
    FileConfig,
    TokenizerConfig,
    load_tokenizer,
    train_tokenizer,
)
from transduce.text.characters import CharactersConfig, CharacterTokenizer
from transduce.text.hugging_face import HuggingFaceTokenizer
from transduce.text.imported import ImportedConfig, Numbering
from transduce.text.marian import MarianTokenizer
from transduce.text.normalizer import Normalizer
from transduce.text.subword import SubwordConfig, SubwordTokenizer
from transduce.text.symbols import SymbolsConfig, SymbolTokenizer
from transduce.text.tokenizer import BOS, EOS, PAD, SPECIAL_TOKENS, UNK, Tokenizer, token_names

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
