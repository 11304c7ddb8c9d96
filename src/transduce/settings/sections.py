"""Settings: TOML files read, overridden, merged and checked as sections, with a message of one
line for each mistake.

A section is a dataclass made with `@section`, beside the part that it configures.  Every default
stands there and nowhere else.  Members of a union of sections differ in their `kind`, which may be
left out where their `ByKind` has a default.  `load_toml`, `apply_overrides` and `parse` turn a
file into sections; `to_toml` writes them back.
"""

import ast
import dataclasses
import difflib
import functools
import inspect
import itertools
import operator
import sys
import tomllib
import types
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar, dataclass_transform

import pydantic
import pydantic_core
import tomli_w
from pydantic_core import PydanticKnownError, core_schema

from transduce.errors import SettingError, printable
from transduce.settings.paths import check_levels, literal


@dataclasses.dataclass(frozen=True)
class ByKind:
    """Choice among a union of sections by their `kind`: `Annotated[A | B, ByKind("a")]`.

    default: `kind` of settings that name none.  It lets a union replace a section while recipes
    written for that section stay valid.

    Pydantic's own discriminator makes the reader of every member, a millisecond each.
    """

    default: str | None = None

    def __get_pydantic_core_schema__(
        self, source: Any, handler: pydantic.GetCoreSchemaHandler
    ) -> pydantic_core.CoreSchema:
        """Pydantic's hook for annotations."""
        members = members_of(source)[0]
        return core_schema.no_info_plain_validator_function(functools.partial(self._parse, members))

    def _parse(self, members: list[Any], settings: Any) -> Any:
        if isinstance(settings, tuple(members)):
            return settings
        if not isinstance(settings, Mapping):
            raise PydanticKnownError("model_attributes_type")
        kind = settings.get("kind", self.default)
        if kind is None:
            raise PydanticKnownError("union_tag_not_found", {"discriminator": "'kind'"})
        for member in members:
            if kind in kinds_of(member):
                return reader_of(member).validate_python({**settings, "kind": kind})
        tags = ", ".join(repr(kind) for member in members for kind in kinds_of(member))
        names = {"discriminator": "'kind'", "tag": str(kind), "expected_tags": tags}
        raise PydanticKnownError("union_tag_invalid", names)


@functools.cache
def reader_of(kind: Any) -> pydantic.TypeAdapter[Any]:
    """The validator of a type, cached: making it takes longer than a thousand uses."""
    return pydantic.TypeAdapter(kind)


def members_of(kind: Any) -> tuple[list[Any], str | None]:
    """The sections in a type, and their default kind, if any."""
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        sections, _ = members_of(parts[0])
        kinds = [note.default for note in parts[1:] if isinstance(note, ByKind) and note.default]
    elif origin is tuple:  # a list of sections
        return members_of(parts[0])
    elif origin in (typing.Union, types.UnionType):
        inside = [members_of(part) for part in parts]
        sections = [section for sections, _ in inside for section in sections]
        kinds = [default for _, default in inside if default is not None]
    else:
        sections, kinds = [kind] if dataclasses.is_dataclass(kind) else [], []
    return sections, kinds[0] if kinds else None


@functools.cache
def kinds_of(section: Any) -> tuple[Any, ...]:
    """Values of `kind` that select a section; none if it has no such setting."""
    owner = next((base for base in section.__mro__ if "kind" in vars(base)), section)
    kind = typing.get_type_hints(owner).get("kind")
    return typing.get_args(kind)


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
    """Explanation of an error of pydantic, in a line.

    kind: class of the section.  settings: as read.
    """
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
def _values(cls: Any) -> Callable[[Any], Any]:
    """Getter of the fields, kept, as options are compared and hashed for each text."""
    names = [field.name for field in dataclasses.fields(cls)]
    return operator.attrgetter(*names) if names else type


def _shown(section: Any) -> str:
    names = (field.name for field in dataclasses.fields(section))
    settings = ", ".join(f"{name}={getattr(section, name)!r}" for name in names)
    return f"{type(section).__qualname__}({settings})"


def _equals(section: Any, other: object) -> bool:
    values = _values(section.__class__)
    return type(other) is type(section) and bool(values(section) == values(other))


def _hash(section: Any) -> int:
    return hash(_values(section.__class__)(section))


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
    return merge_settings(_with_default_kinds(settings, overridden, kind), overridden)


def merge_settings(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """`below` with the entries of `above` laid over it, section by section.

    A section of another `kind` replaces the section below it, since their settings differ.
    """
    result = dict(below)
    for key, value in above.items():
        old = result.get(key)
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            other_kind = "kind" in old and value.get("kind", old["kind"]) != old["kind"]
            result[key] = Replacement(value) if other_kind else merge_settings(old, value)
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
