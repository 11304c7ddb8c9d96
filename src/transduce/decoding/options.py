"""Decoding options: every setting of the search, declared and checked once.

No import of torch: the command line makes its options of this section.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from transduce.config import check_fields, parse, section, to_dict
from transduce.errors import SettingError

if TYPE_CHECKING:
    from torch import Tensor

Count = Annotated[int, Field(ge=1)]
Natural = Annotated[int, Field(ge=0)]
Text = Annotated[str, Field(min_length=1)]


# Settings without a meaning where an output continues its source ...
FOR_TRANSLATIONS = (
    "coverage_penalty",
    "min_length_ratio",
    "max_length_ratio",
    "max_length_extra",
    "shortlist",
    "language_model_weight",
    "ensemble",
    "minimum_risk",
    "candidates",
)
# ... and where the source says how long the output may be.
FOR_CONTINUATIONS = ("max_tokens", "stop_strings")


def without_meaning(translates: bool) -> tuple[tuple[str, ...], str]:
    """Settings without effect in a task, and the tasks that use them."""
    if translates:
        return FOR_CONTINUATIONS, "continuations and dialogue"
    return FOR_TRANSLATIONS, "translations"


@section
class DecodingOptions:
    """Beam search or sampling, and when to stop.

    Building one checks each setting, and each against the others; raises SettingError.  The
    docstrings are the help of the command line too.
    """

    method: Literal["beam", "sample"] = "beam"
    """Search for the best hypotheses (beam) or draw them at random (sample)."""
    prefix: str = ""
    """Begin every output with this text; its tokens count in scores and lengths."""
    constraints: tuple[Text | Annotated[tuple[Text, ...], Field(min_length=1)], ...] = ()
    """Require this phrase in every output, or one of several alternatives, in any order; cut into
    tokens as after a space, as far as the maximum length has room."""
    avoid: tuple[Text, ...] = ()
    """Ban this word or phrase from every output, however it is cut into tokens."""
    beam_size: Count = 5
    """Hypotheses kept per sentence; 1 is greedy search."""
    n_best: Count = 1
    """Hypotheses returned per sentence, best first; in sampling, samples drawn."""
    length_penalty: Literal["none", "mean", "gnmt"] = "gnmt"
    """Divide log-probabilities by 1, by the length L or by ((5 + L) / 6)^alpha (Wu et al. 2016,
    equation 14) before hypotheses are compared; L counts the end of sentence."""
    alpha: Annotated[float, Field(ge=0, le=10)] = 0.6
    """Strength of the gnmt length penalty: 0 is none, higher favours longer hypotheses."""
    stop: Literal["first", "exact", "present"] = "first"
    """Stop when beam_size hypotheses have finished or no live one can still win (first), only in
    the latter case (exact), or when beam_size have finished and no live one, ended now, would beat
    the worst of them (present, the rule of transformers)."""
    free_end: bool = False
    """Let an end of sentence at the maximum length cost nothing, as in transformers."""
    coverage_penalty: Annotated[float, Field(ge=0, le=100)] = 0.0
    """Penalise source tokens that received little attention: beta of Wu et al. 2016, equation 14,
    over the last layer's cross-attention.  For translation."""
    beam_groups: Count = 1
    """Groups of a diverse beam search (Vijayakumar et al. 2018)."""
    diversity: Annotated[float, Field(ge=0, le=100)] = 0.5
    """Diversity penalty of a token for each earlier group that chose it in the same step."""
    min_length: Natural = 0
    """Minimum length of an output in tokens; the maximum takes precedence."""
    min_length_ratio: Annotated[float, Field(ge=0, le=1000)] = 0.0
    """Minimum length in tokens per source token; the greater of the two minimums counts."""
    max_length_ratio: Annotated[float, Field(ge=0, le=1000)] = 2.0
    """Maximum length in tokens per source token.  For translation."""
    max_length_extra: Annotated[int, Field(ge=0, le=1_000_000)] = 20
    """Tokens added to the maximum length that max_length_ratio gives."""
    max_tokens: Count = 256
    """Maximum number of new tokens of a continuation, a reply or a caption, where no source text
    limits the length."""
    stop_strings: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    """End a continuation or a reply before this text."""
    no_repeat_ngram: Natural = 0
    """Never repeat an n-gram of this size in an output (Paulus et al. 2018); 0 is no limit."""
    repetition_penalty: Annotated[float, Field(ge=1, le=100)] = 1.0
    """Multiply log-probabilities of tokens already in the output by this factor, before all other
    filters (after Keskar et al. 2019); 1 is none."""
    language_model_weight: Annotated[float, Field(ge=0, le=100)] = 0.2
    """Weight of the language model in shallow fusion (Gulcehre et al. 2015)."""
    ensemble: Literal["geometric", "arithmetic"] = "geometric"
    """Mean of an ensemble: of log-probabilities (geometric) or of probabilities (arithmetic)."""
    minimum_risk: Literal["none", "chrf", "bleu"] = "none"
    """Minimum Bayes risk decoding with this utility, instead of the most probable output (Kumar
    and Byrne 2004; Eikema and Aziz 2020).  For translation."""
    candidates: Count = 32
    """Samples for minimum Bayes risk decoding; a beam supplies its beam_size outputs, weighted by
    their probabilities."""
    temperature: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    """Sampling: divide logits by this temperature; below 1 favours probable tokens."""
    top_k: Natural = 0
    """Sampling: draw from the k most probable tokens; 0 is all."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Sampling: draw from the smallest set of tokens with this total probability (nucleus
    sampling, Holtzman et al. 2020)."""
    min_p: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Sampling: draw from tokens with at least this share of the highest probability."""
    seed: Natural = 0
    """Seed of sampling."""
    shortlist: bool = False
    """Restrict each output to the target tokens that the run's shortlist holds for its source.
    For translation."""
    batch_tokens: Count = 4096
    """Source tokens decoded at once, padding included; changes speed and memory, never outputs."""

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
            raise SettingError(
                "constraints and beam_groups cannot be combined; leave out one of them"
            )
        for name, text in self._wanted():
            for stop in self.stop_strings:
                if stop in text:
                    raise SettingError(f"{name}: {text!r} contains the stop string {stop!r}")
        risky = self.minimum_risk != "none" and self.method == "sample"
        if risky and self.n_best > self.candidates:
            raise SettingError(
                f"n_best = {self.n_best} needs candidates of at least {self.n_best}, "
                f"not {self.candidates}"
            )

    def with_settings(self, given: Mapping[str, Any]) -> DecodingOptions:
        """Copy with some settings changed; the beam is widened for `n_best`.

        Raises SettingError that names the invalid one.
        """
        settings = {**to_dict(self), **given}
        count, width = settings["n_best"], settings["beam_size"]
        if isinstance(count, int) and isinstance(width, int) and "beam_size" not in given:
            settings["beam_size"] = max(count, width)
        return parse(DecodingOptions, settings)

    def phrases(self) -> Iterator[str]:
        """Every required or banned phrase, and every stop string."""
        for phrase in self.constraints:
            yield from (phrase,) if isinstance(phrase, str) else phrase
        yield from self.avoid
        yield from self.stop_strings

    def _wanted(self) -> Iterator[tuple[str, str]]:
        """Required texts, each with the name of its setting."""
        yield "prefix", self.prefix
        for phrase in self.constraints:
            for text in (phrase,) if isinstance(phrase, str) else phrase:
                yield "constraints", text

    @property
    def width(self) -> int:
        """Hypotheses kept side by side for each sentence."""
        return self.beam_size if self.method == "beam" else self.n_best

    def max_lengths(self, source_lengths: Tensor) -> Tensor:
        """Maximum tokens (n,) before the end of sentence, for source lengths (n,)."""
        # float64: float32 would round the product of a long source differently from Python
        scaled = (source_lengths.cpu().double() * self.max_length_ratio).long()
        return scaled + self.max_length_extra

    def min_length_for(self, source_length: int) -> int:
        """Minimum tokens before the end of sentence, for a given source length."""
        return max(self.min_length, int(source_length * self.min_length_ratio))


def decisive(options: Mapping[str, Any]) -> dict[str, Any]:
    """Subset of serialised options that affects outputs."""
    return {name: value for name, value in options.items() if name != "batch_tokens"}
