"""The `generation_config.json` of an encoder-decoder as decoding options."""

from __future__ import annotations

import logging
import reprlib
from pathlib import Path
from typing import Any

from transduce.interop.read import Config, read_json

logger = logging.getLogger("transduce")

BEGUN = 1
"""Tokens at the start of an output in transformers, counted there in lengths but not here."""
UNSAID = 20
"""Default number of tokens after it without a given length, including the end."""
_NEUTRAL: dict[str, Any] = {
    "do_sample": False,
    "encoder_repetition_penalty": 1.0,
    "encoder_no_repeat_ngram_size": 0,
    "exponential_decay_length_penalty": None,
    "forced_bos_token_id": None,
    "suppress_tokens": None,
    "begin_suppress_tokens": None,
    "sequence_bias": None,
    "force_words_ids": None,
    "constraints": None,
    "guidance_scale": 1.0,
    "penalty_alpha": 0.0,
    "dola_layers": None,
    "num_beam_groups": 1,
    "num_return_sequences": 1,
    "stop_strings": None,
    "max_time": None,
    "watermarking_config": None,
}
"""Unsupported settings that change outputs, with their neutral values."""


def read_generation(directory: Path, config: Config) -> Config:
    """Read `generation_config.json` only, or config.json if it is missing."""
    path = directory / "generation_config.json"
    if path.is_file():
        return Config(read_json(path), path)
    return Config({"forced_eos_token_id": 0, **config.values}, config.path)


def renormalises(generation: Config, pad: int | None) -> bool:
    """True if token probabilities are normalised over everything but padding."""
    return generation.values.get("renormalize_logits") is True and _bad_words(generation) == [[pad]]


def decoding(generation: Config, config: Config, opened: bool | None = None) -> dict[str, Any]:
    """Search options equivalent to transformers', as far as possible; unsupported settings cause a
    warning.  opened: True for outputs whose first token is forced, which counts in their length;
    None for a Marian's, which end by force.  Raises DataError."""
    beams = generation.integer("num_beams", 1)
    penalty = generation.number("length_penalty", 1.0)
    early = generation.values.get("early_stopping")
    if beams == 1 or early is True:  # greedy search ends with its first end
        stop = "first"
    else:
        stop = "exact" if early == "never" else "present"
    before = BEGUN + int(bool(opened))
    forced = generation.values.get("forced_eos_token_id") is not None
    ending = forced or (opened is not None and beams > 1)
    least = _natural(generation, "min_length") - before
    if generation.values.get("min_new_tokens") is not None:
        least = _natural(generation, "min_new_tokens") + BEGUN - before
    names = _not_followed(generation, config, beams)
    if opened is not None:
        names = [n for n in names if n not in ("forced_bos_token_id", "forced_eos_token_id")]
    for name in names:
        shown = reprlib.repr(generation.values.get(name))
        logger.warning(
            "%s: ignoring %s = %s, which decoding here does not support",
            generation.path,
            name,
            shown,
        )
    return {
        "beam_size": beams,
        "length_penalty": "none" if penalty == 0 else "mean",
        "stop": stop,
        "free_end": bool(forced) or opened is None or beams == 1,
        "min_length": max(least, 0),
        "max_length_ratio": 0.0,
        # Where no end is forced there, the last token allowed may be any, or must in a beam be the
        # end for an output to count.
        "max_length_extra": max(_longest(generation, config) - before - int(ending), 0),
        "extra_length": int(bool(opened)),
        "no_repeat_ngram": _natural(generation, "no_repeat_ngram_size"),
        "repetition_penalty": max(generation.number("repetition_penalty", 1.0), 1.0),
    }


def _longest(generation: Config, config: Config) -> int:
    """Maximum tokens of an output, including its start and its end."""
    if generation.values.get("max_new_tokens") is not None:
        return generation.integer("max_new_tokens") + BEGUN
    if generation.values.get("max_length") is not None:
        return generation.integer("max_length")
    max_length = min(UNSAID + BEGUN, config.integer("max_position_embeddings", 1024))
    message = (
        "%s has no max_length; limiting outputs to %d tokens including the end, as in "
        "transformers; raise the limit with --set decoding.max_length_extra=..."
    )
    logger.warning(message, generation.path, max_length - BEGUN)
    return max_length


def _not_followed(generation: Config, config: Config, beams: int) -> list[str]:
    """Names of settings that change outputs in transformers, but not here."""
    values = generation.values
    names = [
        name
        for name, neutral in _NEUTRAL.items()
        if values.get(name) not in (None, [], {}, neutral)
    ]
    pad, eos, start = (config.token(f"{name}_token_id") for name in ("pad", "eos", "decoder_start"))
    special_ids = {"pad": pad, "eos": eos, "decoder_start": pad if start is None else start}
    special = {f"{name}_token_id": token for name, token in special_ids.items()}
    names += [n for n, token in special.items() if values.get(n) not in (None, token, [token])]
    if any(words not in ([pad], [eos], [start]) for words in _bad_words(generation)):
        names.append("bad_words_ids")
    forced = values.get("forced_eos_token_id")
    if forced not in (None, eos, [eos]) or (forced is None and beams > 1):
        names.append("forced_eos_token_id")
    penalty = generation.number("repetition_penalty", 1.0)
    if penalty < 1 or (penalty != 1 and beams == 1):  # greedy search there: of logits
        names.append("repetition_penalty")
    if beams > 1 and generation.number("length_penalty", 1.0) not in (0.0, 1.0):
        names.append("length_penalty")
    others = ("min_length", "min_new_tokens", "no_repeat_ngram_size")
    masked = any(values.get(name) for name in others) or penalty != 1
    if beams > 1 and values.get("renormalize_logits") is True and masked:
        names.append("renormalize_logits")
    return names


def _bad_words(generation: Config) -> list[Any]:
    phrases = generation.values.get("bad_words_ids")
    return phrases if isinstance(phrases, list) else []


def _natural(generation: Config, name: str) -> int:
    return 0 if generation.values.get(name) in (None, 0) else generation.integer(name)
