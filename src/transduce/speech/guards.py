"""Guards against text that nobody said: a doubtful text is judged by what the sound adds to it.

The gain of a token is its log-probability with the recording, less that with faint noise in its
place: near zero for a text that the model would write anyway, nats for one that was said.  An
improbable text, and one in a loop, is drawn again at rising temperatures, as by Whisper (Radford et
al. 2022, section 4.5).
"""

import itertools
import re
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from transduce.decoding.backend import Decoded
from transduce.decoding.hypotheses import Hypothesis
from transduce.decoding.options import DecodingOptions

TEMPERATURES = (0.2, 0.6, 1.0)
COMPRESSED = 2.4
"""Ratio of compression above which a text repeats itself."""
IMPROBABLE = -1.0
"""Mean log-probability of a token below which a text is improbable."""
DOUBTFUL, UNSURE = 0.1, -0.5
"""Probability of no speech above which a text is judged, and mean log-probability below."""
GAIN, SILENT_GAIN = 1.0, 2.0
"""Mean gain in nats below which a text is made up, and what the probability of no speech adds to it
(`benchmarks/speech_guard.py`)."""
DRAWN = 5
"""Outputs drawn at each temperature."""
PERIOD, LOOPS, LOOPED = 12, 12, 24
"""Maximum tokens of a phrase, and minimum number of its occurrences in a row and of all their
tokens, with which an output has ended."""
REPEATED = re.compile(r"(\S.{0,60}? |\S.{1,20}?)\1{4,}")
"""A phrase, or some letters, more than four times in a row."""


class Gains(NamedTuple):
    """Tokens of a text, without times, what the sound adds to the log-probability of each, and of
    the end after them, 0 if the output has not ended, and the probability of no speech."""

    tokens: Sequence[int]
    gains: Sequence[float]
    end: float = 0.0
    no_speech: float = 0.0

    @property
    def total(self) -> float:
        """Sum of the gains, with that of the end."""
        return sum(self.gains) + self.end

    @property
    def are_low(self) -> bool:
        """True for a made-up text."""
        least = GAIN + SILENT_GAIN * self.no_speech
        return len(self.tokens) > 0 and mean_gain(self.tokens, self.gains) < least

    @property
    def n_said(self) -> int:
        """Number of tokens before a loop that the sound does not bear: those of the highest total
        gain, or all if the end after them is as good."""
        totals = [*itertools.accumulate(self.gains)]
        best = max(totals, default=0.0)
        if not totals or (self.end and self.total >= best):
            return len(totals)
        return len(totals) - totals[::-1].index(best)


@dataclass(frozen=True)
class Attempt:
    """An output for a recording, its text, and the temperature at which it was drawn; 0 for a
    search.

    decoded: with this output alone.  gains: of a doubtful text.
    """

    decoded: Decoded
    text: str
    temperature: float = 0.0
    gains: Gains | None = None

    @property
    def sum_log_prob(self) -> float:
        """Log-probability of the output."""
        return self.decoded.hypotheses[0].log_prob

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
    def is_doubtful(self) -> bool:
        """True if the text is to be judged by its gain."""
        no_speech = self.decoded.no_speech or 0.0
        return self.is_repetitive or not self.log_prob >= UNSURE or no_speech > DOUBTFUL

    @property
    def is_made_up(self) -> bool:
        """True if the sound does not bear the text."""
        return self.gains is not None and self.gains.are_low

    @property
    def is_in_loop(self) -> bool:
        """True if the text says something more often than the sound."""
        if self.gains is None or not self.is_repetitive:
            return False
        (output,) = self.decoded.hypotheses
        return not output.finished or self.gains.n_said < len(self.gains.tokens)

    @property
    def is_suspicious(self) -> bool:
        """True if the text is improbable, or in a loop."""
        return self.is_in_loop or not self.log_prob >= IMPROBABLE

    @property
    def rank(self) -> tuple[bool, bool, float]:
        """Rank among attempts: a loop is the worse fault."""
        return not self.is_made_up, not self.is_in_loop, self.log_prob


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


def mean_gain(tokens: Sequence[int], gains: Sequence[float]) -> float:
    """Mean gain of the different tokens of a text, each where it first occurs: what is said again
    can be foretold, and has little."""
    first = dict(reversed([*zip(tokens, gains, strict=True)]))
    return sum(first.values()) / len(first) if first else 0.0


def outputs_of(
    decoded: Decoded, text: Callable[[Hypothesis], str], temperature: float
) -> list[Attempt]:
    """An attempt for each output of a search.

    decoded: hypotheses of a search.  text: gives the text of one.  temperature: of the search.
    """
    return [
        Attempt(decoded._replace(hypotheses=[output]), text(output), temperature)
        for output in decoded.hypotheses
    ]


def best_of(outputs: Sequence[Attempt], judge: Callable[[Attempt], Gains]) -> Attempt:
    """The best output of a search, judged if it is doubtful: the most probable that does not repeat
    itself; if all do, that of the greatest sum of log-probability and gain.

    judge: gains of a text.
    """
    best = max(outputs, key=lambda output: (not output.is_repetitive, output.log_prob))
    if not best.is_doubtful:
        return best
    different = {output.text: output for output in reversed(outputs)}
    rivals = different.values() if best.is_repetitive else [best]
    judged = [(rival, judge(rival)) for rival in rivals]
    best, gains = max(judged, key=lambda pair: pair[0].sum_log_prob + pair[1].total)
    return replace(best, gains=gains)


def guarded(
    n: int,
    options: DecodingOptions,
    attempt: Callable[[Sequence[int], DecodingOptions, float], Sequence[Sequence[Attempt]]],
    judge: Callable[[int, Attempt], Gains],
) -> list[Attempt]:
    """The attempt for each of n recordings that is beyond suspicion, or else the best, with its
    gains if it is doubtful.

    attempt: the outputs for recordings, called with their numbers, options, and the temperature.
    judge: gains of a text for a recording.
    """

    def best_at(
        numbers: Sequence[int], choice: DecodingOptions, temperature: float
    ) -> list[Attempt]:
        tried = zip(numbers, attempt(numbers, choice, temperature), strict=True)
        return [best_of(outputs, lambda text, i=i: judge(i, text)) for i, outputs in tried]  # type: ignore[misc]

    is_search = options.method == "beam"
    all_outputs = replace(options, n_best=options.beam_size) if is_search else options
    best = best_at(range(n), all_outputs, 0.0)
    for temperature in TEMPERATURES if is_search else ():
        again = [i for i in range(n) if best[i].is_suspicious and not best[i].is_made_up]
        if not again:
            break
        drawn = replace(
            options, method="sample", temperature=temperature, n_best=DRAWN, beam_groups=1
        )
        for i, other in zip(again, best_at(again, drawn, temperature), strict=True):
            good = not (other.is_suspicious or other.is_made_up)
            if good or other.rank > best[i].rank:
                best[i] = other
    return best
