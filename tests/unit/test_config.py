"""Settings: what is accepted, and the one line that answers what is not."""

import tomllib
import typing
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic
import pytest

from helpers.tiny_run import recipe, recipe_refusal, tiny_settings
from transduce.errors import SettingError
from transduce.models.config import PRESETS
from transduce.nn.stack_configs import RecurrentEncoderConfig
from transduce.recipes import as_recipe
from transduce.settings.sections import (
    ByKind,
    apply_overrides,
    did_you_mean,
    field_help,
    load_toml,
    merge_settings,
    parse,
    section,
    setting_names,
    to_dict,
    to_toml,
)
from transduce.tasks import TASKS
from transduce.tasks.translation.recipe import TranslationRecipe
from transduce.training.config import Cosine, Noam


@section
class Wheel:
    kind: Literal["wheel"] = "wheel"
    radius: float = 1.0
    spokes: int = 8


@section
class Runner:
    kind: Literal["runner"] = "runner"
    length: float = 2.0


@section
class Cart:
    name: str
    under: Annotated[Wheel | Runner, ByKind()] = Wheel()
    spare: Wheel = Wheel()
    tags: tuple[str, ...] = ()
    road: Path | None = None

    def __post_init__(self) -> None:
        if self.name == "none":
            raise SettingError("a cart needs a name")


@section
class Vehicle:
    """A base that a section narrows."""

    name: str
    """Painted on it."""
    under: Any = None
    """Carries it."""
    seats: int = 1
    """For people."""


@section
class Sledge(Vehicle):
    under: Runner = Runner()
    seats: int = 2
    """For people and
    dogs."""
    bells: int = 3
    """Rung."""


def refusal(settings: dict[str, Any], where: str = "") -> str:
    with pytest.raises(SettingError) as caught:
        parse(Cart, settings, where)
    assert "\n" not in str(caught.value)
    return str(caught.value)


class TestParse:
    def test_defaults_and_values(self) -> None:
        cart = parse(Cart, {"name": "a", "spare": {"radius": 3}, "tags": ["x", "y"]})
        assert cart == Cart(name="a", spare=Wheel(radius=3.0), tags=("x", "y"))

    def test_what_is_no_list(self) -> None:
        """A shell takes the quotes of ["x"] away."""
        assert refusal({"name": "a", "tags": "[x]"}) == (
            'tags must be a list, as in ["a", "b"] (in single quotes for a shell), not \'[x]\''
        )

    def test_unknown_name_suggests_the_nearest(self) -> None:
        assert refusal({"name": "a", "spare": {"spoke": 3}}, "c.toml") == (
            "c.toml: spare.spoke is not a setting; did you mean 'spokes'?"
        )

    def test_unknown_name_like_nothing_lists_what_there_is(self) -> None:
        assert refusal({"name": "a", "spare": {"zzz": 3}}) == (
            "spare.zzz is not a setting ('kind', 'radius', 'spokes' are)"
        )

    def test_unknown_name_suggests_only_settings_of_the_chosen_kind(self) -> None:
        message = refusal({"name": "a", "under": {"kind": "runner", "radius": 3}})
        assert message == "under.radius is not a setting; did you mean 'spare.radius'?"

    def test_name_of_another_level_is_found(self) -> None:
        assert "did you mean 'spare.spokes'?" in refusal({"name": "a", "spokes": 3})
        assert "did you mean 'under.length'?" in refusal({"name": "a", "spare": {"length": 3}})

    def test_missing(self) -> None:
        assert refusal({}, "c.toml") == "c.toml: name is missing"

    @pytest.mark.parametrize("under", [{}, {"radius": 2.0}])
    def test_missing_kind_lists_the_kinds(self, under: dict[str, Any]) -> None:
        assert refusal({"name": "a", "under": under}) == (
            "under.kind is missing; it is one of 'runner', 'wheel'"
        )

    def test_wrong_kind_lists_the_kinds(self) -> None:
        message = refusal({"name": "a", "under": {"kind": "hover"}})
        assert message.startswith("under.kind is 'hover'; it must be one of ")
        assert "'wheel'" in message and "'runner'" in message

    def test_wrong_type_shows_what_was_found(self) -> None:
        message = refusal({"name": "a", "spare": {"spokes": "many"}})
        assert message.startswith("spare.spokes ") and message.endswith("not 'many'")

    @pytest.mark.parametrize("name", ["spare", "under"])
    def test_value_where_a_section_belongs(self, name: str) -> None:
        assert refusal({"name": "a", name: 5}) == f"{name} must be a section of settings, not 5"

    def test_long_values_are_cut(self) -> None:
        assert len(refusal({"name": "a", "spare": {"spokes": "x" * 10_000}})) < 200

    def test_what_settings_mean_together_is_said_with_the_place(self) -> None:
        assert refusal({"name": "none"}, "c.toml") == "c.toml: a cart needs a name"


