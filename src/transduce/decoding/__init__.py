"""From a model's steps to hypotheses: beam search, greedy search and sampling in one loop.

Imports no torch, so that the command line can build its options from `options`.
"""

from transduce.decoding.options import DecodingOptions
from transduce.deprecation import forwarded

__all__ = ["DecodingOptions"]

_OLD = {name: name for name in ("Hypothesis", "Snapshot", "search", "search_steps")}
__getattr__ = forwarded(__name__, "transduce.decoding.search", {**_OLD, "State": "SearchState"})
