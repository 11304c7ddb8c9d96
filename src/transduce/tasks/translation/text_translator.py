"""Translation of texts by any search: preparation, batches, answers."""

from __future__ import annotations

import dataclasses
import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from transduce.data.length_batches import in_batches
from transduce.decoding.hypotheses import Hypothesis
from transduce.decoding.options import DecodingOptions
from transduce.decoding.token_surfaces import TokenSurfaces
from transduce.errors import TransduceError
from transduce.tasks.per_input import (
    NEVER,
    Cancellation,
    Cancelled,
    OwnOptions,
    named,
    of_each,
)
from transduce.tasks.translation.outputs import Outputs
from transduce.tasks.translation.preparation import Preparation, Prepared
from transduce.tasks.translation.splitting import Lines, lines_of
from transduce.tasks.translation.translations import Translation
from transduce.tasks.translation.translator_config import (
    Question,
    SourceSegment,
    TranslatorConfig,
    batch_key,
)
from transduce.text import Tokenizer

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class TextTranslator(ABC):
    """Turns source texts into target texts, with the search of a subclass.

    A text of several lines is translated line by line, and keeps its line breaks.
    """

    inputs = ("source",)

    def __init__(self, source: Tokenizer, target: Tokenizer, config: TranslatorConfig) -> None:
        self.source = source
        self.target = target
        self.config = config
        self.preparation = Preparation(source, target, config, self.has_cross_attention)
        self.outputs = Outputs(source, target, config.target_language)

    @abstractmethod
    def has_cross_attention(self) -> bool:
        """True if attention of the target to the source can be read."""

    @abstractmethod
    def search(
        self,
        segments: Sequence[SourceSegment],
        options: DecodingOptions,
        cancelled: Callable[[int], bool] | None,
    ) -> list[list[Hypothesis]]:
        """Hypotheses for each of some pieces, decoded together."""

    @abstractmethod
    def attention(self, source: str, target: str, layer: int = -1) -> NDArray[np.float32]:
        """Weights (t, s) of the attention of each target token, and the end, to the source tokens
        and their end, in one layer; the mean of its heads.  Both are read as one line.

        Raises RunError for a model without cross-attention, SettingError for a missing layer.
        """

    @property
    def options(self) -> DecodingOptions:
        """Default options of a call, from the recipe."""
        return self.config.options

    @property
    def token_surfaces(self) -> TokenSurfaces:
        """Surface forms of the target's tokens."""
        return self.preparation.token_surfaces

    def translate(
        self,
        texts: Sequence[str],
        options: DecodingOptions | Sequence[DecodingOptions] | None = None,
        first: int = 0,
    ) -> list[Translation]:
        """Translate each text, in order; blank texts stay blank.

        options: by default the recipe's; or a list with options for each text.  first: number of
        the first text in a longer input, for messages and for the random streams of sampling.

        Raises SettingError for a prefix or a phrase that the vocabulary cannot spell, and
        RunError for a coverage penalty with a model without cross-attention.
        """
        return self._translated(list(map(lines_of, texts)), options, first)

    def translate_lines(
        self, texts: Sequence[str], options: DecodingOptions | None = None, first: int = 0
    ) -> list[Translation]:
        """Translate texts of one line each; line breaks within are handled as in training."""
        return self._translated([Lines((text,)) for text in texts], options, first)

    def attempt(
        self,
        texts: Sequence[str],
        options: DecodingOptions | Sequence[OwnOptions] | None = None,
        first: int = 0,
        cancelled: Cancelled | None = None,
    ) -> list[Translation | TransduceError]:
        """Translation of each text, or the error in its options, in order.

        cancelled: called between steps with the index of a text, from 0; if true, the text leaves
        its batch and its result is a CancelledError. Other texts are not affected.
        """
        prepared = self.prepared(list(map(lines_of, texts)), options, first)
        cancellation = Cancellation(cancelled)
        fine = [one for one in prepared if isinstance(one, Prepared)]
        found = iter(self._decoded(fine, first, cancellation))
        answers: list[Translation | TransduceError] = []
        for i, one in enumerate(prepared):
            answer = next(found) if isinstance(one, Prepared) else one
            answers.append(cancellation.error(i) or answer)
        return answers

    def predict(
        self,
        inputs: Sequence[tuple[str, ...]],
        options: DecodingOptions | Sequence[DecodingOptions] | None = None,
        first: int = 0,
    ) -> list[Translation]:
        """As `translate`, for inputs of one text each."""
        return self.translate([text for (text,) in inputs], options, first)

    def check(self, options: DecodingOptions) -> None:
        """Raises SettingError or RunError for options that this model cannot follow."""
        self.preparation.check(options)

    def source_pieces(self, text: str) -> list[list[int]]:
        """The source ids of a text, in the pieces that it is translated in."""
        lines = lines_of(text)
        rows = self.source.encode_batch(lines.texts)
        pieces = self.preparation.source_pieces(lines, rows)
        return list(itertools.chain.from_iterable(pieces))

    def prepared(
        self,
        texts: Sequence[Lines],
        options: DecodingOptions | Sequence[OwnOptions] | None,
        first: int,
    ) -> list[Prepared | TransduceError]:
        """Each text prepared for decoding, or the error in its options."""
        each = of_each(options, self.options, len(texts))
        return self.preparation.prepare(texts, each, first)

    def _translated(
        self,
        texts: Sequence[Lines],
        options: DecodingOptions | Sequence[DecodingOptions] | None,
        first: int,
    ) -> list[Translation]:
        """The translations; raises the first error instead, before anything is decoded."""
        fine = []
        for i, one in enumerate(self.prepared(texts, options, first)):
            if isinstance(one, TransduceError):
                raise named(one, f"line {first + i + 1}")
            fine.append(one)
        return self._decoded(fine, first, NEVER)

    def _decoded(
        self, prepared: Sequence[Prepared], first: int, cancellation: Cancellation
    ) -> list[Translation]:
        """The translations of some texts; nothing is meant by the one of a cancelled text."""
        together: dict[DecodingOptions, list[SourceSegment]] = {}
        for one in prepared:
            if one.segments:
                together.setdefault(batch_key(one.options), []).extend(one.segments)
        found: dict[int, list[list[Hypothesis]]] = {}
        for shared, segments in together.items():
            for segment, best in zip(
                segments, self._decode(segments, shared, cancellation), strict=True
            ):
                found.setdefault(segment.text, []).append(best)
                if best and cancellation.error(segment.text) is None:
                    output = f"line {first + segment.text + 1}: the output"
                    segment.output_constraints.warn_unless_met_by(best[0].tokens, output)
        return [
            self.outputs.translation(one, found[one.segments[0].text] if one.segments else [])
            for one in prepared
        ]

    def _decode(
        self,
        segments: Sequence[SourceSegment],
        options: DecodingOptions,
        cancellation: Cancellation,
    ) -> list[list[Hypothesis]]:
        """Hypotheses for each piece, decoded in batches of like lengths; equal pieces once."""
        sampled = options.method == "sample"
        if options.minimum_risk != "none":
            count = options.candidates if sampled else options.beam_size
            options = dataclasses.replace(options, n_best=count)
        questions = [segment.question(sampled) for segment in segments]
        distinct: dict[Question, list[SourceSegment]] = {}
        for question, segment in zip(questions, segments, strict=True):
            distinct.setdefault(question, []).append(segment)
        order = sorted(distinct, key=lambda question: len(question[0]), reverse=True)
        lengths = [len(ids) + 1 for ids, _, _ in order]
        texts = {
            question: [segment.text for segment in equal] for question, equal in distinct.items()
        }
        results: dict[Question, list[Hypothesis]] = {}
        together = 1 if self.config.auxiliary.draft is not None else options.batch_tokens
        for rows in in_batches(range(len(order)), lengths, together):
            asked = [order[i] for i in rows if not all(map(cancellation, texts[order[i]]))]
            if asked:
                hook = cancellation.in_search([texts[question] for question in asked])
                found = self.search([distinct[question][0] for question in asked], options, hook)
                results.update(zip(asked, found, strict=True))
        return [results.get(question, []) for question in questions]
