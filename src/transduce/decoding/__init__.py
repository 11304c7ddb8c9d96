"""From a model's steps to hypotheses: beam search, greedy search and sampling, one loop."""

from transduce.decoding.hypotheses import Hypothesis
from transduce.decoding.options import DecodingOptions
from transduce.decoding.search import Snapshot, State, search, search_steps

__all__ = ["DecodingOptions", "Hypothesis", "Snapshot", "State", "search", "search_steps"]
