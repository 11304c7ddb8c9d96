"""Bounds on the work that options may ask for, so that a request cannot hold a process."""

from __future__ import annotations

from transduce.decoding.options import DecodingOptions
from transduce.errors import SettingError
from transduce.support.limits import Limit

BEAM_LIMIT = Limit("TRANSDUCE_LIMIT_BEAM", 256, "")
"""Hypotheses side by side: `beam_size`."""
SAMPLES_LIMIT = Limit("TRANSDUCE_LIMIT_SAMPLES", 256, "")
"""Samples of a text: `n_best` and `candidates` where outputs are drawn."""
PHRASES_LIMIT = Limit("TRANSDUCE_LIMIT_PHRASES", 256, "")
"""Phrases of `constraints`, alternatives included, of `avoid` and of `stop_strings`, together."""
PHRASE_LIMIT = Limit("TRANSDUCE_LIMIT_PHRASE", 1000, "characters")
"""Length of each of them."""
OUTPUT_LIMIT = Limit("TRANSDUCE_LIMIT_OUTPUT", 32768, "tokens")
"""Length of an output: `max_tokens`, or the limit for the longest source."""


def check_work(options: DecodingOptions, longest_output: int, setting: str) -> None:
    """Raises SettingError for work beyond the limits, such as an output of this setting."""
    phrases = options.phrases()
    longest = max(map(len, phrases), default=0)
    if options.method == "beam":
        asked = [(f"beam_size = {options.beam_size}", options.beam_size, BEAM_LIMIT)]
    else:
        asked = [(f"n_best = {options.n_best}", options.n_best, SAMPLES_LIMIT)]
        if options.minimum_risk != "none":
            asked.append((f"candidates = {options.candidates}", options.candidates, SAMPLES_LIMIT))
    asked += [
        (f"{setting}: an output of {longest_output} tokens", longest_output, OUTPUT_LIMIT),
        (f"prefix of {len(options.prefix)} characters", len(options.prefix), OUTPUT_LIMIT),
        (f"constraints, avoid, stop_strings: {len(phrases)} phrases", len(phrases), PHRASES_LIMIT),
        (f"a phrase of {longest} characters", longest, PHRASE_LIMIT),
    ]
    for named, count, limit in asked:
        if count > (most := limit.most()):
            raise SettingError(
                f"{named}: the limit is {most}; lower it, or set the variable {limit.variable}"
            )
