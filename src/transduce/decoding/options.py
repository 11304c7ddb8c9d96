"""Decoding options: every setting of the search, its bounds, and the random numbers of sampling."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, get_type_hints

from pydantic import Field

from transduce.errors import RunError, SettingError
from transduce.settings.sections import check_fields, parse, section, to_dict
from transduce.support.files import Limit

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


Count = Annotated[int, Field(ge=1)]
Natural = Annotated[int, Field(ge=0)]
Text = Annotated[str, Field(min_length=1)]


OutputKind = Literal["translation", "continuation", "speech"]
"""Kind of a task's outputs; captions are continuations of an empty text."""
OUTPUTS: dict[OutputKind, str] = {
    "translation": "translations",
    "continuation": "continuations and dialogue",
    "speech": "speech",
}


DECODING = "Decoding (defaults from the recipe)"
LENGTH = "Output length"
CONSTRAINTS = "Output constraints"
SAMPLING = "Sampling"
AUXILIARY = "Auxiliary models"
MACHINE = "Machine"
"""Headings in `--help`."""


Followed = bool | tuple[str | float, ...]
"""Values of an option that an executor follows: all (True), the default alone (False), or those
listed."""


class Exports(NamedTuple):
    """Values that the search of an exported model follows, by the form of the export."""

    ctranslate2: Followed = False
    marian: Followed = False
    bergamot: Followed = False


NO_EXPORT = Exports()


@dataclass(frozen=True)
class Need:
    """Condition without which an option has no effect.

    words: of the command line.  is_met: by the options, and the kinds of auxiliary models beside
    the run, "language-model" and "ensemble".
    """

    words: str
    is_met: Callable[[DecodingOptions, Collection[str]], bool] = field(repr=False)


BEAM = Need("beam search", lambda options, _: options.method == "beam")
SAMPLE = Need("sample", lambda options, _: options.method == "sample")
GNMT = Need("length-penalty gnmt", lambda options, _: options.length_penalty == "gnmt")
BEAM_GROUPS = Need("beam-groups of at least 2", lambda options, _: options.beam_groups > 1)
MINIMUM_RISK = Need("minimum-risk", lambda options, _: options.minimum_risk != "none")
HOTWORD = Need("hotword", lambda options, _: bool(options.hotwords))
LANGUAGE_MODEL = Need("language-model", lambda _, models: "language-model" in models)
ENSEMBLE = Need("ensemble", lambda _, models: "ensemble" in models)


@dataclass(frozen=True)
class Facts:
    """Facts about an option, on its field; a field without any has `Facts()`.

    kind:         the only outputs that the option has an effect on.
    native:       followed by the native engine's own search (`Followed`); all else takes the search
                  in Python.
    page:         followed, or shown, by a page that computes; all else is refused.
    exports:      followed by the search of an exported model; of all else the export warns.
    client:       chosen by a request to a server: True, or the largest number, or number of
                  entries.  False for an option of the server alone.
    shortlisted:  False if a shortlist rules it out: it names target tokens directly, or reads the
                  model's own state.
    decisive:     False if it affects speed and memory alone, not outputs.
    needs:        conditions without which it has no effect.
    command_line: False for an option that is no option of every verb that decodes.
    spelled:      name on the command line, if another.
    group:        heading in `--help`.
    """

    kind: OutputKind | None = None
    native: Followed = False
    page: Followed = False
    exports: Exports = NO_EXPORT
    client: bool | float = False
    shortlisted: bool = True
    decisive: bool = True
    needs: tuple[Need, ...] = ()
    command_line: bool = True
    spelled: str = ""
    group: str = DECODING


SAMPLED = Facts(native=True, page=True, client=True, needs=(SAMPLE,), group=SAMPLING)
MOST_PHRASES = 64
"""Entries of a list of phrases in a request."""


