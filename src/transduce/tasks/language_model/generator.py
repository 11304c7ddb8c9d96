"""Language model in use: prompts in, continuations out, also as a stream."""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from transduce.decoding.backend import Decoded, Piece
from transduce.decoding.options import DecodingOptions
from transduce.decoding.session import CertainText, Prepared, SequencePredictor
from transduce.models.decoder_only import DecoderOnly
from transduce.tasks.task import OnDevice
from transduce.tasks.vocabularies import UnknownTokens
from transduce.text import BOS, PAD, Tokenizer
from transduce.text.tokenizer import REPLACEMENT, UNK

logger = logging.getLogger("transduce")

FORBIDDEN = (BOS, PAD, UNK)
"""Ids that are never generated."""


@dataclass(frozen=True)
class Continuation:
    """Continuation of a prompt."""

    continuation: str
    """The exact text, with its line breaks."""
    tokens: tuple[str, ...] = field(default=(), repr=False)
    """Tokens as generated, including tokens of a stop string."""
    score: float = 0.0
    """Ranking score of candidates: log-probability after the length penalty."""
    log_prob: float = 0.0
    """Natural logarithm of the probability of the tokens."""
    others: tuple[Continuation, ...] = field(default=(), repr=False)
    """The other candidates, for `n_best` > 1, best first."""
    finished: bool = True
    """False if it has as many tokens as it may have, and no stop string."""

    @property
    def text(self) -> str:
        """The continuation on a single line: a line break shows as a space."""
        return " ".join(self.continuation.splitlines())

    def fields(self) -> dict[str, Any]:
        """Fields of a JSON record; `finished` in that of a continuation that was cut off."""
        fields = {
            "continuation": self.continuation,
            "score": self.score,
            "log_prob": self.log_prob,
            "tokens": self.tokens,
        }
        return fields if self.finished else {**fields, "finished": False}


class ContinuationText:
    """Text of the continuations of a prompt."""

    def __init__(self, tokenizer: Tokenizer, prompt: Sequence[int], stops: Sequence[str]) -> None:
        """prompt: its ids.  stops: strings that end a continuation and are cut off with it."""
        self.tokenizer = tokenizer
        self.prompt = list(prompt)
        self.stops = stops
        self._before = len(tokenizer.decode(prompt))
        # Each token is a byte or more, so that a stop lies within so many; one more since the
        # first of a text may lose its space.
        self._reach = 1 + max((len(stop.encode()) for stop in stops), default=0)

    def exact(self, ids: Sequence[int]) -> str:
        """The text of a whole continuation, up to where it was stopped."""
        return self._cut(self._text(ids))

    def stable(self, ids: Sequence[int]) -> str:
        """Part of a growing continuation that later tokens cannot change.

        Excludes a possibly incomplete character or stop string at the end.
        """
        text = self._text(ids)
        cut = self._cut(text)
        if len(cut) < len(text):
            return cut
        text = text.rstrip(REPLACEMENT)
        for held in range(min(len(text), max(map(len, self.stops), default=0)), 0, -1):
            if any(stop.startswith(text[-held:]) for stop in self.stops):
                return text[:-held]
        return text

    def certain(self, ids: Sequence[int], is_whole: bool) -> str:
        """The text of a whole continuation, or the part that later tokens cannot change."""
        return self.exact(ids) if is_whole else self.stable(ids)

    def stopped(self, ids: list[int]) -> bool:
        """True if the last token of a continuation completed a stop string."""
        if not self.stops:
            return False
        if len(ids) > self._reach:
            text = self.tokenizer.decode(ids[-self._reach :])
        else:
            text = self._text(ids)
        return any(stop in text for stop in self.stops)

    def _text(self, ids: Sequence[int]) -> str:
        # With the prompt, since the first word of a text lacks the space that it has elsewhere.
        return self.tokenizer.decode([*self.prompt, *ids])[self._before :]

    def _cut(self, text: str) -> str:
        places = [position for stop in self.stops if (position := text.find(stop)) >= 0]
        return text[: min(places)] if places else text


