"""Decoding options that the native engine's own search follows, as it reads them."""

from __future__ import annotations

import functools
from collections.abc import Iterable

from transduce.decoding.options import DecodingOptions
from transduce.decoding.output_constraints import OutputConstraints
from transduce.engine.search import SearchRules
from transduce.text import EOS

_PLAIN = {
    name: getattr(DecodingOptions(), name)
    for name in (
        *("method", "beam_groups", "repetition_penalty", "no_repeat_ngram", "coverage_penalty"),
        *("shortlist", "stop_strings"),
    )
}
"""Settings that keep a search to the logits, each with its value."""


def follows(options: DecodingOptions, constraints: Iterable[OutputConstraints]) -> bool:
    """True for options and constraints that need only the logits of a step."""
    return not beyond_logits(options) and not any(
        one.prefix or one.trie or one.banned for one in constraints
    )


def beyond_logits(options: DecodingOptions) -> list[str]:
    """Settings that need more than the logits of each step, by name."""
    return [name for name, plain in _PLAIN.items() if getattr(options, name) != plain]


@functools.lru_cache(maxsize=64)
def search_rules(options: DecodingOptions, forbidden: tuple[int, ...], threads: int) -> SearchRules:
    """The rules of a search with these options.

    forbidden: ids that are never emitted.
    """
    return SearchRules(
        options.beam_size,
        options.n_best,
        options.length_penalty,
        options.alpha,
        options.stop,
        options.free_end,
        EOS,
        forbidden,
        threads,
    )
