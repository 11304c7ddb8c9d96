"""CTranslate2 as the engine of a translator: it searches; lines, pieces and batches stay ours.

Its search is ours with `stop = "first"`, but for some details, which are mended here:

    ranking   only powers of the length divide its scores: the whole beam is ranked anew
    limits    a batch has one: a sentence that reaches its own, lower one is searched again
    the end   at the limit it cuts: what is cut gets its end, at the cost that the model says
    scores    they leave out a prefix, and what is ruled out: these outputs are scored anew

What cannot be mended is refused by `check`.
"""

from __future__ import annotations

import dataclasses
import logging
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from transduce.decoding.hypotheses import Hypothesis, length_penalty
from transduce.decoding.options import DecodingOptions
from transduce.errors import RunError, SettingError
from transduce.interop.ctranslate2 import check_expressible, library, write_ctranslate2
from transduce.nn.int8 import Precision
from transduce.tasks.translation import TrainedTranslator
from transduce.tasks.translator import Piece
from transduce.text.tokenizer import BOS, EOS, PAD, SPECIAL_TOKENS

logger = logging.getLogger("transduce")

NEVER = {PAD, BOS}
"""Ids that no output may hold."""
POSITIONS = 1024
MOST_POSITIONS = 1 << 14
"""Positions that are written at least, and at most for outputs, where a model has no limit of its
own."""
ALMOST_NONE = 1e-9
"""An exponent that changes no score, yet CTranslate2 takes it for a penalty and goes on searching
until a whole beam has finished."""
IMPOSSIBLE = -1e9
"""Below this are rows of a beam that CTranslate2 has ruled out."""


@dataclass
class Draft:
    """A hypothesis on its way.

    tokens:   ids without the end.  log_prob: None where CTranslate2's own is not the model's.
    cut:      it had reached the limit, and so has no end of its own.
    """

    tokens: list[int]
    log_prob: float | None
    cut: bool


class CTranslate2Engine:
    """Searches for the best outputs in place of `decoding.search`."""

    def __init__(self, library: Any, names: tuple[list[str], list[str]]) -> None:
        """library: a `ctranslate2.Translator`.  names: of source and target ids there."""
        self._library = library
        self._source, self._target = names
        self._ids = {name: i for i, name in enumerate(self._target)}

    def check(self, options: DecodingOptions) -> None:
        """Raises SettingError that names all options which CTranslate2 cannot follow."""
        if refused := ", ".join(_refused(options)):
            raise SettingError(f"engine 'ctranslate2' cannot follow {refused}; leave out --engine")

    def search(
        self, pieces: Sequence[Piece], limits: Sequence[int], options: DecodingOptions
    ) -> list[list[Hypothesis]]:
        """The `n_best` hypotheses of each piece, best first, of at most `limits` tokens."""
        limits = [max(at, len(p.demand.prefix)) for p, at in zip(pieces, limits, strict=True)]
        found: list[list[Hypothesis]] = [[] for _ in pieces]
        groups: dict[int, list[int]] = {}
        for i, piece in enumerate(pieces):
            groups.setdefault(piece.demand.min_length, []).append(i)
        for rows in groups.values():
            longest = max(limits[i] for i in rows)
            self._into(found, rows, pieces, longest, options)
            again: dict[int, list[int]] = {}
            for i in rows:
                longer = any(len(hypothesis.tokens) >= limits[i] for hypothesis in found[i])
                if longer and limits[i] < longest:
                    again.setdefault(limits[i], []).append(i)
            for limit, reached in again.items():
                self._into(found, reached, pieces, limit, options)
        return found

    def _into(
        self,
        found: list[list[Hypothesis]],
        rows: Sequence[int],
        pieces: Sequence[Piece],
        limit: int,
        options: DecodingOptions,
    ) -> None:
        """Search for some of the pieces together."""
        chosen = [pieces[i] for i in rows]
        for i, hypotheses in zip(rows, self._together(chosen, limit, options), strict=True):
            found[i] = hypotheses

    def _together(
        self, pieces: Sequence[Piece], limit: int, options: DecodingOptions, strict: bool = False
    ) -> list[list[Hypothesis]]:
        """Hypotheses of pieces with one limit, and one least length.

        strict: padding and beginning of sentence are ruled out beforehand.  That costs time and
        changes scores, and so is left until an output has one of them.
        """
        least = pieces[0].demand.min_length
        sources = [[*(self._source[i] for i in p.ids), SPECIAL_TOKENS[EOS]] for p in pieces]
        begun = [[self._target[i] for i in p.demand.prefix] for p in pieces]
        power = _power(options)
        answers = self._library.translate_batch(
            sources,
            target_prefix=begun if any(begun) else None,
            beam_size=options.beam_size,
            num_hypotheses=options.beam_size,
            length_penalty=power,
            no_repeat_ngram_size=options.no_repeat_ngram,
            min_decoding_length=min(least, max(limit, 1)),
            max_decoding_length=max(limit, 1),
            suppress_sequences=[[self._target[i]] for i in NEVER] if strict else None,
            max_input_length=0,
            return_end_token=True,
            return_scores=True,
        )
        exact = not (any(begun) or least or options.no_repeat_ngram or strict)
        drafts = [list(self._drafts(answer, limit, power, exact)) for answer in answers]
        self._score(sources, drafts, options.free_end)
        found = [_ranked(own, options) for own in drafts]
        if not strict:
            odd = [i for i, own in enumerate(found) if any(NEVER & set(h.tokens) for h in own)]
            if odd:
                better = self._together([pieces[i] for i in odd], limit, options, strict=True)
                for i, own in zip(odd, better, strict=True):
                    found[i] = own
        return found

    def _drafts(self, answer: Any, limit: int, power: float, exact: bool) -> Iterator[Draft]:
        """What CTranslate2 found for one piece, each once."""
        seen = set()
        for names, score in zip(answer.hypotheses, answer.scores, strict=True):
            log_prob = score * len(names) ** power
            ids = [self._ids[name] for name in names]
            cut = ids[-1] != EOS
            tokens = ids[:limit] if cut else ids[:-1]
            if log_prob > IMPOSSIBLE and tuple(tokens) not in seen:
                seen.add(tuple(tokens))
                yield Draft(tokens, log_prob if exact and not cut else None, cut)

    def _score(
        self, sources: Sequence[list[str]], drafts: Sequence[list[Draft]], free_end: bool
    ) -> None:
        """The log-probabilities that are missing, by one pass over the tokens."""
        missing = [
            (source, draft)
            for source, own in zip(sources, drafts, strict=True)
            for draft in own
            if draft.log_prob is None
        ]
        if not missing:
            return
        targets = [[self._target[i] for i in draft.tokens] for _, draft in missing]
        answers = self._library.score_batch(
            [source for source, _ in missing], targets, max_input_length=0
        )
        for (_, draft), answer in zip(missing, answers, strict=True):
            counted = answer.log_probs[:-1] if draft.cut and free_end else answer.log_probs
            draft.log_prob = sum(counted)