@dataclass(eq=False, kw_only=True, repr=False)
class Generator(OnDevice, SequencePredictor[list[int], Continuation]):
    """Continues texts.  An input that has been read is its ids, with BOS.

    window: context in positions; earlier tokens are dropped.  answer_type: class of the answers.
    """

    inputs = ("prompt",)
    input_name = "prompt"
    output_name = "the continuation"
    answer_type: ClassVar[type[Continuation]] = Continuation

    model: DecoderOnly
    tokenizer: Tokenizer
    window: int

    @functools.cached_property
    def unknown(self) -> UnknownTokens:
        """Warns of prompts with tokens absent from training."""
        return UnknownTokens(self.tokenizer)

    @property
    def output_tokenizer(self) -> Tokenizer:
        """Tokenizer of prompts and continuations."""
        return self.tokenizer

    def generate(
        self,
        prompts: Sequence[str],
        options: DecodingOptions | Sequence[DecodingOptions] | None = None,
        first: int = 0,
    ) -> list[Continuation]:
        """Continue each prompt, in order, including empty prompts.

        options: by default the recipe's; or a list with options for each prompt.  first: number of
        the first prompt in a longer input, for messages and for the random streams of sampling.
        """
        return list(self.each(prompts, options, first, self.answer))

    def read(self, inputs: Sequence[str], first: int) -> list[list[int]]:
        """Encode prompts, with BOS; warns of prompts longer than the context."""
        rows = [[BOS, *ids] for ids in self.tokenizer.encode_batch(list(inputs))]
        names = [f"{self.input_name} {first + i + 1}" for i in range(len(rows))]
        for ids, name in zip(rows, names, strict=True):
            self._warn_if_long(ids, name)
        self.unknown.check(([text] for text in inputs), rows, names)
        return rows

    def facts(self) -> dict[str, Any]:
        """Size of the vocabulary."""
        return {"vocabulary": self.tokenizer.size}

    def continuation_text(
        self, prompt: Sequence[int], options: DecodingOptions
    ) -> ContinuationText:
        """Text of the continuations of a prompt."""
        return ContinuationText(self.tokenizer, prompt, options.stop_strings)

    def pieces(
        self, source: list[int], options: DecodingOptions, owner: int, number: int
    ) -> Iterator[Piece]:
        """The piece of a prompt.

        source: ids of the prompt.  options: of decoding.  owner: index in its call.  number: in a
        longer sequence.
        """
        length = min(len(source), self.window) + options.max_tokens
        stopped = self.continuation_text(source, options).stopped if options.stop_strings else None
        constraints = self.constraints(options)
        limit, prompt = options.max_tokens, tuple(source)
        yield Piece(owner, None, length, limit, number, constraints, prompt, stopped)

    def answer(self, prepared: Prepared[list[int]], decoded: Sequence[Decoded]) -> Continuation:
        """The continuation of a prompt, with its other candidates."""
        text = self.continuation_text(prepared.source, prepared.options)
        limit = prepared.options.max_tokens
        candidates = [
            self.answer_type(
                text.exact(h.tokens),
                tuple(self.tokenizer.tokens(h.tokens)),
                h.score,
                h.log_prob,
                finished=len(h.tokens) < limit or text.stopped(h.tokens),
            )
            for h in decoded[0].hypotheses
        ]
        ranked = self.ranked(prepared.options, [c.text for c in candidates], candidates)
        candidates = [dataclasses.replace(candidates[i], score=score) for i, score in ranked]
        return dataclasses.replace(candidates[0], others=tuple(candidates[1:]))

    def certain_text(self, prepared: Prepared[list[int]]) -> CertainText:
        """Writer of the exact text of a continuation, with its line breaks."""
        return self.continuation_text(prepared.source, prepared.options).certain

    def longest_output(self, options: DecodingOptions) -> tuple[int, str]:
        """Maximum tokens of a continuation, and the option that sets it."""
        return options.max_tokens, "max_tokens"

    def _warn_if_long(self, ids: Sequence[int], name: str) -> None:
        if len(ids) > self.window:
            logger.warning(
                "%s has %d tokens, more than the model's context of %d; its beginning is left out",
                name,
                len(ids),
                self.window,
            )
