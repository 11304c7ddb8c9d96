"""A trained model with its tokenizers: texts in, texts out."""

from __future__ import annotations

import copy
import dataclasses
import functools
import itertools
import logging
from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from transduce.decoding.agreed import agreed
from transduce.decoding.company import ALONE, Company, least
from transduce.decoding.demands import Demand, demand_of
from transduce.decoding.hypotheses import Hypothesis
from transduce.decoding.lexicon import Lexicon
from transduce.decoding.options import DecodingOptions
from transduce.decoding.search import SearchRequest, Snapshot, search_steps
from transduce.decoding.shortlist import NarrowModel, Shortlist, check_shortlist
from transduce.errors import RunError, SettingError
from transduce.inspect.attention import record_attention
from transduce.models.encoder_decoder import EncoderDecoder
from transduce.sequence import Padded
from transduce.tasks.forced import forced_scores, in_batches
from transduce.tasks.pieces import in_pieces, joined
from transduce.tasks.tags import ExpectedTags
from transduce.tasks.translations import (
    Alignment,
    Candidate,
    Translation,
    check_layer,
    least_risk,
)
from transduce.tasks.unknown import UnknownTokens
from transduce.text import BOS, EOS, PAD, Tokenizer
from transduce.text.listed import ListedTokenizer
from transduce.text.tokenizer import REPLACEMENT

TextStream = Generator[str, None, None]
"""Parts of a text as they come; closing it ends the search."""

logger = logging.getLogger("transduce")

PIECE_BITS = 40
"""Where the number of a piece begins in the number of its random stream, above the text's."""


class Piece(NamedTuple):
    """What is decoded in one go.

    text:   number of the text that it is a piece of.  ids: of the source, without the end.
    stream: number for the random numbers of sampling.  demand: what its output must be like.
    """

    text: int
    ids: list[int]
    stream: int
    demand: Demand


class Engine(Protocol):
    """What searches for the outputs of pieces in place of our own search."""

    def check(self, options: DecodingOptions) -> None:
        """Raises SettingError for options that it cannot follow."""

    def search(
        self, pieces: Sequence[Piece], limits: Sequence[int], options: DecodingOptions
    ) -> list[list[Hypothesis]]:
        """The `n_best` hypotheses of each piece, best first, of at most `limits` tokens."""


