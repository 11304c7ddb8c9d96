"""Vocabulary shortlists: the few target tokens that a source can need, instead of all.

The output layer and all that a search does with its logits then cost a share of what they did.
The tokens of a batch's sentences together are its vocabulary for a while; but each sentence may
use those of its own list alone, and its probabilities are over these, so that what is found does
not depend on the company in the batch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from transduce.decoding.hypotheses import DEAD, Hypothesis
from transduce.decoding.options import DecodingOptions
from transduce.errors import SettingError
from transduce.models.encoder_decoder import EncoderDecoder
from transduce.nn.state import State
from transduce.sequence import Padded
from transduce.text.tokenizer import EOS, SPECIAL_TOKENS

Ints = NDArray[np.integer[Any]]
N_SPECIAL = len(SPECIAL_TOKENS)
GLOBAL_IDS = ("prefix", "constraints", "avoid", "coverage_penalty")
"""Options that name target tokens by themselves, or look into the model's own state."""


class Shortlist(NamedTuple):
    """What the target of each source token may need.

    likely:   (source vocabulary, k) int64 target ids, -1 where there are fewer.
    frequent: (n,) int64 target ids that every sentence may use.
    joint:    ids mean the same on both sides, so that a source's own tokens may be copied.
    """

    likely: Ints
    frequent: Ints
    joint: bool

    def of(self, source: Sequence[int]) -> Ints:
        """(u,) the target ids that a source may use, ascending, the special ones among them."""
        ids = np.array([EOS, *source])
        parts = [self.likely[ids].ravel(), self.frequent, np.arange(N_SPECIAL)]
        every: Ints = np.unique(np.concatenate([*parts, ids] if self.joint else parts))
        return every[every >= 0]

    def restrict(self, model: EncoderDecoder, sources: Sequence[Sequence[int]]) -> ShortlistedModel:
        """The model, to be used for these sources alone."""
        return ShortlistedModel(model, [self.of(source) for source in sources])


class ShortlistedState:
    """A model's state that remembers which sentence each row is of."""

    def __init__(self, inner: State, sentences: Tensor) -> None:
        self.inner = inner
        self.sentences = sentences

    def select(self, rows: Tensor) -> None:
        """Go on with hypotheses `rows` (r',), in that order; repeats and omissions allowed."""
        self.inner.select(rows)
        self.sentences = self.sentences[rows]


class ShortlistedModel:
    """A model whose vocabulary is that of a batch of sentences, numbered anew.

    ids: (u,) int64, the tokens that are left, ascending.  The special ones are always among them,
    so that their numbers stay as they are.
    """

    def __init__(self, model: EncoderDecoder, lists: Sequence[Ints]) -> None:
        """lists: (…,) for each sentence the target ids that it may use, ascending."""
        device = model.head.weight.device
        self.model = model
        self.ids = np.unique(np.concatenate(lists))
        hidden = np.ones((len(lists), len(self.ids)), dtype=bool)
        for row, own in zip(hidden, lists, strict=True):
            row[np.searchsorted(self.ids, own)] = False
        self._hidden = torch.from_numpy(hidden).to(device)
        self._ids = torch.from_numpy(self.ids).to(device)
        self._weight = model.head.weight[self._ids]
        self._bias = None if model.head.bias is None else model.head.bias[self._ids]

    def start(self, source: Padded) -> ShortlistedState:
        """Read the sources, those that the lists are of."""
        return ShortlistedState(
            self.model.start(source), torch.arange(len(self._hidden), device=self._ids.device)
        )

    def step(self, target: Padded, state: ShortlistedState) -> Tensor:
        """Logits (r, 1, u) of what follows the last of `target` (r, t), in the new numbers."""
        named = target.with_values(self._ids[target.values])
        last = self.model.advance(named, state.inner).values[:, -1:]
        logits = F.linear(last, self._weight, self._bias)
        return logits.masked_fill_(self._hidden[state.sentences][:, None], DEAD)

    def widened(self, found: list[list[Hypothesis]]) -> list[list[Hypothesis]]:
        """Hypotheses with their tokens numbered as in the whole vocabulary."""
        ids: list[int] = self.ids.tolist()
        return [
            [dataclasses.replace(h, tokens=[ids[token] for token in h.tokens]) for h in of_sentence]
            for of_sentence in found
        ]


def check_shortlist(options: DecodingOptions) -> None:
    """Raises SettingError for options that a shortlist cannot go with."""
    for name in GLOBAL_IDS:
        if getattr(options, name):
            raise SettingError(
                f"decoding.shortlist does not go with decoding.{name}; leave out one of them"
            )
