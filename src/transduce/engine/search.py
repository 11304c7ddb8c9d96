"""Search and sampling in the engine, for options that need only the logits of a step."""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from transduce.engine.library import Cancelled, SearchOptions
from transduce.engine.weights import EngineWeights
from transduce.errors import TransduceError

# Numbers of the enums in search.h.
LENGTH_PENALTIES = ("none", "mean", "gnmt")
STOPS = ("first", "exact", "present")


HypothesisFields = tuple[list[int], float, float, bool]
"""Tokens, log-probability, score, True if finished: of `decoding.hypotheses.Hypothesis`."""


class NativeResults(NamedTuple):
    """The `n_best` hypotheses of each sentence, best first; the probability of no speech in each
    recording, if wanted."""

    hypotheses: list[list[HypothesisFields]]
    no_speech: list[float]


def search(
    model: EngineWeights,
    sources: Sequence[Sequence[int]],
    prompts: Sequence[Sequence[int]],
    limits: Sequence[int],
    min_lengths: Sequence[int],
    options: SearchOptions,
    cancelled: Callable[[int], bool] | None = None,
    shortlists: Sequence[Sequence[int]] = (),
) -> NativeResults:
    """Raises TransduceError if the logits are NaN.

    sources: none for a decoder alone; of recordings any ids, as many as their memory has positions.
    prompts: ids that every hypothesis of a sentence begins
    with, never none, and that it does not contain. limits, min_lengths: tokens before the end of
    sentence. cancelled: called after each step with the index of each live sentence, to end it.
    shortlists: ids that each sentence may emit, ascending, the end among them; none for all.
    """
    longest = options.window or max(map(len, prompts)) + max(limits)
    model.check_lengths(max(map(len, sources), default=0), longest)
    minima = map(min, min_lengths, limits)
    arrays = *_flat(sources), *_flat(prompts), array("i", limits), array("i", minima)
    lists = _flat(shortlists)
    options.shortlists, options.shortlist_lengths = (
        ids.buffer_info()[0] if shortlists else None for ids in lists
    )
    errors: list[BaseException] = []
    pointer = model.library.search_run(
        model.pointer,
        *(values.buffer_info()[0] for values in arrays),
        len(prompts),
        options,
        _callback(cancelled, errors),
    )
    if not pointer:
        raise MemoryError("the native engine ran out of memory")
    try:
        if errors:
            raise errors[0]
        at = model.library.search_not_a_number(pointer)
        if at >= 0:
            raise TransduceError(
                f"the model's scores are NaN after {at} tokens; its weights are damaged, or its "
                "precision is too low (try float32)"
            )
        n_heard = len(prompts) if options.spoken.no_speech else 0
        no_speech = model.library.search_no_speech(pointer)[:n_heard]
        return NativeResults(_read(model.library, pointer, len(prompts)), no_speech)
    finally:
        model.library.search_delete(pointer)


def _flat(rows: Sequence[Sequence[int]]) -> tuple[array[int], array[int]]:
    return array("i", itertools.chain.from_iterable(rows)), array("i", map(len, rows))


def _callback(cancelled: Callable[[int], bool] | None, errors: list[BaseException]) -> Any:
    """The function for C; an exception in it ends every sentence, and is kept in `errors`."""
    if cancelled is None:
        return Cancelled()

    def call(sentence: int) -> int:
        try:
            return bool(errors) or bool(cancelled(sentence))
        except BaseException as error:  # ctypes would only print it
            errors.append(error)
            return True

    return Cancelled(call)


def _read(library: Any, pointer: int, n: int) -> list[list[HypothesisFields]]:
    counts = library.search_counts(pointer)[:n]
    total = sum(counts)
    lengths = library.search_lengths(pointer)[:total]
    tokens = library.search_tokens(pointer)[: sum(lengths)]
    parts = (getattr(library, f"search_{name}") for name in ("log_probs", "scores", "finished"))
    rows = zip(lengths, *(part(pointer)[:total] for part in parts), strict=True)

    def hypotheses() -> Iterator[HypothesisFields]:
        begin = 0
        for length, log_prob, score, finished in rows:
            yield tokens[begin : begin + length], log_prob, score, bool(finished)
            begin += length

    every = hypotheses()
    return [list(itertools.islice(every, count)) for count in counts]