@section
class DecodingOptions:
    """Beam search or sampling, and when to stop; raises SettingError for settings that do not fit.
    The docstrings of the fields are also the help of the command line."""

    method: Annotated[
        Literal["beam", "sample"],
        Facts(page=("beam", "sample"), native=("beam", "sample"), client=True, command_line=False),
    ] = "beam"
    """Search for the best hypotheses (beam) or draw them at random (sample)."""
    prefix: Annotated[str, Facts(client=True, shortlisted=False, group=CONSTRAINTS)] = ""
    """Prefix-constrained decoding: begin every output with this text of whole words ("I bu" is not
    completed to "I buy"), which counts in its score and length."""
    constraints: Annotated[
        tuple[Text | Annotated[tuple[Text, ...], Field(min_length=1)], ...],
        Facts(client=MOST_PHRASES, shortlisted=False, spelled="constraint", group=CONSTRAINTS),
    ] = ()
    """Constrained decoding: require this phrase, or one of several alternatives, in every output,
    as far as the maximum length permits."""
    avoid: Annotated[
        tuple[Text, ...], Facts(client=MOST_PHRASES, shortlisted=False, group=CONSTRAINTS)
    ] = ()
    """Ban this word or phrase from every output, in any tokenisation."""
    hotwords: Annotated[
        tuple[Text, ...],
        Facts(client=MOST_PHRASES, shortlisted=False, spelled="hotword", group=CONSTRAINTS),
    ] = ()
    """Favour this word or phrase, such as a name, without requiring it (contextual biasing)."""
    hotword_bonus: Annotated[
        float, Field(ge=0, le=100), Facts(client=True, needs=(HOTWORD,), group=CONSTRAINTS)
    ] = 1.5
    """Bonus in nats for each token of a hotword; a hotword that breaks off gives it back."""
    beam_size: Annotated[
        Count,
        Facts(page=True, native=True, exports=Exports(True, True, True), client=16, needs=(BEAM,)),
    ] = 5
    """Beam size: hypotheses kept per sentence; 1 is greedy search."""
    n_best: Annotated[Count, Facts(native=True, client=16, command_line=False)] = 1
    """Hypotheses returned per sentence, best first; in sampling, samples drawn."""
    length_penalty: Annotated[
        Literal["none", "mean", "gnmt"],
        Facts(
            page=("none", "mean", "gnmt"),
            native=("none", "mean", "gnmt"),
            exports=Exports(("mean",), ("none", "mean"), ("none", "mean")),
            client=True,
        ),
    ] = "gnmt"
    """Length normalisation of hypothesis scores: divide the log-probability by 1 (none), by the
    length L (mean) or by ((5 + L) / 6)^alpha (gnmt; Wu et al. 2016, equation 14), where L includes
    the end of sentence."""
    alpha: Annotated[
        float, Field(ge=0, le=10), Facts(page=True, native=True, client=True, needs=(GNMT,))
    ] = 0.6
    """Strength of the gnmt length penalty; higher values favour longer hypotheses."""
    extra_length: Annotated[Natural, Facts(native=True, command_line=False)] = 0
    """Added to the length L in length_penalty, such as 1 for a forced first token in
    transformers."""
    stop: Annotated[
        Literal["first", "exact", "present"],
        Facts(
            page=("first", "exact", "present"),
            native=("first", "exact", "present"),
            exports=Exports(marian=("first", "exact", "present")),
            client=True,
            command_line=False,
        ),
    ] = "first"
    """Stop when beam_size hypotheses have finished or no live one can still win (first), only in
    the latter case (exact), or when beam_size have finished and no live one, ended now, would beat
    the worst of them (present, the rule of transformers)."""
    free_end: Annotated[
        bool,
        Facts(
            page=True,
            native=True,
            exports=Exports(bergamot=True),
            client=True,
            command_line=False,
        ),
    ] = False
    """Let an end of sentence at the maximum length cost nothing, as in transformers."""
    coverage_penalty: Annotated[
        float,
        Field(ge=0, le=100),
        Facts("translation", page=(0.0,), client=True, shortlisted=False),
    ] = 0.0
    """Penalise source tokens that received little attention: beta of Wu et al. 2016, equation 14,
    over the last layer's cross-attention.  For translation."""
    beam_groups: Annotated[Count, Facts(client=True, needs=(BEAM,))] = 1
    """Number of groups in diverse beam search (Vijayakumar et al. 2018)."""
    diversity: Annotated[
        float, Field(ge=0, le=100), Facts(native=True, client=True, needs=(BEAM, BEAM_GROUPS))
    ] = 0.5
    """Diversity penalty per earlier beam group that chose the same token at this step."""
    min_length: Annotated[Natural, Facts(page=True, native=True, client=256, group=LENGTH)] = 0
    """Minimum output length in tokens; the maximum takes precedence."""
    min_length_ratio: Annotated[
        float,
        Field(ge=0, le=1000),
        Facts("translation", page=True, native=True, client=2, group=LENGTH),
    ] = 0.0
    """Minimum output length in tokens per source token; the greater minimum applies."""
    max_length_ratio: Annotated[
        float,
        Field(ge=0, le=1000),
        Facts("translation", page=True, native=True, client=4, group=LENGTH),
    ] = 2.0
    """Maximum output length in tokens per source token.  For translation."""
    max_length_extra: Annotated[
        int,
        Field(ge=0, le=1_000_000),
        Facts("translation", page=True, native=True, client=200, group=LENGTH),
    ] = 20
    """Tokens added to the maximum length, independent of the source length."""
    max_tokens: Annotated[
        Count, Facts("continuation", page=True, native=True, client=1024, group=LENGTH)
    ] = 256
    """Maximum number of new tokens in a continuation, reply or caption."""
    stop_strings: Annotated[
        tuple[Text, ...], Facts("continuation", client=MOST_PHRASES, spelled="stop", group=LENGTH)
    ] = ()
    """Stop a continuation or a reply before this string."""
    no_repeat_ngram: Annotated[Natural, Facts(client=True, group=CONSTRAINTS)] = 0
    """Never repeat an n-gram of this size in an output (Paulus et al. 2018); 0 disables it."""
    repetition_penalty: Annotated[
        float, Field(ge=1, le=100), Facts(client=True, group=CONSTRAINTS)
    ] = 1.0
    """Multiply log-probabilities of tokens already in the output by this factor, before all other
    filters (after Keskar et al. 2019); 1 disables it."""
    ctc_weight: Annotated[float, Field(ge=0, le=100), Facts("speech", native=True, client=True)] = (
        0.3
    )
    """Weight of CTC's log-probability beside the decoder's in joint search (Watanabe et al. 2017);
    0 searches by the decoder alone.  For speech."""
    language_model_weight: Annotated[
        float, Field(ge=0, le=100), Facts(native=True, needs=(LANGUAGE_MODEL,), group=AUXILIARY)
    ] = 0.2
    """Weight of the language model in shallow fusion (Gulcehre et al. 2015)."""
    ensemble: Annotated[
        Literal["geometric", "arithmetic"],
        Facts(
            "translation",
            native=("geometric", "arithmetic"),
            needs=(ENSEMBLE,),
            spelled="ensemble-mean",
            group=AUXILIARY,
        ),
    ] = "geometric"
    """Mean of an ensemble: of log-probabilities (geometric) or of probabilities (arithmetic)."""
    minimum_risk: Annotated[
        Literal["none", "chrf", "bleu"], Facts(native=("none", "chrf", "bleu"), client=True)
    ] = "none"
    """Minimum Bayes risk decoding with this utility, instead of the most probable output (Kumar
    and Byrne 2004; Eikema and Aziz 2020)."""
    candidates: Annotated[Count, Facts(native=True, client=64, needs=(SAMPLE, MINIMUM_RISK))] = 32
    """Samples for minimum Bayes risk decoding; beam search uses its beam_size outputs, weighted by
    probability, instead."""
    temperature: Annotated[float, Field(gt=0, allow_inf_nan=False), SAMPLED] = 1.0
    """Sampling temperature, the divisor of the logits; below 1 favours probable tokens."""
    top_k: Annotated[Natural, SAMPLED] = 0
    """Top-k sampling: draw from the k most probable tokens; 0 disables the limit."""
    top_p: Annotated[float, Field(gt=0, le=1), SAMPLED] = 1.0
    """Top-p (nucleus) sampling: draw from the smallest set of tokens with this total probability
    (Holtzman et al. 2020)."""
    min_p: Annotated[float, Field(ge=0, le=1), SAMPLED] = 0.0
    """Min-p sampling: draw from tokens with at least this fraction of the highest probability."""
    seed: Annotated[Natural, SAMPLED] = 0
    """Random seed of sampling."""
    shortlist: Annotated[
        bool, Facts("translation", page=True, native=True, exports=Exports(bergamot=True))
    ] = False
    """Restrict the output vocabulary to the run's vocabulary shortlist.  For translation."""
    batch_tokens: Annotated[Count, Facts(native=True, decisive=False, group=MACHINE)] = 4096
    """Batch size in source tokens, padding included, for at most 8 hypotheses of each input, and
    fewer for more; affects speed and memory, not outputs."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.method == "beam" and self.n_best > self.beam_size:
            raise SettingError(
                f"n_best = {self.n_best} needs a beam_size of at least {self.n_best}, "
                f"not {self.beam_size}"
            )
        if self.method == "beam" and self.beam_size % self.beam_groups:
            raise SettingError(
                f"beam_groups = {self.beam_groups} must divide beam_size = {self.beam_size}"
            )
        if self.method == "beam" and self.beam_groups > 1 and self.constraints:
            raise SettingError("constraints and beam_groups cannot be combined; remove one of them")
        required = {"prefix": [self.prefix], "constraints": itertools.chain(*self.alternatives())}
        for name, texts in required.items():
            for text, stop in itertools.product(texts, self.stop_strings):
                if stop in text:
                    raise SettingError(f"{name}: {text!r} contains the stop string {stop!r}")
        risky = self.minimum_risk != "none" and self.method == "sample"
        if risky and self.n_best > self.candidates:
            raise SettingError(
                f"n_best = {self.n_best} needs candidates of at least {self.n_best}, "
                f"not {self.candidates}"
            )

    def with_settings(self, changes: Mapping[str, Any]) -> DecodingOptions:
        """Copy with some settings changed, the beam widened for `n_best`, and the shortlist left
        off for settings that it rules out.  Raises SettingError that names the invalid setting."""
        settings = {**to_dict(self), **changes}
        count, width = settings["n_best"], settings["beam_size"]
        if isinstance(count, int) and isinstance(width, int) and "beam_size" not in changes:
            settings["beam_size"] = max(count, width)
        return parse(DecodingOptions, settings | without_shortlist(changes))

    def alternatives(self) -> list[tuple[str, ...]]:
        """Alternative texts of each constraint."""
        return [(phrase,) if isinstance(phrase, str) else phrase for phrase in self.constraints]

    def phrases(self) -> list[str]:
        """Every required, banned or favoured phrase, and every stop string."""
        required = itertools.chain.from_iterable(self.alternatives())
        return [*required, *self.avoid, *self.hotwords, *self.stop_strings]

    @property
    def width(self) -> int:
        """Hypotheses decoded in parallel per sentence."""
        return self.beam_size if self.method == "beam" else self.n_best

    def max_length_for(self, source_length: int, room: int | None = None) -> int:
        """Maximum tokens before the end of sentence, for a given source length.

        room: of the model, in tokens; None for no limit.
        """
        limit = int(source_length * self.max_length_ratio) + self.max_length_extra
        return limit if room is None else min(limit, room)


@functools.cache
def types_of_options() -> Mapping[str, Any]:
    """Annotated type of each field of `DecodingOptions`, by name."""
    return get_type_hints(DecodingOptions, include_extras=True)


@functools.cache
def facts_of_options() -> Mapping[str, Facts]:
    """Facts about each field of `DecodingOptions`, by name."""
    types = types_of_options()
    metadata = {name: getattr(hint, "__metadata__", ()) for name, hint in types.items()}
    return {
        name: next((fact for fact in facts if isinstance(fact, Facts)), Facts())
        for name, facts in metadata.items()
    }


def without_meaning(kind: OutputKind) -> dict[str, str]:
    """Settings without effect on outputs of a kind, each with the outputs that it is for."""
    return {
        name: OUTPUTS[facts.kind]
        for name, facts in facts_of_options().items()
        if facts.kind not in (None, kind)
    }


def unmet_need(name: str, options: DecodingOptions, auxiliary: Collection[str] = ()) -> Need | None:
    """The first condition of a setting that does not hold; None if it has an effect.

    name: of the setting.  options: of decoding.  auxiliary: "language-model", "ensemble", if there
    are such models beside the run.
    """
    needs = facts_of_options()[name].needs
    return next((need for need in needs if not need.is_met(options, auxiliary)), None)


def not_followed(
    options: DecodingOptions, followed: Callable[[Facts], Followed]
) -> Iterator[tuple[str, Any]]:
    """Names and values of the settings with an effect that an executor does not follow, for a run
    without auxiliary models.  followed: by it."""
    for option in fields(DecodingOptions):
        setting, facts = getattr(options, option.name), facts_of_options()[option.name]
        values = followed(facts)
        if isinstance(values, tuple):
            is_followed = setting in values
        else:
            is_followed = values or setting == option.default or not facts.decisive
        if not is_followed and unmet_need(option.name, options) is None:
            yield option.name, setting


@functools.lru_cache(maxsize=64)  # options in a row are mostly the same
def not_native(options: DecodingOptions) -> list[str]:
    """Names of the settings that the native engine's own search does not follow."""
    return [name for name, _ in not_followed(options, lambda facts: facts.native)]


