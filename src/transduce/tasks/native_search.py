"""Decoding options that the native engine's own search follows, as it reads them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from transduce.decoding.options import DecodingOptions
from transduce.decoding.output_constraints import OutputConstraints
from transduce.decoding.random_numbers import uniforms
from transduce.engine.search import Sampling, SearchRules
from transduce.text import EOS

_PLAIN = {
    name: getattr(DecodingOptions(), name)
    for name in (
        "beam_groups",
        "repetition_penalty",
        "no_repeat_ngram",
        "coverage_penalty",
        "shortlist",
        "stop_strings",
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


def search_rules(
    options: DecodingOptions,
    forbidden: tuple[int, ...],
    threads: int,
    streams: Sequence[int],
    limits: Sequence[int],
) -> SearchRules:
    """The rules of a search with these options.

    forbidden: ids that are never emitted.  streams, limits: (n) random streams of the sentences,
    and maximum tokens of each.
    """
    rules = SearchRules(
        options.width,
        options.n_best,
        options.length_penalty,
        options.alpha,
        options.stop,
        options.free_end,
        EOS,
        forbidden,
        threads,
    )
    if options.method != "sample":
        return rules
    numbers = uniforms(options, streams, limits)
    sampling = Sampling(options.temperature, options.top_k, options.top_p, options.min_p, numbers)
    return replace(rules, stop="first", sampling=sampling)  # samples do not compete
