"""Sentences of a text, and the characters between them.

sentences = split_sentences("Guten Tag!  Wie geht's?\\n", "de")
sentences.texts                  # ("Guten Tag!", "Wie geht's?")
sentences.between                # ("", "  ", "\\n")
sentences.joined(["Hello!", "How are you?"])  # "Hello!  How are you?\\n"
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from transduce.errors import SettingError, extra_module
from transduce.text.scripts import (
    LONGEST,
    TAIL,
    code_of,
    goes_on,
    is_unspaced,
    leading,
    sentence_core,
)

SENTENCE_LEAST_WIDTH = 40
"""Minimum characters of the longest line of a text that is wrapped."""
WINDOW = 10_000
"""Characters searched for ends of sentences at a time: the time is quadratic."""


class Sentences(NamedTuple):
    """The sentences of a text, and the gaps before, between and after them."""

    texts: tuple[str, ...]
    """Without spaces, signs and enumerators at the ends; each has a letter or a digit, and no line
    break."""
    between: tuple[str, ...]
    """One more than `texts`: white space, line breaks, signs, enumerators."""

    def joined(self, outputs: Sequence[str]) -> str:
        """The text with an output in place of each sentence; `joined(texts)` is the text itself.

        Between sentences of one line, outputs in a script with spaces get a space where the source
        has none by its script (Chinese to English), and the reverse.
        """
        parts = [self.between[0]]
        for i, (text, output) in enumerate(zip(self.texts, outputs, strict=True)):
            blank = self.between[i + 1]
            if i + 1 < len(outputs):
                source = is_unspaced(text[-1]), is_unspaced(self.texts[i + 1][0])
                target = is_unspaced(output[-1:]), is_unspaced(outputs[i + 1][:1])
                if blank == "" and any(source) and not any(target):
                    blank = " "
                elif blank == " " and not any(source) and all(target):
                    blank = ""
            parts += output, blank
        return "".join(parts)


class Wrapped(NamedTuple):
    """A text whose lines that go on in the next are joined: its rows, the width of those."""

    rows: tuple[str, ...]
    widths: tuple[int, ...]

    def again(self, text: str) -> str:
        """A text of as many rows, those that were joined cut at blanks to lines of their width."""
        rows = text.split("\n")
        if len(rows) != len(self.rows):
            return text
        return "\n".join(
            _filled(row, width) if width else row
            for row, width in zip(rows, self.widths, strict=True)
        )


def _filled(row: str, width: int) -> str:
    """A row cut at its blanks to lines of a width, as far as it has some."""
    lines = [""]
    for word in row.split(" "):
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
            lines.append(word)
        else:
            lines[-1] += f" {word}" if lines[-1] else word
    return "\n".join(lines)


def unwrapped(text: str) -> Wrapped:
    """The rows of a text.  A line goes on in the next, if the first word of that has a small letter
    and would not fit the longest line, and no mark ends a sentence between them."""
    lines = text.split("\n")
    width = max(map(len, lines))
    rows, widths = [lines[0]], [0]
    for before, line in itertools.pairwise(lines):
        length = len(before) + 1 + len(line.partition(" ")[0])
        is_open = before[-1:].isalnum() or before[-1:] in (",", ";")
        if before and is_open and line[:1].islower() and length > width >= SENTENCE_LEAST_WIDTH:
            rows[-1] += f" {line}"
            widths[-1] = width
        else:
            rows.append(line)
            widths.append(0)
    return Wrapped(tuple(rows), tuple(widths))


def split_sentences(text: str, language: str) -> Sentences:
    """Cut a text at its line breaks, and each line at the ends of its sentences.

    language: code such as "de", "pt-BR" or "zh-Hant"; the rules of English apply to languages
    without rules.  No character changes.  Raises SettingError without the extra `serve`.
    """
    library = extra_module("sentencex", "sentence splitting", "serve", SettingError)
    code = code_of(language)
    texts: list[str] = []
    between = [""]
    for line in text.splitlines(keepends=True):
        head = leading(line, code)
        between[-1] += line[:head]
        for piece in _sentence_joined(_pieces(line[head:], code, library), code):
            start, end = sentence_core(piece, code)
            if start == end:
                between[-1] += piece
            else:
                between[-1] += piece[:start]
                texts.append(piece[start:end])
                between.append(piece[end:])
    return Sentences(tuple(texts), tuple(between))


def _sentence_joined(pieces: Iterable[str], code: str) -> Iterator[str]:
    """Sentences of a line from pieces, some of which end too early or with the next number."""
    parts: list[str] = []
    tail, is_count = "", False
    for whole in pieces:
        number = TAIL.search(whole[-LONGEST:])
        cut = max(len(whole) - LONGEST, 0) + number.end() if number else len(whole)
        for piece in filter(None, (whole[:cut], whole[cut:])):
            if parts and (is_count or not goes_on(tail, piece, code)):
                yield "".join(parts)
                parts, tail = [], ""
            is_count = not parts and sentence_core(piece, code)[0] == sentence_core(piece, code)[1]
            parts.append(piece)
            tail = (tail + piece)[-LONGEST:]
    if parts:
        yield "".join(parts)


def _pieces(line: str, code: str, library: Any) -> Iterator[str]:
    """A line in sentences, each with the blanks around it."""
    while line:
        window = line[:WINDOW]
        if len(line) > WINDOW:
            window = window[: window.rfind(" ") + 1] or window
        for sentence in library.get_sentence_boundaries(code, "".join(map(_stand_in, window))):
            yield window[sentence["start_index"] : sentence["end_index"]]
        line = line[len(window) :]


def _stand_in(character: str) -> str:
    """A character for `sentencex`, which panics at some white space and at lone surrogates."""
    if character.isspace():
        return " "
    return "\ufffd" if "\ud800" <= character <= "\udfff" else character
