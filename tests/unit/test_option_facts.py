"""Facts on the fields of the decoding options: what follows them, and who may choose them."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest

from transduce.cli.options import AS_IN_RECIPE, GROUPS, chosen_options
from transduce.decoding.options import (
    BEAM,
    DecodingOptions,
    Facts,
    facts_of_options,
    not_followed,
    not_native,
)
from transduce.engine.inference import LENGTH_PENALTIES, STOPS
from transduce.errors import SettingError
from transduce.serve.calls import RequestError, bounded

CHANGED: dict[str, Any] = {
    "method": "sample",
    "prefix": "a",
    "constraints": ("a",),
    "avoid": ("a",),
    "hotwords": ("a",),
    "length_penalty": "mean",
    "stop": "exact",
    "free_end": True,
    "stop_strings": ("a",),
    "ensemble": "arithmetic",
    "minimum_risk": "chrf",
    "shortlist": True,
    "top_p": 0.5,
    "min_p": 0.5,
    "temperature": 0.5,
    "beam_groups": 5,
}
"""Another value of each option; of all others, the next number."""
OPTIONS = {
    field.name: CHANGED.get(field.name) or getattr(DecodingOptions(), field.name) + 1
    for field in dataclasses.fields(DecodingOptions)
}


@pytest.mark.parametrize("name", OPTIONS)
def test_the_engine_follows_what_its_facts_name_and_nothing_else(name: str) -> None:
    options = dataclasses.replace(DecodingOptions(), **{"beam_size": 5, name: OPTIONS[name]})
    facts = facts_of_options()[name]
    followed = bool(facts.native) or (BEAM not in facts.needs and bool(facts.needs))
    assert not_native(options) == ([] if followed else [name])


def test_an_option_without_facts_takes_the_search_of_python_and_is_closed_to_clients() -> None:
    bare = Facts()
    options = DecodingOptions(no_repeat_ngram=2)
    assert dict(not_followed(options, lambda _: bare.native)) == {"no_repeat_ngram": 2}
    listed = dict(not_followed(options, lambda _: ("none", 2)))
    assert "no_repeat_ngram" not in listed and listed["length_penalty"] == "gnmt"
    assert bare.client is False


def test_names_in_facts_are_those_of_the_engine() -> None:
    facts = facts_of_options()
    assert facts["length_penalty"].native == LENGTH_PENALTIES
    assert facts["stop"].native == STOPS
    assert {fact.group for fact in facts.values()} <= set(GROUPS)


@pytest.mark.parametrize("name", OPTIONS)
def test_a_client_chooses_what_its_facts_allow(name: str) -> None:
    own = DecodingOptions()
    if facts_of_options()[name].client is False:
        with pytest.raises(RequestError, match=f"option {name} cannot be chosen"):
            bounded(own, {name: OPTIONS[name]})
        return
    options = bounded(own, {name: OPTIONS[name]})
    assert options is not None and getattr(options, name) == OPTIONS[name]
    most = facts_of_options()[name].client
    if not isinstance(most, bool):
        many: Any = ("a",) * 65 if isinstance(OPTIONS[name], tuple) else int(most) + 1
        with pytest.raises(RequestError, match=f"option ({name}|beam_size) .*({most:g})$"):
            bounded(own, {name: many})


@pytest.mark.parametrize("name", [n for n, fact in facts_of_options().items() if fact.needs])
def test_an_option_without_its_condition_is_refused_by_name(name: str) -> None:
    from helpers.random_translator import random_translator

    sampled = BEAM in facts_of_options()[name].needs
    translator = dataclasses.replace(
        random_translator(),
        options=DecodingOptions(
            method="sample" if sampled else "beam",
            length_penalty="none",
            minimum_risk="none",
        ),
    )
    given: Any = {name: OPTIONS[name]} | ({"sample": True} if sampled else {})
    with pytest.raises(SettingError, match=r"applies to beam search|requires --"):
        chosen_options(translator, given)


def test_a_call_without_options_has_the_recipes_own() -> None:
    from helpers.random_translator import random_translator

    translator = random_translator()
    assert chosen_options(translator, AS_IN_RECIPE) is translator.options
    assert chosen_options(translator, {}, n_best=2).n_best == 2


def test_facts_read_alike_in_every_process() -> None:
    """The site shows them: an address of an object would differ from build to build."""
    assert re.findall("0x[0-9a-f]{6,}", repr(facts_of_options())) == []
