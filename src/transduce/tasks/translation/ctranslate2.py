"""CTranslate2 as the search engine of a translator; lines and batches stay ours.

Its search equals the built-in one with `stop = "first"`, except for details corrected here:

    ranking   scores are divided only by powers of the length: the beam is ranked again
    limits    one per batch: a beam that reaches a lower limit of its sentence is repeated
    the end   outputs are cut at the limit: the end is added, with its model score
    scores    prefixes and banned tokens are not scored: these outputs are scored again

Other differences are refused by `check`.
"""

from __future__ import annotations

import dataclasses
import logging
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from transduce.data.length_batches import in_batches
from transduce.decoding.auxiliary_models import smallest_limit
from transduce.decoding.hypotheses import Hypothesis, length_penalty
from transduce.decoding.options import DecodingOptions
from transduce.errors import RunError, SettingError, TransduceError
from transduce.interop.ctranslate2 import check_expressible, library, write_ctranslate2
from transduce.nn.kernels.linear import Precision
from transduce.tasks.translation.scoring import SCORED_TOKENS
from transduce.tasks.translation.task import TrainedTranslator
from transduce.tasks.translation.translator_config import SourceSegment
from transduce.text.tokenizer import BOS, EOS, PAD, SPECIAL_TOKENS

logger = logging.getLogger("transduce")

NEVER = {PAD, BOS}
"""Ids that no output may hold."""
POSITIONS = 1024
MAX_POSITIONS = 1 << 14
"""Positions that are written at least, and at most for outputs, where a model has no limit of its
own."""
ALMOST_NONE = 1e-9
"""An exponent that changes no score, yet CTranslate2 takes it for a penalty and goes on searching
until a whole beam has finished."""
IMPOSSIBLE = -1e9
"""Below this are rows of a beam that CTranslate2 has ruled out."""


@dataclass
class EngineHypothesis:
    """Hypothesis with a possibly unknown score.

    tokens:   ids without the end.  log_prob: None if CTranslate2's differs from the model's.
    cut:      ended by the limit, possibly without an end of sentence.
    """

    tokens: list[int]
    log_prob: float | None
    cut: bool


@dataclass(frozen=True)
class EngineRequest:
    """Search request.

    min_tokens: tokens before an end may come.  strict: `NEVER` tokens are banned.
    """

    options: DecodingOptions
    min_tokens: int
    strict: bool

    @property
    def is_exact(self) -> bool:
        """True if scores are the model's; banned tokens would be redistributed over the rest."""
        return not (self.min_tokens or self.strict or self.options.no_repeat_ngram)


