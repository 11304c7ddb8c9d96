"""Checks of translations that need no model: terms of a glossary, blanks, marks, doubled words,
length, capitals."""

import bisect
import csv
import dataclasses
import io
import itertools
import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from transduce.decoding.options import MOST_PHRASES
from transduce.errors import DataError
from transduce.localise.document import Record, Segment, Written, untranslated_record
from transduce.localise.inline import from_markup, parts_of
from transduce.localise.placeholders import MARKS, PLACEHOLDER, protect
from transduce.localise.plurals import has_choice, parse_message
from transduce.localise.reader_checks import Fault, placeholder_faults, protected_pair
from transduce.text.scripts import is_of_word, is_unspaced

SURFACE_ENDS = {
    **dict.fromkeys(".。．।۔։።", "full stop"),
    **dict.fromkeys("?？؟;", "question mark"),
    **dict.fromkeys("!！", "exclamation mark"),
    **dict.fromkeys(":：", "colon"),
    **dict.fromkeys("…⋯", "ellipsis"),
    **dict.fromkeys(",，、،", "comma"),
}
"""Marks at the end of a text, by their characters in several scripts."""
DOTS = re.compile(r"\.{3,}|。{2,}|…+")
SURFACE_CLOSING = "\"'”’»›)）」』】]"
QUOTES = re.compile("[\"«»„“”‟「」『』″]|``|''")
SURFACE_BRACKETS = (("(（", ")）"), ("[［", "]］"), ("{", "}"))
ACCELERATOR = re.compile("[(（][&_\ufffc][^\\W_][)）]")
"""Behind a label in Chinese, Japanese and Korean."""
DOUBLED = re.compile(r"\b([^\W\d_]{2,})\s+\1\b")
STOPLESS = re.compile("[\u0e00-\u0eff]")
"""Letters of scripts without full stops."""
LEAST_LETTERS = 10
"""Minimum letters of a source whose length is compared."""
SHORTEST, SHORTEST_UNSPACED, LONGEST = 0.25, 0.08, 3.0
"""Least and largest shares of the letters of a source, the second in scripts without blanks."""


def surface_faults(source: str, target: str) -> Iterator[str]:
    """Differences between a source and its target, with marks in place of placeholders."""
    yield from _blank_faults(source, target)
    source, target = source.strip(), target.strip()
    ours, theirs = _end(source), _end(target)
    if ours != theirs and not (ours == "full stop" and STOPLESS.fullmatch(target[-1:])):
        yield f"the end is {_named(theirs)}, in the source {_named(ours)}"
    if len(DOTS.findall(source)) != len(DOTS.findall(target)) and "ellipsis" not in (ours, theirs):
        yield "the source has another number of ellipses"
    bare, translated = (ACCELERATOR.sub("", text) for text in (source, target))
    for opening, closing in SURFACE_BRACKETS:
        counts = [
            (sum(map(text.count, opening)), sum(map(text.count, closing)))
            for text in (bare, translated)
        ]
        if counts[0] != counts[1]:
            yield f"the source has another number of {opening[0]} or {closing[0]}"
    n_quotes = [len(QUOTES.findall(text)) for text in (source, target)]
    if n_quotes[0] != n_quotes[1]:
        yield "the source has another number of quotes"
    for word in DOUBLED.findall(target):
        if not DOUBLED.search(source):
            yield f"the word {word} is doubled"
    yield from _letter_faults(source, target)


def _blank_faults(source: str, target: str) -> Iterator[str]:
    for side, ours, theirs in (
        ("beginning", _leading(source), _leading(target)),
        ("end", _leading(source[::-1]), _leading(target[::-1])),
    ):
        if ("\n" in ours) != ("\n" in theirs):
            fault = "missing" if "\n" in ours else "not in the source"
            yield f"the line break at the {side} is {fault}"
        elif ours.replace("\n", "") != theirs.replace("\n", ""):
            yield f"the blanks at the {side} are others"
    if "  " in target.strip() and "  " not in source.strip():
        yield "a blank is doubled"
    if source.count("\t") != target.count("\t"):
        yield "the source has another number of tabs"


