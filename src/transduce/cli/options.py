"""Options shared by several verbs, each group a small dataclass."""

from __future__ import annotations

import dataclasses
import importlib.util
import logging
import typing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from cyclopts import Group, Parameter, validators

from transduce.config import field_help, parse, to_dict
from transduce.decoding.options import (
    FOR_CONTINUATIONS,
    FOR_SPEECH,
    FOR_TRANSLATIONS,
    DecodingOptions,
    OutputKind,
    without_meaning,
)
from transduce.errors import SettingError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from transduce.run import Run
    from transduce.tasks.task import Predictor
    from transduce.tasks.translation.text_translator import TextTranslator

logger = logging.getLogger("transduce")

Count = Annotated[int, Parameter(validator=validators.Number(gte=1))]
Flag = Annotated[bool, Parameter(show_default=False)]
# Options of sampling only ...
SAMPLING = ("temperature", "top_k", "top_p", "min_p", "seed", "candidates")
# ... and of beam search only.
SEARCHING = ("beam_size", "beam_groups", "diversity")
SPELLED = {"constraints": "constraint", "stop_strings": "stop", "ensemble": "ensemble_mean"}
ON_THE_COMMAND_LINE = {
    "constraints": "Separate alternatives with |. May be repeated.",
    "avoid": "May be repeated.",
    "stop_strings": "May be repeated.",
}
# Settings with another option (method has --sample), with one of their own in each verb, or none.
HINTS = typing.get_type_hints(DecodingOptions)
HELP = field_help(DecodingOptions)
OWN = ("method", "n_best", "ensemble", "language_model_weight", "stop", "free_end")
SHARED = [f.name for f in dataclasses.fields(DecodingOptions) if f.name not in OWN]

AUXILIARY_GROUP = Group("Auxiliary models", sort_key=11)
DECODING_GROUP = Group("Decoding (defaults from the recipe)", sort_key=12)
LENGTH_GROUP = Group("Output length", sort_key=13)
CONSTRAINT_GROUP = Group("Output constraints", sort_key=14)
SAMPLING_GROUP = Group("Sampling", sort_key=15)
MACHINE_GROUP = Group("Machine", sort_key=16)
BULK_GROUP = Group("Bulk translation", sort_key=17)
GROUPED = {
    LENGTH_GROUP: (
        "min_length",
        "min_length_ratio",
        "max_length_ratio",
        "max_length_extra",
        "max_tokens",
        "stop_strings",
    ),
    CONSTRAINT_GROUP: ("prefix", "constraints", "avoid", "no_repeat_ngram", "repetition_penalty"),
    SAMPLING_GROUP: ("temperature", "top_k", "top_p", "min_p", "seed"),
    AUXILIARY_GROUP: ("ensemble", "language_model_weight"),
    MACHINE_GROUP: ("batch_tokens",),
}
GROUP_OF = {name: group for group, names in GROUPED.items() for name in names}
"""Group of an option in `--help`; of the others, DECODING_GROUP."""

Models = Annotated[tuple[Path, ...], Parameter(group=AUXILIARY_GROUP, show_default=False)]
AuxiliaryModel = Annotated[Path | None, Parameter(group=AUXILIARY_GROUP)]

T = TypeVar("T")


def _spelled(name: str) -> str:
    """Option name on the command line."""
    return f"--{SPELLED.get(name, name).replace('_', '-')}"


def _options_of(*names: str, shown: bool = True) -> Callable[[type[T]], type[T]]:
    """Class decorator: a dataclass with one option, None by default, for each decoding setting.

    Type, name and help come from the setting; `over` checks the bounds.  shown: False to leave the
    options, which the verb always refuses with a message, out of `--help`.
    """

    def with_options(cls: type[T]) -> type[T]:
        for name in names:
            hint = tuple[str, ...] if typing.get_origin(HINTS[name]) is tuple else HINTS[name]
            text = f"{HELP.get(name, '')} {ON_THE_COMMAND_LINE.get(name, '')}".strip()
            group = GROUP_OF.get(name, DECODING_GROUP)
            parameter = Parameter(name=_spelled(name), help=text, group=group, show=shown)
            cls.__annotations__[name] = Annotated[hint | None, parameter]
            setattr(cls, name, None)
        # each generated method is compiled at every start
        return dataclass(frozen=True, kw_only=True, repr=False, eq=False)(cls)

    return with_options


