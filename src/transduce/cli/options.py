"""Options shared by several verbs, each group a small dataclass."""

from __future__ import annotations

import dataclasses
import logging
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict, TypeVar

from cyclopts import Group, Parameter, validators
from pydantic_core import core_schema

from transduce.decoding.options import (
    AUXILIARY,
    BEAM,
    CONSTRAINTS,
    DECODING,
    LENGTH,
    MACHINE,
    SAMPLING,
    DecodingOptions,
    OutputKind,
    facts_of_options,
    types_of_options,
    unmet_need,
    without_meaning,
    without_shortlist,
)
from transduce.errors import SettingError
from transduce.settings.sections import field_help, parse, to_dict

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from transduce.loading import Run
    from transduce.tasks.task import Predictor
    from transduce.tasks.translation.translator import Translator


logger = logging.getLogger("transduce")

Count = Annotated[int, Parameter(validator=validators.Number(gte=1))]
Flag = Annotated[bool, Parameter(show_default=False)]
HELP_OF_LISTS = {
    "constraints": "Separate alternatives with |. May be repeated.",
    "avoid": "May be repeated.",
    "hotwords": "May be repeated.",
    "stop_strings": "May be repeated.",
}
HELP = field_help(DecodingOptions)
FACTS = facts_of_options()

GROUPS = {
    name: Group(name, sort_key=rank)
    for rank, name in enumerate((AUXILIARY, DECODING, LENGTH, CONSTRAINTS, SAMPLING, MACHINE), 11)
}
BULK_GROUP = Group("Bulk translation", sort_key=17)

Models = Annotated[tuple[Path, ...], Parameter(group=GROUPS[AUXILIARY], show_default=False)]
AuxiliaryModel = Annotated[Path | None, Parameter(group=GROUPS[AUXILIARY])]

V = TypeVar("V", bound="Callable[..., object]")

Decoding = Mapping[str, Any]
"""Decoding options given in a call, by setting, and `sample`; they override the recipe's."""
AS_IN_RECIPE: Decoding = MappingProxyType({})
SAMPLE_HELP = "Draw samples instead of running beam search."


def _spelled(name: str) -> str:
    spelled = FACTS[name].spelled if name in FACTS else ""
    return f"--{(spelled or name).replace('_', '-')}"


class CheckedBefore:
    """Options that cyclopts has checked already: not again as a whole, by pydantic, which would
    make a reader of all of them first.  A base class, or an annotation."""

    @staticmethod
    def __get_pydantic_core_schema__(source: Any, handler: object) -> core_schema.CoreSchema:
        """Pydantic's hook for annotations, and for classes."""
        return core_schema.any_schema()


def with_decoding(kind: OutputKind | None = None, *auxiliary: str) -> Callable[[V], V]:
    """Decorator of a verb: an option of its parameter `decoding` for each decoding setting.

    Type, name and help come from the setting; `chosen_options` checks the bounds.  Options without
    effect on outputs of the kind, which the verb refuses with a message, are left out of `--help`.
    auxiliary: other options of the verb, which name auxiliary models.
    """

    def decorated(verb: V) -> V:
        # In a dictionary, options that are not given cost nothing; cyclopts checks each default.
        options: dict[str, Any] = {
            "sample": Annotated[Flag, Parameter(help=SAMPLE_HELP, group=GROUPS[SAMPLING])]
        }
        for name, facts in FACTS.items():
            is_beside = facts.group != AUXILIARY or {need.words for need in facts.needs} <= {
                *auxiliary
            }
            if facts.command_line and is_beside:
                options[name] = _option(name, kind)
        kinds = TypedDict("Decoding", options, total=False)  # type: ignore[misc]
        parameter = Parameter(name="*", group=GROUPS[DECODING])
        verb.__annotations__["decoding"] = Annotated[kinds, parameter, CheckedBefore()]
        return verb

    return decorated


def _option(name: str, kind: OutputKind | None) -> Any:
    facts, hint = FACTS[name], types_of_options()[name]
    bare = typing.get_args(hint)[0] if hasattr(hint, "__metadata__") else hint
    if typing.get_origin(bare) is tuple:
        bare = tuple[str, ...]
    text = f"{HELP.get(name, '')} {HELP_OF_LISTS.get(name, '')}".strip()
    is_shown = kind is None or facts.kind in (None, kind)
    return Annotated[
        bare, Parameter(name=_spelled(name), help=text, group=GROUPS[facts.group], show=is_shown)
    ]


def chosen_options_if_any(
    predictor: Predictor, decoding: Decoding, n_best: int | None = None
) -> DecodingOptions | None:
    """As `chosen_options`; for a task without decoding, None if no option is given.

    n_best: of recordings alone.
    """
    if n_best is not None and getattr(predictor, "kind", "") != "speech":
        raise SettingError("--n-best applies only to recordings; remove it, or use translate")
    if predictor.options is not None:
        return chosen_options(predictor, decoding, n_best or 1)
    for name in decoding:
        raise SettingError(f"{_spelled(name)} applies only to tasks that decode; remove it")
    return None


