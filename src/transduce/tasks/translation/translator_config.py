"""Settings and auxiliary models of a translator, fixed when it is made."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from transduce.decoding.auxiliary_models import NO_AUXILIARY, AuxiliaryModels, smallest_limit
from transduce.decoding.hypotheses import Hypothesis
from transduce.decoding.options import DecodingOptions
from transduce.decoding.output_constraints import OutputConstraints
from transduce.decoding.step_model import StepModel
from transduce.tasks.translation.tags import ExpectedTags
from transduce.tasks.unknown_tokens import UnknownTokens

if TYPE_CHECKING:
    from transduce.decoding.shortlist import Shortlist

Question = tuple[tuple[int, ...], OutputConstraints, int]
"""A source's ids, constraints of its output, its random stream."""


class SourceSegment(NamedTuple):
    """A part of a text, decoded in one go.

    text:   number of the text, and line of the line in it.  ids: of the source, without the end.
    stream: number for the random numbers of sampling.  output_constraints: constraints of its
    output.
    """

    text: int
    line: int
    ids: list[int]
    stream: int
    output_constraints: OutputConstraints

    def question(self, sampled: bool) -> Question:
        """Everything that decides its hypotheses; segments with equal ones are decoded once."""
        return tuple(self.ids), self.output_constraints, self.stream if sampled else 0


class NativeSearch(Protocol):
    """The model in the native engine, and its own search for plain options."""

    @property
    def model(self) -> StepModel:
        """The same model as the translator's, for our search."""

    def follows(self, options: DecodingOptions, segments: Sequence[SourceSegment]) -> bool:
        """True if the engine's own search follows these options and constraints."""

    def search(
        self,
        segments: Sequence[SourceSegment],
        limits: Sequence[int],
        options: DecodingOptions,
        cancelled: Callable[[int], bool] | None,
    ) -> list[list[Hypothesis]]:
        """The `n_best` hypotheses of each piece, best first, of at most `limits` tokens.

        cancelled: called between steps with the index of a live piece.
        """


@dataclass(frozen=True)
class TranslatorConfig:
    """Options, limits and auxiliary parts of a translator."""

    options: DecodingOptions
    """Default options of a call."""
    max_source_length: int
    """Maximum source tokens in training; longer texts are split."""
    max_target_length: int | None = None
    """Maximum target tokens, by the decoder's positions; None for no limit."""
    auxiliary: AuxiliaryModels = NO_AUXILIARY
    """Auxiliary models in decoding."""
    target_language: str = ""
    """Language code for the utility of minimum Bayes risk decoding."""
    alignment_head: tuple[int, int | None] = (-1, None)
    """Default layer and head of alignment; None for the mean of all heads."""
    shortlist: Shortlist | None = None
    """Vocabulary shortlist for `options.shortlist`."""
    native: NativeSearch | None = None
    """Native engine that decodes in place of the PyTorch model."""
    expected_tags: ExpectedTags | None = None
    """Warns of texts without the tags of training."""
    unknown_tokens: UnknownTokens | None = None
    """Warns of texts with tokens absent from training."""
    warn_of_length: bool = True
    """Warn of each text that is split."""

    def engine_for(
        self, options: DecodingOptions, segments: Sequence[SourceSegment]
    ) -> NativeSearch | None:
        """The engine that searches with these options; None for our own search."""
        native = self.native
        if native is None or self.auxiliary is not NO_AUXILIARY:
            return None
        return native if native.follows(options, segments) else None

    def with_auxiliary(self, auxiliary: AuxiliaryModels) -> TranslatorConfig:
        """Copy with auxiliary models, within the limits of all models."""
        source = smallest_limit(self.max_source_length, auxiliary.max_source_length)
        target = smallest_limit(self.max_target_length, auxiliary.max_target_length)
        assert source is not None
        return dataclasses.replace(
            self, auxiliary=auxiliary, max_source_length=source, max_target_length=target
        )


def batch_key(options: DecodingOptions) -> DecodingOptions:
    """Options shared by texts that are decoded together."""
    if not (options.prefix or options.constraints or options.avoid):
        return options
    return dataclasses.replace(options, prefix="", constraints=(), avoid=())
