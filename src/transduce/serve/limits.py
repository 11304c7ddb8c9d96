"""Bounds of the decoding options that a client may choose (`decoding.options.Facts.client`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transduce.decoding.options import DecodingOptions, facts_of_options
from transduce.errors import TransduceError
from transduce.serve.errors import invalid


def bounded(recipe: DecodingOptions | None, request: Mapping[str, Any]) -> DecodingOptions | None:
    """The recipe's options, overridden by a request.  Raises RequestError for invalid options."""
    if not request:
        return recipe
    if recipe is None:
        raise invalid("this model does not decode; remove the options")
    facts = facts_of_options()
    for name, setting in request.items():
        most = facts[name].client if name in facts else True
        if most is False:
            raise invalid(f"option {name} cannot be chosen by a request; remove it")
        if isinstance(setting, list | tuple) and most is not True and len(setting) > most:
            raise invalid(f"option {name} has {len(setting)} entries; at most {most}")
    try:
        options = recipe.with_settings(request)
    except TransduceError as error:
        raise invalid(str(error)) from None
    for name, fact in facts.items():
        setting, most = getattr(options, name), fact.client
        is_bounded = isinstance(setting, int | float) and not isinstance(most, bool)
        if is_bounded and setting > max(most, getattr(recipe, name)):
            raise invalid(f"option {name} = {setting} exceeds {most}")
    return options