class CTranslate2Engine:
    """Searches for the best outputs in place of `decoding.search`."""

    def __init__(self, model: Any, names: tuple[list[str], list[str]]) -> None:
        """model: a `ctranslate2.Translator`.  names: of source and target ids there."""
        self._model = model
        self._source, self._target = names
        self._ids = {name: i for i, name in enumerate(self._target)}

    def check(self, options: DecodingOptions) -> None:
        """Raises SettingError that names all options which CTranslate2 cannot follow."""
        if refused := ", ".join(_refused(options)):
            raise SettingError(f"engine 'ctranslate2' does not support {refused}; remove --engine")

    def search(
        self,
        segments: Sequence[SourceSegment],
        limits: Sequence[int],
        options: DecodingOptions,
        cancelled: Callable[[int], bool] | None,
    ) -> list[list[Hypothesis]]:
        """The `n_best` hypotheses of each piece, best first, of at most `limits` tokens.

        Nothing is cancelled: the library shows no steps.
        """
        limits = [
            max(at, len(p.output_constraints.prefix))
            for p, at in zip(segments, limits, strict=True)
        ]
        found: list[list[Hypothesis]] = [[] for _ in segments]
        groups: dict[int, list[int]] = {}
        for i, segment in enumerate(segments):
            groups.setdefault(segment.output_constraints.min_length, []).append(i)
        for rows in groups.values():
            chosen = [segments[i] for i in rows], [limits[i] for i in rows]
            for i, hypotheses in zip(rows, self._found(*chosen, options), strict=True):
                found[i] = hypotheses
        return found

    def _found(
        self,
        segments: Sequence[SourceSegment],
        limits: Sequence[int],
        options: DecodingOptions,
        strict: bool = False,
    ) -> list[list[Hypothesis]]:
        """Candidates of pieces with a common minimum length.

        strict: ban padding and beginning of sentence. This takes time and changes scores, so it is
        done only if an output contains one.
        """
        asked = EngineRequest(options, segments[0].output_constraints.min_length, strict)
        candidates = self._candidates(segments, limits, asked)
        self._score(segments, candidates, options.free_end)
        found = [_ranked(own, options) for own in candidates]
        odd = [i for i, own in enumerate(found) if any(NEVER & set(h.tokens) for h in own)]
        if odd and not strict:
            chosen = [segments[i] for i in odd], [limits[i] for i in odd]
            for i, own in zip(odd, self._found(*chosen, options, strict=True), strict=True):
                found[i] = own
        return found

    def _candidates(
        self, segments: Sequence[SourceSegment], limits: Sequence[int], asked: EngineRequest
    ) -> list[list[EngineHypothesis]]:
        """Distinct candidates of each piece."""
        raw = self._ask(segments, max(limits), asked)
        again: dict[int, list[int]] = {}
        for i, limit in enumerate(limits):
            if asked.options.beam_size > 1 and any(len(tokens) >= limit for tokens, _ in raw[i]):
                again.setdefault(limit, []).append(i)
        for limit, rows in again.items():
            whole = self._ask([segments[i] for i in rows], limit, asked, patience=2)
            for i, own in zip(rows, whole, strict=True):
                raw[i] = own
        found: list[list[EngineHypothesis]] = []
        for segment, own, limit in zip(segments, raw, limits, strict=True):
            exact = asked.is_exact and not segment.output_constraints.prefix
            candidates: dict[tuple[int, ...], EngineHypothesis] = {}
            for tokens, log_prob in own:
                cut = len(tokens) >= limit
                candidate = EngineHypothesis(
                    tokens[:limit], log_prob if exact and not cut else None, cut
                )
                candidates.setdefault(tuple(candidate.tokens), candidate)
            found.append(list(candidates.values()))
        return found

    def _ask(
        self, segments: Sequence[SourceSegment], limit: int, asked: EngineRequest, patience: int = 1
    ) -> list[list[tuple[list[int], float]]]:
        """Ids without the end, and log-probability, of all that CTranslate2 finds for each piece.

        patience: how many beams are to finish before a search ends, and are returned.
        """
        options, power = asked.options, _power(asked.options)
        begun = [
            [self._target[i] for i in segment.output_constraints.prefix] for segment in segments
        ]
        answers = self._model.translate_batch(
            [self._named(segment) for segment in segments],
            target_prefix=begun if any(begun) else None,
            beam_size=options.beam_size,
            patience=patience,
            num_hypotheses=options.beam_size * patience,
            length_penalty=power,
            no_repeat_ngram_size=options.no_repeat_ngram,
            min_decoding_length=min(asked.min_tokens, max(limit, 1)),
            max_decoding_length=max(limit, 1),
            suppress_sequences=[[self._target[i]] for i in NEVER] if asked.strict else None,
            max_input_length=0,
            return_end_token=True,
            return_scores=True,
        )
        found = []
        for answer in answers:
            rows = []
            for names, score in zip(answer.hypotheses, answer.scores, strict=True):
                ids, log_prob = [self._ids[name] for name in names], score * len(names) ** power
                if log_prob > IMPOSSIBLE:
                    rows.append((ids[:-1] if ids[-1] == EOS else ids, log_prob))
            if not rows:
                raise TransduceError("the model's scores are NaN; its weights are damaged")
            found.append(rows)
        return found

    def _named(self, segment: SourceSegment) -> list[str]:
        """The source, with its end, as CTranslate2 takes it."""
        return [*(self._source[i] for i in segment.ids), SPECIAL_TOKENS[EOS]]

    def _score(
        self,
        segments: Sequence[SourceSegment],
        candidates: Sequence[list[EngineHypothesis]],
        free_end: bool,
    ) -> None:
        """The log-probabilities that are missing, by one pass over the tokens."""
        missing = [
            (self._named(segment), candidate)
            for segment, own in zip(segments, candidates, strict=True)
            for candidate in own
            if candidate.log_prob is None
        ]
        lengths = [len(candidate.tokens) + 1 for _, candidate in missing]
        order = sorted(range(len(missing)), key=lengths.__getitem__, reverse=True)
        for rows in in_batches(order, lengths, SCORED_TOKENS):
            targets = [[self._target[i] for i in missing[row][1].tokens] for row in rows]
            sources = [missing[row][0] for row in rows]
            answers = self._model.score_batch(sources, targets, max_input_length=0)
            for row, answer in zip(rows, answers, strict=True):
                candidate = missing[row][1]
                free = candidate.cut and free_end
                candidate.log_prob = sum(answer.log_probs[:-1] if free else answer.log_probs)