@Parameter(name="*", group=DECODING_GROUP)
@_options_of(*SHARED)
class Decoding:
    """Decoding options of one call, which override the recipe's."""

    sample: Annotated[Flag, Parameter(group=SAMPLING_GROUP)] = False
    """Draw samples instead of running beam search."""

    def over_any(self, predictor: Predictor) -> DecodingOptions | None:
        """As `over`; for a task without decoding, None if no option is given.

        Raises SettingError.
        """
        if predictor.options is not None:
            return self.over(predictor)
        for name in self._given():
            raise SettingError(f"{_spelled(name)} applies only to tasks that decode; remove it")
        return None

    def over(
        self, predictor: Predictor | TextTranslator, n_best: int | None = 1
    ) -> DecodingOptions:
        """The recipe's decoding options, overridden by these; n_best None keeps the recipe's.

        Raises SettingError for an invalid value, and for an option without effect here.
        """
        from transduce.tasks.translation.text_translator import TextTranslator

        recipe = predictor.options
        assert recipe is not None
        given = self._given()
        translator = predictor if isinstance(predictor, TextTranslator) else None
        for name, outputs in without_meaning(_output_kind(predictor)).items():
            if name in given:
                raise SettingError(f"{_spelled(name)} applies only to {outputs}; remove it")
        if "constraints" in given:
            given["constraints"] = [_alternatives(text) for text in given["constraints"]]
        sample = given.pop("sample", False)
        sampled = sample or (recipe.method == "sample" and "beam_size" not in given)
        method = "sample" if sampled else "beam"
        settings = {**to_dict(dataclasses.replace(recipe, n_best=1)), **given}
        for name in SEARCHING:
            if name in given and sampled:
                raise SettingError(
                    f"{_spelled(name)} applies to beam search, not to sampling; remove it"
                )
        needs = [(name, "sample", method == "sample") for name in SAMPLING]
        needs += [
            ("alpha", "length-penalty gnmt", settings["length_penalty"] == "gnmt"),
            ("diversity", "beam-groups of at least 2", settings["beam_groups"] > 1),
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
                raise SettingError(f"{_spelled(name)} requires --{other}")
        n_best = recipe.n_best if n_best is None else n_best
        if method == "beam" and 0 < settings["beam_size"] < n_best:
            logger.warning(
                "beam size raised from %d to %d, the number of outputs requested",
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
    """Decoding options of a verb with --ensemble, for every task."""


@_options_of(*(name for name in FOR_TRANSLATIONS if name in SHARED), *FOR_SPEECH, shown=False)
class ContinuationDecoding(Decoding):
    """Decoding options of a verb for continuations."""


@_options_of(*FOR_CONTINUATIONS, *FOR_SPEECH, shown=False)
class TranslationDecoding(Decoding):
    """Decoding options of a verb for translations."""


@_options_of("ensemble")
class EnsembleTranslationDecoding(TranslationDecoding):
    """Decoding options of a verb for translations with --ensemble."""


@_options_of("language_model_weight")
class AuxiliaryDecoding(EnsembleTranslationDecoding):
    """Decoding options of a verb for translations with --ensemble and --language-model."""


@_options_of(
    *(name for name in FOR_TRANSLATIONS if name in SHARED), *FOR_CONTINUATIONS, shown=False
)
class SpeechDecoding(Decoding):
    """Decoding options of a verb for recordings."""


def _output_kind(predictor: Predictor | TextTranslator) -> OutputKind:
    from transduce.tasks.translation.text_translator import TextTranslator

    if isinstance(predictor, TextTranslator):
        return "translation"
    from transduce.tasks.speech.recogniser import Recogniser

    return "speech" if isinstance(predictor, Recogniser) else "continuation"


def _alternatives(constraint: str) -> str | list[str]:
    """The phrase of a --constraint, or its alternatives separated by |."""
    parts = [part.strip() for part in constraint.split("|")]
    if constraint.strip() and not all(parts):
        raise SettingError(f"--constraint {constraint!r}: empty alternative before or after |")
    return parts if len(parts) > 1 else constraint


@Parameter(name="*", group=MACHINE_GROUP)
@dataclass(frozen=True, kw_only=True)
class Machine:
    """Device, threads, precision and engine."""

    device: str = "auto"
    """Device: cpu, cuda, cuda:1, ...; auto uses a GPU if available."""
    threads: Annotated[int, Parameter(validator=validators.Number(gte=1, lte=1024))] | None = None
    """Number of CPU threads. Default: chosen by PyTorch."""
    precision: Literal["float32", "bf16", "int8"] = "float32"
    """Numeric precision of matrix products: bf16, or int8 (CPU only). On a CPU both need the native
    engine. Faster; outputs may differ slightly."""
    engine: Literal["pytorch", "native", "auto"] = "auto"
    """Decoding engine on a CPU. native is the fastest and supports all options of translation,
    language models and dialogue, but no recurrent or convolutional models; without a wheel that has
    it, it is compiled once, by the C++ compiler. auto: native where possible, else pytorch; on a
    GPU, pytorch."""

    def load(self, run: Path) -> Run:
        """Load a run onto the device.  Raises RunError, or SettingError for the device."""
        from transduce.runtime.run import load_complete

        return load_complete(run, self.device, self.precision, self.engine, self.threads)

    def load_light(self, run: Path) -> Run:
        """Load a run for translation, without PyTorch where possible.  Raises as `load`."""
        from transduce.runtime.run import load_light

        return load_light(run, self.device, self.precision, self.engine, self.threads)

    def load_together(
        self,
        run: Path,
        ensemble: Sequence[Path],
        language_model: Path | None = None,
        draft: Path | None = None,
    ) -> Run:
        """Load a run with the auxiliary models given.

        Raises the errors of `load` and `Run.with_models`.
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

    def load_to_serve(self, run: Path) -> Run:
        """Load a run for requests of all kinds: with PyTorch if it is installed, so that no request
        waits for it, but as `load_light` if the native engine is asked for.  Raises as `load`."""
        installed = importlib.util.find_spec("torch") is not None
        return self.load(run) if self.engine == "auto" and installed else self.load_light(run)

    def load_light_together(self, run: Path, ensemble: Sequence[Path], *others: Path | None) -> Run:
        """Load a run for translation with the auxiliary models given; alone, as `load_light`.

        others: as in `load_together`.
        """
        if ensemble or any(others):
            return self.load_together(run, ensemble, *others)
        return self.load_light(run)

    def without_engine(self, verb: str) -> Machine:
        """The machine for a verb that needs PyTorch.  Raises SettingError for another --engine."""
        if self.engine not in ("pytorch", "auto"):
            raise SettingError(
                f"`transduce {verb}` does not support --engine {self.engine}; remove it"
            )
        return dataclasses.replace(self, engine="pytorch")


AS_THE_RECIPE = Decoding()
TOGETHER_AS_THE_RECIPE = EnsembleDecoding()
CONTINUED_AS_THE_RECIPE = ContinuationDecoding()
TRANSLATED_AS_THE_RECIPE = TranslationDecoding()
TOGETHER_TRANSLATED_AS_THE_RECIPE = EnsembleTranslationDecoding()
RECOGNISED_AS_THE_RECIPE = SpeechDecoding()
AUXILIARY_AS_THE_RECIPE = AuxiliaryDecoding()
THIS_MACHINE = Machine()
