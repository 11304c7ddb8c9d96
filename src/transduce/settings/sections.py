"""Settings: TOML files read, overridden, merged and checked as sections, frozen dataclasses.

A section is a dataclass made with `@section`, beside the part that it configures.  Every default
stands there and nowhere else.  Members of a union of sections differ in their `kind`, which may be
left out where their `ByKind` has a default.  `load_toml`, `apply_overrides` and `parse` turn a
file into sections; `to_toml` writes them back.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import itertools
import operator
import sys
import tomllib
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar, dataclass_transform

import pydantic
import tomli_w

from transduce.errors import SettingError, printable
from transduce.settings.kinds import members_of, reader_of
from transduce.settings.mistakes import Replacement, explanation_of
from transduce.settings.paths import check_levels, literal

T = TypeVar("T")

MAX_DOTS = 100
"""Dots of a line of TOML: `tomllib` takes memory and time with the square of those of a name."""


@dataclass_transform(frozen_default=True, kw_only_default=True)
def section(cls: type[T]) -> type[T]:
    """Make a frozen dataclass of settings that refuses unknown names.

    The docstring under each field is its help text.
    """
    cls.__pydantic_config__ = pydantic.ConfigDict(  # type: ignore[attr-defined]
        extra="forbid"
    )
    # Methods of its own for each section would be compiled at every start, 15 CPU-ms.
    for name, method in SHARED_METHODS.items():
        setattr(cls, name, method)
    return dataclasses.dataclass(frozen=True, kw_only=True, repr=False, eq=False)(cls)


@functools.cache
def _getter(cls: Any) -> Callable[[Any], Any]:
    names = [field.name for field in dataclasses.fields(cls)]
    return operator.attrgetter(*names) if names else type


def _values_of(section: Any) -> Any:
    cls: Any = type(section)
    return _getter(cls)(section)  # kept, as options are compared and hashed for each text


def _shown(section: Any) -> str:
    names = (field.name for field in dataclasses.fields(section))
    settings = ", ".join(f"{name}={getattr(section, name)!r}" for name in names)
    return f"{type(section).__qualname__}({settings})"


def _equals(section: Any, other: object) -> bool:
    return type(other) is type(section) and bool(_values_of(section) == _values_of(other))


def _hash(section: Any) -> int:
    return hash(_values_of(section))


SHARED_METHODS = {"__repr__": _shown, "__eq__": _equals, "__hash__": _hash}


def field_help(cls: type) -> dict[str, str]:
    """The docstring under each field of a section, its own or inherited, as one line.

    None of a section without its source file.
    """
    sections = [base for base in reversed(cls.__mro__) if dataclasses.is_dataclass(base)]
    return {name: text for section in sections for name, text in _own_help(section).items()}


def _own_help(cls: type) -> dict[str, str]:
    body = _classes_of(cls.__module__).get(cls.__name__)
    if body is None:
        return {}
    return {
        field.target.id: " ".join(text.value.value.split())
        for field, text in itertools.pairwise(body.body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }


@functools.cache
def _classes_of(module: str) -> dict[str, ast.ClassDef]:
    """Top-level classes in the source file of a module, by name; none without the file."""
    try:
        source = inspect.getsource(sys.modules[module])
    except (OSError, TypeError):
        return {}
    return {node.name: node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)}


def load_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file.  Raises SettingError naming file and line."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
        for number, line in enumerate(text.splitlines(), 1):
            if line.count(".") > MAX_DOTS:
                raise SettingError(
                    f"{path}: line {number} has more than {MAX_DOTS} dots; break it into several"
                )
        settings = tomllib.loads(text)
        check_levels(settings)
        return settings
    except FileNotFoundError:
        raise SettingError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise SettingError(f"{path} is a directory; a recipe is a TOML file") from None
    except OSError as error:
        raise SettingError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise SettingError(f"{path}: byte {error.start} is not UTF-8; TOML is UTF-8 text") from None
    except tomllib.TOMLDecodeError as error:
        raise SettingError(f"{path} is not valid TOML: {error}") from None
    except ValueError as error:  # a number with thousands of digits
        raise SettingError(f"{path} is not a recipe: {error}") from None
    except RecursionError:
        raise SettingError(f"{path} is not a recipe: its values are nested too deeply") from None


def apply_overrides(
    settings: Mapping[str, Any], overrides: Iterable[str], kind: type | None = None
) -> dict[str, Any]:
    """Settings with each `a.b=value` applied; the value is read as TOML, else as a string.

    The order matters only where two overrides name the same setting: the last counts.
    kind: type of the settings, if known.  It gives the default `kind` of its unions, so that an
    override with another `kind` replaces a section that names none.
    """
    overridden: dict[str, Any] = {}
    for override in overrides:
        name, equals, text = override.partition("=")
        keys = [key.strip() for key in name.split(".")]
        if not equals or not all(keys):
            raise SettingError(f"--set {override!r}: write it as section.name=value")
        try:
            value = tomllib.loads(f"value = {text}")["value"]
        except (ValueError, RecursionError):  # no TOML
            value = text
        inner = overridden
        for key in keys[:-1]:
            if not isinstance(inner.get(key), dict):
                inner[key] = {}
            inner = inner[key]
        inner[keys[-1]] = value
    return merge(_with_default_kinds(settings, overridden, kind), overridden)


def merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """`below` with the entries of `above` laid over it, section by section.

    A section of another `kind` replaces the section below it, since their settings differ.
    """
    result = dict(below)
    for key, value in above.items():
        old = result.get(key)
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            other_kind = "kind" in old and value.get("kind", old["kind"]) != old["kind"]
            result[key] = Replacement(value) if other_kind else merge(old, value)
        else:
            result[key] = value
    return result


def parse(kind: type[T], settings: Mapping[str, Any], where: str = "") -> T:
    """Settings as a section of type `kind`.

    where: file name to put before the message.  Raises SettingError of one line with the name of
    the setting, and the nearest right name or the value found.
    """
    prefix = f"{where}: " if where else ""
    try:
        parsed: T = reader_of(kind).validate_python(settings)  # type: ignore[arg-type]
    except SettingError as error:  # from a check across several settings
        raise SettingError(printable(f"{prefix}{error}")) from None
    except pydantic.ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise SettingError(printable(prefix + explanation_of(kind, settings, first))) from None
    return parsed


def check_fields(value: Any) -> None:
    """Check a section that was built directly as `parse` checks settings: for `__post_init__`.

    Defaults are not checked, so most calls cost nothing.  Lists become tuples where the field is
    a tuple.  Raises SettingError as `parse` does.
    """
    kind: Any = type(value)
    settings = vars(value)
    for field in dataclasses.fields(value):
        setting, default = settings[field.name], field.default
        if type(setting) is not type(default) or setting != default:  # 5.0 is no number of tokens
            try:
                settings[field.name] = _field_reader(kind, field.name).validate_python(setting)
            except pydantic.ValidationError as error:
                first = error.errors(include_url=False)[0]
                location = {**first, "loc": (field.name, *first["loc"])}
                raise SettingError(printable(explanation_of(kind, settings, location))) from None


@functools.cache
def _field_reader(kind: Any, name: str) -> pydantic.TypeAdapter[Any]:
    return pydantic.TypeAdapter(_hints(kind)[name])


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    return typing.get_type_hints(kind, include_extras=True)


def outside(
    section: Any, name: str, allowed: Mapping[str, Collection[Any]]
) -> Iterator[tuple[str, Any]]:
    """Name and value of each setting of a section whose value is not allowed.

    name: of the section, before those of its settings.  allowed: values by setting; settings that
    the section does not have are passed over.
    """
    for setting, values in allowed.items():
        value = getattr(section, setting, None)
        if hasattr(section, setting) and value not in values:
            yield f"{name}.{setting}", value


def to_dict(value: Any) -> Any:
    """A section as plain dicts and lists, without settings that are None (TOML has no null).

    Texts of sections become `LiteralText`; texts of a mapping stay as they are.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        pairs = ((f.name, getattr(value, f.name)) for f in dataclasses.fields(value))
        return {name: literal(to_dict(item)) for name, item in pairs if item is not None}
    if isinstance(value, Mapping):
        return {key: to_dict(item) for key, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [to_dict(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def differing(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Names with different values in two mappings, or missing in either."""
    missing = object()
    names = {**before, **now}
    return [name for name in names if before.get(name, missing) != now.get(name, missing)]


def to_toml(value: Any) -> str:
    """A section as TOML text that `parse` reads back to an equal section."""
    return tomli_w.dumps(to_dict(value))


def _with_default_kinds(
    settings: Mapping[str, Any], above: Mapping[str, Any], kind: Any
) -> dict[str, Any]:
    """Settings with default kinds written out wherever `above` names a kind."""
    sections, default_kind = members_of(kind)
    result = dict(settings)
    if default_kind is not None and "kind" in above:
        result.setdefault("kind", default_kind)
    hints: dict[str, Any] = {}
    for section in sections:
        hints |= typing.get_type_hints(section, include_extras=True)
    for name, value in above.items():
        old = result.get(name)
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            result[name] = _with_default_kinds(old, value, hints.get(name))
    return result
