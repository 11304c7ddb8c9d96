"""The native engine behind a language model: its model for every option, its search for plain ones.

Losses of given texts and explanations come from PyTorch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import torch

from transduce.decoding.hypotheses import Hypothesis
from transduce.decoding.options import DecodingOptions
from transduce.decoding.output_constraints import OutputConstraints
from transduce.decoding.window import kept_tokens
from transduce.engine.model import NativeModel
from transduce.engine.search import search
from transduce.tasks.native_search import follows, search_rules


class NativeContinuations:
    """A decoder in the engine, and its search for continuations of prompts."""

    def __init__(self, model: NativeModel, window: int) -> None:
        """window: maximum positions of a prompt with its continuation."""
        self.model = model
        self.window = window

    def follows(self, options: DecodingOptions, output_constraints: OutputConstraints) -> bool:
        """True if the engine's own search follows these options and constraints."""
        return follows(options, [output_constraints])

    def search(
        self,
        prompts: Sequence[Sequence[int]],
        output_constraints: OutputConstraints,
        options: DecodingOptions,
        forbidden: tuple[int, ...],
        streams: Sequence[int],
        cancelled: Callable[[int], bool] | None,
    ) -> list[list[Hypothesis]]:
        """The `n_best` hypotheses that follow each prompt, best first.

        streams: (n) random streams of the prompts.
        """
        limits = [options.max_tokens] * len(prompts)
        rules = dataclasses.replace(
            search_rules(options, forbidden, torch.get_num_threads(), streams, limits),
            ends_at_limit=True,
            window=self.window,
            kept=kept_tokens(self.window),
        )
        least = [max(options.min_length, output_constraints.min_length)] * len(prompts)
        found = search(self.model, (), prompts, limits, least, rules, cancelled)
        return [[Hypothesis(*one) for one in of_prompt] for of_prompt in found]