def use_ctranslate2(translator: TrainedTranslator, precision: Precision = "float32") -> None:
    """Let CTranslate2 do the searching of a translator, with the same weights.

    It computes on the CPU, with as many threads as PyTorch.  The translator's model stays, for
    scores and alignments.  Raises RunError for a model that CTranslate2 cannot express.
    """
    config = translator.recipe.model
    try:
        check_expressible(config)
    except RunError as error:
        raise RunError(f"{error}; leave out --engine") from None
    options = translator.options
    if options.stop != "first":
        logger.warning(
            "CTranslate2 ends a search as decoding.stop = 'first' does; the recipe's %r is not "
            "followed",
            options.stop,
        )
        translator.options = dataclasses.replace(options, stop="first")
    positions = positions_for(translator)
    reach = translator.reach
    translator.reach = positions - 1 if reach is None else min(reach, positions - 1)
    names = _names(translator.source.size), _names(translator.target.size)
    with tempfile.TemporaryDirectory(prefix="transduce-") as directory:
        write_ctranslate2(
            translator.model, config, Path(directory), *names, positions, precision, adds_end=False
        )
        loaded = library().Translator(
            directory,
            compute_type=precision,
            inter_threads=1,
            intra_threads=torch.get_num_threads(),
        )
    translator.engine = CTranslate2Engine(loaded, names)


def positions_for(translator: TrainedTranslator) -> int:
    """Positions to write: enough for the longest source, and its output by the recipe's options."""
    longest = translator.longest
    outputs = int(translator.options.max_lengths(torch.tensor([longest])))
    needed = max(longest, min(outputs, MOST_POSITIONS - 1)) + 1
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
    if options.beam_size > 1:  # there it costs nothing to leave a likely token out
        for name in ("prefix", "min_length", "min_length_ratio", "no_repeat_ngram"):
            if getattr(options, name):
                yield f"{name} with a beam"


def _power(options: DecodingOptions) -> float:
    """The power of the length nearest to the length penalty."""
    if options.length_penalty == "mean":
        return 1.0
    return max(options.alpha, ALMOST_NONE) if options.length_penalty == "gnmt" else ALMOST_NONE


def _ranked(drafts: Sequence[Draft], options: DecodingOptions) -> list[Hypothesis]:
    """The `n_best`, best first."""
    penalty = length_penalty(options)
    found = []
    for draft in drafts:
        assert draft.log_prob is not None
        score = draft.log_prob / penalty(len(draft.tokens) + 1)
        found.append(Hypothesis(draft.tokens, draft.log_prob, score, finished=True))
    return sorted(found, key=lambda hypothesis: -hypothesis.score)[: options.n_best]