def chosen_options(
    predictor: Predictor | Translator, decoding: Decoding, n_best: int | None = 1
) -> DecodingOptions:
    """The recipe's decoding options, overridden by a call's; n_best None keeps the recipe's.

    Raises SettingError for an invalid setting, and for an option without effect here.
    """
    from transduce.decoding.session import SequencePredictor

    assert isinstance(predictor, SequencePredictor)
    recipe, chosen = predictor.options, {**decoding}
    n_best = recipe.n_best if n_best is None else n_best
    if not chosen and n_best == recipe.n_best:
        return recipe
    for name, outputs in without_meaning(predictor.kind).items():
        if name in chosen:
            raise SettingError(f"{_spelled(name)} applies only to {outputs}; remove it")
    if "constraints" in chosen:
        chosen["constraints"] = [_alternatives(text) for text in chosen["constraints"]]
    sample = chosen.pop("sample", False)
    sampled = sample or (recipe.method == "sample" and "beam_size" not in chosen)
    plain = to_dict(dataclasses.replace(recipe, n_best=1))
    settings = {**plain, **chosen, **without_shortlist(chosen)}
    if not sampled and 0 < settings["beam_size"] < n_best:
        logger.warning(
            "beam size raised from %d to %d, the number of outputs requested",
            settings["beam_size"],
            n_best,
        )
        settings["beam_size"] = n_best
    method = "sample" if sampled else "beam"
    options = parse(DecodingOptions, {**settings, "method": method, "n_best": n_best})
    auxiliary = predictor.backend.auxiliary
    models = {"language-model": auxiliary.language_model, "ensemble": auxiliary.others}
    for name in chosen:
        need = unmet_need(name, options, [kind for kind, model in models.items() if model])
        if need is BEAM:
            raise SettingError(
                f"{_spelled(name)} applies to beam search, not to sampling; remove it"
            )
        if need is not None:
            raise SettingError(f"{_spelled(name)} requires --{need.words}")
    return options


def _alternatives(constraint: str) -> str | list[str]:
    """The phrase of a --constraint, or its alternatives separated by |."""
    parts = [part.strip() for part in constraint.split("|")]
    if constraint.strip() and not all(parts):
        raise SettingError(f"--constraint {constraint!r}: empty alternative before or after |")
    return parts if len(parts) > 1 else constraint


@Parameter(name="*", group=GROUPS[MACHINE])
@dataclass(frozen=True, kw_only=True)
class Machine(CheckedBefore):
    """Device, threads, precision and engine."""

    device: str = "auto"
    """Device: cpu, cuda, cuda:1, ...; auto uses a GPU if available."""
    threads: Annotated[int, Parameter(validator=validators.Number(gte=1, lte=1024))] | None = None
    """Number of CPU threads. Default: chosen by PyTorch."""
    precision: str = "float32"
    """Numeric precision of matrix products: float32, bf16, or int8 (CPU only). On a CPU the last
    two need the native engine. Faster; outputs may differ slightly. auto: the fastest of the three
    on this CPU, measured for the model; auto:float32,bf16: the fastest of those."""
    engine: Literal["pytorch", "native", "auto"] = "auto"
    """Decoding engine on a CPU. native is the fastest and supports all options of translation,
    language models, dialogue, recognition and encoders of texts and images, but no recurrent or
    convolutional models; without a wheel that has it, it is compiled once, by the C++ compiler.
    auto: native where possible, else pytorch; on a GPU, pytorch."""

    def load(self, run: Path) -> Run:
        """Load a run onto the device.  Raises RunError, or SettingError for the device."""
        from transduce.loading import load

        return load(run, self.device, self.precision, self.engine, self.threads)

    def load_together(
        self,
        run: Path,
        ensemble: Sequence[Path],
        language_model: Path | None = None,
    ) -> Run:
        """Load a run with the auxiliary models given.

        Raises the errors of `load` and `Run.with_models`.
        """
        model = self.load(run)
        if not (ensemble or language_model):
            return model
        beside = dataclasses.replace(self, precision=model.precision)
        return model.with_models(
            [beside.load(path) for path in ensemble],
            None if language_model is None else beside.load(language_model),
        )

    def without_engine(self, verb: str) -> Machine:
        """The machine for a verb that needs PyTorch.  Raises SettingError for another --engine."""
        if self.engine not in ("pytorch", "auto"):
            raise SettingError(
                f"`transduce {verb}` does not support --engine {self.engine}; remove it"
            )
        return dataclasses.replace(self, engine="pytorch")
