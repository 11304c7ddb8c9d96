"""Translator: a trained model with its tokenizers."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray

from transduce.decoding.auxiliary_models import NO_AUXILIARY, AuxiliaryModels
from transduce.decoding.hypotheses import Hypothesis
from transduce.decoding.options import DecodingOptions
from transduce.decoding.search import SearchRequest, search_steps
from transduce.decoding.search import search as run_search
from transduce.decoding.shortlist import ShortlistedModel
from transduce.decoding.stable_prefix import stable_prefix
from transduce.decoding.step_model import StepModel
from transduce.errors import SettingError, TransduceError
from transduce.models.encoder_decoder import EncoderDecoder
from transduce.sequence import Padded
from transduce.tasks.per_input import Cancellation, named
from transduce.tasks.prediction import TextStream
from transduce.tasks.translation.cross_attention import attended
from transduce.tasks.translation.preparation import Prepared
from transduce.tasks.translation.scoring import score_pairs
from transduce.tasks.translation.splitting import joined, lines_of
from transduce.tasks.translation.text_translator import TextTranslator
from transduce.tasks.translation.translations import Alignment
from transduce.tasks.translation.translator_config import (
    SourceSegment,
    TranslatorConfig,
    batch_key,
)
from transduce.tasks.unknown_tokens import UnknownTokens
from transduce.text import BOS, EOS, PAD, Tokenizer
from transduce.text.tokenizer import REPLACEMENT


class Translator(TextTranslator):
    """Turns source texts into target texts with a PyTorch model, or with an engine beside it."""

    def __init__(
        self,
        model: EncoderDecoder,
        source: Tokenizer,
        target: Tokenizer,
        config: TranslatorConfig,
    ) -> None:
        self.model = model
        super().__init__(source, target, config)
        self._unknown_targets = UnknownTokens(target)

    def configured(self, config: TranslatorConfig) -> Self:
        """A translator with the same model and tokenizers, configured otherwise."""
        return type(self)(self.model, self.source, self.target, config)

    def has_cross_attention(self) -> bool:
        """True if attention of the target to the source can be read."""
        return any(name.endswith("cross_attention") for name, _ in self.model.named_modules())

    @property
    def device(self) -> torch.device:
        """Device of the model."""
        return next(self.model.parameters()).device

    @property
    def step_model(self) -> StepModel:
        """Model that decodes: in the native engine, or the PyTorch one."""
        native = self.config.native
        return self.model.eval() if native is None else native.model

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
        CancelledError.  Raises SettingError if outputs are chosen by minimum_risk, which shows
        none before it has them all.
        """
        options = options or self.options
        if options.minimum_risk != "none":
            raise SettingError("minimum_risk cannot be streamed; remove it")
        options = dataclasses.replace(options, n_best=1)
        (prepared,) = self.prepared([lines_of(text)], options, number)
        if isinstance(prepared, TransduceError):
            raise named(prepared, f"line {number + 1}")
        return self._parts(prepared, Cancellation(cancelled and (lambda place: cancelled())))

    def with_models(self, auxiliary: AuxiliaryModels) -> Self:
        """Translator that decodes with auxiliary models.

        Raises SettingError for incompatible models.
        """
        self.check_alone()
        auxiliary.check_compatible(self.step_model)
        return self.configured(self.config.with_auxiliary(auxiliary))

    def check_alone(self) -> None:
        """Raises SettingError if it already has auxiliary models."""
        if self.config.auxiliary is not NO_AUXILIARY:
            raise SettingError(
                "this run already has auxiliary models; pass all of them in one call of with_models"
            )

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

    def attention(self, source: str, target: str, layer: int = -1) -> NDArray[np.float32]:
        """Weights (t, s) of the attention in one layer, as in `align`."""
        return self.align(source, target, layer).weights.numpy()

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

    def search(
        self,
        segments: Sequence[SourceSegment],
        options: DecodingOptions,
        cancelled: Callable[[int], bool] | None,
    ) -> list[list[Hypothesis]]:
        """Hypotheses for each of some pieces, decoded together."""
        sources = [segment.ids for segment in segments]
        if (engine := self.config.engine_for(options, segments)) is not None:
            limits = self.preparation.limits(sources, options)
            return engine.search(segments, limits, options, cancelled)
        shortlisted = self.shortlisted(sources, options)
        found = run_search(self.search_request(segments, options, shortlisted, cancelled))
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
        sources = [segment.ids for segment in segments]
        batch = self._batch([[*ids, EOS] for ids in sources])
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
            torch.tensor(self.preparation.limits(sources, options)),
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
                text = self.outputs.line(whole, source).rstrip(REPLACEMENT)
                if len(text) > len(written):
                    yield text[len(written) :]
                    written = text
            before = joined([before, ids], self.target)
        yield self.outputs.line(before, source)[len(written) :]

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
