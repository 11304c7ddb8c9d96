"""Dialects: the APIs of the server.  `dialect` describes how to add a dialect."""

from transduce.serve.dialects.deepl import DIALECT as DEEPL
from transduce.serve.dialects.dialect import Dialect
from transduce.serve.dialects.libretranslate import DIALECT as LIBRETRANSLATE
from transduce.serve.dialects.native import DIALECT as NATIVE
from transduce.serve.dialects.openai import DIALECT as OPENAI
from transduce.serve.dialects.page import DIALECT as PAGE
from transduce.serve.dialects.tei import DIALECT as TEI

DIALECTS: tuple[Dialect, ...] = (NATIVE, PAGE, OPENAI, DEEPL, TEI, LIBRETRANSLATE)
"""The last dialect answers for paths of no dialect."""