class TestToml:
    def test_round_trip_leaves_out_none(self) -> None:
        cart = Cart(name='quo"te = 1', under=Runner(length=1e-9), tags=("é", "\t"))
        assert "road" not in to_dict(cart)
        assert parse(Cart, tomllib.loads(to_toml(cart))) == cart

    def test_round_trip_of_a_path(self) -> None:
        cart = Cart(name="a", road=Path("b/c.txt"))
        assert parse(Cart, tomllib.loads(to_toml(cart))) == cart

    @pytest.mark.parametrize("preset", PRESETS)
    def test_round_trip_of_a_whole_recipe(self, preset: str) -> None:
        made = recipe("training.minutes=2.5", "training.schedule.kind=cosine")
        joint = replace(made.text, target=None)  # what three-way tying needs
        made = replace(made, model=PRESETS[preset], text=joint)
        again = TranslationRecipe.parse(tomllib.loads(to_toml(made)), "recipe.toml")
        assert again == made
        assert to_toml(again) == to_toml(made)

    def test_byte_order_mark_is_no_matter(self, tmp_path: Path) -> None:
        path = tmp_path / "a.toml"
        path.write_bytes(b"\xef\xbb\xbfseed = 3\r\n")
        assert load_toml(path) == {"seed": 3}

    @pytest.mark.parametrize(
        ("content", "said"),
        [
            (b"seed = ]", "line 1"),
            (b"a = 1\na = 2\n", "line 2"),
            (b"a = 1\nb = '\xff'\n", "byte 11 is not UTF-8"),
            (b"a = " + b"[" * 20_000, "nested too deeply"),
            (b".".join([b"a"] * 100) + b" = 1", "nested too deeply"),
            (b"a = 1\n" + b".".join([b"a"] * 102) + b" = 1", "line 2 has more than 100 dots"),
            (b"a = " + b"[" * 60 + b"]" * 60, "nested too deeply"),
            (b"\x00", "not valid TOML"),
        ],
    )
    def test_what_is_not_toml(self, tmp_path: Path, content: bytes, said: str) -> None:
        path = tmp_path / "a.toml"
        path.write_bytes(content)
        with pytest.raises(SettingError) as caught:
            load_toml(path)
        assert str(path) in str(caught.value) and said in str(caught.value)
        assert "\n" not in str(caught.value)

    def test_missing_file_and_directory(self, tmp_path: Path) -> None:
        with pytest.raises(SettingError, match="no such file"):
            load_toml(tmp_path / "a.toml")
        with pytest.raises(SettingError, match="is a directory"):
            load_toml(tmp_path)


class TestMerge:
    def test_section_by_section_and_below_unchanged(self) -> None:
        below = {"a": {"x": 1, "y": 2}, "b": 3}
        assert merge_settings(below, {"a": {"y": 5}, "c": 6}) == {
            "a": {"x": 1, "y": 5},
            "b": 3,
            "c": 6,
        }
        assert below == {"a": {"x": 1, "y": 2}, "b": 3}

    def test_section_of_another_kind_replaces(self) -> None:
        below = {"s": {"kind": "noam", "factor": 2.0}}
        assert merge_settings(below, {"s": {"kind": "cosine"}}) == {"s": {"kind": "cosine"}}
        assert merge_settings(below, {"s": {"kind": "noam"}}) == below

    def test_kind_that_was_left_out_below_replaces_nothing(self) -> None:
        below = {"encoder": {"n_layers": 2}}
        above = {"encoder": {"kind": "transformer"}}
        assert merge_settings(below, above) == {"encoder": {"kind": "transformer", "n_layers": 2}}


