"""Options that several verbs share, each group a small dataclass."""

from __future__ import annotations

import dataclasses
import logging
import typing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from cyclopts import Parameter, validators

from transduce.config import field_help, parse, to_dict
from transduce.decoding.options import DecodingOptions, without_meaning
from transduce.errors import SettingError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from transduce.run import Run
    from transduce.tasks.task import Predictor
    from transduce.tasks.translation.translator import Translator

logger = logging.getLogger("transduce")

Count = Annotated[int, Parameter(validator=validators.Number(gte=1))]
Flag = Annotated[bool, Parameter(show_default=False)]
# Options without a meaning: where nothing is drawn at random, ...
SAMPLING = ("temperature", "top_k", "top_p", "min_p", "seed", "candidates")
# ... and where it is.
SEARCHING = ("beam_size", "beam_groups", "diversity")
SPELLED = {"constraints": "constraint", "stop_strings": "stop", "ensemble": "ensemble_mean"}
ON_THE_COMMAND_LINE = {
    "constraints": "Separate alternatives by |. May be repeated.",
    "avoid": "May be repeated.",
    "stop_strings": "May be repeated.",
}
# Settings with another option (method has --sample), with one of their own in each verb, or none.
OWN = ("method", "n_best", "ensemble", "language_model_weight", "stop", "free_end", "batch_tokens")
SHARED = [f.name for f in dataclasses.fields(DecodingOptions) if f.name not in OWN]

T = TypeVar("T")


def _spelled(name: str) -> str:
    """An option as the command line has it."""
    return f"--{SPELLED.get(name, name).replace('_', '-')}"


def _options_of(*names: str) -> Callable[[type[T]], type[T]]:
    """Class decorator: a dataclass with an option, None by default, for each of these settings.

    Type, name and help of an option are those of the setting, the bounds are checked by `over`.
    """
    hints = typing.get_type_hints(DecodingOptions)
    texts = field_help(DecodingOptions)

    def with_options(cls: type[T]) -> type[T]:
        for name in names:
            hint = tuple[str, ...] if typing.get_origin(hints[name]) is tuple else hints[name]
            text = f"{texts.get(name, '')} {ON_THE_COMMAND_LINE.get(name, '')}".strip()
            parameter = Parameter(name=_spelled(name), help=text)
            cls.__annotations__[name] = Annotated[hint | None, parameter]
            setattr(cls, name, None)
        return dataclass(frozen=True, kw_only=True)(cls)

    return with_options


@Parameter(name="*", group="Decoding (by default as the recipe says)")
@_options_of(*SHARED)
class Decoding:
    """Decoding options of one call, laid over the recipe's."""

    sample: Flag = False
    """Draw outputs at random instead of searching for the best."""

    def over_any(self, predictor: Predictor) -> DecodingOptions | None:
        """The same as `over`, for a task that perhaps decodes nothing: then nothing may be given.

        Raises SettingError.
        """
        if predictor.options is not None:
            return self.over(predictor)
        for name in self._given():
            raise SettingError(f"{_spelled(name)} is for tasks that decode; this run's does not")
        return None

    def over(self, predictor: Predictor | Translator, n_best: int | None = 1) -> DecodingOptions:
        """How a recipe decodes, with these laid over it; n_best None is what the recipe says.

        Raises SettingError for a value that cannot be, and for an option without a meaning here.
        """
        from transduce.tasks.translation.translator import Translator

        recipe = predictor.options
        assert recipe is not None
        given = self._given()
        translator = predictor if isinstance(predictor, Translator) else None
        names, tasks = without_meaning(translates=translator is not None)
        for name in names:
            if name in given:
                raise SettingError(f"{_spelled(name)} is for {tasks}; leave it out")
        if "constraints" in given:
            given["constraints"] = [_alternatives(text) for text in given["constraints"]]
        sample = given.pop("sample", False)
        sampled = sample or (recipe.method == "sample" and "beam_size" not in given)
        method = "sample" if sampled else "beam"
        settings = {**to_dict(dataclasses.replace(recipe, n_best=1)), **given}
        for name in SEARCHING:
            if name in given and sampled:
                raise SettingError(
                    f"{_spelled(name)} is for beam search, not samples; leave it out"
                )
        needs = [(name, "sample", method == "sample") for name in SAMPLING]
        needs += [
            ("alpha", "length-penalty gnmt", settings["length_penalty"] == "gnmt"),
            ("diversity", "beam-groups above 1", settings["beam_groups"] > 1),
            ("candidates", "minimum-risk", settings["minimum_risk"] != "none"),
        ]
        if translator:
            auxiliary = translator.config.auxiliary
            needs += [
                ("language_model_weight", "language-model", auxiliary.language_model is not None),
                ("ensemble", "ensemble", bool(auxiliary.others)),
            ]
        for name, other, there in needs:
            if name in given and not there:
                raise SettingError(f"{_spelled(name)} is for --{other}; add that")
        n_best = recipe.n_best if n_best is None else n_best
        if method == "beam" and n_best > settings["beam_size"]:
            logger.warning(
                "the beam is widened from %d to %d for so many outputs",
                settings["beam_size"],
                n_best,
            )
            settings["beam_size"] = n_best
        return parse(DecodingOptions, {**settings, "method": method, "n_best": n_best})

    def _given(self) -> dict[str, Any]:
        given = {name: value for name, value in vars(self).items() if value is not None}
        if not self.sample:
            del given["sample"]
        return given


