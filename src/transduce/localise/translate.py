"""Translation of segments: protect, cut into sentences, translate, put back, check; links
between words.

    protect    placeholders and tags become marks (`placeholders`)
    sentences  cut in that form, so that no placeholder is torn (`sentences`)
    translate  a sentence with placeholders in three ways, until a result passes the check: as it
               is, if it has no tags; without them (`detagging`), put back by the alignment
               (`projection`); as output constraints of the search, if the output is like the
               translation without them
    check      each placeholder once, in a sensible place; else the source text is returned

`localised` does all with functions that translate and align.  `localisation` gives the same as a
generator of orders, for a caller with a queue of its own.
"""

from __future__ import annotations

import dataclasses
import html
import itertools
import re
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeVar

from transduce.decoding.options import DecodingOptions
from transduce.errors import CancelledError, DataError, TransduceError, UnknownTextError
from transduce.localise.checks import too_long
from transduce.localise.counted import with_number, without_number
from transduce.localise.document import (
    CUT_OFF,
    Check,
    Kind,
    Record,
    Segment,
    Span,
    unchecked,
    untranslated_record,
)
from transduce.localise.inline import parts_of
from transduce.localise.placeholders import PLACEHOLDER, Protected, check_placeholders, protect
from transduce.localise.plurals import Leaf, has_choice, parse_message
from transduce.localise.projection import Links, cut_by_links, detagged, projected
from transduce.localise.sentences import Sentences, split_sentences, unwrapped
from transduce.text.offsets import token_spans
from transduce.text.scripts import has_words, visible

if TYPE_CHECKING:
    from transduce.tasks.translation.translator import Translator


T = TypeVar("T")

EMPTY = "the translation is empty"
SIMILAR = 0.6
"""Minimum similarity of a translation with placeholders and that of the plain text."""
CODE = re.compile(r"<(?P<name>code|kbd|samp|var|tt)\b[^<>]*>(?P<text>[^\s<>][^<>]*)</(?P=name)>")
"""An element of code: a model may keep its text, letter for letter."""
WORD = "字"
"""Substitute for placeholders while sentences are split: neither an initial nor a capital."""


class Translated(Protocol):
    """A translation."""

    @property
    def text(self) -> str:
        """The output."""

    @property
    def finished(self) -> bool:
        """False where it was cut off at its greatest length."""


class CutOff(str):
    """A translation that was cut off at its greatest length."""


def answer_of(output: Translated) -> str:
    """The answer to an order."""
    return output.text if output.finished else CutOff(output.text)


Translate = Callable[
    [Sequence[str], Sequence[DecodingOptions]], Sequence[Translated | TransduceError]
]
"""Translation of each text by its options, or the error in them, as `Translator.attempt`."""
Align = Callable[[Sequence[tuple[str, str]]], Sequence[Links]]
"""Links between each source and its output, as `alignment.aligner` makes them."""


@dataclass(frozen=True, slots=True)
class Order:
    """A translation to make, with phrases that it contains, or with an `output` an alignment.

    key: of its segment, for messages.  plain: the text without placeholders, where it has any.
    """

    text: str
    constraints: tuple[str, ...] = ()
    output: str | None = None
    key: str = field(default="", compare=False)
    plain: str = field(default="", compare=False)

    @property
    def words(self) -> str:
        """The text that the model is to understand."""
        return self.plain or self.text


BLOCK = 4000
"""Segments in work at a time, each of which takes some 5,000 bytes."""

Inspect = Callable[[Order], None]
"""Called with an order before it is translated; raises UnknownTextError to leave its segment."""


def _uninspected(order: Order) -> None:
    """Nothing."""


Answer = str | Links | TransduceError
"""A translation, an alignment, or the error in an order."""
Work = Generator[list[Order], list[Answer], T]


