"""Language model in use: prompts in, continuations out, also as a stream."""

from __future__ import annotations

import collections
import dataclasses
import functools
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from transduce.data.length_batches import in_batches
from transduce.decoding.hypotheses import Hypothesis
from transduce.decoding.options import DecodingOptions
from transduce.decoding.output_constraints import OutputConstraints, SearchHooks, constraints_of
from transduce.decoding.search import SearchRequest, Snapshot, search_steps
from transduce.decoding.stable_prefix import stable_prefix
from transduce.decoding.step_model import NextTokenModel
from transduce.decoding.token_surfaces import TokenSurfaces
from transduce.decoding.window import WindowedState, windowed_step
from transduce.decoding.work import check_work
from transduce.errors import TransduceError
from transduce.models.decoder_only import DecoderOnly
from transduce.sequence import Padded
from transduce.tasks.language_model.native import NativeContinuations
from transduce.tasks.per_input import (
    NEVER,
    Cancellation,
    Cancelled,
    OwnOptions,
    checked,
    named,
    of_each,
)
from transduce.tasks.task import TextStream
from transduce.tasks.unknown_tokens import UnknownTokens
from transduce.text import BOS, EOS, PAD, Tokenizer
from transduce.text.tokenizer import REPLACEMENT, UNK

logger = logging.getLogger("transduce")


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

    @property
    def text(self) -> str:
        """The continuation in one line: a line break shows as a space."""
        return " ".join(self.continuation.splitlines())

    def fields(self) -> dict[str, Any]:
        """Fields of a JSON record."""
        return {
            "continuation": self.continuation,
            "score": self.score,
            "log_prob": self.log_prob,
            "tokens": self.tokens,
        }


class ContinuationText:
    """Text of the continuations of one prompt."""

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
        places = [place for stop in self.stops if (place := text.find(stop)) >= 0]
        return text[: min(places)] if places else text


