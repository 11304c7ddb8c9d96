"""What is asked of the output of one sentence, beyond what the options say of all alike."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from transduce.decoding.avoided import Avoided
from transduce.decoding.filters import Filter, apply_all
from transduce.decoding.hypotheses import DEAD, Live
from transduce.decoding.lexicon import Lexicon, last_is_letter
from transduce.decoding.options import DecodingOptions
from transduce.decoding.phrases import Phrase, Phrases, Progress
from transduce.errors import SettingError

logger = logging.getLogger("transduce")


@dataclass(frozen=True)
class Demand:
    """What the output of one sentence must be like.

    prefix:     ids that it starts with; they go before every other rule.
    phrases:    what it must hold, where its length allows that.
    avoided:    what it must not hold.
    min_length: tokens before its end may come.
    """

    prefix: tuple[int, ...] = ()
    phrases: Phrases | None = None
    avoided: Avoided | None = None
    min_length: int = 0

    @property
    def least(self) -> int:
        """Tokens that suffice to meet it."""
        needed = 0 if self.phrases is None else self.phrases.needed(Progress())
        return len(self.prefix) + needed

    def warn_unless_met_by(
        self, tokens: Sequence[int], output: str, reason: str = "is something else in its way?"
    ) -> None:
        """Log that an output, by the words that name it, lacks a phrase."""
        if not self.is_met_by(tokens):
            logger.warning("%s lacks a constraint; %s", output, reason)

    def is_met_by(self, tokens: Sequence[int]) -> bool:
        """Whether an output holds all phrases."""
        if self.phrases is None:
            return True
        progress = Progress()
        for token in tokens:
            progress = self.phrases.next(progress, token)
        return self.phrases.is_done(progress)


@dataclass(frozen=True)
class Wishes:
    """What a caller of `search` adds to it.

    demands:     (n) of each sentence; none if empty.
    token_bonus: of a state that has just stepped, (r, v): what the next token adds to the
                 log-probability that hypotheses are ranked by.  At most 0.
    end_bonus:   the same for the end of sentence, (r,): what it adds to the score.  At most 0.
    """

    demands: Sequence[Demand] = ()
    token_bonus: Callable[[Any], Tensor] | None = None
    end_bonus: Callable[[Any], Tensor] | None = None


NO_WISHES = Wishes()


def demand_of(options: DecodingOptions, lexicon: Callable[[], Lexicon]) -> Demand:
    """What options ask of every sentence; the lexicon is only called for where it is needed.

    Raises SettingError for phrases that the vocabulary cannot spell, or that hold what is avoided.
    """
    if not (options.prefix or options.constraints or options.avoid):
        return Demand()
    return _demand(options.prefix, options.constraints, options.avoid, lexicon())


@functools.lru_cache(maxsize=64)  # lines in a row often ask for the same
def _demand(
    prefix: str,
    constraints: tuple[str | tuple[str, ...], ...],
    avoided: tuple[str, ...],
    lexicon: Lexicon,
) -> Demand:
    ruled_out = Avoided(avoided, lexicon) if avoided else None
    phrases = None
    if constraints:
        alternatives = dict.fromkeys((c,) if isinstance(c, str) else c for c in constraints)
        wanted = [_sayable(texts, ruled_out, lexicon) for texts in alternatives]
        phrases = Phrases(wanted, lexicon.continues)
    return Demand(lexicon.prefix(prefix), phrases, ruled_out)


def _sayable(texts: Sequence[str], avoided: Avoided | None, lexicon: Lexicon) -> list[Phrase]:
    """Of alternative phrases those that hold nothing to be avoided."""
    every = [_phrase(text, lexicon) for text in texts]
    kept = [phrase for phrase in every if avoided is None or not avoided.is_in(phrase.ids)]
    if not kept:
        named = " or ".join(map(repr, texts))
        raise SettingError(f"constraints: {named} cannot be said, as avoid rules it out")
    return kept


def _phrase(text: str, lexicon: Lexicon) -> Phrase:
    ids = lexicon.phrase(text)
    return Phrase(ids, last_is_letter(lexicon.text_of(ids)))


def avoid(demands: Sequence[Demand]) -> Filter:
    """No token that completes what its sentence must not hold."""

    def apply(log_probs: Tensor, live: Live) -> None:
        rows: list[int] = []
        columns: list[int] = []
        for i, sentence in enumerate(live.sentences):
            avoided = demands[sentence].avoided
            if avoided is None:
                continue
            for j, ids in enumerate(live.tokens[i].tolist()):
                found = avoided.after(ids)
                rows += [i * live.width + j] * len(found)
                columns += found
        if rows:
            where = torch.tensor([rows, columns], device=log_probs.device)
            log_probs.view(-1, log_probs.shape[2])[where[0], where[1]] = DEAD

    return apply


def begin(demands: Sequence[Demand], filters: Sequence[Filter]) -> Filter:
    """The prefix of each sentence, then the filters; as long as it lasts they do not count."""
    longest = max(len(demand.prefix) for demand in demands)

    def apply(log_probs: Tensor, live: Live) -> None:
        forced = []
        if live.length < longest:
            prefixes = [demands[sentence].prefix for sentence in live.sentences]
            forced = [(i, p[live.length]) for i, p in enumerate(prefixes) if live.length < len(p)]
        if not forced:
            return apply_all(filters, log_probs, live)
        rows, tokens = torch.tensor(forced, device=log_probs.device).unbind(1)
        own = log_probs[rows, :, tokens]  # (forced, w)
        apply_all(filters, log_probs, live)
        log_probs[rows] = DEAD
        log_probs[rows, :, tokens] = own
        return None

    return apply