class TestOverrides:
    @pytest.mark.parametrize(
        ("text", "value"),
        [
            ("1e-3", 1e-3),
            ("5", 5),
            ("true", True),
            ("[1, 2]", [1, 2]),
            ('"5"', "5"),
            ("plain", "plain"),
            ("a=b.tsv", "a=b.tsv"),
            ("~/my data/$HOME", "~/my data/$HOME"),
            ("", ""),
            ("a # b", "a # b"),
        ],
    )
    def test_values(self, text: str, value: object) -> None:
        assert apply_overrides({}, [f"a.b={text}"]) == {"a": {"b": value}}

    def test_spaces_around_names(self) -> None:
        assert apply_overrides({"a": {"b": 1}}, [" a . b = 2"]) == {"a": {"b": 2}}

    @pytest.mark.parametrize("text", ["seed", "=3", "a..b=3", ".a=3", ""])
    def test_not_an_override(self, text: str) -> None:
        with pytest.raises(SettingError, match=r"write it as section.name=value"):
            apply_overrides({}, [text])

    def test_the_last_one_counts(self) -> None:
        assert apply_overrides({}, ["a=1", "a=2"]) == {"a": 2}
        assert apply_overrides({}, ["a=1", "a.b=2"]) == {"a": {"b": 2}}

    @pytest.mark.parametrize("order", [1, -1])
    def test_kind_and_its_settings_in_either_order(self, order: int) -> None:
        overrides = ["training.schedule.kind=cosine", "training.schedule.peak=1e-3"][::order]
        assert recipe(*overrides).training.schedule == Cosine(peak=1e-3)

    @pytest.mark.parametrize("order", [1, -1])
    def test_another_kind_than_the_one_meant_replaces(self, order: int) -> None:
        overrides = ["model.encoder.kind=recurrent", "model.encoder.cell=gru"][::order]
        made, _ = as_recipe(tiny_settings(Path("pairs.tsv")), overrides)
        assert made.model.encoder == RecurrentEncoderConfig(cell="gru")
        assert made.model.decoder.n_heads == 2  # of the tiny settings, as before

    def test_the_kind_meant_replaces_nothing(self) -> None:
        settings = tiny_settings(Path("pairs.tsv"))
        overridden, _ = as_recipe(settings, ["model.encoder.kind=transformer"])
        assert overridden == as_recipe(settings, [])[0]

    def test_a_kind_is_read_where_a_section_has_one_only(self) -> None:
        settings = {"task": "dialogue", "data": {"train": {"path": "a.jsonl"}}}
        made, _ = as_recipe(settings, ["data.train.kind=jsonl"])
        assert made == as_recipe(settings, [])[0]

    @pytest.mark.parametrize("name", TASKS)
    def test_a_task_knows_what_its_recipes_are(self, name: str) -> None:
        assert TASKS[name].recipe.task == name

    def test_into_a_union_of_the_same_kind(self) -> None:
        made = recipe("training.schedule.kind=noam", "training.schedule.warmup_steps=7")
        assert made.training.schedule == Noam(warmup_steps=7)

    def test_below_a_setting_that_is_no_section(self) -> None:
        message = recipe_refusal("training.steps.x=1")
        assert message.startswith("r.toml: training.steps ") and "{'x': 1}" in message

    def test_section_replaced_by_a_value(self) -> None:
        message = recipe_refusal("training=5")
        assert message == "r.toml: training must be a section of settings, not 5"


def test_setting_names_go_through_unions() -> None:
    names = set(setting_names(Cart))
    assert {"name", "under", "under.length", "under.radius", "spare.spokes", "road"} <= names


def test_did_you_mean() -> None:
    assert did_you_mean("droput", ["dropout", "d_ff"]) == "; did you mean 'dropout'?"
    assert did_you_mean("xyz", ["dropout", "d_ff"]) == ""


class TestInherited:
    """A section that narrows another one."""

    def test_help_is_inherited_and_may_be_other(self) -> None:
        assert field_help(Sledge) == {
            "name": "Painted on it.",
            "under": "Carries it.",
            "seats": "For people and dogs.",
            "bells": "Rung.",
        }

    def test_settings_are_those_of_both(self) -> None:
        made = parse(Sledge, {"name": "x", "under": {"length": 3.0}})
        assert made == Sledge(name="x", under=Runner(length=3.0), seats=2)
        assert list(setting_names(Sledge)) == [
            *("name", "under", "under.kind", "under.length", "seats", "bells"),
        ]
        with pytest.raises(SettingError, match=r"^under.length .*'long'"):
            parse(Sledge, {"name": "x", "under": {"length": "long"}})
        with pytest.raises(SettingError, match=r"^name is missing"):
            parse(Sledge, {})

    @pytest.mark.parametrize("name", TASKS)
    def test_recipes_and_their_data_have_help(self, name: str) -> None:
        recipe = TASKS[name].recipe
        assert {"task", "seed"} <= set(field_help(recipe))
        data = typing.get_type_hints(recipe, include_extras=True)["data"]
        shared = {"root", "train", "valid", "test", "hold_out"}
        assert {f.name for f in fields(data)} & shared == set(field_help(data)) & shared


def test_a_union_makes_the_reader_of_the_member_named_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[Any] = []
    adapter = pydantic.TypeAdapter

    def counted(kind: Any) -> pydantic.TypeAdapter[Any]:
        made.append(kind)
        return adapter(kind)

    @section
    class Wing:
        kind: Literal["wing"] = "wing"

    @section
    class Sail:
        kind: Literal["sail"] = "sail"

    monkeypatch.setitem(globals(), "Wing", Wing)
    monkeypatch.setitem(globals(), "Sail", Sail)
    monkeypatch.setattr(pydantic, "TypeAdapter", counted)
    union: Any = Annotated[Wing | Sail, ByKind("wing")]
    assert parse(union, {"kind": "sail"}) == Sail()
    assert made == [union, Sail]
    assert parse(union, {}) == Wing()
    assert parse(union, Sail()) == Sail()


def test_sections_compare_hash_and_show_their_settings() -> None:
    assert Wheel(radius=2.0) == Wheel(radius=2.0) != Wheel(radius=3.0)
    assert Wheel() != Runner()
    assert hash(Wheel(radius=2.0)) == hash(Wheel(radius=2.0))
    assert repr(Wheel()) == "Wheel(kind='wheel', radius=1.0, spokes=8)"
