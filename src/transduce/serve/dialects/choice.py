"""Choice of a model by its name: a run, or a pair of languages such as "de-en"."""

from __future__ import annotations

from typing import NamedTuple

from transduce.serve.errors import RequestError, unavailable
from transduce.serve.service import Model, Service


class Choice(NamedTuple):
    """A run, or a pair of languages for translation, then without a run."""

    run: Model | None
    source: str = ""
    target: str = ""


def model_names(service: Service) -> list[str]:
    """Names of all models: pairs of languages, also through a pivot, and runs without a pair."""
    languages = service.languages
    pairs = [
        f"{source}-{target}"
        for source in languages.sources
        for target in languages.targets(source)
        if target != source
    ]
    return [*pairs, *(spec.name for spec in service.specs.values() if not spec.pairs)]


def choose_model(service: Service, name: str) -> Choice:
    """The model of a name.

    Raises RequestError: 404 for an unknown name, 503 while the server is loading.
    """
    if not service.ready:
        raise unavailable("the server is loading")
    run = next((model for model in service.models() if model.name == name), None)
    if run is not None and len(run.pairs) < 2:
        return Choice(None, *run.pairs[0]) if run.pairs else Choice(run)
    for dash in (i for i, character in enumerate(name) if character == "-"):
        source = service.languages.resolve(name[:dash])
        target = service.languages.resolve(name[dash + 1 :])
        if source and target and service.languages.path(source, target):
            return Choice(None, source, target)
    known = ", ".join(model_names(service))
    raise RequestError(404, f"there is no model {name!r}; use {known}", "model_not_found")