def localised(
    segments: Sequence[Segment],
    language: str,
    translate: Translate,
    options: DecodingOptions,
    align: Align | None = None,
    target_language: str | None = None,
    inspect: Inspect = _uninspected,
) -> list[Record]:
    """Translate segments, each placeholder kept exactly once.

    language: code of the source.  options: placeholders are added to their constraints.  align:
    without it, placeholders are kept by constraints alone.  target_language: code, for plural forms
    in messages of ICU.  inspect: sees each text before it is translated.  A segment that cannot be
    translated so stays as it is; other errors of the translator are raised.
    """

    def options_of(order: Order) -> DecodingOptions:
        inspect(order)
        return dataclasses.replace(options, constraints=(*options.constraints, *order.constraints))

    work = localisation(segments, language, align is not None, target_language=target_language)
    try:
        orders = next(work)
        while True:
            orders = work.send(_answers(orders, translate, options_of, align))
    except StopIteration as stop:
        records: list[Record] = stop.value
        return records


def _answers(
    orders: Sequence[Order],
    translate: Translate,
    options: Callable[[Order], DecodingOptions],
    align: Align | None,
) -> list[Answer]:
    requests, pairs, answers = parted_orders(orders, options)
    if requests:
        outputs = translate([orders[number].text for number in requests], list(requests.values()))
        for number, output in zip(requests, outputs, strict=True):
            answers[number] = output if isinstance(output, TransduceError) else answer_of(output)
    if align is not None and pairs:
        try:
            answers |= zip(pairs, align(list(pairs.values())), strict=True)
        except CancelledError:
            raise
        except TransduceError as error:  # of a model that cannot align
            answers |= dict.fromkeys(pairs, error)
    return [answers[number] for number in range(len(orders))]


def parted_orders(
    orders: Sequence[Order], options: Callable[[Order], DecodingOptions]
) -> tuple[dict[int, DecodingOptions], dict[int, tuple[str, str]], dict[int, Answer]]:
    """Options of the orders to translate, pairs of those to align, and errors in their options."""
    requests: dict[int, DecodingOptions] = {}
    pairs: dict[int, tuple[str, str]] = {}
    errors: dict[int, Answer] = {}
    for number, order in enumerate(orders):
        if order.output is not None:
            pairs[number] = order.text, order.output
            continue
        try:
            requests[number] = options(order)
        except TransduceError as error:
            errors[number] = error
    return requests, pairs, errors


def localisation(
    segments: Sequence[Segment],
    language: str,
    can_align: bool,
    check: Check = unchecked,
    target_language: str | None = None,
) -> Work[list[Record]]:
    """The orders of some segments, in rounds: send the answers to each list, in its order.

    language: code of the source language.  check: called between steps; raises an error to end the
    work.  target_language: code; None if unknown.  can_align: True if alignments are answered.  A
    sentence without placeholders needs a single round, any other at most five, for each `BLOCK`.
    Raises SettingError if the extra `serve` is missing, and the error in an order without
    constraints.
    """

    def blocks() -> Work[list[Record | DataError]]:
        results: list[Record | DataError] = []
        for start in range(0, len(segments), BLOCK):
            block = segments[start : start + BLOCK]
            works = (
                _named(s.key, _message(s, language, can_align, target_language)) for s in block
            )
            results += yield from _translate_together(works, check)
        return results

    results = yield from _each_once(blocks())
    records = []
    for segment, result in zip(segments, results, strict=True):
        if isinstance(result, DataError):
            result = untranslated_record(segment.key, segment.source, str(result))
        elif fault := next(too_long(segment, result.target), ""):
            result = untranslated_record(segment.key, segment.source, fault)
        records.append(result)
    return records


def _each_once(work: Work[T]) -> Work[T]:
    """The work, whose equal orders, in a round or in several, are given once."""
    answers: dict[Order, Answer] = {}
    try:
        orders = next(work)
        while True:
            fresh = [order for order in dict.fromkeys(orders) if order not in answers]
            if fresh:
                answers.update(zip(fresh, (yield fresh), strict=True))
            orders = work.send([answers[order] for order in orders])
    except StopIteration as stop:
        result: T = stop.value
        return result


def _named(key: str, work: Work[Record]) -> Work[Record]:
    """The work, whose orders have the key of its segment, with the reason of a cut-off sentence."""
    is_cut = False
    try:
        orders = next(work)
        while True:
            answers = yield [dataclasses.replace(order, key=key) for order in orders]
            is_cut = is_cut or any(isinstance(answer, CutOff) for answer in answers)
            orders = work.send(answers)
    except StopIteration as stop:
        record: Record = stop.value
        if not is_cut:
            return record
        reason = "; ".join(filter(None, (record.reason, CUT_OFF)))
        return dataclasses.replace(record, reason=reason)


