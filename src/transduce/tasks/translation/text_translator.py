"""Translation of texts by any search: texts to pieces, hypotheses to translations."""

from __future__ import annotations

import dataclasses
import functools
import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from transduce.decoding.backend import Decoded, Piece
from transduce.decoding.constraints import OutputConstraints
from transduce.decoding.hypotheses import Hypothesis
from transduce.decoding.options import DecodingOptions
from transduce.decoding.session import Prepared, SequencePredictor, Streaming, TextStream
from transduce.errors import DataError, SettingError, TransduceError
from transduce.support.tables import attention_in_terminal, html_shades
from transduce.tasks.translation.recipe import ExpectedTags, LanguageTokens, Pair
from transduce.tasks.vocabularies import UnknownTokens, check_known, unknown_parts
from transduce.text import BOS, CharacterTokenizer, Tokenizer
from transduce.text.imported import ImportedTokenizer, MarianTokenizer
from transduce.text.scripts import is_unspaced
from transduce.text.tokenizer import REPLACEMENT, UNK, ListedTokenizer, leading_tags

if TYPE_CHECKING:
    from torch import Tensor


SENTENCE_ENDS = tuple(".!?。！？…;；:：")
BREAK = re.compile(r"(\r?\n)")


class Lines(NamedTuple):
    """The lines of a text, and the breaks between them."""

    texts: tuple[str, ...]
    breaks: tuple[str, ...] = ()

    @property
    def is_blank(self) -> bool:
        """True if there is nothing to translate."""
        return not any(map(str.strip, self.texts))

    def tagged(self, tag: str) -> Lines:
        """The lines with a tag before the first, unless they are blank."""
        if not tag or self.is_blank:
            return self
        return self._replace(texts=(tag + self.texts[0], *self.texts[1:]))

    def with_breaks(self, outputs: Iterable[str]) -> str:
        """Outputs of the lines as a text, with the breaks of the source."""
        return "".join(map(str.__add__, outputs, (*self.breaks, "")))


def lines_of(text: str) -> Lines:
    r"""A text cut at its line breaks, each "\n" or "\r\n"; a blank text is a single line."""
    if "\n" not in text or not text.strip():
        return Lines((text,))
    parts = BREAK.split(text)
    return Lines(tuple(parts[::2]), tuple(parts[1::2]))


def split_source(
    ids: list[int], max_length: int, tokenizer: Tokenizer, tagged: bool = False
) -> Iterator[list[int]]:
    """Ids in pieces of at most `max_length`, cut after sentences or words; whole if short enough.

    tagged: a text may begin with tags, or the language code of a Marian tokenizer, which are then
    repeated in each piece.
    """
    if len(ids) <= max_length:
        yield ids
        return
    head = head_of(ids, tokenizer, tagged)
    if 2 * len(head) > max_length:
        head = []
    n_last = len(tokenizer.closing) if isinstance(tokenizer, ImportedTokenizer) else 0
    room, end = max_length - len(head) - n_last, len(ids) - n_last
    rest, tail = ids[len(head) : end], ids[end:]
    while len(rest) > room:
        cut = _cut(tokenizer.tokens(rest[: room + 1]))
        yield [*head, *rest[:cut], *tail]
        rest = rest[cut:]
        if isinstance(tokenizer, CharacterTokenizer):  # no text of training begins with a blank
            while len(rest) > 1 and tokenizer.decode(rest[:1]).isspace():
                rest = rest[1:]
    yield [*head, *rest, *tail]


def joined_pieces(parts: Iterable[Sequence[int]], tokenizer: Tokenizer) -> list[int]:
    """Join the ids of the outputs of pieces.

    Subwords include the space between two pieces; characters get a space if their script has it.
    """
    ids: list[int] = []
    for part in parts:
        if ids and part and isinstance(tokenizer, CharacterTokenizer):
            sides = tokenizer.decode([ids[-1], part[0]])
            blank = tokenizer.encode(" ")
            if not (UNK in blank or " " in sides or any(map(is_unspaced, sides))):
                ids += blank
        ids += part
    return ids