@_options_of("ensemble")
class EnsembleDecoding(Decoding):
    """Decoding options for a verb that has --ensemble."""


@_options_of("language_model_weight")
class AuxiliaryDecoding(EnsembleDecoding):
    """Decoding options for a verb that has --ensemble and --language-model."""


def _alternatives(constraint: str) -> str | list[str]:
    """A phrase as given on the command line, or the several that | stands between."""
    parts = [part.strip() for part in constraint.split("|")]
    if constraint.strip() and not all(parts):
        raise SettingError(f"--constraint {constraint!r}: an alternative beside | is empty")
    return parts if len(parts) > 1 else constraint


@Parameter(name="*", group="Machine")
@dataclass(frozen=True, kw_only=True)
class Machine:
    """What to compute on."""

    device: str = "auto"
    """cpu, cuda, cuda:1, ...; auto takes a GPU when there is one."""
    threads: Annotated[int, Parameter(validator=validators.Number(gte=1, lte=1024))] | None = None
    """CPU threads; by default PyTorch's choice."""
    precision: Literal["float32", "bf16", "int8"] = "float32"
    """int8 rounds the model's matrices to 8 bits, for a CPU; bf16 multiplies in bfloat16, for
    processors with AMX and GPUs: both are faster, with not quite the same answers."""
    engine: Literal["pytorch", "ctranslate2"] = "pytorch"
    """What searches for translations; ctranslate2, an extra, is faster on a CPU and lacks some
    options."""

    def load(self, run: Path) -> Run:
        """The run, loaded onto this machine.  Raises RunError, or SettingError for the device."""
        import torch

        import transduce

        if self.threads is not None:
            torch.set_num_threads(self.threads)
        return transduce.load(run, self.device, self.precision, self.engine)

    def load_together(
        self,
        run: Path,
        ensemble: Sequence[Path],
        language_model: Path | None = None,
        draft: Path | None = None,
    ) -> Run:
        """The run, with others beside it where they are named.

        Raises as `load` and `Run.with_models` do.
        """
        model = self.load(run)
        if not (ensemble or language_model or draft):
            return model
        whole = dataclasses.replace(self, precision="float32")  # a draft is small
        return model.with_models(
            [self.load(path) for path in ensemble],
            None if language_model is None else self.load(language_model),
            None if draft is None else whole.load(draft),
        )

    def check_no_engine(self, verb: str) -> None:
        """Raises SettingError where an engine is given to a verb that searches for nothing."""
        if self.engine != "pytorch":
            raise SettingError(f"--engine is for translations; leave it out to {verb}")


AS_THE_RECIPE = Decoding()
TOGETHER_AS_THE_RECIPE = EnsembleDecoding()
AUXILIARY_AS_THE_RECIPE = AuxiliaryDecoding()
THIS_MACHINE = Machine()