def decisive(options: Mapping[str, Any]) -> dict[str, Any]:
    """Subset of serialised options that affects outputs."""
    facts = facts_of_options()
    return {n: option for n, option in options.items() if n not in facts or facts[n].decisive}


def without_shortlist(changes: Mapping[str, Any]) -> dict[str, bool]:
    """The setting that leaves the shortlist of a recipe off where changed settings rule it out."""
    others = (name for name, facts in facts_of_options().items() if not facts.shortlisted)
    is_ruled_out = "shortlist" not in changes and any(changes.get(name) for name in others)
    return {"shortlist": False} if is_ruled_out else {}


def check_shortlist(options: DecodingOptions, shortlist: object | None) -> None:
    """Raises SettingError for options that cannot be combined with a shortlist, RunError without
    one, if the options ask for it."""
    if not options.shortlist:
        return
    for name, facts in facts_of_options().items():
        if not facts.shortlisted and getattr(options, name):
            raise SettingError(
                f"decoding.shortlist cannot be combined with decoding.{name}; remove one of them"
            )
    if shortlist is None:
        raise RunError("this run has no shortlist; make one with transduce shortlist RUN")


BEAM_LIMIT = Limit("TRANSDUCE_LIMIT_BEAM", 256, "")
"""Hypotheses side by side: `beam_size`."""
SAMPLES_LIMIT = Limit("TRANSDUCE_LIMIT_SAMPLES", 256, "")
"""Samples of a text: `n_best` and `candidates` where outputs are drawn."""
PHRASES_LIMIT = Limit("TRANSDUCE_LIMIT_PHRASES", 256, "")
"""Phrases of `constraints`, alternatives included, of `avoid` and of `stop_strings`, together."""
PHRASE_LIMIT = Limit("TRANSDUCE_LIMIT_PHRASE", 1000, "characters")
"""Length of each of them."""
OUTPUT_LIMIT = Limit("TRANSDUCE_LIMIT_OUTPUT", 32768, "tokens")
"""Length of an output: `max_tokens`, or the limit for the longest source."""