def _letter_faults(source: str, target: str) -> Iterator[str]:
    ours, theirs = (sum(map(str.isalpha, text)) for text in (source, target))
    words = re.findall(r"[^\W\d_]{3,}", source)
    if source == target and len(words) > 1:
        yield "it is a copy of the source"
    if ours >= LEAST_LETTERS:
        is_dense = any(map(is_unspaced, target)) and not any(map(is_unspaced, source))
        shortest = SHORTEST_UNSPACED if is_dense else SHORTEST
        if theirs < ours * shortest and not any(map(is_unspaced, source)):
            yield "it is far shorter than the source"
        if theirs > ours * LONGEST and not any(map(is_unspaced, source)):
            yield "it is far longer than the source"
    first, translated = source[:1], target[:1]
    if first.isupper() and translated.islower():
        yield "it begins with a small letter, the source with a capital"
    if first.islower() and translated.isupper() and not target[:2].isupper():
        yield "it begins with a capital, the source with a small letter"


def _leading(text: str) -> str:
    return text[: len(text) - len(text.lstrip())]


def _end(text: str) -> str:
    """Name of the mark at the end, quotes and brackets left out; "" for none."""
    text = text.rstrip(SURFACE_CLOSING + " \u00a0\u202f")
    if DOTS.search(text[-3:]) and text[-1:] in ".…。":
        return "ellipsis"
    return SURFACE_ENDS.get(text[-1:], "")


def _named(end: str) -> str:
    return f"{'an' if end[:1] == 'e' else 'a'} {end}" if end else "without a mark"


Constraint = str | tuple[str, ...]
"""A phrase that is in the output, or phrases of which any is."""
Glossary = Callable[[str], Sequence[Constraint]]
"""Constraints of a sentence, by the terms in it."""
MOST_OF_A_TERM = 1000
"""Characters of a term."""
WORD, INSIDE = re.compile(r"\w"), re.compile(r"(?<=\w)")


def no_glossary(sentence: str) -> Sequence[Constraint]:
    """The glossary without terms."""
    return ()


class Terms:
    """Source terms with their translations, both with `|` between their forms: any form of the
    term is found, and any of its translation is in the output.

    A term is found as a whole word outside of placeholders, also with a capital at its beginning;
    of two that overlap the longer counts.  Its translation is in the output as given; with a
    capital at its beginning only if it has none and the term begins the sentence.

    form: of terms and sentences when they are compared, such as lower case.
    """

    def __init__(self, entries: Mapping[str, str], form: Callable[[str], str] = str) -> None:
        forms = {f: target for term, target in entries.items() for f in term.split("|") if f}
        targets = {capitalised(term): target for term, target in forms.items()} | forms
        self._targets = {form(term): target for term, target in targets.items()}
        self._terms = sorted(self._targets)
        self._lengths = [*map(len, self._terms)]
        self._longest = max(self._lengths, default=0)
        # Of each term the index of the longest other one that it begins with; -1 for none.
        self._beginnings: list[int] = []
        for i, term in enumerate(self._terms):
            shorter = i - 1
            while shorter >= 0 and not term.startswith(self._terms[shorter]):
                shorter = self._beginnings[shorter]
            self._beginnings.append(shorter)
        self._form = form

    def constraints(self, text: str) -> tuple[Constraint, ...]:
        """For each term in a sentence its translation, each once, at most `MOST_PHRASES`."""
        text = PLACEHOLDER.sub(lambda match: " " * len(match[0]), self._form(text))
        first = next((i for i, c in enumerate(text) if c.isalnum()), 0)
        spellings: dict[str, Constraint] = {}
        start = 0
        while self._terms and start < len(text):
            term = self._term_at(text, start)
            if term:
                target = self._targets[term]
                may_begin = start <= first and target.islower()
                forms = [form for form in target.split("|") if form]
                both = (*forms, *map(capitalised, forms)) if may_begin else forms
                spellings.setdefault(target, tuple(dict.fromkeys(both)))
            start += max(len(term), 1)
        return tuple(spellings.values())[:MOST_PHRASES]

    def _term_at(self, text: str, start: int) -> str:
        """The longest term that begins at a place, as a whole word; "" for none."""
        if is_of_word(text[start]) and INSIDE.match(text, start):
            return ""
        rest = text[start : start + self._longest]
        i = bisect.bisect(self._terms, rest) - 1
        pairs = zip(rest, self._terms[i], strict=False)
        common = next((j for j, (a, b) in enumerate(pairs) if a != b), len(rest))
        while i >= 0 and (self._lengths[i] > common or self._ends_inside(text, start, i)):
            i = self._beginnings[i]
        return self._terms[i] if i >= 0 else ""

    def _ends_inside(self, text: str, start: int, i: int) -> bool:
        """True for a term that a word goes on after."""
        end = start + self._lengths[i]
        return is_of_word(text[end - 1]) and WORD.match(text, end) is not None


