"""Whisper's guards against text that nobody said (Radford et al. 2022, section 4.5).

A text that is improbable, or that repeats itself and so compresses well, is drawn again at rising
temperatures; an improbable one where no speech is probable is dropped.
"""

import re
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from transduce.decoding.backend import Decoded
from transduce.decoding.hypotheses import Hypothesis
from transduce.decoding.options import DecodingOptions

TEMPERATURES = (0.2, 0.6, 1.0)
COMPRESSED = 2.4
"""Ratio of compression above which a text repeats itself."""
IMPROBABLE = -1.0
"""Mean log-probability of a token below which a text is improbable."""
SILENT, UNSURE = 0.4, -0.5
"""Probability of no speech above which a text is dropped, and mean log-probability below; Whisper's
published 0.6 and -1 let noise through, and the worst of 30 recordings of speech had 0.05 and
-0.51."""
DRAWN = 5
"""Outputs drawn at each temperature."""
DOUBTFUL = 0.1
"""Probability of no speech above which a text is dropped if no attempt is beyond suspicion."""
PERIOD, LOOPS, LOOPED = 12, 8, 16
"""Maximum tokens of a phrase, and minimum number of its occurrences in a row and of all their
tokens, with which an output has ended."""
REPEATED = re.compile(r"(\S.{0,60}? |\S.{1,20}?)\1{4,}")
"""A phrase, or some letters, more than four times in a row."""


@dataclass(frozen=True)
class Attempt:
    """An output for a recording, its text, and the temperature at which it was drawn; 0 for a
    search.

    decoded: with this output alone.
    """

    decoded: Decoded
    text: str
    temperature: float = 0.0

    @property
    def log_prob(self) -> float:
        """Mean log-probability of a token, the end included."""
        (output,) = self.decoded.hypotheses
        return output.log_prob / max(1, len(output.tokens) + output.finished)

    @property
    def is_repetitive(self) -> bool:
        """True if the text repeats itself."""
        return compression(self.text) > COMPRESSED or repeats(self.text)

    @property
    def is_silent(self) -> bool:
        """True if the text is made up where nobody speaks."""
        doubt = self.is_repetitive or self.log_prob < UNSURE
        return doubt and (self.decoded.no_speech or 0.0) > SILENT

    @property
    def is_suspicious(self) -> bool:
        """True if the text is improbable, or repeats itself."""
        return self.is_repetitive or not self.log_prob >= IMPROBABLE

    @property
    def rank(self) -> tuple[bool, float]:
        """Rank among attempts: repetition is the worse fault."""
        return not self.is_repetitive, self.log_prob


def compression(text: str) -> float:
    """Ratio of the size of a text to its compressed size."""
    content = text.encode()
    return len(content) / len(zlib.compress(content))


def repeats(text: str) -> bool:
    """True if a phrase occurs more than four times in a row."""
    return REPEATED.search(f"{text} ") is not None


def once(text: str) -> str:
    """The text with such a phrase written once."""
    return REPEATED.sub(r"\1", f"{text} ").rstrip()


def loops(tokens: Sequence[int]) -> bool:
    """True if an output ends with many occurrences of a phrase, and will not leave it."""
    for period in range(1, PERIOD + 1):
        n = max(period * LOOPS, LOOPED)
        if len(tokens) >= n and tokens[-n:-period] == tokens[period - n :]:
            return True
    return False


def best_of(decoded: Decoded, text: Callable[[Hypothesis], str], temperature: float) -> Attempt:
    """The attempt of the highest rank among the outputs of a search.

    decoded: hypotheses of a search.  text: gives the text of one.  temperature: of the search.
    """
    outputs = (
        Attempt(decoded._replace(hypotheses=[output]), text(output), temperature)
        for output in decoded.hypotheses
    )
    return max(outputs, key=lambda attempt: attempt.rank)


def guarded(
    n: int,
    options: DecodingOptions,
    attempt: Callable[[Sequence[int], DecodingOptions, float], Sequence[Attempt]],
) -> list[Attempt | None]:
    """The attempt for each of n recordings that is beyond suspicion, or else the best; None for one
    without speech.

    attempt: called with the numbers of recordings, options, and the temperature.
    """
    is_search = options.method == "beam"
    all_outputs = replace(options, n_best=options.beam_size) if is_search else options
    best = list(attempt(range(n), all_outputs, 0.0))
    for temperature in TEMPERATURES if is_search else ():
        again = [i for i in range(n) if best[i].is_suspicious and not best[i].is_silent]
        if not again:
            break
        drawn = replace(
            options, method="sample", temperature=temperature, n_best=DRAWN, beam_groups=1
        )
        for i, other in zip(again, attempt(again, drawn, temperature), strict=True):
            if not other.is_suspicious or other.rank > best[i].rank:
                best[i] = other
    return [None if is_dropped(final) else final for final in best]


def is_dropped(final: Attempt) -> bool:
    """True for the best attempt at a recording without speech."""
    doubtful = (final.decoded.no_speech or 0.0) > DOUBTFUL
    return final.is_silent or (final.is_suspicious and doubtful)
