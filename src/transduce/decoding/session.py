"""A decoding session for texts, continuations, recordings and captions.

Options of each input, batches of pieces of like lengths, cancellation, streaming.  A predictor says
how its inputs become pieces, and how the hypotheses of pieces become an answer.  Imports no torch.
"""

import dataclasses
import functools
import itertools
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

from transduce.decoding.backend import (
    Cancellation,
    Cancelled,
    Decoded,
    OwnOptions,
    Piece,
    SearchBackend,
    StepSearch,
    checked,
)
from transduce.decoding.constraints import OutputConstraints, TokenSurfaces, constraints_of
from transduce.decoding.options import DecodingOptions, OutputKind, check_work
from transduce.errors import InputError, SettingError, TransduceError, needs_extra
from transduce.support.work import chunks, in_batches
from transduce.text import Tokenizer
from transduce.text.tokenizer import REPLACEMENT

TextStream = Generator[str, None, None]
"""Parts of a text as they are decoded; closing it ends the search."""

CertainText = Callable[[list[int], bool], str]
"""Ids of an output, and False if more may follow -> their text, which those do not change."""

S = TypeVar("S")
A = TypeVar("A")
T = TypeVar("T")

USUAL_BEAM = 8
"""Hypotheses of an input that `batch_tokens` allows for."""

logger = logging.getLogger("transduce")


class Prepared(NamedTuple, Generic[S]):
    """An input ready to be decoded, as the answer needs it; without pieces if blank."""

    source: S
    options: DecodingOptions
    pieces: list[Piece]


class Scored(Protocol):
    """Output of a search."""

    @property
    def score(self) -> float:
        """Ranking score."""

    @property
    def log_prob(self) -> float:
        """Natural logarithm of the probability."""


class Streaming(NamedTuple):
    """A streamed answer.  number: of its input in a longer sequence."""

    search: StepSearch
    number: int
    cancellation: Cancellation


def together_with(options: DecodingOptions) -> DecodingOptions:
    """Options shared by inputs that are decoded together; their constraints are of each piece."""
    if not (options.prefix or options.constraints or options.avoid):
        return options
    return dataclasses.replace(options, prefix="", constraints=(), avoid=())


