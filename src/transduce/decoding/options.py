"""How to decode: every setting of the search, checked once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from transduce.config import check_fields, section
from transduce.errors import SettingError

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
    """Settings that a task never looks at, and the tasks that they are for."""
    if translates:
        return FOR_CONTINUATIONS, "continuations and dialogue"
    return FOR_TRANSLATIONS, "translations"


@section
class DecodingOptions:
    """Beam search or sampling, and when to stop.

    Building one checks each setting, and what they mean for each other; raises SettingError.
    """

    method: Literal["beam", "sample"] = "beam"
    """Look for the best hypotheses (beam) or draw them at random (sample)."""
    prefix: str = ""
    """Every output starts with this text; a token of it counts in scores and lengths as any."""
    constraints: tuple[Text | Annotated[tuple[Text, ...], Field(min_length=1)], ...] = ()
    """Phrases that an output must hold, each a text or several to choose from, in any order, cut
    into tokens as after a space; where the greatest length has room for them."""
    avoid: tuple[Text, ...] = ()
    """Words and phrases that an output must not hold, however they are cut into tokens."""
    beam_size: Count = 5
    """Live hypotheses kept per sentence; 1 is greedy search.  Beam only."""
    n_best: Count = 1
    """Hypotheses returned per sentence, best first; in sampling, samples drawn."""
    length_penalty: Literal["none", "mean", "gnmt"] = "gnmt"
    """What log-probabilities are divided by before hypotheses are compared: 1, the length L, or
    ((5 + L) / 6)^alpha (Wu et al. 2016, equation 14).  L counts the end of sentence."""
    alpha: Annotated[float, Field(ge=0, le=10)] = 0.6
    """Strength of the gnmt penalty: 0 is none, higher favours longer hypotheses."""
    stop: Literal["first", "exact", "present"] = "first"
    """When a sentence is done: once beam_size hypotheses have finished or no live one can still
    win (first), or only in the latter case (exact); or once beam_size have finished and no live
    one, if it ended now, would beat the worst of them (present), as transformers does."""
    free_end: bool = False
    """At the most tokens allowed an end of sentence costs nothing, as in transformers; else it
    costs what the model says."""
    coverage_penalty: Annotated[float, Field(ge=0, le=100)] = 0.0
    """What is taken off a score for source tokens that got little attention: beta in Wu et al.
    2016, equation 14, over the last layer's cross-attention.  For translation."""
    beam_groups: Count = 1
    """Parts of the beam that are kept apart from each other (Vijayakumar et al. 2018) ..."""
    diversity: Annotated[float, Field(ge=0, le=100)] = 0.5
    """... by taking this from a token each time that a group before has chosen it in this step."""
    min_length: Natural = 0
    """Tokens before the end of sentence may come; the maximum goes first where they conflict."""
    min_length_ratio: Annotated[float, Field(ge=0, le=1000)] = 0.0
    """The same as tokens per token of the source; the greater of the two counts."""
    max_length_ratio: Annotated[float, Field(ge=0, le=1000)] = 2.0
    """Tokens allowed per token of the source ..."""
    max_length_extra: Annotated[int, Field(ge=0, le=1_000_000)] = 20
    """... and on top of that."""
    max_tokens: Count = 256
    """Tokens that a continuation, an answer in a dialogue or a caption may have: there, where no
    source says how long an output may be, the two settings before this have no meaning."""
    stop_strings: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    """A continuation or an answer ends once it contains one of these, and is cut before it."""
    no_repeat_ngram: Natural = 0
    """No row of so many tokens comes twice in an output (Paulus et al. 2018); 0 is no limit."""
    repetition_penalty: Annotated[float, Field(ge=1, le=100)] = 1.0
    """Above 1: log-probabilities of tokens that the output has already are multiplied by it, before
    all else (after Keskar et al. 2019)."""
    language_model_weight: Annotated[float, Field(ge=0, le=100)] = 0.2
    """With a language model beside: what its log-probabilities are multiplied by before they are
    added (shallow fusion, Gulcehre et al. 2015)."""
    ensemble: Literal["geometric", "arithmetic"] = "geometric"
    """With several models: mean of their log-probabilities, made to sum to one again, or of their
    probabilities."""
    minimum_risk: Literal["none", "chrf", "bleu"] = "none"
    """Of all that was found, choose what is most like the rest by this measure, rather than what
    is likeliest (Kumar and Byrne 2004; Eikema and Aziz 2020).  For translation."""
    candidates: Count = 32
    """Samples among which minimum_risk chooses; with a beam it is beam_size outputs, weighed by
    their probabilities."""
    temperature: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    """Logits are divided by it: below 1 samples are likelier, above 1 more varied.  Sampling only,
    as are the next ones, in this order."""
    top_k: Natural = 0
    """Sample from the k likeliest tokens; 0 is from all."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Sample from the fewest tokens that together hold this probability (Holtzman et al. 2020)."""
    min_p: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Sample from tokens with at least this share of the likeliest one's probability."""
    seed: Natural = 0
    """Where the random numbers of sampling start."""
    shortlist: bool = False
    """Choose among the few target tokens that the run's shortlist has for each source.  For
    translation."""
    batch_tokens: Count = 4096
    """Source tokens decoded at once, padding included; no influence on what is found."""

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
                "constraints need the whole beam; leave out either them or beam_groups"
            )
        for name, text in self._wanted():
            for stop in self.stop_strings:
                if stop in text:
                    raise SettingError(f"{name}: {text!r} would be cut off at the stop {stop!r}")
        risky = self.minimum_risk != "none" and self.method == "sample"
        if risky and self.n_best > self.candidates:
            raise SettingError(
                f"n_best = {self.n_best} needs candidates of at least {self.n_best}, "
                f"not {self.candidates}"
            )

    def _wanted(self) -> Iterator[tuple[str, str]]:
        """Texts that outputs are to hold, and by which setting."""
        yield "prefix", self.prefix
        for phrase in self.constraints:
            for text in (phrase,) if isinstance(phrase, str) else phrase:
                yield "constraints", text

    @property
    def width(self) -> int:
        """Hypotheses kept side by side for each sentence."""
        return self.beam_size if self.method == "beam" else self.n_best

    def max_lengths(self, source_lengths: Tensor) -> Tensor:
        """Most tokens (n,) before the end of sentence, for sources of lengths (n,)."""
        # float64: float32 would round the product of a long source differently from Python
        scaled = (source_lengths.to("cpu", torch.float64) * self.max_length_ratio).long()
        return scaled + self.max_length_extra

    def min_length_for(self, source_length: int) -> int:
        """Least tokens before the end of sentence, for a source of a given length."""
        return max(self.min_length, int(source_length * self.min_length_ratio))


def decisive(options: Mapping[str, Any]) -> dict[str, Any]:
    """Of options written out, those that decide what the outputs are."""
    return {name: value for name, value in options.items() if name != "batch_tokens"}
