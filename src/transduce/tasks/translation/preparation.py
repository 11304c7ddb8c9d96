"""Preparation of texts for decoding: checks, tokens, segments, options."""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from transduce.decoding.options import DecodingOptions, check_shortlist
from transduce.decoding.output_constraints import OutputConstraints, constraints_of
from transduce.decoding.token_surfaces import TokenSurfaces
from transduce.decoding.work import check_work
from transduce.errors import RunError, SettingError, TransduceError
from transduce.tasks.per_input import OwnOptions, checked
from transduce.tasks.translation.splitting import Lines, head_of, split_source
from transduce.tasks.translation.translator_config import SourceSegment, TranslatorConfig
from transduce.text import Tokenizer

logger = logging.getLogger("transduce")

SEGMENT_BITS = 40
"""Bit offset of the piece number above the text number in a random stream."""


class Prepared(NamedTuple):
    """A text that is ready to be decoded; a blank one has no pieces."""

    lines: Lines
    options: DecodingOptions
    segments: list[SourceSegment]


class Preparation:
    """Checks options, and cuts texts into the pieces that are decoded."""

    def __init__(
        self,
        source: Tokenizer,
        target: Tokenizer,
        config: TranslatorConfig,
        has_cross_attention: Callable[[], bool],
    ) -> None:
        """has_cross_attention: called where an option needs it."""
        self._has_cross_attention = has_cross_attention
        self._source = source
        self._target = target
        self._config = config
        self._passed: DecodingOptions | None = None

    @functools.cached_property
    def token_surfaces(self) -> TokenSurfaces:
        """Surface forms of the target's tokens."""
        return TokenSurfaces(self._target)

    def check(self, options: DecodingOptions) -> None:
        """Raises SettingError or RunError for options that this model cannot follow."""
        if options != self._passed:
            self._check_search(options)
            self._constraints(options)
            self._passed = options

    def prepare(
        self, texts: Sequence[Lines], options: Sequence[OwnOptions], first: int
    ) -> list[Prepared | TransduceError]:
        """Each text prepared for decoding, or the error in its options.

        options: of each text.  first: number of the first text in a longer input, for messages
        and for the random streams of sampling.
        """
        found: list[Prepared | TransduceError] = []
        rows = iter(self._encoded(texts, first))
        for i, (lines, own) in enumerate(zip(texts, checked(options, self.check), strict=True)):
            ids = [next(rows) for _ in lines.texts]
            if isinstance(own, TransduceError):
                found.append(own)
            else:
                segments = [] if lines.is_blank else self._segments(lines, ids, own, i, first)
                found.append(Prepared(lines, own, segments))
        return found

    def limits(self, sources: Iterable[Sequence[int]], options: DecodingOptions) -> list[int]:
        """Maximum number of output tokens for each source."""
        lengths = [options.max_length_for(len(ids)) for ids in sources]
        most = self._config.max_target_length
        return lengths if most is None else [min(length, most) for length in lengths]

    def source_pieces(self, lines: Lines, rows: Sequence[list[int]]) -> Iterator[list[list[int]]]:
        """For each line of a text its source ids, in the pieces that it is translated in.

        Tags before the first line that is not blank count for all lines without tags of their own.
        """
        tags = self._config.expected_tags
        tagged = tags is not None and tags.used
        head: list[int] | None = None
        for text, ids in zip(lines.texts, rows, strict=True):
            if not text.strip():
                yield []
                continue
            own = head_of(ids, self._source, tagged)
            head = own if head is None else head
            ids = ids if own else [*head, *ids]
            yield list(split_source(ids, self._config.max_source_length, self._source, tagged))

    def _constraints(self, options: DecodingOptions) -> OutputConstraints:
        """Constraints that options put on an output.  Raises SettingError for impossible ones."""
        output_constraints = constraints_of(options, lambda: self.token_surfaces)
        max_target_length = self._config.max_target_length
        if max_target_length is not None and len(output_constraints.prefix) > max_target_length:
            raise SettingError(
                f"prefix: {len(output_constraints.prefix)} tokens exceed "
                f"the {max_target_length} positions of this model; "
                "shorten it"
            )
        return output_constraints

    def _encoded(self, texts: Sequence[Lines], first: int) -> list[list[int]]:
        """Ids of all lines, with warnings about inputs unlike the training data."""
        config = self._config
        if config.expected_tags is not None:
            config.expected_tags.check((lines.with_breaks(lines.texts) for lines in texts), first)
        every = [line for lines in texts for line in lines.texts]
        rows = self._source.encode_batch(every)
        if config.unknown_tokens is not None:
            numbers = [first + i for i, lines in enumerate(texts) for _ in lines.texts]
            config.unknown_tokens.check(every, rows, numbers)
        return rows

    def _segments(
        self,
        lines: Lines,
        rows: Sequence[list[int]],
        options: DecodingOptions,
        text: int,
        first: int,
    ) -> list[SourceSegment]:
        """The pieces of a text, mostly one; prefix and constraints are the first's."""
        output_constraints = self._constraints(options)
        segments: list[SourceSegment] = []
        for line, parts in enumerate(self.source_pieces(lines, rows)):
            if len(parts) > 1 and self._config.warn_of_length:
                self._warn_of_length(len(rows[line]), first + text + 1)
            for ids in parts:
                output_constraints = (
                    OutputConstraints(banned=output_constraints.banned)
                    if segments
                    else output_constraints
                )
                min_length = options.min_length_for(len(ids))
                if min_length != output_constraints.min_length:
                    output_constraints = dataclasses.replace(
                        output_constraints, min_length=min_length
                    )
                stream = first + text + (len(segments) << SEGMENT_BITS)
                segments.append(SourceSegment(text, line, ids, stream, output_constraints))
                self._warn_of_no_room(segments[-1], options, first + text + 1)
        return segments

    def _warn_of_length(self, n_tokens: int, number: int) -> None:
        logger.warning(
            "line %d has %d tokens, more than the %d this model was trained for; "
            "translating it in pieces",
            number,
            n_tokens,
            self._config.max_source_length,
        )

    def _warn_of_no_room(
        self, segment: SourceSegment, options: DecodingOptions, number: int
    ) -> None:
        output_constraints = segment.output_constraints
        room = self.limits([segment.ids], options)[0] if output_constraints.min_tokens else 0
        if output_constraints.min_tokens > room:
            what = "constraints" if options.constraints else "prefix"
            remedy = "raise max_length_extra"
            if room == self._config.max_target_length:
                remedy = f"the model is limited to {room} tokens"
            logger.warning("line %d: no room for the %s; %s", number, what, remedy)

    def _check_search(self, options: DecodingOptions) -> None:
        """Raises SettingError or RunError for options that the search cannot follow."""
        config = self._config
        (max_source_length,) = self.limits([range(config.max_source_length)], options)
        check_work(options, max_source_length, "max_length_ratio, max_length_extra")
        if options.shortlist:
            check_shortlist(options)
        config.auxiliary.check(options)
        if options.shortlist and config.shortlist is None:
            raise RunError("this run has no shortlist; make one with transduce shortlist RUN")
        if options.coverage_penalty and not self._has_cross_attention():
            raise RunError(
                "coverage_penalty needs cross-attention, but this model's decoder has a fixed "
                "context; remove it"
            )
