"""A model in the engine without PyTorch: its weights, search and sampling."""

from __future__ import annotations

import itertools
import os
import sys
import weakref
from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from transduce.engine.library import Cancelled, ModelShape, SearchOptions, engine_library
from transduce.engine.pair_shape import max_positions
from transduce.errors import RunError, SettingError, TransduceError
from transduce.nn.precision import FloatWeight, address_of, are_finite
from transduce.nn.stack_configs import beyond_positions
from transduce.support.work import available_cores

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


Weights = Mapping[str, FloatWeight]
"""By name."""
_LOAD_ERRORS = ("", "is unknown", "has another shape than the settings say", "is not finite")
_BARE = (".embedding", ".table", ".segments")
"""Endings of the names of tables, which have no bias and are read in place."""
_NO_MEMORY = len(_LOAD_ERRORS)


class EngineWeights:
    """A model in the engine, for calls in any threads, and its source vocabulary's size."""

    def __init__(
        self, shape: ModelShape, weights: Weights, instructions: str | None = None
    ) -> None:
        """weights: by their names in the PyTorch model, tied under each name.  instructions:
        by default the best.  Raises SettingError if the engine cannot be compiled or does not
        support the sizes, RunError for damaged weights."""
        self.library: Any = engine_library(instructions)
        self.shape = shape
        self._max_positions = max_positions(shape.encoder), max_positions(shape.decoder)
        self.pointer = self.library.engine_new(shape)
        if not self.pointer:
            raise SettingError("the native engine does not support a model of these sizes")
        weakref.finalize(self, self.library.engine_delete, self.pointer)
        self._buffers = self._load(weights)
        if not self.library.engine_complete(self.pointer):
            raise RunError("weights are missing; they belong to another model")

    def _load(self, weights: Weights) -> list[Any]:
        """Hand the weights over, the largest first, as a copy and its origin are in memory
        together; returns the buffers that are read in place."""
        buffers: dict[int, Any] = {}
        for name in sorted(weights, key=lambda name: weights[name].size, reverse=True):
            weight, (part, _, kind) = weights[name], name.rpartition(".")
            if kind == "bias" and f"{part}.weight" in weights:
                continue
            bias = weights.get(f"{part}.bias")
            if kind != "weight":
                raise RunError(f"weight {name} {_LOAD_ERRORS[1]}")
            fits = bias is None or bias.shape == weight.shape[:1]
            if len(weight.shape) not in (1, 2, 3) or not weight.size or not fits:
                raise RunError(f"weight {name} {_LOAD_ERRORS[2]}")
            tensors = [weight] if bias is None else [weight, bias]
            numbers = [buffers.get(id(tensor)) or _numbers(tensor, part) for tensor in tensors]
            (rows, divisors), (biases, _) = (*numbers, (None, None))[:2]
            if biases is not None and not are_finite(biases):
                raise RunError(f"weight {part}.bias {_LOAD_ERRORS[3]}")
            status = self.library.engine_load(
                self.pointer,
                part.encode(),
                address_of(rows),
                None if biases is None else address_of(biases),
                weight.shape[0],
                weight.size // weight.shape[0],
                None if divisors is None else address_of(divisors),
            )
            if status == _NO_MEMORY:
                raise MemoryError("the native engine ran out of memory")
            if status:
                raise RunError(f"weight {name} {_LOAD_ERRORS[status]}")
            if "norm" in part or part.endswith(_BARE):
                buffers |= zip(map(id, tensors), numbers, strict=True)
            for tensor in tensors:
                tensor.release()
        for weight in weights.values():  # again: reading takes neighbours in
            weight.release()
        return list(buffers.values())

    def attention(self, source: Sequence[int], target: Sequence[int]) -> NDArray[np.float32]:
        """Last cross-attention (t, s), the mean of its heads, of a source and a target."""
        import numpy as np

        self.check_lengths(len(source), len(target))
        ids, tokens = np.array(source, np.int32), np.array(target, np.int32)
        lengths, counts = np.array([len(ids)], np.int32), np.array([len(tokens)], np.int32)
        weights = np.zeros((len(tokens), len(ids)), np.float32)
        state = self.library.state_new(self.pointer, ids.ctypes.data, lengths.ctypes.data, 1)
        if not state:
            raise MemoryError("the native engine ran out of memory")
        try:
            inputs = tokens.ctypes.data, counts.ctypes.data, 1
            written = None, None, None, weights.ctypes.data
            if self.library.state_step(state, *inputs, *written, len(ids)) != 1:
                raise MemoryError("the native engine ran out of memory")
        finally:
            self.library.state_delete(state)
        return weights

    def check_lengths(self, source: int, target: int) -> None:
        """Raises DataError beyond learned positions, as the PyTorch model does."""
        for length, limit in zip((source, target), self._max_positions, strict=True):
            if limit is not None and length > limit:
                raise beyond_positions(limit)


def _numbers(weight: FloatWeight, part: str) -> tuple[Any, Any]:
    """Buffers of a weight in float32 and None, or, of an int8 matrix that the engine reads so, of
    its levels and divisors.  part: of the model."""
    if "norm" in part:  # small, and beside matrices whose pages of the file are released
        return bytearray(weight.read()), None
    if weight.levels is None or part.endswith((".table", ".segments")):
        return weight.read(), None
    return weight.levels()


def check_biases(weights: Weights, head_bias: bool = True) -> None:
    """Raises RunError unless each layer has a bias, but no embedding and no gated feed-forward.

    head_bias: of the matrix `head`, of a model that decodes.
    """
    for name in weights:
        part, _, kind = name.rpartition(".")
        gated = f"{part.rpartition('.')[0]}.gate_inner.weight" in weights
        bare = gated or part.endswith((*_BARE, ".candidate")) or (part == "head" and not head_bias)
        if kind == "weight" and "norm" not in part and (f"{part}.bias" in weights) == bare:
            raise RunError(f"{part} has {'a' if bare else 'no'} bias; it is of another model")


def default_threads() -> int:
    """PyTorch's number of threads; without it, that of the variable OMP_NUM_THREADS, by default
    of the cores of this process."""
    if (torch := sys.modules.get("torch")) is not None:
        return torch.get_num_threads()  # type: ignore[no-any-return]
    count = os.environ.get("OMP_NUM_THREADS", "")
    return int(count) if count.isdecimal() and int(count) else available_cores()


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

    model: in the engine.  options: of decoding.  sources: none for a decoder alone; of recordings
    any ids, as many as their memory has positions.  prompts: ids that every hypothesis of a
    sentence begins with, never none, and that it does not contain. limits, min_lengths: tokens
    before the end of sentence. cancelled: called after each step with the index of each live
    sentence, to end it.  shortlists: ids that each sentence may emit, ascending, the end among
    them; none for all.
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
    log_probs = library.search_log_probs(pointer)[:total]
    scores = library.search_scores(pointer)[:total]
    finished = library.search_finished(pointer)[:total]
    hypotheses: list[HypothesisFields] = []
    begin = 0
    rows = zip(lengths, log_probs, scores, finished, strict=True)
    for length, log_prob, score, is_finished in rows:
        hypotheses.append((tokens[begin : begin + length], log_prob, score, bool(is_finished)))
        begin += length
    every = iter(hypotheses)
    return [list(itertools.islice(every, count)) for count in counts]