def _translate_together(
    works: Iterable[Work[T]], check: Check = unchecked
) -> Work[list[T | DataError]]:
    """Results of several works, or their DataErrors; all orders of a round in a list."""
    running = list(works)
    results: dict[int, T | DataError] = {}
    orders: dict[int, list[Order]] = {}

    def go_on(number: int, answers: list[Answer] | None) -> None:
        check()
        work = running[number]
        try:
            orders[number] = next(work) if answers is None else work.send(answers)
        except StopIteration as stop:
            results[number] = stop.value
        except DataError as error:
            results[number] = error

    for number in range(len(running)):
        go_on(number, None)
    while orders:
        round_, orders = orders, {}
        answers = iter((yield list(itertools.chain(*round_.values()))))
        for number, some in round_.items():
            go_on(number, list(itertools.islice(answers, len(some))))
    return [results[number] for number in range(len(running))]


def _message(
    segment: Segment, language: str, can_align: bool, target_language: str | None
) -> Work[Record]:
    """The translation of a segment; of a message of ICU, of each of its texts."""
    if segment.match:
        return segment.matched()
    if not has_choice(segment.source, segment.tags):
        whole = yield from _segment(segment, language, can_align)
        forms = yield from _plural_forms(segment, language, can_align)
        return dataclasses.replace(whole, forms=forms)
    message = parse_message(segment.source).in_language(language, target_language)
    leaves = [*message.leaves()]
    translations = yield from _leaves(segment, leaves, language, can_align)
    targets = []
    for leaf in leaves:
        result = translations.get(leaf) or translations.get(Leaf(leaf.text))
        if isinstance(result, DataError):
            raise result
        target = leaf.text
        if result is not None:
            output = result.target
            if "'" not in leaf.text and "message-format" not in segment.flags:
                output = re.sub(r"'(?=[{}#|])", "''", output)
            target = target.replace(target.strip(), output)
        targets.append(target)
    return Record(segment.key, segment.source, message.with_texts(iter(targets)), "translated")


def _leaves(
    segment: Segment, leaves: Sequence[Leaf], language: str, can_align: bool
) -> Work[dict[Leaf, Record | DataError]]:
    """Translations of the texts of a message: each by itself, and with a number where it has one
    that can be put back."""
    texts = {
        leaf.text: _leaf(segment, leaf.text.strip())
        for leaf in leaves
        if any(map(str.isalnum, PLACEHOLDER.sub("", leaf.text)))
    }
    parts = {Leaf(text): part for text, part in texts.items()}
    for leaf in leaves:
        part = texts.get(leaf.text)
        if part and leaf.number and (counted := with_number(part, leaf.number, leaf.argument)):
            parts[leaf] = counted
    works = (_segment(part, language, can_align) for part in parts.values())
    results = yield from _translate_together(works)
    translations: dict[Leaf, Record | DataError] = {}
    for leaf, result in zip(parts, results, strict=True):
        if not leaf.number:
            translations[leaf] = result
        elif isinstance(result, Record):
            part = texts[leaf.text]
            if target := without_number(part, leaf.number, result.target, leaf.argument):
                translations[leaf] = dataclasses.replace(result, target=target)
    return translations


def _plural_forms(
    segment: Segment, language: str, can_align: bool
) -> Work[tuple[tuple[str, str], ...]]:
    """Translations of the plural forms of a segment, each made with a number of it; those that
    cannot be made so are left out."""
    counted = {
        (name, number): leaf
        for name, number in segment.forms
        if (leaf := with_number(segment, number)) is not None
    }
    results = yield from _translate_together(
        _segment(leaf, language, can_align) for leaf in counted.values()
    )
    return tuple(
        (name, target)
        for (name, number), result in zip(counted, results, strict=True)
        if isinstance(result, Record) and (target := without_number(segment, number, result.target))
    )


