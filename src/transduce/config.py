"""One TOML file is one experiment: settings as frozen dataclasses, checked in one place.

A section is a dataclass made with `@section`, living beside the part it configures.  Every
default stands there and nowhere else.  A union of sections is told apart by its `kind`
(which may be left out where the union has a `DefaultKind`).
`load_toml`, `apply_overrides` and `parse` turn a file into sections; `to_toml` writes them back.
"""

from __future__ import annotations

import ast
import dataclasses
import difflib
import functools
import inspect
import itertools
import os
import re
import textwrap
import tomllib
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar, dataclass_transform

import pydantic
import pydantic_core
import tomli_w
from pydantic_core import core_schema

from transduce.errors import SettingError, printable

T = TypeVar("T")
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)\}|\$)")


@dataclass_transform(frozen_default=True, kw_only_default=True)
def section(cls: type[T]) -> type[T]:
    """Make a frozen dataclass of settings that refuses unknown names.

    The docstring under each field is its help text.
    """
    cls.__pydantic_config__ = pydantic.ConfigDict(  # type: ignore[attr-defined]
        extra="forbid", use_attribute_docstrings=True
    )
    return dataclasses.dataclass(frozen=True, kw_only=True)(cls)


def field_help(cls: type) -> dict[str, str]:
    """The docstring under each field of a section, its own or inherited, as one line.

    None of a section without its source file.
    """
    sections = [one for one in reversed(cls.__mro__) if dataclasses.is_dataclass(one)]
    return {name: text for one in sections for name, text in _own_help(one).items()}


