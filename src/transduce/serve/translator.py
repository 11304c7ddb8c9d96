"""Translation of texts, HTML and documents by a run, or by several in turn; texts that were not
translated.

A text is translated as a document whose lines are the segments, and HTML and documents by their
own: what a request answers is what `transduce localise` writes.  A segment that any of the runs
cannot translate stays as it was in the request, and its record says why.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from starlette.responses import JSONResponse

from transduce.errors import DataError, SettingError, TransduceError, UnknownTextError
from transduce.localise.checks import Glossary, no_glossary
from transduce.localise.document import (
    CUT_OFF,
    LocalisedDocument,
    Record,
    Segment,
    untranslated_record,
)
from transduce.localise.pivoting import (
    Leg,
    Path,
    Round,
    Rounds,
    pivoted,
    pivoted_document,
    pivoted_pages,
)
from transduce.localise.placeholders import SIGNS, protect
from transduce.localise.sentences import Sentences, split_sentences
from transduce.localise.translate import Order, answer_of, check_translation, parted_orders
from transduce.serve.calls import Call, RequestError, bounded, invalid
from transduce.serve.queue import Queue
from transduce.serve.worker import Answer

if TYPE_CHECKING:
    from transduce.decoding.options import DecodingOptions
    from transduce.serve.processes import DocumentProcesses


class StreamJoiner:
    """`Sentences.joined` for outputs in parts."""

    def __init__(self, sentences: Sentences) -> None:
        self._sentences = sentences
        self._begun = -1
        self._last = ""  # character of the output of that sentence

    def add(self, index: int, part: str | None) -> str:
        """Text to write for a part of the output of sentence `index`; None ends that output."""
        if part == "":
            return ""
        text = part or ""
        if index > self._begun:
            text = self._between(index, text[:1]) + text
            self._begun, self._last = index, ""
        if part:
            self._last = part[-1]
        return text

    def rest(self) -> str:
        """Text after the last output."""
        return self._sentences.between[-1]

    def _between(self, index: int, first: str) -> str:
        """Text between the output before and an output that begins with the character `first`."""
        between = self._sentences.between[index]
        if index == 0:
            return between
        pair = Sentences(self._sentences.texts[index - 1 : index + 1], ("", between, ""))
        joined = pair.joined([self._last, first])
        return joined[len(self._last) : len(joined) - len(first)]


T = TypeVar("T")
MOST_UNKNOWN, BLANK = 12, "▁"
"""Unknown parts that an answer names, as pages do, and the sign of a blank among them."""


@dataclass(frozen=True)
class Translated:
    """Translation of a text, with others that differ from it in one sentence, best first.

    left: records of the lines or blocks that were not translated, or cut off.  unknown: parts of
    the texts of its request that are unknown to the first model.
    """

    text: str
    left: tuple[Record, ...] = ()
    alternatives: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


class Part(NamedTuple):
    """Next part of a streamed translation.

    record: of the sentence, or the line with placeholders, that ends here.  withdrawn: its text so
    far, for which the target of the record stands after all.  unknown: parts of the whole text that
    are unknown to the first model, in the last part.
    """

    text: str = ""
    record: Record | None = None
    withdrawn: str = ""
    unknown: tuple[str, ...] = ()

    @property
    def is_end(self) -> bool:
        """True where a sentence ends, or a text with unknown parts."""
        return self.record is not None or bool(self.unknown)


class Hop:
    """Translation between two languages by a run, for a request.

    queue: of the run, which is loaded.  tag: text before each source that selects the target
    language, with its space; empty for runs with one target language.  target: code of that.
    unknown: the first parts of the texts so far that are unknown to the model.
    """

    def __init__(
        self,
        queue: Queue,
        source: str,
        tag: str = "",
        glossary: Glossary = no_glossary,
        target: str | None = None,
    ) -> None:
        options = queue.options
        assert options is not None
        self.leg = Leg(source, target, not tag)
        self._queue = queue
        self._options = options
        self._tag = tag
        self._glossary = glossary
        self._answers: dict[str, Answer] = {}
        self.unknown: dict[str, None] = {}

    async def answers(
        self, orders: Sequence[Order], call: Call, alternatives: int = 0
    ) -> list[Answer]:
        """Answers to a round of orders, with alternatives of translations."""
        more = {"n_best": alternatives + 1} if alternatives else {}
        options = bounded(self._options, more)
        assert options is not None
        parted = functools.partial(parted_orders, orders, lambda order: self._for(order, options))
        # of a lazy run it may wait until that is loaded
        texts, pairs, answers = await (
            call.in_thread(parted)
            if self._queue.is_lazy
            else call.on_texts((order.text for order in orders), parted)
        )
        predictions, links = await asyncio.gather(
            self._queue.submit(
                [self._tag + orders[i].text for i in texts], list(texts.values()), call
            ),
            self._queue.observe(list(pairs.values()), lambda run, pair: run.align(*pair), call),
        )
        for i, answer in zip(texts, predictions, strict=True):
            failed = isinstance(answer, TransduceError)
            answers[i] = answer if failed else answer_of(answer)
            if not failed and not orders[i].constraints:
                self._answers[orders[i].text] = answer
        answers.update(zip(pairs, links, strict=True))
        return [answers[i] for i in range(len(orders))]

    def others(self, text: str) -> Iterator[tuple[float, Callable[[], str]]]:
        """Losses of translations of a segment that differ in one sentence, and makers of each.

        None for a segment with placeholders.
        """
        pieces = split_sentences(text, self.leg.source)
        if not self._answers.keys() >= set(pieces.texts):
            return
        answers = [self._answers[sentence] for sentence in pieces.texts]
        best = [answer.text for answer in answers]

        def with_sentence(i: int, sentence: str) -> str:
            return pieces.joined([*best[:i], sentence, *best[i + 1 :]])

        for i, answer in enumerate(answers):
            losses = {c.text: answer.score - c.score for c in reversed(answer.candidates[1:])}
            losses.pop(answer.text, None)
            for sentence, loss in reversed(losses.items()):
                if _record_of("", pieces.texts[i], sentence).is_done:
                    yield loss, functools.partial(with_sentence, i, sentence)

    async def stream(
        self, sentences: Sequence[str], call: Call
    ) -> AsyncIterator[tuple[int, str | None]]:
        """Translations of sentences in parts, each with its index, and None at its end."""
        try:
            options = await call.in_thread(
                lambda: [self._with(self._options, (), sentence) for sentence in sentences]
            )
        except TransduceError as error:
            raise invalid(str(error)) from None
        tagged = [self._tag + sentence for sentence in sentences]
        async for part in self._queue.stream(tagged, options, call):
            yield part

    def knows(self, text: str) -> bool:
        """False for a text all of whose words are unknown to the model."""
        try:
            self._inspect(text)
        except UnknownTextError:
            return False
        return True

    def _inspect(self, text: str, name: str = "") -> None:
        for part in self._queue.loaded_run().inspect(text, name):
            if len(self.unknown) == MOST_UNKNOWN:
                break
            self.unknown[part.strip() or BLANK] = None

    def _for(self, order: Order, options: DecodingOptions) -> DecodingOptions:
        self._inspect(order.words, order.key)
        return self._with(options, order.constraints, order.text)

    def _with(
        self, options: DecodingOptions, constraints: Sequence[str], sentence: str
    ) -> DecodingOptions:
        """Options with constraints, and those of the terms of a sentence."""
        terms = self._glossary(sentence)
        if not terms and not constraints:
            return options
        try:
            together = (*options.constraints, *constraints, *terms)
            return options.with_settings({"constraints": together})
        except SettingError as error:
            begin = "the terms cannot be required: " if terms else ""
            raise SettingError(f"{begin}{error}") from None


class ServedTranslation:
    """Translation through the runs of a path, for a request.

    hops: in order; without any, texts come back, for a `reason` where they should not.
    """

    def __init__(self, hops: Sequence[Hop], reason: str = "") -> None:
        self._hops = hops
        self._unknown = hops[0].unknown if hops else {}
        self._path = Path([hop.leg for hop in hops], reason)

    async def texts(
        self, texts: Sequence[str], call: Call, alternatives: int = 0
    ) -> list[Translated]:
        """Translation of each text, line by line.

        texts: of any number of lines.  call: of the request.  alternatives: number of further
        translations.
        """
        texts = [text.replace("\r\n", "\n") for text in texts]
        lines = [
            _segments_of(text, f"text {i}, " * (len(texts) > 1)) for i, text in enumerate(texts, 1)
        ]
        segments = [segment for some in lines for segment in some.values()]
        work = pivoted(segments, self._path, call.check)
        records, read = await self._result(texts, work, call, alternatives)
        each = iter(zip(records, read, strict=True))
        rows = [{i: next(each) for i in some} for some in lines]
        return await call.on_texts(texts, self._translated, texts, rows, call, alternatives)

    def _translated(
        self,
        texts: Sequence[str],
        rows: Sequence[Mapping[int, tuple[Record, str]]],
        call: Call,
        alternatives: int,
    ) -> list[Translated]:
        """Translations of texts by the records of their lines and what the last run has read."""
        results = []
        for text, here in zip(texts, rows, strict=True):
            call.check()
            targets = {i: record.target for i, (record, _) in here.items()}
            left = tuple(
                dataclasses.replace(record, key=f"line {i + 1}")  # of this text
                for i, (record, _) in here.items()
                if _is_named(record)
            )
            candidates = [
                (loss, i, make)
                for i, (record, source) in here.items()
                if alternatives and self._hops and record.is_done
                for loss, make in self._hops[-1].others(source)
            ]
            candidates.sort(key=lambda candidate: candidate[0])
            best = _with_lines(text, targets)
            # Built for those that are asked for: each is as long as the whole text.
            ranked = [
                _with_lines(text, targets | {i: make()}) for _, i, make in candidates[:alternatives]
            ]
            results.append(Translated(best, left, tuple(ranked), tuple(self._unknown)))
        return results

    async def html(self, texts: Sequence[str], call: Call) -> list[Translated]:
        """Translation of each fragment of HTML."""
        contents = [text.replace("\r\n", "\n").encode() for text in texts]
        work = pivoted_pages(contents, self._path, call.check)
        return [
            Translated(
                page.content.decode(),
                tuple(filter(_is_named, page.records)),
                unknown=tuple(self._unknown),
            )
            for page in await self._result(texts, work, call)
        ]

    async def document(
        self, name: str, content: bytes, target: str, call: Call, processes: DocumentProcesses
    ) -> LocalisedDocument:
        """Translation of a file in one of the processes; without an error where nothing is done.

        name: of the file, for its suffix.  content: its bytes.  target: code of the target
        language.  call: of the request.

        Raises DataError as `read_document`.
        """

        async def answer(orders: Round) -> list[Answer]:
            return await self._answers(orders, call)

        size = len(content)
        return await processes.run(
            call, size, answer, pivoted_document, name, content, target, self._path
        )

    async def stream(self, text: str, call: Call) -> AsyncIterator[Part]:
        """Translation of a text in parts: word by word where one run translates it, and its line
        has no placeholder; from a sign of a placeholder on, after the check of the sentence."""
        text = text.replace("\r\n", "\n")
        if len(self._hops) != 1:
            (whole,) = await self.texts([text], call)
            yield Part(whole.text)
            for record in whole.left:
                yield Part(record=record)
            yield Part(unknown=whole.unknown)
            return
        (hop,) = self._hops
        pieces = await call.on_texts([text], _pieces, text, hop.leg.source)
        joiner = StreamJoiner(pieces)
        output = sent = ""
        async for index, part in self._parts(hop, pieces, call):
            if isinstance(part, Record):
                yield Part(joiner.add(index, part.target), part)
                joiner.add(index, None)
            elif part is not None:
                output += part
                if not any(sign in output for sign in HELD):
                    sent += part
                    yield Part(joiner.add(index, part))
            else:
                key, sentence = f"sentence {index + 1}", pieces.texts[index]
                record = await call.in_thread(_record_of, key, sentence, output)
                keeps = record.target.startswith(sent)
                rest = record.target[len(sent) :] if keeps else ""
                yield Part(joiner.add(index, rest) + joiner.add(index, None))
                yield Part("", record, "" if keeps else sent)
                output = sent = ""
        yield Part(joiner.rest(), unknown=tuple(self._unknown))

    async def _parts(
        self, hop: Hop, pieces: Sentences, call: Call
    ) -> AsyncIterator[tuple[int, str | Record | None]]:
        """Parts of each piece in order: those of a sentence, then None; the record of a line with
        placeholders."""
        whole = await call.in_thread(
            lambda: [
                i
                for i, text in enumerate(pieces.texts)
                if not (_is_plain(text) and hop.knows(text))
            ]
        )
        segments = [Segment("line", pieces.texts[i], ()) for i in whole]
        work = pivoted(segments, self._path, call.check)
        records, _ = await self._result((segment.source for segment in segments), work, call)
        waiting = dict(zip(whole, records, strict=True))
        rest = [i for i in range(len(pieces.texts)) if i not in waiting]
        async for j, part in hop.stream([pieces.texts[i] for i in rest], call):
            while waiting and (i := next(iter(waiting))) < rest[j]:
                yield i, waiting.pop(i)
            yield rest[j], part
        for i, record in waiting.items():
            yield i, record

    async def _result(
        self, texts: Iterable[str], work: Rounds[T], call: Call, alternatives: int = 0
    ) -> T:
        """Result of work on some texts, which `call.check` ends."""
        texts = list(texts)
        answers: list[Answer] | None = None
        while True:
            try:
                done, orders = await call.on_texts(texts, _go_on, work, answers)
            except TransduceError as error:
                raise invalid(str(error)) from None
            if orders is None:
                return done[0]
            answers = await self._answers(orders, call, alternatives)

    async def _answers(self, orders: Round, call: Call, alternatives: int = 0) -> list[Answer]:
        hop = self._hops[orders[0]]
        more = alternatives if hop is self._hops[-1] else 0
        return await hop.answers(orders[1], call, more)


async def lasting(parts: AsyncIterator[Part], ends: list[Part]) -> AsyncIterator[str]:
    """Texts of the parts of a translation; parts with more than a text are added to a list.

    Raises RequestError 422 where a text is withdrawn.
    """
    async for part in parts:
        if part.is_end:
            ends.append(part)
        if part.record is not None and part.withdrawn:
            raise RequestError(422, f"not translated: {part.record.reason}", "untranslated")
        if part.text:
            yield part.text


HELD = (*SIGNS, "&", "#", "~", "`", "_", " :", "--", "://", "www.")
"""Signs of a placeholder, from which on a streamed sentence waits for its check."""


def _go_on(work: Rounds[T], answers: list[Answer] | None) -> tuple[tuple[T, ...], Round | None]:
    """The result of some work, or nothing and its next round."""
    try:
        return (), next(work) if answers is None else work.send(answers)
    except StopIteration as stop:
        return (stop.value,), None


def _record_of(key: str, sentence: str, output: str) -> Record:
    try:
        check_translation(protect(sentence), output)
    except DataError as error:
        return untranslated_record(key, sentence, str(error))
    return Record(key, sentence, output, "translated")


def _segments_of(text: str, name: str) -> dict[int, Segment]:
    """Lines of a text that have words, by their places.  name: of the text, before their keys."""
    return {
        i: Segment(f"{name}line {i + 1}", line.strip(), ())
        for i, line in enumerate(text.splitlines())
        if any(map(str.isalnum, line))
    }


def _with_lines(text: str, targets: dict[int, str]) -> str:
    """A text with others in some of its lines, between the white space there."""
    lines = text.splitlines(keepends=True)
    for i, target in targets.items():
        before, _, after = lines[i].partition(lines[i].strip())
        lines[i] = before + target + after
    return "".join(lines)


def _is_plain(text: str) -> bool:
    """True for a text without placeholders; False, too, where they could not be told apart."""
    try:
        return not protect(text).marks
    except DataError:
        return False


def _pieces(text: str, language: str) -> Sentences:
    """Sentences of a text; a line with placeholders is a sentence."""
    texts: list[str] = []
    between = [""]
    for line in text.splitlines(keepends=True):
        cut = split_sentences(line, language)
        if cut.texts and not _is_plain(line):
            before, _, after = line.partition(line.strip())
            cut = Sentences((line.strip(),), (before, after))
        between[-1] += cut.between[0]
        texts += cut.texts
        between += cut.between[1:]
    return Sentences(tuple(texts), tuple(between))


HEADER = "Transduce-Untranslated"
"""Number of the lines, blocks or cues that an answer leaves as they were; absent for none."""

Left = Sequence[Mapping[str, object]]


def _is_named(record: Record) -> bool:
    return not (record.is_done and record.is_finished)


def left_of_texts(translated: Iterable[Translated]) -> Left:
    """Index and reason of each line or block that was not translated, or cut off, by the index of
    its text."""
    return [_shown(i, record) for i, text in enumerate(translated) for record in text.left]


def left_of_records(records: Iterable[Record]) -> Left:
    """The same for the segments of a document, or the sentences of a stream."""
    return [_shown(i, record) for i, record in enumerate(records) if _is_named(record)]


def left_of_parts(ends: Iterable[Part]) -> Left:
    """The same for the records of a stream."""
    return left_of_records(part.record for part in ends if part.record is not None)


def is_finished(left: Left) -> bool:
    """False where a translation was cut off."""
    return "unfinished" not in left_fields(left)


def left_fields(left: Left) -> dict[str, Any]:
    """Fields of an answer: `untranslated` for what stays, `unfinished` for what was cut off."""
    fields: dict[str, list[object]] = {}
    for row in left:
        name = "unfinished" if str(row["reason"]).endswith(CUT_OFF) else "untranslated"
        fields.setdefault(name, []).append(row)
    return fields


def headers(left: Left) -> dict[str, str]:
    """The header of an answer."""
    untranslated = left_fields(left).get("untranslated")
    return {HEADER: str(len(untranslated))} if untranslated else {}


def answer(content: Mapping[str, Any], left: Left) -> JSONResponse:
    """An answer in JSON with the fields and the header of what is left."""
    return JSONResponse({**content, **left_fields(left)}, headers=headers(left))


def last_event(ends: Sequence[Part]) -> dict[str, object]:
    """The last event of a stream with these records and unknown parts."""
    return {"done": True, **left_fields(left_of_parts(ends)), **unknown_field(ends[-1:])}


def unknown_field(answers: Sequence[Part | Translated]) -> dict[str, Any]:
    """Field of an answer with the unknown parts of a request; none without any."""
    return {"unknown": answers[0].unknown} if answers and answers[0].unknown else {}


def _shown(index: int, record: Record) -> dict[str, object]:
    return {"index": index, "reason": f"{record.key}: {record.reason}"}
