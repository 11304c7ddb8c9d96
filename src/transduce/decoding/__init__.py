"""From a model's steps to hypotheses: beam search, greedy search and sampling in one loop.  Imports
no torch."""

from transduce.decoding.options import DecodingOptions

__all__ = ["DecodingOptions"]
