"""Messages for wrong settings: the name of the setting, and the nearest right name."""

from __future__ import annotations

import dataclasses
import difflib
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from transduce.settings.kinds import kinds_of, members_of


class Replacement(dict[str, Any]):
    """A section that replaces a section of another `kind`; nothing of the old is kept."""


def setting_names(kind: Any, prefix: str = "") -> Iterator[str]:
    """Every dotted name in a section of type `kind`, sections themselves included."""
    if typing.get_origin(kind) is typing.Annotated:
        kind = typing.get_args(kind)[0]
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        for member in typing.get_args(kind):
            yield from setting_names(member, prefix)
    elif typing.get_origin(kind) is tuple:  # a list of sections
        yield from setting_names(typing.get_args(kind)[0], prefix)
    elif dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind, include_extras=True)
        for field in dataclasses.fields(kind):
            yield prefix + field.name
            yield from setting_names(hints[field.name], f"{prefix}{field.name}.")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?` for the nearest known name, or nothing."""
    near = nearest(name, known)
    return f"; did you mean {near!r}?" if near else ""


def nearest(name: str, known: Iterable[str]) -> str:
    """The nearest known name, or nothing."""
    return next(iter(difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)), "")


def explanation_of(kind: type, settings: Mapping[str, Any], error: Any) -> str:
    """Explanation of an error of pydantic, in a line."""
    path = _path_of(settings, error["loc"])
    name = ".".join(path) or "the recipe"
    match error["type"]:
        case "unexpected_keyword_argument" | "extra_forbidden":
            inside = _sections_at(kind, settings, path[:-1])
            siblings = {field.name for section in inside for field in dataclasses.fields(section)}
            hint = _of_another_kind(kind, settings, path) or did_you_mean(path[-1], siblings)
            hint = hint or _elsewhere(name, kind)
            return f"{name} is not a setting" + (hint or f" ({_list(siblings)} are)")
        case "missing" | "missing_argument" | "missing_keyword_only_argument":
            part: Any = settings
            for key in path[:-1]:
                part = part[int(key)] if isinstance(part, list) else part[key]
            if not isinstance(part, Replacement):
                return f"{name} is missing"
            new = part["kind"]
            return f"{name} is missing; kind = {new!r} replaces the section, so give it too"
        case "union_tag_not_found":
            kinds = {k for section in _sections_at(kind, settings, path) for k in kinds_of(section)}
            return f"{name}.kind is missing; it is one of {_list(kinds)}"
        case "union_tag_invalid":
            tag, tags = error["ctx"]["tag"], error["ctx"]["expected_tags"]
            return f"{name}.kind is {tag!r}; it must be one of {tags}"
        case "dataclass_type" | "dataclass_exact_type" | "model_attributes_type":
            return f"{name} must be a section of settings, not {error['input']!r}"
        case "tuple_type" | "list_type":
            how = 'as in ["a", "b"] (in single quotes for a shell)'
            return f"{name} must be a list, {how}, not {_short(error['input'])}"
        case "value_error":
            return f"{name}: {error['ctx']['error']}"
    message = error["msg"][0].lower() + error["msg"][1:]
    message = message.removeprefix("input ")
    return f"{name} {message}, not {_short(error['input'])}"


def _path_of(settings: Any, location: tuple[Any, ...]) -> list[str]:
    """The dotted path of an error, without the union tags that pydantic adds to it."""
    path: list[str] = []
    for i, item in enumerate(location):
        inside = isinstance(settings, Mapping) and item in settings
        inside = inside or (isinstance(settings, list) and isinstance(item, int))
        if inside:
            settings = settings[item]
            path.append(str(item))
        elif i == len(location) - 1 and isinstance(settings, Mapping):
            path.append(str(item))
    return path


def _sections_at(kind: Any, settings: Any, path: list[str], default: bool = True) -> list[Any]:
    """Sections possible at a path: the member of a union chosen by `kind`, or else all members.

    default: count the default kind as chosen where `kind` is left out.
    """
    sections, default_kind = members_of(kind)
    default_kind = default_kind if default else None
    chosen = settings.get("kind", default_kind) if isinstance(settings, Mapping) else None
    sections = [section for section in sections if chosen in kinds_of(section)] or sections
    if not path:
        return sections
    if isinstance(settings, list):
        return _sections_at(kind, settings[int(path[0])], path[1:], default)
    inner = settings.get(path[0]) if isinstance(settings, Mapping) else None
    hints = [typing.get_type_hints(section, include_extras=True) for section in sections]
    nested = [hint[path[0]] for hint in hints if path[0] in hint]
    inside = (_sections_at(hint, inner, path[1:], default) for hint in nested)
    return [section for sections in inside for section in sections]


def _of_another_kind(kind: Any, settings: Any, path: list[str]) -> str:
    """A hint at the kinds that have this setting."""
    kinds = [
        repr(name)
        for section in _sections_at(kind, settings, path[:-1], default=False)
        if any(field.name == path[-1] for field in dataclasses.fields(section))
        for name in kinds_of(section)
    ]
    return f"; it needs kind = {' or '.join(kinds)}" if kinds else ""


def _elsewhere(name: str, kind: Any) -> str:
    """A hint at a setting of the same or a similar name in another section."""
    last_part = name.rpartition(".")[2]
    others = [other for other in setting_names(kind) if other != name]
    last = [other.rpartition(".")[2] for other in others]
    near = difflib.get_close_matches(last_part, last, n=1, cutoff=0.75)
    alike = [other for other in others if other.rpartition(".")[2] in near]
    likeliest = max(  # or else the last
        reversed(alike),
        key=lambda other: difflib.SequenceMatcher(None, name, other).ratio(),
        default="",
    )
    return f"; did you mean {likeliest!r}?" if likeliest else ""


def _list(names: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in sorted(names))


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
