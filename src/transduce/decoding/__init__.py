"""From a model's steps to hypotheses: beam search, greedy search and sampling in one loop.

Imports nothing that needs torch: the command line makes its options of `options`.
"""

from transduce.decoding.options import DecodingOptions
from transduce.deprecation import forwarded

__all__ = ["DecodingOptions"]

_OLD = {name: name for name in ("Hypothesis", "Snapshot", "search", "search_steps")}
__getattr__ = forwarded(__name__, "transduce.decoding.search", {**_OLD, "State": "SearchState"})
