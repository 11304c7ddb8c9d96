"""From a model's steps to hypotheses: beam search and sampling in the same loop.  Without torch."""

from transduce.decoding.options import DecodingOptions

__all__ = ["DecodingOptions"]
