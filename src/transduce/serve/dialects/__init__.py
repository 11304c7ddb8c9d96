"""Dialects: the APIs that the server speaks.  See `dialect` for how to add one."""

from transduce.serve.dialects.dialect import Dialect
from transduce.serve.dialects.libretranslate import DIALECT as LIBRETRANSLATE
from transduce.serve.dialects.native import DIALECT as NATIVE

DIALECTS: tuple[Dialect, ...] = (NATIVE, LIBRETRANSLATE)
"""The last one answers for paths of no dialect."""