def with_ctranslate2(
    translator: TrainedTranslator, precision: Precision = "float32"
) -> TrainedTranslator:
    """Translator with the same weights and CTranslate2's search.

    It computes on the CPU, with as many threads as PyTorch.  The model is kept for scores and
    alignments. Raises RunError for an unsupported model.
    """
    model = translator.recipe.model
    try:
        check_expressible(model)
    except RunError as error:
        raise RunError(f"{error}; remove --engine") from None
    options = translator.options
    if options.stop != "first":
        logger.warning(
            "CTranslate2 supports only decoding.stop = 'first'; ignoring the recipe's %r",
            options.stop,
        )
        options = dataclasses.replace(options, stop="first")
    positions = positions_for(translator)
    names = _names(translator.source.size), _names(translator.target.size)
    with tempfile.TemporaryDirectory(prefix="transduce-") as directory:
        write_ctranslate2(
            translator.model, model, Path(directory), *names, positions, precision, adds_end=False
        )
        loaded = library().Translator(
            directory,
            compute_type=precision,
            inter_threads=1,
            intra_threads=torch.get_num_threads(),
        )
    config = translator.config
    return translator.configured(
        dataclasses.replace(
            config,
            options=options,
            max_target_length=smallest_limit(config.max_target_length, positions - 1),
            engine=CTranslate2Engine(loaded, names),
        )
    )


def positions_for(translator: TrainedTranslator) -> int:
    """Positions to write: enough for the longest source, and its output by the recipe's options."""
    max_source_length = translator.config.max_source_length
    outputs = translator.options.max_length_for(max_source_length)
    needed = max(max_source_length, min(outputs, MAX_POSITIONS - 1)) + 1
    return max(POSITIONS, 1 << (needed - 1).bit_length())


def _names(size: int) -> list[str]:
    """A name for each id."""
    return [*SPECIAL_TOKENS, *map(str, range(len(SPECIAL_TOKENS), size))]


def _refused(options: DecodingOptions) -> Iterator[str]:
    """Options that CTranslate2 has not, or understands otherwise."""
    if options.method == "sample":
        yield "method = 'sample'"
    if options.stop != "first":
        yield f"stop = {options.stop!r}"
    for name in ("constraints", "avoid", "coverage_penalty", "shortlist"):
        if getattr(options, name):
            yield name
    if options.beam_groups > 1:
        yield "beam_groups"
    if options.repetition_penalty > 1:
        yield "repetition_penalty"
    if options.beam_size > 1 and options.length_penalty == "gnmt" and options.alpha > 1:
        yield "alpha above 1 with a beam"
    if options.beam_size > 1:  # there it costs nothing to leave a likely token out
        for name in ("prefix", "min_length", "min_length_ratio", "no_repeat_ngram"):
            if getattr(options, name):
                yield f"{name} with a beam"


def _power(options: DecodingOptions) -> float:
    """The power of the length that cuts a beam's worst as the length penalty would."""
    if options.length_penalty == "mean":
        return 1.0
    gnmt = options.length_penalty == "gnmt"  # its divisor grows by about half the power at first
    return max(options.alpha / 2, ALMOST_NONE) if gnmt else ALMOST_NONE


def _ranked(candidates: Sequence[EngineHypothesis], options: DecodingOptions) -> list[Hypothesis]:
    """The `n_best`, best first."""
    penalty = length_penalty(options)
    found = []
    for candidate in candidates:
        assert candidate.log_prob is not None
        score = candidate.log_prob / penalty(len(candidate.tokens) + 1)
        found.append(Hypothesis(candidate.tokens, candidate.log_prob, score, finished=True))
    return sorted(found, key=lambda hypothesis: -hypothesis.score)[: options.n_best]
