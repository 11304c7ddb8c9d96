"""A model restricted to the vocabulary shortlists of its sentences, for the search of Python."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from transduce.decoding.hypotheses import DEAD
from transduce.decoding.shortlist import Ints
from transduce.decoding.step_model import StepModel
from transduce.nn.state import State
from transduce.sequence import Padded


@dataclass(eq=False)
class ShortlistedState:
    """Model state with the sentence index of each row."""

    inner: State
    sentences: Tensor

    def select(self, rows: Tensor) -> None:
        """Select hypotheses `rows` (r',), in order; repeats and omissions allowed."""
        self.inner.select(rows)
        self.sentences = self.sentences[rows]


class ShortlistedModel:
    """Model restricted to the vocabulary of a batch of sentences: `ids` (u,), ascending, in new
    numbers. Special tokens are included and keep theirs."""

    def __init__(self, model: StepModel, lists: Sequence[Ints]) -> None:
        """lists: (…,) target ids allowed for each sentence, ascending."""
        device = model.head.weight.device
        self.model = model
        every = np.unique(np.concatenate(lists))
        self.ids: list[int] = every.tolist()
        hidden = np.ones((len(lists), len(every)), dtype=bool)
        for row, allowed in zip(hidden, lists, strict=True):
            row[np.searchsorted(every, allowed)] = False
        self._hidden = torch.from_numpy(hidden).to(device)
        self._ids = torch.from_numpy(every).to(device)
        self._weight = model.head.weight[self._ids]
        self._bias = None if model.head.bias is None else model.head.bias[self._ids]

    def start(self, source: Padded) -> ShortlistedState:
        """Encode the sources that the lists belong to."""
        return ShortlistedState(
            self.model.start(source), torch.arange(len(self._hidden), device=self._ids.device)
        )

    def step(self, target: Padded, state: ShortlistedState) -> Tensor:
        """Logits (r, 1, u) of the next token after `target` (r, t), in the new numbering."""
        named = target.with_values(self._ids[target.values])
        last = self.model.advance(named, state.inner).values[:, -1:]
        logits = F.linear(last, self._weight, self._bias)
        return logits.masked_fill_(self._hidden[state.sentences][:, None], DEAD)
