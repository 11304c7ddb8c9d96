"""Translator: a trained model with its tokenizers."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Self

import torch

from transduce.data.batches import in_batches
from transduce.decoding.auxiliary_models import NO_AUXILIARY, AuxiliaryModels
from transduce.decoding.hypotheses import Hypothesis
from transduce.decoding.options import DecodingOptions
from transduce.decoding.search import SearchRequest, search, search_steps
from transduce.decoding.shortlist import ShortlistedModel
from transduce.decoding.stable_prefix import stable_prefix
from transduce.decoding.step_model import StepModel
from transduce.decoding.token_surfaces import TokenSurfaces
from transduce.errors import SettingError, TransduceError
from transduce.models.encoder_decoder import EncoderDecoder
from transduce.sequence import Padded
from transduce.tasks.per_input import (
    NEVER,
    Cancellation,
    Cancelled,
    OwnOptions,
    named,
    of_each,
)
from transduce.tasks.task import TextStream
from transduce.tasks.translation.outputs import Outputs
from transduce.tasks.translation.preparation import Preparation, Prepared
from transduce.tasks.translation.scoring import score_pairs
from transduce.tasks.translation.splitting import Lines, joined, lines_of
from transduce.tasks.translation.translations import Alignment, Translation, attended
from transduce.tasks.translation.translator_config import (
    Question,
    SourceSegment,
    TranslatorConfig,
    batch_key,
)
from transduce.tasks.unknown_tokens import UnknownTokens
from transduce.text import BOS, EOS, PAD, Tokenizer
from transduce.text.tokenizer import REPLACEMENT


class Translator:
    """Turns source texts into target texts.

    A text of several lines is translated line by line, and keeps its line breaks.
    """

    inputs = ("source",)

    def __init__(
        self,
        model: EncoderDecoder,
        source: Tokenizer,
        target: Tokenizer,
        config: TranslatorConfig,
    ) -> None:
        self.model = model
        self.source = source
        self.target = target
        self.config = config
        self._preparation = Preparation(model, source, target, config)
        self._unknown_targets = UnknownTokens(target)
        self._outputs = Outputs(source, target, config.target_language)

    def configured(self, config: TranslatorConfig) -> Self:
        """A translator with the same model and tokenizers, configured otherwise."""
        return type(self)(self.model, self.source, self.target, config)

    @property
    def options(self) -> DecodingOptions:
        """Default options of a call, from the recipe."""
        return self.config.options

    @property
    def device(self) -> torch.device:
        """Device of the model."""
        return next(self.model.parameters()).device

    @property
    def token_surfaces(self) -> TokenSurfaces:
        """Surface forms of the target's tokens."""
        return self._preparation.token_surfaces

    @property
    def step_model(self) -> StepModel:
        """Model that decodes: in the native engine, or the PyTorch one."""
        native = self.config.native
        return self.model.eval() if native is None else native.model

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
        prepared = self._prepared(list(map(lines_of, texts)), options, first)
        cancellation = Cancellation(cancelled)
        fine = [one for one in prepared if isinstance(one, Prepared)]
        found = iter(self._decoded(fine, first, cancellation))
        answers: list[Translation | TransduceError] = []
        for i, one in enumerate(prepared):
            answer = next(found) if isinstance(one, Prepared) else one
            answers.append(cancellation.error(i) or answer)
        return answers

    def stream(
        self,
        text: str,
        options: DecodingOptions | None = None,
        number: int = 0,
        cancelled: Callable[[], bool] | None = None,
    ) -> TextStream:
        """The translation of a text in parts, each as soon as nothing can change it any more.

        number: of the text in a longer input, for the random streams of sampling.  Closing the
        generator ends the search; so does `cancelled`, called between steps, with a
        CancelledError.  Raises SettingError where outputs are chosen by minimum_risk, which shows
        none before it has them all.
        """
        options = options or self.options
        if options.minimum_risk != "none":
            raise SettingError("minimum_risk cannot be streamed; remove it")
        if self.config.engine is not None:
            raise SettingError("streaming needs the built-in search; remove --engine")
        options = dataclasses.replace(options, n_best=1)
        (prepared,) = self._prepared([lines_of(text)], options, number)
        if isinstance(prepared, TransduceError):
            raise named(prepared, f"line {number + 1}")
        return self._parts(prepared, Cancellation(cancelled and (lambda place: cancelled())))

    def with_models(self, auxiliary: AuxiliaryModels) -> Self:
        """Translator that decodes with auxiliary models.

        Raises SettingError for incompatible models.
        """
        self.check_alone()
        auxiliary.check_compatible(self.step_model)
        self.check_own_search()
        return self.configured(self.config.with_auxiliary(auxiliary))

    def check_alone(self) -> None:
        """Raises SettingError where it already has auxiliary models."""
        if self.config.auxiliary is not NO_AUXILIARY:
            raise SettingError(
                "this run already has auxiliary models; pass all of them in one call of with_models"
            )

    def check_own_search(self) -> None:
        """Raises SettingError where the search is another library's, which follows one model."""
        if self.config.engine is not None:
            raise SettingError(
                "an ensemble, language model or draft needs the built-in search; remove --engine"
            )

    def predict(
        self,
        inputs: Sequence[tuple[str, ...]],
        options: DecodingOptions | Sequence[DecodingOptions] | None = None,
        first: int = 0,
    ) -> list[Translation]:
        """As `translate`, for inputs of one text each."""
        return self.translate([text for (text,) in inputs], options, first)

    def score(self, pairs: Iterable[tuple[str, str]]) -> Iterator[float]:
        """Natural log-probability of each target text, end included, given its source.

        Pairs beyond `scoring.max_scored_length` tokens get nan and a warning.
        """
        return score_pairs(self.model, self.source, self.target, pairs, self.check_pairs)

    def align(self, source: str, target: str | None = None, layer: int = -1) -> Alignment:
        """Attention of each target token, and the end, to the source tokens in one layer.

        Both are read as one line.  target: by default the model's own translation.  Raises RunError
        for a model without cross-attention, SettingError for a missing layer.
        """
        if target is None:
            target = self.translate_lines([source])[0].text
        source_ids = [*self.source.encode(source), EOS]
        target_ids = [BOS, *self.target.encode(target)]
        self.check_pairs([(source, target)], [source_ids], [target_ids], 0)
        batches = self._batch([source_ids]), self._batch([target_ids])
        (weights,) = attended(self.model, *batches, layer)
        return Alignment(
            (*self.source.tokens(source_ids[:-1]), "</s>"),
            (*self.target.tokens(target_ids[1:]), "</s>"),
            weights.float().cpu(),
        )

    def check(self, options: DecodingOptions) -> None:
        """Raises SettingError or RunError for options that this model cannot follow."""
        self._preparation.check(options)

    def source_pieces(self, text: str) -> list[list[int]]:
        """The source ids of a text, in the pieces that it is translated in."""
        lines = lines_of(text)
        rows = self.source.encode_batch(lines.texts)
        pieces = self._preparation.source_pieces(lines, rows)
        return list(itertools.chain.from_iterable(pieces))

    def check_pairs(
        self,
        pairs: Sequence[tuple[str, str]],
        sources: Sequence[Sequence[int]],
        targets: Sequence[Sequence[int]],
        first: int,
    ) -> None:
        """Warn of the first pair with tokens that are unknown on a side, given the ids of both."""
        sides = (self.config.unknown_tokens, sources), (self._unknown_targets, targets)
        for side, (unknown, rows) in enumerate(sides):
            if unknown is not None:
                names = (f"pair {number}" for number in itertools.count(first + 1))
                unknown.check_named(([pair[side]] for pair in pairs), rows, names)

    def _prepared(
        self,
        texts: Sequence[Lines],
        options: DecodingOptions | Sequence[OwnOptions] | None,
        first: int,
    ) -> list[Prepared | TransduceError]:
        each = of_each(options, self.options, len(texts))
        return self._preparation.prepare(texts, each, first)

    def _translated(
        self,
        texts: Sequence[Lines],
        options: DecodingOptions | Sequence[DecodingOptions] | None,
        first: int,
    ) -> list[Translation]:
        """The translations; raises the first error instead, before anything is decoded."""
        fine = []
        for i, one in enumerate(self._prepared(texts, options, first)):
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
            self._outputs.translation(one, found[one.segments[0].text] if one.segments else [])
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
                found = self._search([distinct[question][0] for question in asked], options, hook)
                results.update(zip(asked, found, strict=True))
        return [results.get(question, []) for question in questions]

    def _search(
        self,
        segments: Sequence[SourceSegment],
        options: DecodingOptions,
        cancelled: Callable[[int], bool] | None,
    ) -> list[list[Hypothesis]]:
        """Hypotheses for each of some pieces, decoded together."""
        sources = [segment.ids for segment in segments]
        if (engine := self.config.engine_for(options, segments)) is not None:
            limits = self._preparation.limits(sources, options).tolist()
            return engine.search(segments, limits, options, cancelled)
        shortlisted = self.shortlisted(sources, options)
        found = search(self.search_request(segments, options, shortlisted, cancelled))
        return found if shortlisted is None else shortlisted.widened(found)

    def search_request(
        self,
        segments: Sequence[SourceSegment],
        options: DecodingOptions,
        shortlisted: ShortlistedModel | None,
        cancelled: Callable[[int], bool] | None = None,
    ) -> SearchRequest[Any]:
        """The search for the translations of some pieces, ready to run."""
        self.model.eval()
        config = self.config
        batch = self._batch([[*segment.ids, EOS] for segment in segments])
        sentence_constraints = [segment.output_constraints for segment in segments]
        scorer, hooks = config.auxiliary.scorer(
            self.step_model, config.max_target_length, EOS, options, sentence_constraints
        )
        if shortlisted is not None:
            scorer = shortlisted
        with torch.inference_mode():
            state = scorer.start(batch)
        return SearchRequest(
            scorer.step,
            state,
            Padded.unpadded(torch.full((len(segments), 1), BOS, device=self.device)),
            self._preparation.limits([segment.ids for segment in segments], options),
            EOS,
            (BOS, PAD),
            options,
            [segment.stream for segment in segments],
            hooks=hooks,
            cancelled=cancelled,
        )

    def _parts(self, prepared: Prepared, cancellation: Cancellation) -> TextStream:
        lines = prepared.lines
        for number, (source, end) in enumerate(zip(lines.texts, (*lines.breaks, ""), strict=True)):
            segments = [segment for segment in prepared.segments if segment.line == number]
            yield from self._parts_of_line(
                source, segments, batch_key(prepared.options), cancellation
            )
            if end:
                yield end

    def _parts_of_line(
        self,
        source: str,
        segments: Sequence[SourceSegment],
        options: DecodingOptions,
        cancellation: Cancellation,
    ) -> TextStream:
        written = ""
        before: list[int] = []
        for segment in segments:
            ids: list[int] = []
            shortlisted = self.shortlisted([segment.ids], options)
            hook = cancellation.of_part([segment.text])
            request = self.search_request([segment], options, shortlisted, hook)
            for snapshot in search_steps(request):
                if error := cancellation.error(segment.text):
                    raise error
                ids = stable_prefix(snapshot)
                if shortlisted is not None:
                    ids = shortlisted.ids[ids].tolist()
                whole = joined([before, ids], self.target)
                text = self._outputs.line(whole, source).rstrip(REPLACEMENT)
                if len(text) > len(written):
                    yield text[len(written) :]
                    written = text
            before = joined([before, ids], self.target)
        yield self._outputs.line(before, source)[len(written) :]

    def shortlisted(
        self, sources: list[list[int]], options: DecodingOptions
    ) -> ShortlistedModel | None:
        """Model restricted to the shortlists of some sources, if the options request it."""
        if not options.shortlist:
            return None
        assert self.config.shortlist is not None, "checked"
        return self.config.shortlist.restrict(self.step_model, sources)

    def _batch(self, rows: Sequence[Sequence[int]]) -> Padded:
        return Padded.from_rows(rows, PAD).to(self.device)