def tokens_of_batch(options: DecodingOptions) -> int:
    """Source tokens of a batch: fewer for many hypotheses of each, so that memory stays bounded."""
    hypotheses = options.n_best if options.method == "sample" else options.beam_size
    return max(1, options.batch_tokens * USUAL_BEAM // max(USUAL_BEAM, hypotheses))


def _check_packages(options: DecodingOptions) -> None:
    """Raises SettingError for options that an installation without PyTorch lacks packages for."""
    needed = {"numpy": options.method == "sample" or options.minimum_risk != "none"}
    needed["sacrebleu"] = options.minimum_risk == "bleu"
    for package, is_needed in needed.items():
        if is_needed and find_spec(package) is None:
            setting = "minimum_risk" if options.minimum_risk != "none" else "method"
            value = getattr(options, setting)
            raise SettingError(needs_extra(f"decoding.{setting} = {value!r}", "evaluate"))


@dataclass(eq=False, kw_only=True, repr=False)
class SequencePredictor(ABC, Generic[S, A]):
    """Predictor whose answers are decoded token by token.

    options: default options of a call, from the recipe.  backend: search for hypotheses.
    `dataclasses.replace` makes a predictor with others.

    inputs: names of the texts of an input.  kind: of the outputs, for options.  together: inputs
    held in memory together.  input_name, output_name, limit_option: of an input, its answer and the
    option for its length, in messages.
    """

    inputs: ClassVar[tuple[str, ...]]
    kind: ClassVar[OutputKind] = "continuation"
    together: ClassVar[int] = 1 << 62
    input_name: ClassVar[str] = "line"
    output_name: ClassVar[str] = "the output"
    limit_option: ClassVar[str] = "max_tokens"

    options: DecodingOptions
    backend: SearchBackend

    def __post_init__(self) -> None:
        self._passed: DecodingOptions | None = None

    @property
    @abstractmethod
    def output_tokenizer(self) -> Tokenizer:
        """Tokenizer of the answers."""

    @abstractmethod
    def read(self, inputs: Sequence[Any], first: int) -> Sequence[S | TransduceError]:
        """Each input, from number `first`, ready to be cut into pieces, or its error."""

    @abstractmethod
    def pieces(
        self, source: S, options: DecodingOptions, owner: int, number: int
    ) -> Iterable[Piece]:
        """The pieces of an input.  owner: its index in its call.  number: in a longer sequence.

        source: the input, as read.  options: of decoding.
        """

    @abstractmethod
    def answer(self, prepared: Prepared[S], decoded: Sequence[Decoded]) -> A:
        """The answer to an input, from the results of the search for its pieces."""

    def certain_text(self, prepared: Prepared[S]) -> CertainText:
        """Writer of the ids of an answer that are certain; in a line."""

        def write(ids: list[int], is_whole: bool) -> str:
            text = " ".join(self.output_tokenizer.decode(ids).splitlines())
            return text if is_whole else text.rstrip(REPLACEMENT)

        return write

    @abstractmethod
    def longest_output(self, options: DecodingOptions) -> tuple[int, str]:
        """Maximum tokens of an output, and the options that set it, for messages."""

    @property
    def language(self) -> str:
        """Language code of the outputs; BLEU's tokens depend on it."""
        return ""

    @functools.cached_property
    def token_surfaces(self) -> TokenSurfaces:
        """Surface forms of the tokens of outputs."""
        return TokenSurfaces(self.output_tokenizer)

    def constraints(self, options: DecodingOptions) -> OutputConstraints:
        """Constraints that options put on an output.  Raises SettingError for impossible ones."""
        return constraints_of(options, lambda: self.token_surfaces)

    def check(self, options: DecodingOptions) -> None:
        """Raises SettingError or RunError for options that this model cannot follow."""
        if options != self._passed:
            length, setting = self.longest_output(options)
            check_work(options, length, setting)
            _check_packages(options)
            self.backend.check(options)
            self.constraints(options)
            self._passed = options

    def predict(
        self,
        inputs: Sequence[tuple[str, ...]],
        options: DecodingOptions | Sequence[DecodingOptions] | None = None,
        first: int = 0,
    ) -> list[A]:
        """The answer to each input of a text, in order.  Raises the first error in an input or
        its options.

        options: by default the recipe's; or those of each input.  first: number of the first input
        in a longer sequence, for messages and the random streams of sampling.
        """
        return list(self.each((text for (text,) in inputs), options, first, self.answer))

    def each(
        self,
        inputs: Iterable[Any],
        options: DecodingOptions | Sequence[DecodingOptions] | None,
        first: int,
        answer: Callable[[Prepared[S], Sequence[Decoded]], T],
        cancelled: Cancelled | None = None,
    ) -> Iterator[T]:
        """The answer to each input, lazily, made as soon as its pieces are decoded.

        Raises the first error of the inputs held together before any of them is decoded, and
        CancelledError for an input that is cancelled.
        """
        for number, entries in self._prepared(inputs, options, first):
            prepared = {}
            for i, entry in enumerate(entries):
                if isinstance(entry, TransduceError):
                    raise self._named(entry, number + i)
                prepared[i] = entry
            cancellation = Cancellation(cancelled, number - first)
            answers = self._answers(prepared, number, cancellation, answer)
            for i in prepared:
                if error := cancellation.error(i):
                    raise error
                yield answers[i]

    def attempt(
        self,
        inputs: Sequence[Any],
        options: DecodingOptions | Sequence[OwnOptions] | None = None,
        first: int = 0,
        cancelled: Cancelled | None = None,
    ) -> list[A | TransduceError]:
        """The answer to each input of a text, or the error in it or its options, in order.

        inputs: texts, or other inputs of the predictor.  first: number of the first input in a
        longer sequence.  cancelled: called between steps with the index of an input, which then
        leaves its batch with a CancelledError.
        """
        results: list[A | TransduceError] = []
        for number, entries in self._prepared(inputs, options, first):
            prepared = {i: entry for i, entry in enumerate(entries) if isinstance(entry, Prepared)}
            cancellation = Cancellation(cancelled, number - first)
            answers = self._answers(prepared, number, cancellation, self.answer)
            for i, entry in enumerate(entries):
                failure = entry if isinstance(entry, TransduceError) else None
                results.append(cancellation.error(i) or failure or answers[i])
        return results

    def stream(
        self,
        text: str,
        options: DecodingOptions | None = None,
        number: int = 0,
        cancelled: Callable[[], bool] | None = None,
    ) -> TextStream:
        """The answer to an input in parts, each as soon as nothing can change it any more.

        text: the input.  options: of decoding, by default the recipe's.  number: of the input in a
        longer sequence, for the random streams of sampling.  Closing the generator ends the search;
        so does `cancelled`, called between steps, with a CancelledError.  Raises SettingError for
        minimum_risk, which knows no output before it has all.
        """
        (source,) = self.read([text], number)
        if isinstance(source, TransduceError):
            raise self._named(source, number)
        return self.stream_of(source, options, number, cancelled)

    def stream_of(
        self,
        source: S,
        options: DecodingOptions | None = None,
        number: int = 0,
        cancelled: Callable[[], bool] | None = None,
    ) -> TextStream:
        """As `stream`, for an input that has been read.

        source: the input, as read.  options, number and cancelled are as in `stream`.
        """
        options = options or self.options
        if options.minimum_risk != "none":
            raise SettingError("minimum_risk cannot be streamed; remove it")
        (entry,) = self._entries([source], [dataclasses.replace(options, n_best=1)], number)
        if isinstance(entry, TransduceError):
            raise self._named(entry, number)
        hook = None if cancelled is None else lambda owner: cancelled()
        search = self.backend.step_search("streaming")
        return self.parts(entry, Streaming(search, number, Cancellation(hook)))

    def parts(self, prepared: Prepared[S], streaming: Streaming) -> TextStream:
        """The answer to an input in parts."""
        text = self.certain_text(prepared)
        return self.parts_of(prepared.pieces, prepared.options, text, streaming)

    def parts_of(
        self,
        pieces: Sequence[Piece],
        options: DecodingOptions,
        text: CertainText,
        streaming: Streaming,
    ) -> TextStream:
        """The text of some pieces in parts.

        options: of decoding.  streaming: the search, the number of the input and its cancellation.
        """
        search, number, cancellation = streaming
        written = ""
        before: list[int] = []
        for piece in pieces:
            ids: list[int] = []
            hook = cancellation.in_search([[piece.owner]])
            for ids in search.prefixes(piece, together_with(options), hook):
                if error := cancellation.error(piece.owner):
                    raise error
                whole = text(self.joined([before, ids]), False)
                if len(whole) > len(written):
                    yield whole[len(written) :]
                    written = whole
            self._warn_unless_met(piece, ids, number)
            before = self.joined([before, ids])
        yield text(before, True)[len(written) :]

    def ranked(
        self, options: DecodingOptions, texts: Sequence[str], outputs: Sequence[Scored]
    ) -> list[tuple[int, float]]:
        """Outputs best first, by index, with their scores: expected utilities in minimum risk.

        options: of decoding.  texts: one for each output.  outputs: with their scores and
        log-probabilities.
        """
        if options.minimum_risk == "none":
            return [(i, output.score) for i, output in enumerate(outputs)]
        from transduce.decoding.mbr import least_risk

        log_probs = [output.log_prob for output in outputs]
        return least_risk(texts, log_probs, options, self.language)

    def joined(self, parts: Iterable[Sequence[int]]) -> list[int]:
        """Ids of the output of a text, from those of its pieces."""
        return list(itertools.chain.from_iterable(parts))

    def _named(self, error: TransduceError, number: int) -> TransduceError:
        if isinstance(error, InputError):
            return error
        return type(error)(f"{self.input_name} {number + 1}: {error}")

    def _prepared(
        self,
        inputs: Iterable[Any],
        options: DecodingOptions | Sequence[OwnOptions] | None,
        first: int,
    ) -> Iterator[tuple[int, list[Prepared[S] | TransduceError]]]:
        """Inputs held in memory together, prepared for decoding, with the number of the first."""
        options = options or self.options
        each = itertools.repeat(options) if isinstance(options, DecodingOptions) else iter(options)
        for chunk in chunks(inputs, self.together):
            chosen = list(itertools.islice(each, len(chunk)))
            yield first, self._entries(self.read(chunk, first), chosen, first)
            first += len(chunk)

    def _entries(
        self, sources: Sequence[S | TransduceError], options: Sequence[OwnOptions], first: int
    ) -> list[Prepared[S] | TransduceError]:
        """Each input prepared for decoding, or the error in it or its options."""
        entries: list[Prepared[S] | TransduceError] = []
        for i, (source, chosen) in enumerate(
            zip(sources, checked(options, self.check), strict=True)
        ):
            if isinstance(chosen, TransduceError):
                entries.append(chosen)
            elif isinstance(source, TransduceError):
                entries.append(source)
            else:
                try:
                    pieces = list(self.pieces(source, chosen, i, first + i))
                    entries.append(Prepared(source, chosen, pieces))
                except TransduceError as error:  # such as a recording that is too long
                    entries.append(error)
        return entries

    def _answers(
        self,
        prepared: Mapping[int, Prepared[S]],
        first: int,
        cancellation: Cancellation,
        answer: Callable[[Prepared[S], Sequence[Decoded]], T],
    ) -> dict[int, T]:
        together: dict[DecodingOptions, list[Piece]] = {}
        for entry in prepared.values():
            if entry.pieces:
                together.setdefault(together_with(entry.options), []).extend(entry.pieces)
        answers = {i: answer(entry, ()) for i, entry in prepared.items() if not entry.pieces}
        results: dict[int, dict[int, Decoded]] = {}
        for options, pieces in together.items():
            for number, decoded in self._decoded(pieces, options, cancellation):
                owner = pieces[number].owner
                if cancellation.error(owner) is not None:
                    continue
                if decoded.hypotheses:
                    tokens = decoded.hypotheses[0].tokens
                    self._warn_unless_met(pieces[number], tokens, first + owner)
                parts = results.setdefault(owner, {})
                parts[number] = decoded
                if len(parts) == len(prepared[owner].pieces):
                    del results[owner]
                    answers[owner] = answer(prepared[owner], [parts[i] for i in sorted(parts)])
        return answers

    def _decoded(
        self, pieces: Sequence[Piece], options: DecodingOptions, cancellation: Cancellation
    ) -> Iterator[tuple[int, Decoded]]:
        """Numbers of pieces and results of their search, in batches of like lengths; equal pieces
        once."""
        sampled = options.method == "sample"
        if options.minimum_risk != "none":
            count = options.candidates if sampled else options.beam_size
            options = dataclasses.replace(options, n_best=count)
        equal: dict[Hashable, list[int]] = {}
        for number, piece in enumerate(pieces):
            equal.setdefault(piece.question(sampled), []).append(number)
        distinct = list(equal.values())
        lengths = [pieces[same[0]].length for same in distinct]
        for rows in in_batches(range(len(lengths)), lengths, tokens_of_batch(options)):
            owners = {i: [pieces[number].owner for number in distinct[i]] for i in rows}
            rows = [i for i in rows if not all(map(cancellation, owners[i]))]
            if not rows:
                continue
            hook = cancellation.in_search([owners[i] for i in rows])
            batch = [pieces[distinct[i][0]] for i in rows]
            for i, decoded in zip(rows, self.backend.search(batch, options, hook), strict=True):
                for number in distinct[i]:
                    yield number, decoded

    def _warn_unless_met(self, piece: Piece, ids: Sequence[int], number: int) -> None:
        if piece.constraints.is_met_by(ids):
            return
        reason = "other options may rule it out"
        if piece.constraints.min_tokens > piece.limit:
            reason = f"they do not fit; raise {self.limit_option}"
        name = f"{self.input_name} {number + 1}: {self.output_name}"
        logger.warning("%s does not meet its constraints: %s", name, reason)
