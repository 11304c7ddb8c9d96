"""Options that several verbs share, each group a small dataclass."""

from __future__ import annotations

import dataclasses
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter, validators

from transduce.errors import SettingError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from transduce.decoding.options import DecodingOptions
    from transduce.run import Run
    from transduce.tasks.task import Predictor
    from transduce.tasks.translator import Translator

logger = logging.getLogger("transduce")

Count = Annotated[int, Parameter(validator=validators.Number(gte=1))]
Flag = Annotated[bool, Parameter(show_default=False)]
# Options without a meaning: where nothing is drawn at random, ...
SAMPLING = ("temperature", "top_k", "top_p", "min_p", "seed", "candidates")
# ... and where it is.
SEARCHING = ("beam_size", "beam_groups", "diversity")
SPELLED = {"constraints": "constraint", "stop_strings": "stop", "ensemble": "ensemble_mean"}


@Parameter(name="*", group="Decoding (by default as the recipe says)")
@dataclass(frozen=True, kw_only=True)
class Decoding:
    """How to decode; what is not given stays as the run's recipe says."""

    beam_size: Count | None = None
    """Hypotheses kept side by side; 1 is greedy search."""
    length_penalty: Literal["none", "mean", "gnmt"] | None = None
    """What log-probabilities are divided by before hypotheses are compared."""
    alpha: float | None = None
    """Strength of the gnmt penalty."""
    prefix: str | None = None
    """Begin every output with this text."""
    constraints: Annotated[tuple[str, ...] | None, Parameter(name="--constraint")] = None
    """Let every output hold this phrase, or one of several with | between; may be repeated."""
    avoid: tuple[str, ...] | None = None
    """Let no output hold this word or phrase; may be repeated."""
    coverage_penalty: float | None = None
    """Take off a score what of the source got little attention, times this (Wu et al. 2016)."""
    beam_groups: Count | None = None
    """Parts of the beam that are kept apart (Vijayakumar et al. 2018) ..."""
    diversity: float | None = None
    """... by this much for each time that a token was chosen."""
    min_length: int | None = None
    """Tokens before an output may end."""
    min_length_ratio: float | None = None
    """The same as tokens per token of the source text."""
    max_length_ratio: float | None = None
    """Where there is a source text: tokens allowed per token of it ..."""
    max_length_extra: int | None = None
    """... and on top of that."""
    max_tokens: Count | None = None
    """Tokens that a continuation, an answer in a dialogue or a caption may have."""
    stop_strings: Annotated[tuple[str, ...] | None, Parameter(name="--stop")] = None
    """End a continuation or an answer before this text; may be given several times."""
    no_repeat_ngram: int | None = None
    """Let no row of N tokens come twice in an output."""
    shortlist: Annotated[bool | None, Parameter(show_default=False)] = None
    """Choose among the few target tokens that `transduce shortlist` found for each source."""
    repetition_penalty: float | None = None
    """Above 1: make tokens that the output has already less likely."""
    minimum_risk: Literal["none", "chrf", "bleu"] | None = None
    """Choose the output most like all that were found (with --sample: drawn), by this measure."""
    sample: Flag = False
    """Draw outputs at random instead of searching for the best."""
    temperature: float | None = None
    """With --sample: below 1 for likelier outputs, above 1 for more varied ones."""
    top_k: int | None = None
    """With --sample: draw from the K likeliest tokens only."""
    top_p: float | None = None
    """With --sample: draw from the fewest tokens that together hold this probability."""
    min_p: float | None = None
    """With --sample: draw from tokens with at least this share of the likeliest's probability."""
    seed: int | None = None
    """With --sample: where the random numbers start."""
    candidates: Count | None = None
    """With --sample and --minimum-risk: how many are drawn to choose among."""

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
        from transduce.config import parse, to_dict
        from transduce.decoding.options import DecodingOptions, without_meaning
        from transduce.tasks.translator import Translator

        recipe = predictor.options
        assert recipe is not None
        given = self._given()
        if "ensemble_mean" in given:
            given["ensemble"] = given.pop("ensemble_mean")
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
            company = translator.company
            needs += [
                ("language_model_weight", "language-model", company.language_model is not None),
                ("ensemble", "ensemble", bool(company.others)),
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


@dataclass(frozen=True, kw_only=True)
class EnsembleDecoding(Decoding):
    """How to decode, for a verb that has --ensemble."""

    ensemble_mean: Annotated[
        Literal["geometric", "arithmetic"] | None, Parameter(name="--ensemble-mean")
    ] = None
    """With --ensemble: mean of log-probabilities, or of probabilities."""


@dataclass(frozen=True, kw_only=True)
class CompanyDecoding(EnsembleDecoding):
    """How to decode, for a verb that has --ensemble and --language-model."""

    language_model_weight: float | None = None
    """With --language-model: how much its word counts."""


def _spelled(name: str) -> str:
    """An option as the command line has it."""
    return f"--{SPELLED.get(name, name).replace('_', '-')}"


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

        Raises as `load` and `Run.beside` do.
        """
        model = self.load(run)
        if not (ensemble or language_model or draft):
            return model
        whole = dataclasses.replace(self, precision="float32")  # a draft is small
        return model.beside(
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
IN_COMPANY_AS_THE_RECIPE = CompanyDecoding()
THIS_MACHINE = Machine()