def check_work(options: DecodingOptions, longest_output: int, setting: str) -> None:
    """Raises SettingError for work beyond the limits, such as an output of this setting.

    options: of decoding.  longest_output: in tokens.  setting: name of the origin of that length,
    for the message.
    """
    phrases = options.phrases()
    longest = max(map(len, phrases), default=0)
    if options.method == "beam":
        asked = [(f"beam_size = {options.beam_size}", options.beam_size, BEAM_LIMIT)]
    else:
        asked = [(f"n_best = {options.n_best}", options.n_best, SAMPLES_LIMIT)]
        if options.minimum_risk != "none":
            asked.append((f"candidates = {options.candidates}", options.candidates, SAMPLES_LIMIT))
    asked += [
        (f"{setting}: an output of {longest_output} tokens", longest_output, OUTPUT_LIMIT),
        (f"prefix of {len(options.prefix)} characters", len(options.prefix), OUTPUT_LIMIT),
        (f"constraints, avoid, stop_strings: {len(phrases)} phrases", len(phrases), PHRASES_LIMIT),
        (f"a phrase of {longest} characters", longest, PHRASE_LIMIT),
    ]
    for named, count, limit in asked:
        if count > (most := limit.most()):
            raise SettingError(
                f"{named}: the limit is {most}; lower it, or set the variable {limit.variable}"
            )


def uniforms(
    options: DecodingOptions, streams: Sequence[int], limits: Sequence[int]
) -> NDArray[np.float64]:
    """Numbers (n, samples, steps) from [0, 1), by streams (n), up to limits (n)."""
    import numpy as np

    numbers = np.zeros((len(limits), options.n_best, max(limits, default=0) + 1))
    for i, (stream, limit) in enumerate(zip(streams, limits, strict=True)):
        for sample in range(options.n_best):
            # SeedSequence mixes the three into 128 bits; torch.Generator would keep 32 of them
            seed = np.random.SeedSequence((options.seed, stream, sample))
            generator = np.random.Generator(np.random.PCG64(seed))
            numbers[i, sample, : limit + 1] = generator.random(limit + 1)
    return numbers
