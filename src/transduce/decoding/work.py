"""Bounds on the work that options may ask for, so that one request cannot hold a process."""

from __future__ import annotations

from collections.abc import Iterator

from transduce.decoding.options import DecodingOptions
from transduce.errors import SettingError
from transduce.limits import Limit

BEAM_LIMIT = Limit("TRANSDUCE_LIMIT_BEAM", 256, "")
"""Hypotheses side by side: `beam_size`."""
SAMPLES_LIMIT = Limit("TRANSDUCE_LIMIT_SAMPLES", 256, "")
"""Samples of a text: `n_best` and `candidates` where outputs are drawn."""
PHRASES_LIMIT = Limit("TRANSDUCE_LIMIT_PHRASES", 256, "")
"""Phrases of `constraints`, alternatives included, of `avoid` and of `stop_strings`, together."""
PHRASE_LIMIT = Limit("TRANSDUCE_LIMIT_PHRASE", 1000, "characters")
"""Length of each of them."""
OUTPUT_LIMIT = Limit("TRANSDUCE_LIMIT_OUTPUT", 32768, "tokens")
"""Length of an output: `max_tokens`, or what the longest source may become."""


def check_work(options: DecodingOptions, longest_output: int, setting: str) -> None:
    """Raises SettingError for options that ask for more work than the limits allow.

    longest_output: tokens that an output may have, by the named setting.
    """
    for named, count, limit in _asked(options, longest_output, setting):
        if count > (most := limit.most()):
            raise SettingError(
                f"{named}: the most is {most}; lower it, or set {limit.variable} in the environment"
            )


def _asked(
    options: DecodingOptions, longest_output: int, setting: str
) -> Iterator[tuple[str, int, Limit]]:
    """What is limited, as a message names it, how much is asked for, and its limit."""
    if options.method == "beam":
        yield f"beam_size = {options.beam_size}", options.beam_size, BEAM_LIMIT
    else:
        yield f"n_best = {options.n_best}", options.n_best, SAMPLES_LIMIT
        if options.minimum_risk != "none":
            yield f"candidates = {options.candidates}", options.candidates, SAMPLES_LIMIT
    yield f"{setting}: an output of {longest_output} tokens", longest_output, OUTPUT_LIMIT
    prefix = len(options.prefix)
    yield f"prefix of {prefix} characters", prefix, OUTPUT_LIMIT
    phrases = [*options.phrases()]
    yield f"constraints, avoid, stop_strings: {len(phrases)} phrases", len(phrases), PHRASES_LIMIT
    if phrases:
        longest = max(map(len, phrases))
        yield f"a phrase of {longest} characters", longest, PHRASE_LIMIT
