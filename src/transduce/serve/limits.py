"""Bounds of the decoding options that a client may choose."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from transduce.errors import SettingError, TransduceError
from transduce.serve.errors import invalid

if TYPE_CHECKING:
    from transduce.decoding.options import DecodingOptions

MOST = {
    "beam_size": 16,
    "n_best": 16,
    "candidates": 64,
    "max_tokens": 1024,
    "max_length_ratio": 4.0,
    "max_length_extra": 200,
    "min_length": 256,
    "min_length_ratio": 2.0,
}
"""Largest values, unless the recipe has larger ones."""
MOST_PHRASES = 64
"""Entries of constraints, avoid and stop_strings."""
SERVERS = ("batch_tokens", "shortlist", "language_model_weight", "ensemble")
"""Settings of the server, not of a request."""


def bounded(own: DecodingOptions | None, given: Mapping[str, Any]) -> DecodingOptions | None:
    """The recipe's options, overridden by a request.  Raises RequestError for invalid ones."""
    if not given:
        return own
    if own is None:
        raise invalid("this model does not decode; remove the options")
    for name in given:
        if name in SERVERS:
            raise invalid(f"option {name} cannot be chosen by a request; remove it")
    for name in ("constraints", "avoid", "stop_strings"):
        value = given.get(name, ())
        if isinstance(value, list | tuple) and len(value) > MOST_PHRASES:
            raise invalid(f"option {name} has {len(value)} entries; at most {MOST_PHRASES}")
    try:
        options = own.with_settings(given)
    except (SettingError, TransduceError) as error:
        raise invalid(str(error)) from None
    for name, most in MOST.items():
        value = getattr(options, name)
        if value > max(most, getattr(own, name)):
            raise invalid(f"option {name} = {value} exceeds {most}")
    return options