def capitalised(text: str) -> str:
    """A text with a capital at its beginning."""
    return text[:1].upper() + text[1:]


def as_words(term: str) -> str:
    """Pattern of a term that no word goes on before or after, in scripts with spaces."""
    before = r"(?<!\w)" if is_of_word(term[0]) else ""
    after = r"(?!\w)" if is_of_word(term[-1]) else ""
    return before + re.escape(term) + after


def read_entries(text: str, is_csv: bool) -> dict[str, str]:
    """Entries from lines of source and target, between which is a tab, or in CSV a comma.

    Raises DataError with the number of the line.
    """
    entries: dict[str, str] = {}
    for number, (source, target) in enumerate(_check_rows(text, is_csv), 1):
        source, target = source.strip(), target.strip()
        if not source or not target:
            raise DataError(f"entry {number} of the glossary lacks a source or a target")
        if max(len(source), len(target)) > MOST_OF_A_TERM:
            raise DataError(f"entry {number} of the glossary exceeds {MOST_OF_A_TERM} characters")
        if source in entries:
            raise DataError(f"entry {number} of the glossary has the source of an earlier one")
        entries[source] = target
    if not entries:
        raise DataError("the glossary has no entries")
    return entries


def _check_rows(text: str, is_csv: bool) -> Iterator[tuple[str, str]]:
    lines = (line.split("\t") for line in text.splitlines() if line.strip())
    for number, row in enumerate(filter(None, csv_rows(text) if is_csv else lines), 1):
        if len(row) < 2 or (len(row) > 2 and not is_csv):
            raise DataError(f"entry {number} of the glossary is not a source and a target")
        yield row[0], row[1]


def csv_rows(text: str) -> Iterator[list[str]]:
    """Rows of a glossary in CSV.  Raises DataError for other text."""
    try:
        yield from csv.reader(io.StringIO(text), strict=True)
    except csv.Error as error:
        raise DataError(f"the glossary is not CSV: {error}") from None


NUMBER = re.compile(r"\d+(?:[.,'’\u00a0\u202f ]\d{3}(?!\d))*")
ACCENTED = str.maketrans(
    string.ascii_letters, "áƀćđéƒǧĥíĵķłɱñóƥɋŕšţúṽŵẋýžÁɃĆĐÉƑǦĤÍĴĶŁṀÑÓƤɊŔŠŢÚṼŴẊÝŽ"
)
CHECK_SIGN = "\ufffc"
"""Sign in place of a placeholder."""
PLURAL = ", plural"
"""End of the keys of plurals."""


def pseudo_translated(segments: Sequence[Segment]) -> list[Record]:
    """Segments in brackets with accents on their letters, placeholders as they are: shows what of
    a program is translated, and whether longer texts and other letters fit."""
    records = []
    for segment in segments:
        try:
            text = _pseudo(segment)
            records.append(Record(segment.key, segment.source, text, "translated"))
        except DataError as error:
            records.append(untranslated_record(segment.key, segment.source, str(error)))
    return records


def _pseudo(segment: Segment) -> str:
    if has_choice(segment.source, segment.tags):
        message = parse_message(segment.source)
        flags = segment.flags | {"icu"}
        texts = (_accented(text, segment, flags) for text in message.texts())
        return message.with_texts(texts)
    return _accented(segment.source, segment, segment.flags)


def _accented(text: str, segment: Segment, flags: frozenset[str]) -> str:
    tags = [part for is_tag, part in parts_of(text, segment.tags) if is_tag]
    source = protect(text, tags, segment.markup, flags)
    accented = "".join(c if c in source.names else c.translate(ACCENTED) for c in source.text)
    return source.restored(f"[{accented}]")


Faults = Callable[[Segment, Written], Iterator[Fault]]
"""Faults of a translation of a segment."""