def _leaf(segment: Segment, text: str) -> Segment:
    """A text of a message as a segment, in which `#` stands for a number."""
    tags = tuple(part for is_tag, part in parts_of(text, segment.tags) if is_tag)
    flags = segment.flags | {"icu"}
    return dataclasses.replace(segment, source=text, tags=tags, flags=flags)


def _segment(segment: Segment, language: str, can_align: bool) -> Work[Record]:
    source = protect(segment.source, segment.tags, segment.markup, segment.flags)
    wrapped = unwrapped(source.text)
    if not segment.borders:
        source = dataclasses.replace(source, text="\n".join(wrapped.rows))
    sentences = protected_sentences(source, language)
    outputs = []
    for output in (
        yield from _translate_together(
            _sentence(source, text, can_align) for text in sentences.texts
        )
    ):
        if isinstance(output, DataError):
            raise output
        if not output.strip():
            raise DataError(EMPTY)
        outputs.append(" ".join(output.splitlines()))
    text = sentences.joined(outputs)
    check_translation(source, text)
    text = source.restored(wrapped.again(text))
    if can_align and segment.borders:
        text = yield from _with_borders(segment, text)
    outside = "".join(c for c in " ".join(sentences.between) if c not in source.names)
    enumerators = " ".join(word for word in outside.split() if any(map(str.isalpha, word)))
    reason = f"outside of its sentences: {enumerators}" if enumerators else ""
    return Record(segment.key, segment.source, text, "translated", reason)


def check_translation(source: Protected, text: str) -> None:
    """Check a translation with marks.  Raises DataError with the reason of a record."""
    if not text.strip():
        raise DataError(EMPTY)
    try:
        check_placeholders(source, text)
    except DataError as error:
        raise DataError(f"placeholders are not kept: {error}") from None


def _with_borders(segment: Segment, text: str) -> Work[str]:
    """A translation with line breaks where the alignment puts the borders of its source."""
    source = visible(segment.source)
    before = [len(visible(segment.source[:border])) for border in segment.borders]
    (links,) = yield [Order(source, output=visible(text))]
    if isinstance(links, CancelledError):
        raise links
    if isinstance(links, (str, TransduceError)):
        return text
    return "\n".join(cut_by_links(text, links, before, len(source))) or text


def protected_sentences(source: Protected, language: str) -> Sentences:
    """Sentences of a protected text: tags count as blanks, and may stand between two."""
    masked = "".join(
        c if c not in source.names else WORD if source.kinds[c] == "text" else " "
        for c in source.text
    )
    texts, between = split_sentences(masked, language)
    parts = itertools.chain.from_iterable(zip(between, (*texts, ""), strict=True))
    ends = list(itertools.accumulate(map(len, parts), initial=0))
    original = [source.text[start:end] for start, end in itertools.pairwise(ends)]
    return Sentences(*_with_tags(source, original[1:-1:2], original[::2]))