class Generator:
    """Continues texts."""

    inputs: tuple[str, ...] = ("prompt",)
    forbidden: tuple[int, ...] = (BOS, PAD, UNK)
    """Ids that are never generated."""
    native: NativeContinuations | None = None
    """Native engine that decodes in place of the PyTorch model."""

    def __init__(
        self, model: DecoderOnly, tokenizer: Tokenizer, options: DecodingOptions, window: int
    ) -> None:
        """window: context in positions; earlier tokens are dropped."""
        self.model = model
        self.tokenizer = tokenizer
        self.unknown = UnknownTokens(tokenizer)
        self.options = options
        self.window = window

    @functools.cached_property
    def token_surfaces(self) -> TokenSurfaces:
        """Surfaces of the tokens."""
        return TokenSurfaces(self.tokenizer)

    @property
    def step_model(self) -> NextTokenModel:
        """Model that decodes: in the native engine, or the PyTorch one."""
        return self.model.eval() if self.native is None else self.native.model

    @property
    def device(self) -> torch.device:
        """Device of the model."""
        return self.model.head.weight.device

    def check(self, options: DecodingOptions) -> None:
        """Raises SettingError for options that this model cannot follow."""
        check_work(options, options.max_tokens, "max_tokens")
        constraints_of(options, lambda: self.token_surfaces)

    def generate(
        self,
        prompts: Sequence[str],
        options: DecodingOptions | Sequence[DecodingOptions] | None = None,
        first: int = 0,
    ) -> list[Continuation]:
        """Continue each prompt, in order, including empty ones.

        options: by default the recipe's; or a list with options for each prompt.  first: number of
        the first prompt in a longer input, for messages and for the random streams of sampling.
        """
        each = checked(of_each(options, self.options, len(prompts)), self.check)
        for i, own in enumerate(each, first + 1):
            if isinstance(own, TransduceError):
                raise named(own, f"{self.inputs[0]} {i}")
        found = self._generated(prompts, each, first, NEVER)
        return [one for one in found if isinstance(one, Continuation)]

    def attempt(
        self,
        prompts: Sequence[str],
        options: DecodingOptions | Sequence[OwnOptions] | None = None,
        first: int = 0,
        cancelled: Cancelled | None = None,
    ) -> list[Continuation | TransduceError]:
        """Continuation of each prompt, or the error in its options, in order.

        cancelled: called between steps with the index of a prompt, from 0; if true, the prompt
        leaves its batch and its result is a CancelledError. Other prompts are not affected.
        """
        each = checked(of_each(options, self.options, len(prompts)), self.check)
        return self._generated(prompts, each, first, Cancellation(cancelled))

    def predict(
        self,
        inputs: Sequence[tuple[str, ...]],
        options: DecodingOptions | Sequence[DecodingOptions] | None = None,
        first: int = 0,
    ) -> list[Continuation]:
        """As `generate`, for inputs of one text each."""
        return self.generate([text for (text,) in inputs], options, first)

    def generate_stream(
        self,
        prompt: str,
        options: DecodingOptions | None = None,
        stream: int = 0,
        cancelled: Callable[[], bool] | None = None,
    ) -> TextStream:
        """Stream the continuation of a prompt, each part as soon as it is final.

        stream: number of the prompt, for the random numbers of sampling: the parts equal the
        continuation by `generate` with `first` = stream. cancelled: called between steps; if true,
        the stream ends with a CancelledError.
        """
        (ids,) = self.read([prompt], [f"the {self.inputs[0]}"])
        return self.stream_continuation(ids, options or self.options, stream, cancelled)

    def read(self, prompts: Sequence[str], names: Sequence[str]) -> list[list[int]]:
        """Encode prompts, with BOS; warns of prompts longer than the context."""
        rows = [[BOS, *ids] for ids in self.tokenizer.encode_batch(list(prompts))]
        for ids, name in zip(rows, names, strict=True):
            self._warn_if_long(ids, name)
        self.unknown.check_named(([text] for text in prompts), rows, names)
        return rows

    def continuation_text(
        self, prompt: Sequence[int], options: DecodingOptions
    ) -> ContinuationText:
        """Text of the continuations of a prompt."""
        return ContinuationText(self.tokenizer, prompt, options.stop_strings)

    def continue_prompts(
        self,
        prompts: Sequence[Sequence[int]],
        options: DecodingOptions,
        streams: Sequence[int],
        cancelled: Cancelled | None = None,
    ) -> list[list[Hypothesis]]:
        """The `n_best` hypotheses that follow each prompt, given as ids with BOS.

        Prompts of any length form a batch, with the same results as alone. streams: their numbers,
        also for messages. cancelled: called with the index of a prompt; if true, it has fewer
        hypotheses, or none.
        """
        cancellation = Cancellation(cancelled)
        output_constraints = constraints_of(options, lambda: self.token_surfaces)
        lengths = [min(len(ids), self.window) + options.max_tokens for ids in prompts]
        order = sorted(range(len(prompts)), key=lengths.__getitem__, reverse=True)
        results: list[list[Hypothesis]] = [[] for _ in prompts]
        for rows in in_batches(order, lengths, options.batch_tokens):
            rows = [i for i in rows if not cancellation(i)]
            if not rows:
                continue
            found = self._found(
                [prompts[i] for i in rows],
                output_constraints,
                options,
                [streams[i] for i in rows],
                cancellation.of_part(rows),
            )
            for i, hypotheses in zip(rows, found, strict=True):
                results[i] = hypotheses
        for i, (number, hypotheses) in enumerate(zip(streams, results, strict=True)):
            if cancellation.error(i) is None:
                self._warn_if_lacking(hypotheses[0].tokens, output_constraints, options, number)
        return results

    def stream_continuation(
        self,
        prompt: Sequence[int],
        options: DecodingOptions,
        stream: int = 0,
        cancelled: Callable[[], bool] | None = None,
    ) -> TextStream:
        """The text that follows a prompt, given as ids with BOS, in parts as they come."""
        options = dataclasses.replace(options, n_best=1)
        self.check(options)
        hook = None if cancelled is None else lambda place: cancelled()
        return self._parts(prompt, options, stream, Cancellation(hook))

    def _parts(
        self,
        prompt: Sequence[int],
        options: DecodingOptions,
        stream: int,
        cancellation: Cancellation,
    ) -> TextStream:
        output_constraints = constraints_of(options, lambda: self.token_surfaces)
        continuation_text = self.continuation_text(prompt, options)
        written = ""
        ids: list[int] = []
        hook = cancellation.of_part([0])
        for snapshot in self._steps([prompt], output_constraints, options, [stream], hook):
            if error := cancellation.error(0):
                raise error
            ids = stable_prefix(snapshot)
            text = continuation_text.stable(ids)
            if len(text) > len(written):
                yield text[len(written) :]
                written = text
        self._warn_if_lacking(ids, output_constraints, options, stream)
        yield continuation_text.exact(ids)[len(written) :]

    def _found(
        self,
        prompts: Sequence[Sequence[int]],
        output_constraints: OutputConstraints,
        options: DecodingOptions,
        streams: Sequence[int],
        cancelled: Callable[[int], bool] | None,
    ) -> list[list[Hypothesis]]:
        """The results of `_steps`, or of the native engine's own search."""
        native = self.native
        if native is not None and native.follows(options, output_constraints):
            return native.search(
                prompts, output_constraints, options, self.forbidden, streams, cancelled
            )
        steps = self._steps(prompts, output_constraints, options, streams, cancelled)
        return collections.deque(steps, maxlen=1).pop().best

    def _steps(
        self,
        prompts: Sequence[Sequence[int]],
        output_constraints: OutputConstraints,
        options: DecodingOptions,
        streams: Sequence[int],
        cancelled: Callable[[int], bool] | None,
    ) -> Iterator[Snapshot]:
        """Search for continuations of some prompts, step by step."""
        wordings = [self.continuation_text(ids, options) for ids in prompts]
        limit = max(options.max_tokens, len(output_constraints.prefix))

        def ended(i: int, ids: list[int]) -> bool:
            return len(ids) >= limit or wordings[i].stopped(ids)

        return search_steps(
            SearchRequest(
                windowed_step,
                WindowedState(self.step_model, self.window),
                Padded.left_padded(prompts, PAD).to(self.device),
                torch.full((len(prompts),), options.max_tokens),
                EOS,
                self.forbidden,
                options,
                streams,
                ended,
                SearchHooks([output_constraints] * len(prompts)),
                cancelled,
            )
        )

    def _generated(
        self,
        prompts: Sequence[str],
        options: Sequence[OwnOptions],
        first: int,
        cancellation: Cancellation,
    ) -> list[Continuation | TransduceError]:
        """Continuations of prompts by their own options, checked; errors keep their positions."""
        ids = self.read(prompts, [f"{self.inputs[0]} {first + i + 1}" for i in range(len(prompts))])
        together: dict[DecodingOptions, list[int]] = {}
        for i, own in enumerate(options):
            if isinstance(own, DecodingOptions):
                together.setdefault(own, []).append(i)
        answers: dict[int, Continuation | TransduceError] = {
            i: own for i, own in enumerate(options) if isinstance(own, TransduceError)
        }
        for own, places in together.items():
            hook = cancellation.of_part(places)
            found = self.continue_prompts(
                [ids[i] for i in places], own, [first + i for i in places], hook
            )
            for i, best in zip(places, found, strict=True):
                gone = cancellation.error(i)
                answers[i] = gone or self._continuation(self.continuation_text(ids[i], own), best)
        return [answers[i] for i in range(len(prompts))]

    def _continuation(
        self, continuation_text: ContinuationText, best: list[Hypothesis]
    ) -> Continuation:
        found = [
            Continuation(
                continuation_text.exact(h.tokens),
                tuple(self.tokenizer.tokens(h.tokens)),
                h.score,
                h.log_prob,
            )
            for h in best
        ]
        return dataclasses.replace(found[0], others=tuple(found[1:]))

    def _warn_if_lacking(
        self,
        ids: Sequence[int],
        output_constraints: OutputConstraints,
        options: DecodingOptions,
        number: int,
    ) -> None:
        output = f"{self.inputs[0]} {number + 1}: the continuation"
        if output_constraints.min_tokens > options.max_tokens:
            output_constraints.warn_unless_met_by(ids, output, "they do not fit; raise max_tokens")
        else:
            output_constraints.warn_unless_met_by(ids, output)

    def _warn_if_long(self, ids: Sequence[int], what: str) -> None:
        if len(ids) > self.window:
            logger.warning(
                "%s has %d tokens, more than the model's context of %d; its beginning is left out",
                what,
                len(ids),
                self.window,
            )
