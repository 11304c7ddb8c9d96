"""Dialects: the APIs of the server.  `dialect` describes how to add a dialect."""

from transduce.serve.dialects.deepl import DeepL
from transduce.serve.dialects.dialect import Dialect
from transduce.serve.dialects.libretranslate import LibreTranslate
from transduce.serve.dialects.native import Native
from transduce.serve.dialects.openai import OpenAI
from transduce.serve.dialects.page import Page

DIALECTS: tuple[type[Dialect], ...] = (
    Native,
    Page,
    OpenAI,
    DeepL,
    LibreTranslate,
)
"""The last dialect answers for paths of no dialect."""
