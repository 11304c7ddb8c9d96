"""Read old spellings of settings as the new ones."""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterable, Mapping
from typing import Any

from transduce.errors import SettingError

logger = logging.getLogger("transduce")

SETTINGS = {"model.first_weights": "model.init"}
"""Old name -> new name, in the same section."""
VALUES = {("model.encoder.kind", "windows"): "text-cnn"}
"""(name, old value) -> new value."""


def with_new_names(settings: Mapping[str, Any], warn: bool = True) -> dict[str, Any]:
    """Replace every old spelling in the settings of a recipe, with one warning each.

    warn: False for recipes kept by a run.  Raises SettingError if a setting has both its old and
    its new name.
    """
    result = dict(settings)
    for old, new in SETTINGS.items():
        section = _copied_section(result, old)
        name, renamed = old.rpartition(".")[2], new.rpartition(".")[2]
        if name not in section:
            continue
        if renamed in section:
            raise SettingError(f"{old} is the old name of {new}; set only {new}")
        section[renamed] = section.pop(name)
        _note(old, new, warn)
    for (setting, before), after in VALUES.items():
        section = _copied_section(result, setting)
        name = setting.rpartition(".")[2]
        if section.get(name) == before:
            section[name] = after
            _note(f"{setting} = {before!r}", repr(after), warn)
    return result


def overrides_with_new_names(overrides: Iterable[str]) -> list[str]:
    """Overrides `a.b=value` with every old spelling replaced."""
    found = []
    for override in overrides:
        given, equals, value = override.partition("=")
        name = ".".join(key.strip() for key in given.split("."))
        new = VALUES.get((name, value.strip().strip("\"'")))
        if name in SETTINGS:
            _note(name, SETTINGS[name], warn=True)
            override = f"{SETTINGS[name]}{equals}{value}"
        elif new is not None:
            _note(f"{name} = {value}", repr(new), warn=True)
            override = f"{name}={new}"
        found.append(override)
    return found


def _copied_section(settings: dict[str, Any], name: str) -> dict[str, Any]:
    """The section of a dotted name, copied into `settings`; empty if missing."""
    for key in name.split(".")[:-1]:
        if not isinstance(settings.get(key), Mapping):
            return {}
        settings[key] = dict(settings[key])
        settings = settings[key]
    return settings


def _note(old: str, new: str, warn: bool) -> None:
    if warn:
        _warn_once(old, new)


@functools.cache
def _warn_once(old: str, new: str) -> None:
    logger.warning("%s has been renamed to %s; the old spelling still works", old, new)
