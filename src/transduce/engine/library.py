"""The compiled engine, by ctypes: its structures, its functions, and their errors."""

import ctypes
import functools
import logging
from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    c_char_p,
    c_double,
    c_float,
    c_int32,
    c_int64,
    c_uint8,
    c_void_p,
)

from transduce.engine.build import (
    InstructionSet,
    available,
    chosen_instructions,
    library_path,
)
from transduce.errors import SettingError

logger = logging.getLogger("transduce")


class StackShape(Structure):
    """Sizes and kinds of an encoder or decoder; the fields of `StackShape` in model.h."""

    _fields_ = (
        *((name, c_int32) for name in ("layers", "heads", "head_width", "inner", "activation")),
        *((name, c_int32) for name in ("pre_norm", "positions", "max_positions")),
        ("embedding_norm", c_int32),
        ("epsilon", c_float),
        *((name, c_int32) for name in ("recurrent", "rms", "buckets", "distance")),
    )


class ModelShape(Structure):
    """Sizes and kinds of a model; the fields of `ModelShape` in model.h."""

    _fields_ = (
        ("encoder", StackShape),
        ("decoder", StackShape),
        *((name, c_int32) for name in ("width", "source_size", "target_size", "precision")),
        ("scale", c_float),
        *((name, c_int32) for name in ("segments", "pooling", "dense", "scores")),
        *((name, c_int32) for name in ("bins", "front_end", "convolutions", "taps", "channels")),
    )


class Sampling(Structure):
    """Draws from the distribution of each next token, in place of a search; see sampling.h.

    uniforms: address of (n, samples, steps) numbers from [0, 1) in float64, for `beam` samples of
    each sentence, and at least as many steps as the greatest limit; null for a search.
    """

    _fields_ = (
        *((name, c_double) for name in ("temperature", "top_p", "min_p")),
        *((name, c_int32) for name in ("top_k", "steps")),
        ("uniforms", c_void_p),
    )


class Spoken(Structure):
    """Memory of recordings, and rules of their outputs; the fields of `Spoken` in spoken.h."""

    _fields_ = (
        ("memory", c_void_p),
        ("forbidden_first", POINTER(c_int32)),
        *((name, c_int32) for name in ("n_forbidden_first", "first_time", "end_time")),
        *((name, c_int32) for name in ("latest_start", "is_renormalised")),
        *((name, c_int32) for name in ("no_speech", "no_speech_at", "period", "loops", "looped")),
    )


class SearchOptions(Structure):
    """Options of a search; the fields of `SearchOptions` in search.h.

    beam: hypotheses, or samples, of a sentence side by side.  length_penalty, stop: places in
    `LENGTH_PENALTIES` and `STOPS`.  ends_at_limit: a hypothesis ends at its limit, without an end
    of sentence.  window, kept: maximum positions, and tokens kept of a longer hypothesis
    (`decoding.window`); 0 for no limit.  shortlists, shortlist_lengths: see search.h.
    """

    _fields_ = (
        *((name, c_int32) for name in ("beam", "n_best", "length_penalty", "stop", "free_end")),
        *((name, c_int32) for name in ("ends_at_limit", "eos", "window", "kept", "threads")),
        ("n_forbidden", c_int32),
        ("extra_length", c_int32),
        ("forbidden", POINTER(c_int32)),
        ("alpha", c_double),
        ("sampling", Sampling),
        ("shortlists", c_void_p),
        ("shortlist_lengths", c_void_p),
        ("spoken", Spoken),
    )


Cancelled = CFUNCTYPE(c_int32, c_int32)

_FUNCTIONS = {  # result, arguments
    "engine_lanes": (c_int32, ()),
    "engine_works": (c_int32, ()),
    "engine_new": (c_void_p, (POINTER(ModelShape),)),
    "engine_delete": (None, (c_void_p,)),
    "engine_load": (c_int32, (c_void_p, c_char_p, *(c_void_p,) * 2, *(c_int64,) * 2, c_void_p)),
    "engine_complete": (c_int32, (c_void_p,)),
    "encoder_run": (
        c_int32,
        (*(c_void_p,) * 4, c_int32, c_void_p, c_int32, *(c_void_p,) * 2, c_int32),
    ),
    "linear_new": (c_void_p, (c_int32, c_void_p, c_void_p, c_int32, c_int32)),
    "linear_delete": (None, (c_void_p,)),
    "linear_apply": (c_int32, (c_void_p, c_void_p, c_int64, c_void_p, c_int32)),
    "state_new": (c_void_p, (c_void_p, c_void_p, c_void_p, c_int32)),
    "state_over": (c_void_p, (c_void_p, c_void_p, c_void_p, c_int32)),
    "frames_run": (c_int32, (*(c_void_p,) * 3, c_int32, c_void_p, c_int32)),
    "state_delete": (None, (c_void_p,)),
    "state_step": (c_int32, (*(c_void_p,) * 3, c_int32, *(c_void_p,) * 4, c_int32)),
    "state_select": (c_int32, (c_void_p, c_void_p, c_int32)),
    "search_run": (c_void_p, (*(c_void_p,) * 7, c_int32, POINTER(SearchOptions), Cancelled)),
    "search_delete": (None, (c_void_p,)),
    "search_not_a_number": (c_int32, (c_void_p,)),
    "search_counts": (POINTER(c_int32), (c_void_p,)),
    "search_lengths": (POINTER(c_int32), (c_void_p,)),
    "search_tokens": (POINTER(c_int32), (c_void_p,)),
    "search_log_probs": (POINTER(c_float), (c_void_p,)),
    "search_scores": (POINTER(c_double), (c_void_p,)),
    "search_no_speech": (POINTER(c_float), (c_void_p,)),
    "search_finished": (POINTER(c_uint8), (c_void_p,)),
}


def engine_library(instructions: str | None = None) -> ctypes.CDLL:
    """The library for an instruction set, compiled where missing.  Raises SettingError."""
    chosen = chosen_instructions(instructions)
    library = _loaded(chosen)
    if library.engine_works():
        return library
    others = available()
    following = others[others.index(chosen) + 1 :]
    if not following:
        raise SettingError(f"the native engine computes wrongly with {chosen.name}; take PyTorch")
    logger.warning("%s computes wrongly here; taking %s", chosen.name, following[0].name)
    return engine_library(following[0].name)


@functools.cache
def _loaded(instructions: InstructionSet) -> ctypes.CDLL:
    path = library_path(instructions)
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:  # made for another system
        raise SettingError(
            f"{path} cannot be loaded: {error}; delete it to have it compiled again, or take "
            "--engine pytorch"
        ) from None
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library