class Translator:
    """Turns source texts into target texts."""

    inputs = ("source",)

    def __init__(
        self,
        model: EncoderDecoder,
        source: Tokenizer,
        target: Tokenizer,
        options: DecodingOptions,
        longest: int,
        reach: int | None = None,
    ) -> None:
        """longest: source tokens that the model was trained for; longer texts go in pieces.

        reach: target tokens that the decoder's positions allow; None for no limit.
        """
        self.model = model
        self.source = source
        self.target = target
        self.options = options
        self.longest = longest
        self.reach = reach
        self.company = ALONE
        """Models that speak beside this one."""
        self.target_language = ""
        """Code of the language; a measure that chooses among outputs goes by it."""
        self.aligning: tuple[int, int | None] = (-1, None)
        """Layer and head to align by unless another is asked for; no head for the mean of all."""
        self.shortlist: Shortlist | None = None
        """The target tokens that sources can need, for `options.shortlist`."""
        self.engine: Engine | None = None
        """What searches, if it is not we."""
        self.expected_tags: ExpectedTags | None = None
        """Warns of texts that do not begin as those of training did."""
        self.unknown_tokens: UnknownTokens | None = None
        self.unknown_targets = UnknownTokens(target)
        """Warns of texts that hold what those of training did not."""
        self.warns_of_length = True
        """Whether a text that is translated in pieces is warned of."""

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return next(self.model.parameters()).device

    @functools.cached_property
    def lexicon(self) -> Lexicon:
        """What the target's tokens spell."""
        return Lexicon(self.target)

    def translate(
        self,
        texts: Sequence[str],
        options: DecodingOptions | Sequence[DecodingOptions] | None = None,
        first: int = 0,
    ) -> list[Translation]:
        """One translation for each text, in order; a blank text gives a blank one.

        options: by default the recipe's; or a list with those of each text.  first: number of the
        first text in a longer input, for messages and for the random streams of sampling.

        Raises SettingError for a prefix or a phrase that the vocabulary cannot spell, and
        RunError where coverage is asked for of a model without attention.
        """
        rows = self._encoded(texts, first)
        options = options or self.options
        each = [options] * len(texts) if isinstance(options, DecodingOptions) else options
        together: dict[DecodingOptions, list[Piece]] = {}
        for i, ids in enumerate(rows):
            if texts[i].strip():
                pieces = self._pieces(ids, each[i], i, first)
                together.setdefault(alike(each[i]), []).extend(pieces)
        found: list[list[list[Hypothesis]]] = [[] for _ in texts]
        for shared, pieces in together.items():
            for piece, best in zip(pieces, self._decode(pieces, shared), strict=True):
                found[piece.text].append(best)
                if best:
                    output = f"line {first + piece.text + 1}: the output"
                    piece.demand.warn_unless_met_by(best[0].tokens, output)
        return [
            self._translation(text, parts, own)
            for text, parts, own in zip(texts, found, each, strict=True)
        ]

    def stream(
        self, text: str, options: DecodingOptions | None = None, number: int = 0
    ) -> TextStream:
        """The translation of a text in parts, each as soon as nothing can change it any more.

        number: of the text in a longer input, for the random streams of sampling.  Closing the
        generator ends the search.  Raises SettingError where outputs are chosen by minimum_risk,
        which shows none before it has them all.
        """
        (ids,) = self._encoded([text], number)
        options = options or self.options
        if options.minimum_risk != "none":
            raise SettingError("minimum_risk chooses at the end; leave it out to stream")
        if self.engine is not None:
            raise SettingError("streaming needs PyTorch's own search; leave out --engine")
        options = dataclasses.replace(options, n_best=1)
        pieces = self._pieces(ids, options, 0, number)
        return self._parts(text, pieces if text.strip() else [], alike(options))

    def beside(self, company: Company) -> Translator:
        """The same translator with others beside it.  Raises SettingError for what cannot be."""
        self.check_alone()
        company.check_beside(self.model)
        self.check_own_search()
        joined = copy.copy(self)
        joined.company = company
        if company.longest is not None:
            joined.longest = min(self.longest, company.longest)
        joined.reach = least(self.reach, company.reach)
        return joined

    def check_alone(self) -> None:
        """Raises SettingError where others stand beside it already, which would be forgotten."""
        if self.company is not ALONE:
            raise SettingError(
                "others stand beside this run already; name all of them in one call of beside"
            )

    def check_own_search(self) -> None:
        """Raises SettingError where something else searches, which follows one model alone."""
        if self.engine is not None:
            raise SettingError(
                "an ensemble, a language model or a draft needs PyTorch's own search; leave out "
                "--engine"
            )

    def predict(
        self,
        inputs: Sequence[tuple[str, ...]],
        options: DecodingOptions | None = None,
        first: int = 0,
    ) -> list[Translation]:
        """The same as `translate`, for inputs of one text each."""
        return self.translate([text for (text,) in inputs], options, first)

    def score(self, pairs: Iterable[tuple[str, str]]) -> Iterator[float]:
        """Natural log-probability of each target text, end included, given its source.

        Pairs beyond `forced.longest_scored` tokens get nan and a warning.
        """
        return forced_scores(self.model, self.source, self.target, pairs, self.check_pairs)

    def align(self, source: str, target: str | None = None, layer: int = -1) -> Alignment:
        """How each target token, and the end, looked at the source tokens in one layer.

        target: by default the model's own translation.  Raises RunError for a model that pays no
        attention to the source, SettingError for a layer that it does not have.
        """
        if target is None:
            target = self.translate([source])[0].text
        source_ids = [*self.source.encode(source), EOS]
        target_ids = [BOS, *self.target.encode(target)]
        self.check_pairs([(source, target)], [source_ids], [target_ids], 0)
        with torch.inference_mode(), record_attention(self.model) as maps:
            layers = [seen for name, seen in maps.items() if name.endswith("cross_attention")]
            check_layer(layer, len(layers))
            self.model(self._batch([source_ids]), self._batch([target_ids]))
        weights = layers[layer][0][0].mean(0)  # (h, t, s) -> (t, s)
        return Alignment(
            (*self.source.tokens(source_ids[:-1]), "</s>"),
            (*self.target.tokens(target_ids[1:]), "</s>"),
            weights.float().cpu(),
        )

    def check(self, options: DecodingOptions) -> None:
        """Raises SettingError or RunError for options that this model cannot follow."""
        self._demand(options)
        self._check_search(options)
        if options.coverage_penalty:
            self._check_coverage()

    def _demand(self, options: DecodingOptions) -> Demand:
        """What options ask of an output.  Raises SettingError for what cannot be."""
        demand = demand_of(options, lambda: self.lexicon)
        if self.reach is not None and len(demand.prefix) > self.reach:
            raise SettingError(
                f"prefix: {len(demand.prefix)} tokens are more than the {self.reach} that this "
                "model has positions for"
            )
        return demand

    def check_pairs(
        self,
        pairs: Sequence[tuple[str, str]],
        sources: Sequence[Sequence[int]],
        targets: Sequence[Sequence[int]],
        first: int,
    ) -> None:
        """Warn of the first pair with tokens that are unknown on a side, given the ids of both."""
        sides = (self.unknown_tokens, sources), (self.unknown_targets, targets)
        for side, (unknown, rows) in enumerate(sides):
            if unknown is not None:
                names = (f"pair {number}" for number in itertools.count(first + 1))
                unknown.check_named(([pair[side]] for pair in pairs), rows, names)

    def _encoded(self, texts: Sequence[str], first: int) -> list[list[int]]:
        """The ids of texts, with warnings of what training had not prepared the model for."""
        if self.expected_tags is not None:
            self.expected_tags.check(texts, first)
        rows = self.source.encode_batch(texts)
        if self.unknown_tokens is not None:
            self.unknown_tokens.check(texts, rows, first)
        return rows

    def _pieces(
        self, ids: list[int], options: DecodingOptions, text: int, first: int
    ) -> list[Piece]:
        """What is decoded for a text: mostly one piece; prefix and constraints are the first's."""
        line = first + text + 1
        self._check_search(options)
        try:
            demand = self._demand(options)
        except SettingError as error:
            raise SettingError(f"line {line}: {error}") from None
        pieces = []
        for j, part in enumerate(self._fitting(ids, line)):
            demand = demand if not j else Demand(avoided=demand.avoided)
            demand = dataclasses.replace(demand, min_length=options.min_length_for(len(part)))
            pieces.append(Piece(text, part, first + text + (j << PIECE_BITS), demand))
            room = int(self._limits([part], options)) if demand.least else 0
            if demand.least > room:
                what = "constraints" if options.constraints else "prefix"
                remedy = "raise max_length_extra"
                if room == self.reach:
                    remedy = f"this model has positions for {room} tokens"
                logger.warning("line %d: there is no room for its %s; %s", line, what, remedy)
        return pieces

    def _limits(self, sources: Sequence[list[int]], options: DecodingOptions) -> Tensor:
        """Most tokens (n,) of the output for each source."""
        limits = options.max_lengths(torch.tensor([len(ids) for ids in sources]))
        return limits if self.reach is None else limits.clamp(max=self.reach)

    def _decode(self, pieces: Sequence[Piece], options: DecodingOptions) -> list[list[Hypothesis]]:
        """Hypotheses for each piece, decoded in batches of like lengths; equal pieces once."""
        sampled = options.method == "sample"
        if options.minimum_risk != "none":
            count = options.candidates if sampled else options.beam_size
            options = dataclasses.replace(options, n_best=count)
        questions = [
            (tuple(piece.ids), piece.demand, piece.stream if sampled else 0) for piece in pieces
        ]
        distinct = dict(zip(questions, pieces, strict=True))
        order = sorted(distinct, key=lambda question: len(question[0]), reverse=True)
        lengths = [len(ids) + 1 for ids, _, _ in order]
        results: dict[object, list[Hypothesis]] = {}
        together = 1 if self.company.draft is not None else options.batch_tokens
        for rows in in_batches(range(len(order)), lengths, together):
            asked = [order[i] for i in rows]
            found = self._search([distinct[question] for question in asked], options)
            results.update(zip(asked, found, strict=True))
        return [results[question] for question in questions]

    def _search(self, pieces: Sequence[Piece], options: DecodingOptions) -> list[list[Hypothesis]]:
        """Hypotheses for each of some pieces, decoded together."""
        sources = [piece.ids for piece in pieces]
        if self.engine is not None:
            return self.engine.search(pieces, self._limits(sources, options).tolist(), options)
        narrow = self._narrow(sources, options)
        found: list[list[Hypothesis]] = []
        for snapshot in self._steps(pieces, options, narrow):
            found = snapshot.best
        return found if narrow is None else narrow.widened(found)

    def _steps(
        self, pieces: Sequence[Piece], options: DecodingOptions, narrow: NarrowModel | None
    ) -> Iterator[Snapshot]:
        """The search for the translations of some pieces, step by step."""
        self.model.eval()
        batch = self._batch([[*piece.ids, EOS] for piece in pieces])
        demands = [piece.demand for piece in pieces]
        if options.coverage_penalty:
            self._check_coverage()
        speaker, wishes = self.company.speaker(self.model, self.reach, EOS, options, demands)
        if narrow is not None:
            speaker = narrow
        with torch.inference_mode():
            state = speaker.start(batch)
        return search_steps(
            SearchRequest(
                speaker.step,
                state,
                Padded.unpadded(torch.full((len(pieces), 1), BOS, device=self.device)),
                self._limits([piece.ids for piece in pieces], options),
                EOS,
                (BOS, PAD),
                options,
                [piece.stream for piece in pieces],
                wishes=wishes,
            )
        )

    def _parts(self, source: str, pieces: Sequence[Piece], options: DecodingOptions) -> TextStream:
        written = ""
        before: list[int] = []
        for piece in pieces:
            ids: list[int] = []
            narrow = self._narrow([piece.ids], options)
            for snapshot in self._steps([piece], options, narrow):
                ids = agreed(snapshot)
                if narrow is not None:
                    ids = narrow.ids[ids].tolist()
                whole = joined([before, ids], self.target)
                text = self._line(whole, source).rstrip(REPLACEMENT)
                if len(text) > len(written):
                    yield text[len(written) :]
                    written = text
            before = joined([before, ids], self.target)
        yield self._line(before, source)[len(written) :]

    def _line(self, ids: Sequence[int], source: str) -> str:
        """The text of ids: what is one line in must be one line out, whatever the model says.

        Where both sides are written in units of one kind, the unknown ones of the output are those
        of the source, in order.
        """
        if isinstance(self.source, ListedTokenizer) and isinstance(self.target, type(self.source)):
            text = self.target.decode(ids, self.source.unknown_units(source))
        else:
            text = self.target.decode(ids)
        return " ".join(text.splitlines())

    def _check_search(self, options: DecodingOptions) -> None:
        """Raises SettingError for options that whoever searches cannot follow."""
        if self.engine is not None:
            self.engine.check(options)
        if options.shortlist:
            check_shortlist(options)
        self.company.check(options)
        if options.shortlist and self.shortlist is None:
            raise RunError("this run has no shortlist; make one with transduce shortlist RUN")

    def _check_coverage(self) -> None:
        if not any(name.endswith("cross_attention") for name, _ in self.model.named_modules()):
            raise RunError(
                "coverage_penalty: this model has no attention that could cover a source; its "
                "decoder sees it as one fixed vector"
            )

    def _narrow(self, sources: list[list[int]], options: DecodingOptions) -> NarrowModel | None:
        """The model with the shortlists of some sources, if options ask for them."""
        if not options.shortlist:
            return None
        assert self.shortlist is not None, "checked"
        return self.shortlist.narrow(self.model, sources)

    def _translation(
        self, source: str, parts: list[list[Hypothesis]], options: DecodingOptions
    ) -> Translation:
        """The translation of a text from those of its pieces, which are mostly one."""
        if not parts:
            return Translation("")
        candidates = []
        for rank in range(min(len(part) for part in parts)):
            chosen = [part[rank] for part in parts]
            ids = joined((hypothesis.tokens for hypothesis in chosen), self.target)
            text = self._line(ids, source)
            score = sum(h.score for h in chosen) / len(chosen)
            log_prob = sum(h.log_prob for h in chosen)
            tokens = tuple(self.target.tokens(ids))
            each = tuple(tuple(hypothesis.tokens) for hypothesis in chosen)
            candidates.append(Candidate(text, tokens, score, log_prob, each))
        if options.minimum_risk != "none":
            candidates = least_risk(candidates, options, self.target_language)
        best = candidates[0]
        return Translation(best.text, best.tokens, best.score, best.log_prob, tuple(candidates))

    def _fitting(self, ids: list[int], line: int) -> Iterator[list[int]]:
        """The ids whole, or in pieces that fit, cut after the ends of sentences or words."""
        if len(ids) > self.longest and self.warns_of_length:
            logger.warning(
                "line %d has %d tokens, more than the %d this model was trained for; "
                "it is translated in pieces",
                line,
                len(ids),
                self.longest,
            )
        return self.in_pieces(ids)

    def in_pieces(self, ids: list[int]) -> Iterator[list[int]]:
        """Source ids whole, or in the pieces that they are translated in."""
        tagged = self.expected_tags is not None and self.expected_tags.used
        return in_pieces(ids, self.longest, self.source, tagged)

    def _batch(self, rows: Sequence[Sequence[int]]) -> Padded:
        return Padded.from_rows(rows, PAD).to(self.device)


def alike(options: DecodingOptions) -> DecodingOptions:
    """What texts that are decoded together have in common."""
    if not (options.prefix or options.constraints or options.avoid):
        return options
    return dataclasses.replace(options, prefix="", constraints=(), avoid=())
