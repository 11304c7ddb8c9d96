"""Search and sampling in the engine, for options that need only the logits of a step."""

from __future__ import annotations

import functools
import itertools
from array import array
from collections.abc import Callable, Iterator, Sequence
from ctypes import c_int32
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from transduce.engine import library
from transduce.engine.library import Cancelled, SearchOptions
from transduce.engine.weights import EngineWeights
from transduce.errors import TransduceError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Numbers of the enums in search.h.
LENGTH_PENALTIES = ("none", "mean", "gnmt")
STOPS = ("first", "exact", "present")
MOST_TOP_K = 2**31 - 1
"""As many as any vocabulary has."""


class Found(NamedTuple):
    """A hypothesis; the fields of `decoding.hypotheses.Hypothesis`."""

    tokens: list[int]
    log_prob: float
    score: float
    finished: bool


@dataclass(frozen=True)
class Sampling:
    """Draws from the distribution of each next token, in place of a search.

    uniforms: (n, samples, steps) numbers from [0, 1), for `beam_size` samples of each sentence, and
    as many steps as the greatest limit, or more.
    """

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    uniforms: NDArray[np.float64]


@dataclass(frozen=True)
class SearchRules:
    """Options of `decoding.options.DecodingOptions` that the engine's search follows.

    beam_size: hypotheses of a sentence side by side; in sampling, samples.
    eos: id of the end of sentence.  forbidden: ids that are never emitted.
    threads: number of threads for the sentences of a batch, without effect on outputs.
    ends_at_limit: a hypothesis ends with as many tokens as its limit; without it, an end of
    sentence follows.
    window, kept: maximum positions of a hypothesis, and tokens kept of a longer one
    (`decoding.window`); 0 for no limit.
    """

    beam_size: int
    n_best: int
    length_penalty: str
    alpha: float
    stop: str
    free_end: bool
    eos: int
    forbidden: tuple[int, ...]
    threads: int = 1
    ends_at_limit: bool = False
    window: int = 0
    kept: int = 0
    sampling: Sampling | None = None


def search(
    model: EngineWeights,
    sources: Sequence[Sequence[int]],
    prompts: Sequence[Sequence[int]],
    limits: Sequence[int],
    min_lengths: Sequence[int],
    rules: SearchRules,
    cancelled: Callable[[int], bool] | None = None,
) -> list[list[Found]]:
    """The `n_best` hypotheses of each sentence, best first.

    sources: none for a decoder alone.  prompts: ids that every hypothesis of a sentence begins
    with, at least one, and that it does not contain. limits, min_lengths: maximum and minimum
    tokens before the end of sentence. cancelled: called after each step with the index of each live
    sentence; if true, the sentence is done.

    Raises TransduceError if the logits are NaN.
    """
    longest = rules.window or max(map(len, prompts)) + max(limits)
    model.check_lengths(max(map(len, sources), default=0), longest)
    minima = map(min, min_lengths, limits)
    arrays = *_flat(sources), *_flat(prompts), array("i", limits), array("i", minima)
    errors: list[BaseException] = []
    if rules.sampling is not None:
        n, samples, steps = rules.sampling.uniforms.shape
        assert (n, samples) == (len(prompts), rules.beam_size) and steps >= max(limits)
    pointer = model.library.search_run(
        model.pointer,
        *(values.buffer_info()[0] for values in arrays),
        len(prompts),
        _options(rules),
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
        return _read(model.library, pointer, len(prompts))
    finally:
        model.library.search_delete(pointer)


def _flat(rows: Sequence[Sequence[int]]) -> tuple[array[int], array[int]]:
    """Ids of all rows, one after another, and their lengths."""
    return array("i", itertools.chain.from_iterable(rows)), array("i", map(len, rows))


def _options(rules: SearchRules) -> SearchOptions:
    return _made_options(rules) if rules.sampling else _kept_options(rules)


def _made_options(rules: SearchRules) -> SearchOptions:
    return SearchOptions(
        rules.beam_size,
        rules.n_best,
        LENGTH_PENALTIES.index(rules.length_penalty),
        STOPS.index(rules.stop),
        rules.free_end,
        rules.ends_at_limit,
        rules.eos,
        rules.window,
        rules.kept,
        rules.threads,
        len(rules.forbidden),
        (c_int32 * len(rules.forbidden))(*rules.forbidden),
        rules.alpha,
        _sampling(rules.sampling),
    )


_kept_options = functools.lru_cache(maxsize=64)(_made_options)


def _sampling(given: Sampling | None) -> library.Sampling:
    if given is None:
        return library.Sampling()
    uniforms = given.uniforms
    assert uniforms.dtype.name == "float64" and uniforms.flags.c_contiguous
    top_k = min(given.top_k, MOST_TOP_K)
    address = uniforms.ctypes.data
    return library.Sampling(
        given.temperature, given.top_p, given.min_p, top_k, uniforms.shape[2], address
    )


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


def _read(library: Any, pointer: int, n: int) -> list[list[Found]]:
    counts = library.search_counts(pointer)[:n]
    total = sum(counts)
    lengths = library.search_lengths(pointer)[:total]
    tokens = library.search_tokens(pointer)[: sum(lengths)]
    parts = (getattr(library, f"search_{name}") for name in ("log_probs", "scores", "finished"))
    rows = zip(lengths, *(part(pointer)[:total] for part in parts), strict=True)

    def hypotheses() -> Iterator[Found]:
        begin = 0
        for length, log_prob, score, finished in rows:
            yield Found(tokens[begin : begin + length], log_prob, score, bool(finished))
            begin += length

    every = hypotheses()
    return [list(itertools.islice(every, count)) for count in counts]
