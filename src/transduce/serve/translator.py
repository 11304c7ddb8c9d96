"""Translation by one run: sentences, placeholders, markup, alternatives.

A text without placeholders goes sentence by sentence.  One with placeholders, HTML and documents go
through `localisation`, which keeps each placeholder and tag exactly once, or returns the source.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from transduce.errors import SettingError, TransduceError
from transduce.localise.document import Document, Segment
from transduce.localise.html import read_html
from transduce.localise.placeholders import PLACEHOLDER
from transduce.localise.record import Record
from transduce.localise.sentences import Sentences, split_sentences
from transduce.localise.translate import Order, Work, document_with, localisation
from transduce.serve.batches import Answer
from transduce.serve.calls import Call
from transduce.serve.errors import invalid
from transduce.serve.joining import StreamJoiner
from transduce.serve.limits import bounded
from transduce.serve.queue import Queue, check_answers
from transduce.serve.terms import NO_TERMS, Terms

if TYPE_CHECKING:
    from transduce.decoding.options import DecodingOptions


@dataclass(frozen=True)
class Translated:
    """Translation of one text, with others that differ from it in one sentence, best first."""

    text: str
    alternatives: tuple[str, ...] = ()
    n_tokens: int = 0
    """Target tokens; 0 for texts with placeholders or markup."""


class Lines(NamedTuple):
    """A text with placeholders: its lines, and those with words as segments."""

    lines: list[str]
    segments: dict[int, Segment]


class PairTranslator:
    """Translation from one language to another by a run.

    queue: of the run, which is loaded.  tag: text before each source that selects the target
    language, with its space; empty for runs with one target language.  terms: of a glossary.
    """

    def __init__(self, queue: Queue, source: str, tag: str = "", terms: Terms = NO_TERMS) -> None:
        self._queue = queue
        self._own = queue.loaded_run().options
        self._source = source
        self._tag = tag
        self._terms = terms

    async def translate(
        self, texts: Sequence[str], call: Call, alternatives: int, given: Mapping[str, Any]
    ) -> list[Translated]:
        """Translation of each text.  given: decoding options."""
        texts = [text.replace("\r\n", "\n") for text in texts]
        options = self._options(given, alternatives)
        kept = {i: _lines_of(text) for i, text in enumerate(texts) if PLACEHOLDER.search(text)}
        segments = [one for lines in kept.values() for one in lines.segments.values()]
        plain = [text for i, text in enumerate(texts) if i not in kept]
        found, localised = await asyncio.gather(
            self._plain(plain, call, options, alternatives),
            self._localised(segments, call, self._options(given)),
        )
        plainly, each = iter(found), iter(localised)
        return [
            _with_lines(kept[i], each) if i in kept else next(plainly) for i in range(len(texts))
        ]

    async def html(
        self, texts: Sequence[str], call: Call, given: Mapping[str, Any]
    ) -> list[Translated]:
        """Translation of each fragment of HTML; one without words, or that cannot be translated
        with its tags, comes back as it is."""
        contents = [text.replace("\r\n", "\n").encode() for text in texts]
        documents = [await asyncio.to_thread(read_html, content, "utf-8") for content in contents]
        segments = [one for document in documents for one in document.segments]
        each = iter(await self._localised(segments, call, self._options(given)))
        found = []
        for document in documents:
            made = document_with(document, [next(each) for _ in document.segments])
            found.append(Translated(made.content.decode()))
        return found

    async def document(self, document: Document, call: Call) -> bytes:
        """Translation of a document.  Raises DataError if none of its segments can be
        translated."""
        found = await self._localised(document.segments, call, self._own)
        made = await asyncio.to_thread(document_with, document, found)
        made.check()
        return made.content

    async def stream(self, text: str, call: Call) -> AsyncIterator[str]:
        """Translation of a text in parts; as one part for a text with placeholders."""
        if PLACEHOLDER.search(text):
            (whole,) = await self.translate([text], call, 0, {})
            yield whole.text
            return
        pieces = split_sentences(text.replace("\r\n", "\n"), self._source)
        joiner = StreamJoiner(pieces)
        inputs = [self._tag + sentence for sentence in pieces.texts]
        async for index, part in self._queue.stream(inputs, self._own, call):
            if written := joiner.add(index, part):
                yield written
        if rest := joiner.rest():
            yield rest

    def _options(self, given: Mapping[str, Any], alternatives: int = 0) -> DecodingOptions | None:
        more = {"n_best": alternatives + 1} if alternatives else {}
        return bounded(self._own, {**given, **more})

    def _with_terms(self, options: DecodingOptions | None, sentence: str) -> DecodingOptions | None:
        """Options with the terms of a sentence as further constraints."""
        more = self._terms.constraints(sentence)
        if options is None or not more:
            return options
        try:
            return dataclasses.replace(options, constraints=(*options.constraints, *more))
        except SettingError as error:
            raise invalid(f"the terms cannot be required: {error}") from None

    async def _plain(
        self, texts: Sequence[str], call: Call, options: DecodingOptions | None, alternatives: int
    ) -> list[Translated]:
        pieces = [split_sentences(text, self._source) for text in texts]
        sentences = [sentence for one in pieces for sentence in one.texts]
        inputs = [self._tag + sentence for sentence in sentences]
        each = [self._with_terms(options, sentence) for sentence in sentences]
        answers = await self._queue.submit(inputs, each, call)
        check_answers(answers)
        rest = iter(answers)
        return [_joined(one, [next(rest) for _ in one.texts], alternatives) for one in pieces]

    async def _localised(
        self, segments: Sequence[Segment], call: Call, options: DecodingOptions | None
    ) -> list[Record]:
        """Translations of segments, in rounds of orders."""
        assert options is not None
        work = localisation(segments, self._source, can_align=not self._tag)
        answers: list[Answer] | None = None
        while True:
            try:
                done, orders = await asyncio.to_thread(_go_on, work, answers)
            except TransduceError as error:
                check_answers([error])
                raise
            if done is not None:
                return done
            answers = await self._ordered(orders, call, options)

    async def _ordered(
        self, orders: Sequence[Order], call: Call, options: DecodingOptions
    ) -> list[Answer]:
        """The answer to each order, in order."""
        answers: dict[int, Answer] = {}
        texts: dict[int, DecodingOptions] = {}
        pairs: dict[int, tuple[str, str]] = {}
        for i, order in enumerate(orders):
            if order.output is not None:
                pairs[i] = (order.text, order.output)
                continue
            try:
                terms = self._terms.constraints(order.text)
                both = (*options.constraints, *order.constraints, *terms)
                texts[i] = dataclasses.replace(options, constraints=both)
            except TransduceError as error:
                answers[i] = error
        inputs = [self._tag + orders[i].text for i in texts]
        found, links = await asyncio.gather(
            self._queue.submit(inputs, list(texts.values()), call),
            self._queue.align(list(pairs.values()), call),
        )
        for i, answer in zip(texts, found, strict=True):
            answers[i] = answer if isinstance(answer, TransduceError) else answer.text
        answers.update(zip(pairs, links, strict=True))
        return [answers[i] for i in range(len(orders))]


def _go_on(
    work: Work[list[Record]], answers: list[Answer] | None
) -> tuple[list[Record] | None, list[Order]]:
    """The result of a localisation, or None and the orders of its next round."""
    try:
        return None, next(work) if answers is None else work.send(answers)
    except StopIteration as stop:
        return stop.value, []


def _lines_of(text: str) -> Lines:
    """A text with its lines as segments."""
    lines = text.splitlines(keepends=True)
    segments = {
        i: Segment(f"line {i + 1}", line.strip(), ())
        for i, line in enumerate(lines)
        if any(map(str.isalnum, line))
    }
    return Lines(lines, segments)


def _with_lines(lines: Lines, localised: Any) -> Translated:
    written = list(lines.lines)
    for i, segment in lines.segments.items():
        before, _, after = written[i].partition(segment.source)
        written[i] = before + " ".join(next(localised).target.splitlines()) + after
    return Translated("".join(written))


def _joined(pieces: Sentences, answers: Sequence[Answer], alternatives: int) -> Translated:
    """The translation of a text from the translations of its sentences.

    An alternative replaces one sentence, the nearest in score first.
    """
    best = [answer.text for answer in answers]
    text = pieces.joined(best)
    others: dict[str, float] = {}
    for place, answer in enumerate(answers):
        for candidate in answer.candidates[1:] if alternatives else ():
            other = pieces.joined([*best[:place], candidate.text, *best[place + 1 :]])
            if other != text:
                loss = answer.score - candidate.score
                others[other] = min(loss, others.get(other, loss))
    ranked = sorted(others, key=lambda other: others[other])
    return Translated(text, tuple(ranked[:alternatives]), sum(len(a.tokens) for a in answers))