def _own_help(cls: type) -> dict[str, str]:
    """The docstrings of fields in the body of a section itself."""
    try:
        body = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    except OSError:
        return {}
    assert isinstance(body, ast.ClassDef)
    return {
        field.target.id: " ".join(text.value.value.split())
        for field, text in itertools.pairwise(body.body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }


@dataclasses.dataclass(frozen=True)
class DefaultKind:
    """Beside a union of sections: the `kind` that is meant where settings name none.

    So a union may take the place of a section without a change to what was written for it:
    `Annotated[A | B, Field(discriminator="kind"), DefaultKind("a")]`.
    """

    kind: str

    def __get_pydantic_core_schema__(
        self, source: Any, handler: pydantic.GetCoreSchemaHandler
    ) -> pydantic_core.CoreSchema:
        """What pydantic asks of an annotation."""
        return core_schema.no_info_before_validator_function(self._complete, handler(source))

    def _complete(self, settings: Any) -> Any:
        if isinstance(settings, Mapping) and "kind" not in settings:
            return {**settings, "kind": self.kind}
        return settings


def load_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file.  Raises SettingError naming file and line."""
    try:
        return tomllib.loads(path.read_bytes().decode("utf-8-sig"))
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


class Final(str):
    """Text of a parsed recipe or of a run: nothing in it stands for anything else.

    A user's recipe may hold `~` and `$VARIABLE` in its paths.  They are replaced once, when it is
    parsed; paths read back from a run are taken as they are.
    """


def final(settings: Any) -> Any:
    """Settings with every text marked as `Final`."""
    if isinstance(settings, Mapping):
        return {key: final(value) for key, value in settings.items()}
    if isinstance(settings, list):
        return [final(value) for value in settings]
    return Final(settings) if isinstance(settings, str) else settings


def nameable(path: str) -> str:
    """The path itself.  Raises ValueError for one that no recipe can hold."""
    if "\0" in path:
        raise ValueError("a file's name cannot hold the character NUL")
    try:
        path.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{path!r} is not UTF-8, as a recipe is; rename it") from None
    return path


def expanded(path: Any) -> Any:
    """A path with `~` and `$VARIABLE` replaced, unless it is `Final`; `$$` is the sign itself.

    For a field of a section, whose type refuses other values.  A relative path stays relative.
    Raises ValueError for a variable that is not set, and what `nameable` raises.
    """
    if not isinstance(path, str | Path):
        return path
    if isinstance(path, Final):
        return str(nameable(path))

    def value(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if name is not None and name not in os.environ:
            raise ValueError(
                f"names the variable {name}, which is not set; export it, or write $$ for a $"
            )
        return "$" if name is None else os.environ[name]

    text = nameable(str(path))
    user = text.partition("/")[0] if text.startswith("~") else ""
    home = os.path.expanduser(user)  # noqa: PTH111
    if home == user:  # no such user
        home = user = ""
    return nameable(home + _VARIABLE.sub(value, text.removeprefix(user)))


def absolute(path: Any) -> Any:
    """The same, made absolute, so that a recipe holds from anywhere."""
    found = expanded(path)
    return nameable(str(Path(found).resolve())) if isinstance(found, str) else found


def apply_overrides(
    settings: Mapping[str, Any], overrides: Iterable[str], kind: type | None = None
) -> dict[str, Any]:
    """Settings with each `a.b=value` applied; the value is read as TOML, else as a string.

    The order matters only where two overrides name the same setting: the last one counts.
    kind: the section that the settings are of, if known; it tells which `kind` is meant where
    they name none, so that an override by another one replaces what stands there.
    """
    given: dict[str, Any] = {}
    for override in overrides:
        name, equals, text = override.partition("=")
        keys = [key.strip() for key in name.split(".")]
        if not equals or not all(keys):
            raise SettingError(f"--set {override!r}: write it as section.name=value")
        try:
            value = tomllib.loads(f"value = {text}")["value"]
        except (ValueError, RecursionError):  # no TOML
            value = text
        inner = given
        for key in keys[:-1]:
            if not isinstance(inner.get(key), dict):
                inner[key] = {}
            inner = inner[key]
        inner[keys[-1]] = value
    return merge(_with_meant_kinds(settings, given, kind), given)


class _Replacement(dict[str, Any]):
    """A section in the place of one of another `kind`, of which nothing is kept."""


def merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """`below` with the entries of `above` laid over it, section by section.

    A section of another `kind` replaces the one below it, since their names differ.
    """
    result = dict(below)
    for key, value in above.items():
        old = result.get(key)
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            other_kind = "kind" in old and value.get("kind", old["kind"]) != old["kind"]
            result[key] = _Replacement(value) if other_kind else merge(old, value)
        else:
            result[key] = value
    return result


def parse(kind: type[T], settings: Mapping[str, Any], where: str = "") -> T:
    """Settings as a section of type `kind`.

    where: file name to put before the message.  Raises SettingError of one line, naming the
    setting and the nearest right name or the value that was found.
    """
    prefix = f"{where}: " if where else ""
    try:
        parsed: T = _reader(kind).validate_python(settings)  # type: ignore[arg-type]
    except SettingError as error:  # from a section that checks what its settings mean together
        raise SettingError(printable(f"{prefix}{error}")) from None
    except pydantic.ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise SettingError(printable(prefix + _explain(kind, settings, first))) from None
    return parsed


def check_fields(value: Any) -> None:
    """What `parse` asks of each field, of a section that was built directly: for `__post_init__`.

    Defaults are taken as they are, so that most cost nothing.  Lists become tuples, where these
    are meant.  Raises SettingError as `parse` does.
    """
    kind: Any = type(value)
    settings = vars(value)
    for field in dataclasses.fields(value):
        if settings[field.name] is not field.default:  # 5.0 equals 5 and is no number of tokens
            try:
                found = _field_reader(kind, field.name).validate_python(settings[field.name])
            except pydantic.ValidationError as error:
                first = error.errors(include_url=False)[0]
                place = {**first, "loc": (field.name, *first["loc"])}
                raise SettingError(printable(_explain(kind, settings, place))) from None
            settings[field.name] = found


@functools.cache
def _field_reader(kind: Any, name: str) -> pydantic.TypeAdapter[Any]:
    return pydantic.TypeAdapter(_hints(kind)[name])


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    return typing.get_type_hints(kind, include_extras=True)


@functools.cache
def _reader(kind: Any) -> pydantic.TypeAdapter[Any]:
    """Making it takes longer than using it a thousand times."""
    return pydantic.TypeAdapter(kind)


def to_dict(value: Any) -> Any:
    """A section as plain dicts and lists, without settings that are None (TOML has no null).

    Texts of sections are `Final`; those of a mapping stay as they are.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        pairs = ((f.name, getattr(value, f.name)) for f in dataclasses.fields(value))
        return {name: final(to_dict(item)) for name, item in pairs if item is not None}
    if isinstance(value, Mapping):
        return {key: to_dict(item) for key, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [to_dict(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def to_toml(value: Any) -> str:
    """A section as TOML text that `parse` reads back to an equal one."""
    return tomli_w.dumps(to_dict(value))


def setting_names(kind: Any, prefix: str = "") -> Iterator[str]:
    """Every dotted name that a section of type `kind` knows, sections themselves included."""
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


def _explain(kind: type, settings: Mapping[str, Any], error: Any) -> str:
    """One line for one of pydantic's errors."""
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
            if not isinstance(part, _Replacement):
                return f"{name} is missing"
            new = part["kind"]
            return f"{name} is missing; kind = {new!r} replaces the section, so give it too"
        case "union_tag_not_found":
            kinds = {k for section in _sections_at(kind, settings, path) for k in _kinds(section)}
            return f"{name}.kind is missing; it is one of {_list(kinds)}"
        case "union_tag_invalid":
            tag, tags = error["ctx"]["tag"], error["ctx"]["expected_tags"]
            return f"{name}.kind is {tag!r}; it must be one of {tags}"
        case "dataclass_type" | "dataclass_exact_type" | "model_attributes_type":
            return f"{name} must be a section of settings, not {error['input']!r}"
        case "tuple_type" | "list_type":
            how = 'as in ["a", "b"] (within single quotes for a shell)'
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
    """The sections that may stand at a path: of a union the one chosen by `kind`, or else all.

    default: whether a kind that was left out counts as chosen.
    """
    sections, meant = _members(kind)
    meant = meant if default else None
    chosen = settings.get("kind", meant) if isinstance(settings, Mapping) else None
    sections = [section for section in sections if chosen in _kinds(section)] or sections
    if not path:
        return sections
    if isinstance(settings, list):
        return _sections_at(kind, settings[int(path[0])], path[1:], default)
    inner = settings.get(path[0]) if isinstance(settings, Mapping) else None
    hints = [typing.get_type_hints(section, include_extras=True) for section in sections]
    wanted = [hint[path[0]] for hint in hints if path[0] in hint]
    inside = (_sections_at(hint, inner, path[1:], default) for hint in wanted)
    return [section for sections in inside for section in sections]


def _members(kind: Any) -> tuple[list[Any], str | None]:
    """The sections that a type can be, and the kind that is meant where none is named."""
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        sections, _ = _members(parts[0])
        kinds = [note.kind for note in parts[1:] if isinstance(note, DefaultKind)]
    elif origin is tuple:  # a list of sections
        return _members(parts[0])
    elif origin in (typing.Union, types.UnionType):
        inside = [_members(part) for part in parts]
        sections = [section for sections, _ in inside for section in sections]
        kinds = [meant for _, meant in inside if meant is not None]
    else:
        sections, kinds = [kind] if dataclasses.is_dataclass(kind) else [], []
    return sections, kinds[0] if kinds else None


def _with_meant_kinds(
    settings: Mapping[str, Any], above: Mapping[str, Any], kind: Any
) -> dict[str, Any]:
    """Settings with the kind that is meant written out, wherever `above` names one."""
    sections, meant = _members(kind)
    result = dict(settings)
    if meant is not None and "kind" in above:
        result.setdefault("kind", meant)
    hints: dict[str, Any] = {}
    for section in sections:
        hints |= typing.get_type_hints(section, include_extras=True)
    for name, value in above.items():
        old = result.get(name)
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            result[name] = _with_meant_kinds(old, value, hints.get(name))
    return result


def _of_another_kind(kind: Any, settings: Any, path: list[str]) -> str:
    """A hint at the `kind` that was left out, where a setting belongs to another one."""
    kinds = [
        repr(name)
        for section in _sections_at(kind, settings, path[:-1], default=False)
        if any(field.name == path[-1] for field in dataclasses.fields(section))
        for name in _kinds(section)
    ]
    return f"; it needs kind = {' or '.join(kinds)}" if kinds else ""


def _elsewhere(name: str, kind: Any) -> str:
    """A hint at a setting of the same or nearly the same name in another section."""
    wanted = name.rpartition(".")[2]
    others = {n.rpartition(".")[2]: n for n in setting_names(kind) if n != name}
    near = difflib.get_close_matches(wanted, others, n=1, cutoff=0.75)
    return f"; did you mean {others[near[0]]!r}?" if near else ""


def _kinds(section: Any) -> tuple[Any, ...]:
    """The values of `kind` that stand for a section; none if it has no such setting."""
    return typing.get_args(typing.get_type_hints(section).get("kind"))


def _list(names: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in sorted(names))


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