def head_of(ids: list[int], tokenizer: Tokenizer, tagged: bool) -> list[int]:
    """The ids of a language code, or of tags, before a text.

    tokenizer: of the ids.  tagged: True if texts may begin with tags.
    """
    if isinstance(tokenizer, ImportedTokenizer) and ids and tokenizer.is_mark(ids[0]):
        return ids[:1]
    if isinstance(tokenizer, MarianTokenizer):
        first = "".join(tokenizer.tokens(ids[:1]))
        return ids[: int(first.startswith(">>") and first.endswith("<<"))]
    if not tagged:
        return []
    tags = "".join(leading_tags(tokenizer.decode(ids)))
    # With letters the blank belongs to the tag, with subwords to the next word.
    head = tokenizer.encode(tags if isinstance(tokenizer, CharacterTokenizer) else tags.rstrip())
    return head if ids[: len(head)] == head else []


def _cut(tokens: Sequence[str]) -> int:
    """Cut after the last end of a sentence in the later half, else before a word."""
    half = len(tokens) // 2
    for i in range(len(tokens) - 1, half, -1):
        if tokens[i - 1].endswith(SENTENCE_ENDS):
            return i
    for i in range(len(tokens) - 1, half, -1):
        if tokens[i].startswith(("▁", " ")):
            return i
    return len(tokens) - 1


@dataclass(frozen=True)
class Candidate:
    """A possible output."""

    text: str
    tokens: tuple[str, ...] = field(repr=False)
    """Pieces as the model made them."""
    score: float
    """Ranking score of candidates: log-probability after the length penalty."""
    log_prob: float
    """Natural logarithm of the probability of the tokens and the end."""
    parts: tuple[tuple[int, ...], ...] = field(default=(), repr=False, compare=False)
    """Ids of the tokens, for each piece of the source."""
    finished: bool = True
    """False if a piece ended at its greatest length."""


@dataclass(frozen=True)
class Translation:
    """The best output for an input, and its other candidates for `n_best` > 1."""

    text: str
    tokens: tuple[str, ...] = field(default=(), repr=False)
    score: float = 0.0
    log_prob: float = 0.0
    candidates: tuple[Candidate, ...] = field(default=(), repr=False)
    """The n best, best first; the first is this translation itself."""

    @property
    def finished(self) -> bool:
        """False if a piece of the output ended at its greatest length."""
        return all(candidate.finished for candidate in self.candidates[:1])

    def fields(self) -> dict[str, Any]:
        """Fields of a JSON record; `finished` in that of an output that was cut off."""
        fields = {"translation": self.text, "score": self.score, "tokens": self.tokens}
        return fields if self.finished else {**fields, "finished": False}


@dataclass(frozen=True)
class Alignment:
    """Cross-attention between target and source."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    weights: Tensor = field(repr=False)
    """(len(target), len(source)): each row sums to 1; mean over the heads of a layer."""

    def __repr__(self) -> str:
        return attention_in_terminal(self.source, self.target, self.weights.tolist())

    def _repr_html_(self) -> str:
        """The weights as shades, for a notebook."""
        return html_shades(self.source, self.target, self.weights.tolist())


logger = logging.getLogger("transduce")

PIECE_BITS = 40
"""Bit offset of the piece number above the text number in a random stream."""


@dataclass(frozen=True)
class TranslatorConfig:
    """Limits and warnings of a translator."""

    max_source_length: int
    """Maximum source tokens in training; longer texts are split."""
    max_target_length: int | None = None
    """Maximum target tokens, by the decoder's positions; None for no limit."""
    target_language: str = ""
    """Language code for the utility of minimum Bayes risk decoding."""
    alignment_head: tuple[int, int | None] = (-1, None)
    """Default layer and head of alignment; None for the mean of all heads."""
    expected_tags: ExpectedTags | None = None
    """Warns of texts without the tags of training."""
    unknown_tokens: UnknownTokens | None = None
    """Warns of texts with tokens absent from training."""
    languages: LanguageTokens | None = None
    """Languages that tags before a source select; None without tokens for them."""
    tag: str = ""
    """Tag of a target language put before every text, with its space."""
    warn_of_length: bool = True
    """Warn of each text that is split."""


