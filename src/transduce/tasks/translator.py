"""A trained model with its tokenizers: texts in, texts out."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Self

import torch

from transduce.decoding.agreed import agreed
from transduce.decoding.company import ALONE, Company, least
from transduce.decoding.demands import Demand
from transduce.decoding.hypotheses import Hypothesis
from transduce.decoding.lexicon import Lexicon
from transduce.decoding.options import DecodingOptions
from transduce.decoding.search import SearchRequest, Snapshot, search_steps
from transduce.decoding.shortlist import NarrowModel
from transduce.errors import SettingError, TransduceError
from transduce.inspect.attention import record_attention
from transduce.models.encoder_decoder import EncoderDecoder
from transduce.sequence import Padded
from transduce.tasks.forced import forced_scores, in_batches
from transduce.tasks.outputs import Outputs
from transduce.tasks.per_input import (
    NEVER,
    Cancellation,
    Cancelled,
    OwnOptions,
    named,
    of_each,
)
from transduce.tasks.pieces import Lines, joined, lines_of
from transduce.tasks.preparation import Preparation, Prepared
from transduce.tasks.translations import Alignment, TextStream, Translation, check_layer
from transduce.tasks.translator_config import Piece, TranslatorConfig, alike
from transduce.tasks.unknown import UnknownTokens
from transduce.text import BOS, EOS, PAD, Tokenizer
from transduce.text.tokenizer import REPLACEMENT

Question = tuple[tuple[int, ...], Demand, int]
"""A source's ids, constraints of its output, its random stream: equal ones are decoded once."""


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
        """Options of a call that gives none: the recipe's."""
        return self.config.options

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return next(self.model.parameters()).device

    @property
    def lexicon(self) -> Lexicon:
        """Surface forms of the target's tokens."""
        return self._preparation.lexicon

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
        return self._translated(list(map(lines_of, texts)), options, first)

    def translate_lines(
        self, texts: Sequence[str], options: DecodingOptions | None = None, first: int = 0
    ) -> list[Translation]:
        """The same for texts that are one line each, line breaks within or not, as in training."""
        return self._translated([Lines((text,)) for text in texts], options, first)

    def attempt(
        self,
        texts: Sequence[str],
        options: DecodingOptions | Sequence[OwnOptions] | None = None,
        first: int = 0,
        cancelled: Cancelled | None = None,
    ) -> list[Translation | TransduceError]:
        """The translation of each text, or what is wrong with its options, in order.

        cancelled: called between steps with the place of a text, from 0; a text for which it is
        true leaves its batch, and a CancelledError is the answer.  The others are unchanged.
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
            raise SettingError("minimum_risk chooses at the end; leave it out to stream")
        if self.config.engine is not None:
            raise SettingError("streaming needs PyTorch's own search; leave out --engine")
        options = dataclasses.replace(options, n_best=1)
        (prepared,) = self._prepared([lines_of(text)], options, number)
        if isinstance(prepared, TransduceError):
            raise named(prepared, f"line {number + 1}")
        hook = None if cancelled is None else lambda place: cancelled()
        return self._parts(prepared, Cancellation(hook))

    def with_models(self, company: Company) -> Self:
        """The same translator decoding together with others.

        Raises SettingError for models that cannot go together.
        """
        self.check_alone()
        company.check_beside(self.model)
        self.check_own_search()
        config = self.config
        longest = least(config.longest, company.longest)
        assert longest is not None
        reach = least(config.reach, company.reach)
        return self.configured(
            dataclasses.replace(config, company=company, longest=longest, reach=reach)
        )

    def check_alone(self) -> None:
        """Raises SettingError where it decodes together with others, which would be forgotten."""
        if self.config.company is not ALONE:
            raise SettingError(
                "others stand beside this run already; name all of them in one call of with_models"
            )

    def check_own_search(self) -> None:
        """Raises SettingError where the search is another library's, which follows one model."""
        if self.config.engine is not None:
            raise SettingError(
                "an ensemble, a language model or a draft needs PyTorch's own search; leave out "
                "--engine"
            )

    def predict(
        self,
        inputs: Sequence[tuple[str, ...]],
        options: DecodingOptions | Sequence[DecodingOptions] | None = None,
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

        Both are read as one line.  target: by default the model's own translation.  Raises RunError
        for a model without attention to the source, SettingError for a layer that it lacks.
        """
        if target is None:
            target = self.translate_lines([source])[0].text
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
        self._preparation.check(options)

    def source_pieces(self, text: str) -> list[list[int]]:
        """The source ids of a text, in the pieces that it is translated in."""
        lines = lines_of(text)
        rows = self.source.encode_batch(lines.texts)
        return [ids for pieces in self._preparation.source_pieces(lines, rows) for ids in pieces]

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
        together: dict[DecodingOptions, list[Piece]] = {}
        for one in prepared:
            if one.pieces:
                together.setdefault(alike(one.options), []).extend(one.pieces)
        found: dict[int, list[list[Hypothesis]]] = {}
        for shared, pieces in together.items():
            for piece, best in zip(pieces, self._decode(pieces, shared, cancellation), strict=True):
                found.setdefault(piece.text, []).append(best)
                if best and cancellation.error(piece.text) is None:
                    output = f"line {first + piece.text + 1}: the output"
                    piece.demand.warn_unless_met_by(best[0].tokens, output)
        return [
            self._outputs.translation(one, found[one.pieces[0].text] if one.pieces else [])
            for one in prepared
        ]

    def _decode(
        self, pieces: Sequence[Piece], options: DecodingOptions, cancellation: Cancellation
    ) -> list[list[Hypothesis]]:
        """Hypotheses for each piece, decoded in batches of like lengths; equal pieces once."""
        sampled = options.method == "sample"
        if options.minimum_risk != "none":
            count = options.candidates if sampled else options.beam_size
            options = dataclasses.replace(options, n_best=count)
        questions = [
            (tuple(piece.ids), piece.demand, piece.stream if sampled else 0) for piece in pieces
        ]
        distinct: dict[Question, list[Piece]] = {}
        for question, piece in zip(questions, pieces, strict=True):
            distinct.setdefault(question, []).append(piece)
        order = sorted(distinct, key=lambda question: len(question[0]), reverse=True)
        lengths = [len(ids) + 1 for ids, _, _ in order]
        texts = {question: [piece.text for piece in equal] for question, equal in distinct.items()}
        results: dict[Question, list[Hypothesis]] = {}
        together = 1 if self.config.company.draft is not None else options.batch_tokens
        for rows in in_batches(range(len(order)), lengths, together):
            asked = [order[i] for i in rows if not all(map(cancellation, texts[order[i]]))]
            if asked:
                hook = cancellation.in_search([texts[question] for question in asked])
                found = self._search([distinct[question][0] for question in asked], options, hook)
                results.update(zip(asked, found, strict=True))
        return [results.get(question, []) for question in questions]

    def _search(
        self,
        pieces: Sequence[Piece],
        options: DecodingOptions,
        cancelled: Callable[[int], bool] | None,
    ) -> list[list[Hypothesis]]:
        """Hypotheses for each of some pieces, decoded together."""
        sources = [piece.ids for piece in pieces]
        if self.config.engine is not None:
            limits = self._preparation.limits(sources, options).tolist()
            return self.config.engine.search(pieces, limits, options)
        narrow = self._narrow(sources, options)
        found: list[list[Hypothesis]] = []
        for snapshot in self._steps(pieces, options, narrow, cancelled):
            found = snapshot.best
        return found if narrow is None else narrow.widened(found)

    def _steps(
        self,
        pieces: Sequence[Piece],
        options: DecodingOptions,
        narrow: NarrowModel | None,
        cancelled: Callable[[int], bool] | None,
    ) -> Iterator[Snapshot]:
        """The search for the translations of some pieces, step by step."""
        self.model.eval()
        config = self.config
        batch = self._batch([[*piece.ids, EOS] for piece in pieces])
        demands = [piece.demand for piece in pieces]
        speaker, wishes = config.company.speaker(self.model, config.reach, EOS, options, demands)
        if narrow is not None:
            speaker = narrow
        with torch.inference_mode():
            state = speaker.start(batch)
        return search_steps(
            SearchRequest(
                speaker.step,
                state,
                Padded.unpadded(torch.full((len(pieces), 1), BOS, device=self.device)),
                self._preparation.limits([piece.ids for piece in pieces], options),
                EOS,
                (BOS, PAD),
                options,
                [piece.stream for piece in pieces],
                wishes=wishes,
                cancelled=cancelled,
            )
        )

    def _parts(self, prepared: Prepared, cancellation: Cancellation) -> TextStream:
        lines = prepared.lines
        for number, (source, end) in enumerate(zip(lines.texts, (*lines.breaks, ""), strict=True)):
            pieces = [piece for piece in prepared.pieces if piece.line == number]
            yield from self._parts_of_line(source, pieces, alike(prepared.options), cancellation)
            if end:
                yield end

    def _parts_of_line(
        self,
        source: str,
        pieces: Sequence[Piece],
        options: DecodingOptions,
        cancellation: Cancellation,
    ) -> TextStream:
        written = ""
        before: list[int] = []
        for piece in pieces:
            ids: list[int] = []
            narrow = self._narrow([piece.ids], options)
            hook = cancellation.of_part([piece.text])
            for snapshot in self._steps([piece], options, narrow, hook):
                if error := cancellation.error(piece.text):
                    raise error
                ids = agreed(snapshot)
                if narrow is not None:
                    ids = narrow.ids[ids].tolist()
                whole = joined([before, ids], self.target)
                text = self._outputs.line(whole, source).rstrip(REPLACEMENT)
                if len(text) > len(written):
                    yield text[len(written) :]
                    written = text
            before = joined([before, ids], self.target)
        yield self._outputs.line(before, source)[len(written) :]

    def _narrow(self, sources: list[list[int]], options: DecodingOptions) -> NarrowModel | None:
        """The model with the shortlists of some sources, if options ask for them."""
        if not options.shortlist:
            return None
        assert self.config.shortlist is not None, "checked"
        return self.config.shortlist.narrow(self.model, sources)

    def _batch(self, rows: Sequence[Sequence[int]]) -> Padded:
        return Padded.from_rows(rows, PAD).to(self.device)