def checked(segments: Sequence[Segment], faults: Faults | None = None) -> list[Record]:
    """A record for each translation in a document; one with a fatal fault is not done, and the
    reason of any other names its warnings.

    faults: by default the fatal ones of placeholders and tags.  The singular of a plural may be as
    its plural.
    """
    records = []
    for _, group in itertools.groupby(segments, lambda segment: segment.key.removesuffix(PLURAL)):
        forms = list(group)
        for segment in forms:
            if not segment.target:
                continue
            sources = [segment] if segment.key.endswith(PLURAL) else forms
            record = Record(segment.key, segment.source, segment.target, "translated")
            for written in segment.translations:
                outcome = _outcome(sources, written, faults or broken)
                if any(fault.is_fatal for fault in outcome):
                    record = dataclasses.replace(record, state="needs-translation", reason="")
                    outcome = [fault for fault in outcome if fault.is_fatal]
                reasons = [record.reason, *(fault.text for fault in outcome)]
                reason = "; ".join(dict.fromkeys(filter(None, reasons)))
                record = dataclasses.replace(record, reason=reason)
                if not record.is_done:
                    break
            records.append(record)
    return records


def _outcome(sources: Sequence[Segment], written: Written, faults: Faults) -> list[Fault]:
    """Faults beside the source of which a translation has none, or else the first."""
    outcomes = [list(faults(source, written)) for source in sources]
    held = (faults for faults in outcomes if not any(fault.is_fatal for fault in faults))
    return next(held, outcomes[0])


def broken(segment: Segment, written: Written) -> Iterator[Fault]:
    """The first fatal fault of the placeholders and tags of a translation."""
    faults = _reader_faults(segment, written)
    return itertools.islice((fault for fault in faults if fault.is_fatal), 1)


def _reader_faults(segment: Segment, written: Written) -> Iterator[Fault]:
    yield from placeholder_faults(segment, written.text, written.is_rare)
    ends_line = segment.around[1].endswith("\n")
    if segment.written and ends_line != written.text.endswith("\n"):
        fault = "missing" if ends_line else "not in the source"
        yield Fault(f"the line break at the end is {fault}")


def faults_by(glossary: Glossary) -> Faults:
    """All faults of a translation: the first fatal one of placeholders, else those of numbers,
    terms and its length, and warnings."""

    def faults(segment: Segment, written: Written) -> Iterator[Fault]:
        by_reader = list(_reader_faults(segment, written))
        if fatal := next((fault for fault in by_reader if fault.is_fatal), None):
            yield fatal
            return
        yield from by_reader
        source, text = _bare(segment, written.text)
        if not written.is_rare:
            for number in _numbers(source) - _numbers(text):
                yield Fault(f"the number {number} is missing")
        for forms in glossary(source):
            forms = (forms,) if isinstance(forms, str) else forms
            if not re.search("|".join(map(as_words, forms)), text, re.IGNORECASE):
                yield Fault(f"the term {forms[0]} is missing")
        yield from map(Fault, too_long(segment, segment.target))
        before, after = segment.around
        yield from (Fault(f, False) for f in surface_faults(f"{before}{source}{after}", text))

    return faults


def _bare(segment: Segment, text: str) -> tuple[str, str]:
    """A source and its translation with one sign for each placeholder; of a message with a text for
    each case as they are."""
    if has_choice(segment.source, segment.tags):
        return segment.source, segment.source
    source, translated = protected_pair(segment, text)
    return re.sub(f"[{MARKS}]", CHECK_SIGN, source.text), re.sub(
        f"[{MARKS}]", CHECK_SIGN, translated.text
    )


def too_long(segment: Segment, target: str) -> Iterator[str]:
    """The fault of a target with more characters than its format allows, tags left out."""
    parts = parts_of(target, segment.tags)
    texts = (part for is_tag, part in parts if not is_tag)
    length = sum(len(from_markup(text) if segment.markup else text) for text in texts)
    if segment.limit and length > segment.limit:
        yield f"the translation has {length} characters, of at most {segment.limit}"


def _numbers(text: str) -> Counter[str]:
    """Digits of the numbers of a text, whatever stands between thousands."""
    return Counter(
        "".join(str(unicodedata.digit(c, "")) for c in number[0]).lstrip("0") or "0"
        for number in NUMBER.finditer(text)
    )