class SourceText(NamedTuple):
    """The lines of a text, the ids of each, and those that its outputs begin with."""

    lines: Lines
    rows: list[list[int]]
    prompts: list[tuple[int, ...]]


@dataclass(eq=False, kw_only=True, repr=False)
class TextTranslator(SequencePredictor[SourceText, Translation]):
    """Turns source texts into target texts.

    A text of several lines is translated line by line, and keeps its line breaks.
    """

    inputs = ("source",)
    kind = "translation"
    limit_option = "max_length_extra"

    source: Tokenizer
    target: Tokenizer
    config: TranslatorConfig

    @property
    def language(self) -> str:
        """Language code of the translations."""
        return self.config.target_language

    @property
    def output_tokenizer(self) -> Tokenizer:
        """Tokenizer of the translations."""
        return self.target

    def translate(
        self,
        texts: Sequence[str | Lines],
        options: DecodingOptions | Sequence[DecodingOptions] | None = None,
        first: int = 0,
    ) -> list[Translation]:
        """Translate each text, in order; blank texts stay blank.

        options: by default the recipe's; or a list with options for each text.  first: number of
        the first text in a longer input, for messages and for the random streams of sampling.

        Raises SettingError for a prefix or a phrase that the vocabulary cannot spell, and
        RunError for a coverage penalty with a model without cross-attention.
        """
        return list(self.each(texts, options, first, self.answer))

    def translate_lines(
        self, texts: Sequence[str], options: DecodingOptions | None = None, first: int = 0
    ) -> list[Translation]:
        """Translate texts of a line each; line breaks within are handled as in training.

        options: of decoding.  first: number of the first text in a longer input.
        """
        return self.translate([Lines((text,)) for text in texts], options, first)

    def texts_of(self, texts: Sequence[str]) -> list[str]:
        """The translation of each text, as `translate`."""
        return [translation.text for translation in self.translate(texts)]

    def read(self, inputs: Sequence[str | Lines], first: int) -> list[SourceText | TransduceError]:
        """Ids of all lines, with warnings about inputs unlike the training data."""
        config = self.config
        texts = [
            (lines_of(text) if isinstance(text, str) else text).tagged(config.tag)
            for text in inputs
        ]
        if config.expected_tags is not None:
            config.expected_tags.check((lines.with_breaks(lines.texts) for lines in texts), first)
        entries = [self._without_tags(lines) for lines in texts]
        every = [line for entry in entries if isinstance(entry, tuple) for line in entry[0].texts]
        rows = self.source.encode_batch(every)
        if config.unknown_tokens is not None:
            names = (f"line {n}" for n, lines in enumerate(texts, first + 1) for _ in lines.texts)
            config.unknown_tokens.check(([line] for line in every), rows, names)
        rest = iter(rows)
        return [
            entry if isinstance(entry, TransduceError) else self._read(*entry, rest)
            for entry in entries
        ]

    def inspect(self, text: str, name: str = "") -> Iterator[str]:
        """Check a text before its translation by `quiet`, with warnings under its name, if any;
        returns the parts of it that are unknown to the model.

        Raises UnknownTextError for a text all of whose words are unknown.
        """
        ids = self.source.encode(text)
        check_known(self.source, text, ids)
        if name and self.config.unknown_tokens is not None:
            self.config.unknown_tokens.check([[text]], [ids], [name])
        if name and self.config.warn_of_length and len(ids) > self.config.max_source_length:
            self._warn_of_length(len(ids), name)
        return unknown_parts(self.source, text, ids)

    def quiet(self) -> Self:
        """This translator without the warnings of `inspect`, which names texts by their lines."""
        config = dataclasses.replace(self.config, unknown_tokens=None, warn_of_length=False)
        return dataclasses.replace(self, config=config)

    def _without_tags(self, lines: Lines) -> tuple[Lines, Sequence[Pair]] | TransduceError:
        """Lines without the tags that select tokens of languages, and the languages."""
        if self.config.languages is None:
            return lines, ()
        try:
            texts, pairs = self.config.languages.separate(lines.texts)
        except DataError as error:
            return error
        return lines._replace(texts=tuple(texts)), pairs

    def _read(self, lines: Lines, pairs: Sequence[Pair], rest: Iterator[list[int]]) -> SourceText:
        rows = [next(rest) for _ in lines.texts]
        if (languages := self.config.languages) is None or not pairs:
            target = self.target
            opening = target.opening if isinstance(target, ImportedTokenizer) else ()
            return SourceText(lines, rows, [(BOS, *opening)] * len(rows))
        tokenizer = languages.source
        return SourceText(
            lines,
            [tokenizer.in_language(pair[0], ids) for pair, ids in zip(pairs, rows, strict=True)],
            [(BOS, languages.target.language(code)) if code else (BOS,) for _, code in pairs],
        )

    def pieces(
        self, source: SourceText, options: DecodingOptions, owner: int, number: int
    ) -> Iterator[Piece]:
        """The pieces of a text, mostly a single piece; prefix and constraints are the first's.

        source: the text, as read.  options: of decoding.  owner: index in its call.  number: in a
        longer sequence.
        """
        if source.lines.is_blank:
            return
        constraints = self.constraints(options)
        count = 0
        for line, parts in enumerate(self._cut(source)):
            if len(parts) > 1 and self.config.warn_of_length:
                self._warn_of_length(len(source.rows[line]), f"line {number + 1}")
            for ids in parts:
                if count:
                    constraints = OutputConstraints(banned=constraints.banned)
                min_length = max(options.min_length, int(len(ids) * options.min_length_ratio))
                if min_length != constraints.min_length:
                    constraints = dataclasses.replace(constraints, min_length=min_length)
                limit = options.max_length_for(len(ids), self.config.max_target_length)
                if constraints.min_tokens > limit:
                    self._warn_of_no_room(limit, options, number + 1)
                stream = number + (count << PIECE_BITS)
                ended, prompt = tuple(self.source.as_source(ids)), source.prompts[line]
                yield Piece(owner, ended, len(ended), limit, stream, constraints, prompt, line=line)
                count += 1

    def answer(self, prepared: Prepared[SourceText], decoded: Sequence[Decoded]) -> Translation:
        """The translation of a text from the hypotheses of its pieces, mostly a single piece."""
        every = [results.hypotheses for results in decoded]
        candidates = [
            self._candidate(prepared, [best[rank] for best in every])
            for rank in range(min(map(len, every), default=0))
        ]
        if not candidates:
            return Translation("")
        ranked = self.ranked(prepared.options, [c.text for c in candidates], candidates)
        candidates = [dataclasses.replace(candidates[i], score=score) for i, score in ranked]
        best = candidates[0]
        return Translation(best.text, best.tokens, best.score, best.log_prob, tuple(candidates))

    def parts(self, prepared: Prepared[SourceText], streaming: Streaming) -> TextStream:
        """The translation of a text in parts, line by line."""
        lines = prepared.source.lines
        for line, (source, end) in enumerate(zip(lines.texts, (*lines.breaks, ""), strict=True)):
            pieces = [piece for piece in prepared.pieces if piece.line == line]
            text = functools.partial(self._certain, source)
            yield from self.parts_of(pieces, prepared.options, text, streaming)
            if end:
                yield end

    def joined(self, parts: Iterable[Sequence[int]]) -> list[int]:
        """Ids of a line, from those of its pieces."""
        return joined_pieces(parts, self.target)

    def longest_output(self, options: DecodingOptions) -> tuple[int, str]:
        """Maximum tokens of a translation, and the options that set it."""
        config = self.config
        longest = options.max_length_for(config.max_source_length, config.max_target_length)
        return longest, "max_length_ratio, max_length_extra"

    def constraints(self, options: DecodingOptions) -> OutputConstraints:
        """Constraints that options put on an output.  Raises SettingError for impossible ones."""
        constraints, room = super().constraints(options), self.config.max_target_length
        if room is not None and len(constraints.prefix) > room:
            raise SettingError(
                f"prefix: {len(constraints.prefix)} tokens exceed the {room} positions of this "
                "model; shorten it"
            )
        return constraints

    def source_pieces(self, text: str) -> list[list[int]]:
        """The source ids of a text, in the pieces that it is translated in."""
        return [ids for ids, _ in self.opened_pieces(text)]

    def opened_pieces(self, text: str) -> list[tuple[list[int], tuple[int, ...]]]:
        """The same, each with the ids that its output begins with, after BOS."""
        (source,) = self.read([text], 0)
        if isinstance(source, TransduceError):
            raise source
        lines = zip(self._cut(source), source.prompts, strict=True)
        return [(ids, prompt[1:]) for parts, prompt in lines for ids in parts]

    def _cut(self, source: SourceText) -> Iterator[list[list[int]]]:
        """For each line of a text its source ids, in the pieces that it is translated in.

        Tags before the first line that is not blank count for all lines without tags of their own.
        """
        tagged = self.config.expected_tags is not None
        first_head: list[int] | None = None
        for text, ids in zip(source.lines.texts, source.rows, strict=True):
            if not text.strip():
                yield []
                continue
            head = head_of(ids, self.source, tagged)
            first_head = head if first_head is None else first_head
            ids = ids if head else [*first_head, *ids]
            yield list(split_source(ids, self.config.max_source_length, self.source, tagged))

    def _line(self, ids: Sequence[int], source: str) -> str:
        """Text of ids, always on a single line.

        If both sides use the same kind of units, unknown units of the output are copied from the
        source, in order.
        """
        tokenizer = self.source
        if isinstance(tokenizer, ListedTokenizer) and isinstance(self.target, type(tokenizer)):
            text = self.target.decode(ids, tokenizer.unknown_units(source))
        else:
            text = self.target.decode(ids)
        return " ".join(text.splitlines())

    def _certain(self, source: str, ids: list[int], is_whole: bool) -> str:
        text = self._line(ids, source)
        return text if is_whole else text.rstrip(REPLACEMENT)

    def _candidate(self, prepared: Prepared[SourceText], chosen: Sequence[Hypothesis]) -> Candidate:
        texts: list[str] = []
        tokens: list[str] = []
        for line, source in enumerate(prepared.source.lines.texts):
            pairs = zip(prepared.pieces, chosen, strict=True)
            ids = self.joined(h.tokens for piece, h in pairs if piece.line == line)
            texts.append(self._line(ids, source))
            tokens += self.target.tokens(ids)
        return Candidate(
            prepared.source.lines.with_breaks(texts),
            tuple(tokens),
            sum(h.score for h in chosen) / len(chosen),
            sum(h.log_prob for h in chosen),
            tuple(tuple(h.tokens) for h in chosen),
            all(
                len(h.tokens) < piece.limit
                for piece, h in zip(prepared.pieces, chosen, strict=True)
            ),
        )

    def _warn_of_length(self, n_tokens: int, name: str) -> None:
        logger.warning(
            "%s has %d tokens, more than the %d this model was trained for; "
            "translating it in pieces",
            name,
            n_tokens,
            self.config.max_source_length,
        )

    def _warn_of_no_room(self, room: int, options: DecodingOptions, number: int) -> None:
        reason = "constraints" if options.constraints else "prefix"
        remedy = f"raise {self.limit_option}"
        if room == self.config.max_target_length:
            remedy = f"the model is limited to {room} tokens"
        logger.warning("line %d: no room for the %s; %s", number, reason, remedy)