def _with_tags(
    source: Protected, texts: Sequence[str], between: Sequence[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Sentences and gaps, tags beside a sentence whose partner is in it moved into it."""
    ends = source.partners(source.text)
    starts = {end: start for start, end in ends.items()}
    whole, gaps = [], [between[0]]
    for text, after in zip(texts, between[1:], strict=True):
        inside = set(text)
        while ends.get((gap := gaps[-1].rstrip(" "))[-1:]) in inside:
            text, gaps[-1] = gaps[-1][len(gap) - 1 :] + text, gap[:-1]
            inside.add(gap[-1])
        while starts.get((gap := after.lstrip(" "))[:1]) in inside:
            length = len(after) - len(gap) + 1
            text, after = text + after[:length], after[length:]
            inside.add(gap[0])
        whole.append(text)
        gaps.append(after)
    return tuple(whole), tuple(gaps)


def _sentence(whole: Protected, text: str, can_align: bool) -> Work[str]:
    source = dataclasses.replace(whole, text=text)
    if not has_words("".join(" " if c in source.names else c for c in text)):
        return text
    if not source.marks:
        (answer,) = yield [Order(text)]
        return _output(answer)
    if can_align and (output := (yield from _reordered(source))):
        return output
    shown = _with_code(source)
    ways = [_as_it_is(shown)] if all(shown.kinds[c] == "text" for c in source.marks) else []
    ways += [_by_alignment(source)] if can_align else []
    ways.append(_by_constraints(source))
    reasons = []
    for way in ways:
        try:
            output = yield from way
            check_placeholders(source, output)
            return output
        except (CancelledError, UnknownTextError):
            raise
        except TransduceError as error:
            reasons.append(str(error))
    raise DataError(f"placeholders are not kept: {reasons[-1 - can_align]}")


def _reordered(source: Protected) -> Work[str]:
    """By alignment, if equal placeholders that count by their place come in another order, which a
    translation of them as they are does not show; else empty.  Raises DataError where they cannot
    be numbered."""
    order = source.order(source.text)
    if len({source.names[mark] for mark in order}) == len(order):
        return ""
    try:
        output = yield from _by_alignment(source)
    except (CancelledError, UnknownTextError):
        raise
    except TransduceError:
        return ""
    if source.order(output) == order:
        return ""
    check_translation(source, output)
    return output


def _with_code(source: Protected) -> Protected:
    """The text with elements of code as what a reader sees of them."""
    code = {
        m: html.unescape(e["text"]) for m, n in source.names.items() if (e := CODE.fullmatch(n))
    }
    texts: dict[str, Kind] = dict.fromkeys(code, "text")
    return dataclasses.replace(
        source, names={**source.names, **code}, kinds={**source.kinds, **texts}
    )


def _as_it_is(source: Protected) -> Work[str]:
    """With the placeholders as they are: a model of messages has seen such."""
    (answer,) = yield [Order(source.shown(source.text), plain=detagged(source).text)]
    return source.marked(_output(answer))


def _by_constraints(source: Protected) -> Work[str]:
    """With the placeholders as they are, required in the output.  Raises DataError for an output
    unlike the translation of the plain text: a model may stray there, or end late."""
    names = tuple(dict.fromkeys(source.names[mark] for mark in source.marks))
    plain = detagged(source).text
    answers = yield [Order(source.shown(source.text), names, plain=plain), Order(plain)]
    output = source.marked(_output(answers[0]))
    visible = "".join(" " if c in source.names else c for c in output)
    if similarity(visible, _output(answers[1])) < SIMILAR:
        raise DataError("the model strays at " + ", ".join(names))
    return output


def similarity(a: str, b: str) -> float:
    """Dice coefficient of pairs of neighbouring characters, without spaces; 1 for equal texts."""
    texts = ["".join(text.lower().split()) for text in (a, b)]
    if texts[0] == texts[1]:
        return 1.0
    first, second = (Counter(map("".join, itertools.pairwise(text))) for text in texts)
    return 2 * (first & second).total() / max(first.total() + second.total(), 1)


def _by_alignment(source: Protected) -> Work[str]:
    """Without the placeholders, which go to the words that the alignment links to theirs."""
    plain = detagged(source)
    (answer,) = yield [Order(plain.text)]
    output = _output(answer)
    (links,) = yield [Order(plain.text, output=output)]
    if isinstance(links, TransduceError):
        raise links
    assert not isinstance(links, str)
    return projected(source, plain, output, links)


def _output(answer: Answer) -> str:
    if isinstance(answer, TransduceError):
        raise answer
    assert isinstance(answer, str)
    return answer


def aligner(translator: Translator) -> Align:
    """Function that aligns pairs by the attention of the last layer of a translator; it raises
    RunError for a model without cross-attention."""
    return lambda pairs: [_links(translator, *pair) for pair in pairs]


def _links(translator: Translator, source: str, target: str) -> Links:
    """Each token of the target with the token of the source that it attends to most."""
    attended = translator.attention(source, target, -1)[:-1, :-1]
    if not source or not target or not attended.size:
        return []
    sides = ((translator.source, source), (translator.target, target))
    spans = [
        [Span(*span) for span in token_spans(tokenizer, text, tokenizer.encode(text))]
        for tokenizer, text in sides
    ]
    best: Sequence[int] = attended.argmax(1).tolist()
    return [
        (spans[0][source_token], target_span)
        for source_token, target_span in zip(best, spans[1], strict=True)
        if spans[0][source_token].start < spans[0][source_token].end
        and target_span.start < target_span.end
    ]
