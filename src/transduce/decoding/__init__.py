"""From a model's steps to hypotheses: beam search, greedy search and sampling in one loop.

Imports no torch, so that the command line can build its options from `options`.
"""

from transduce.decoding.options import DecodingOptions

__all__ = ["DecodingOptions"]
