"""The search of Python over models of texts, also restricted to the shortlists of their
sentences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from transduce.decoding.backend import (
    NO_AUXILIARY,
    AuxiliaryModels,
    NativeSearch,
    Piece,
    StepSearch,
)
from transduce.decoding.constraints import SearchHooks
from transduce.decoding.hypotheses import DEAD
from transduce.decoding.options import DecodingOptions, check_shortlist
from transduce.decoding.search import SearchRequest
from transduce.decoding.shortlist import Shortlist
from transduce.decoding.step_model import NextTokenModel, StepModel
from transduce.decoding.window import WindowedState, kept_tokens
from transduce.engine.model import NativeModel
from transduce.errors import RunError
from transduce.nn.state import State
from transduce.sequence import Padded
from transduce.text import BOS, EOS, PAD


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

    def __init__(self, model: StepModel, lists: Sequence[Sequence[int]]) -> None:
        """lists: target ids allowed for each sentence, ascending."""
        device = model.head.weight.device
        self.model = model
        every = np.unique(np.concatenate(lists).astype(np.int64))
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


@dataclass(eq=False)
class EncoderDecoderSearch(StepSearch):
    """Search over an encoder-decoder, alone or with auxiliary models.

    batch: sources of pieces -> input of the model.  max_target_length: positions of the decoder;
    None for no limit.  shortlist: for `options.shortlist`.
    """

    model: StepModel
    batch: Callable[[list[Any]], Any]
    max_target_length: int | None = None
    auxiliary: AuxiliaryModels = NO_AUXILIARY
    shortlist: Shortlist | None = None

    def native(self, model: NativeModel) -> NativeSearch:
        """The engine's search over a model of the same weights, with this search beside it."""
        beside = self.over(model)
        return NativeSearch(
            model, lambda feature: beside, torch.get_num_threads, shortlist=lambda: self.shortlist
        )

    def over(self, model: StepModel) -> EncoderDecoderSearch:
        """The same search over another model of the same vocabularies."""
        return replace(self, model=model)

    def check(self, options: DecodingOptions) -> None:
        """Raises SettingError or RunError for options that this search cannot follow."""
        self.auxiliary.check(options)
        check_shortlist(options, self.shortlist)
        if options.coverage_penalty and not self.model.has_cross_attention:
            raise RunError(
                "coverage_penalty needs cross-attention, but this model's decoder has a fixed "
                "context; remove it"
            )

    def request(self, pieces: Sequence[Piece], options: DecodingOptions) -> SearchRequest[Any]:
        """The search for the outputs of some pieces, ready to run."""
        model = self.model.eval()
        device = model.head.weight.device
        constraints = [piece.constraints for piece in pieces]
        scorer, hooks = self.auxiliary.scorer(
            model, self.max_target_length, EOS, options, constraints
        )
        sources = [piece.source for piece in pieces]
        vocabulary = None
        if options.shortlist:
            assert self.shortlist is not None, "checked"
            scorer = ShortlistedModel(model, [self.shortlist.of(ids[:-1]) for ids in sources])
            vocabulary = scorer.ids
        with torch.inference_mode():
            state = scorer.start(self.batch(sources).to(device))
        return SearchRequest(
            scorer.step,
            state,
            Padded.left_padded([piece.prompt for piece in pieces], PAD).to(device),
            torch.tensor([piece.limit for piece in pieces]),
            EOS,
            (BOS, PAD),
            options,
            [piece.stream for piece in pieces],
            hooks=hooks,
            vocabulary=vocabulary,
        )


@dataclass(eq=False)
class DecoderSearch(StepSearch):
    """Search for continuations of prompts by a decoder alone.

    window: context in positions, without earlier tokens.  forbidden: ids that are never generated.
    """

    model: NextTokenModel
    window: int
    forbidden: tuple[int, ...]

    def native(self, model: NativeModel) -> NativeSearch:
        """The engine's search over a model of the same weights, with this search beside it."""
        beside = replace(self, model=model)
        tokens = kept_tokens(self.window)
        return NativeSearch(
            model,
            lambda feature: beside,
            torch.get_num_threads,
            self.forbidden,
            self.window,
            tokens,
        )

    def request(self, pieces: Sequence[Piece], options: DecodingOptions) -> SearchRequest[Any]:
        """The search for the continuations of some prompts, ready to run."""
        model = self.model.eval()

        def ended(i: int, ids: list[int]) -> bool:
            stopped = pieces[i].stopped
            return stopped is not None and stopped(ids)

        return SearchRequest(
            lambda target, state: state.step(target),
            WindowedState(model, self.window),
            Padded.left_padded([piece.prompt for piece in pieces], PAD).to(
                model.head.weight.device
            ),
            torch.tensor([piece.limit for piece in pieces]),
            EOS,
            self.forbidden,
            options,
            [piece.stream for piece in pieces],
            ended if any(piece.stopped for piece in pieces) else None,
            SearchHooks([piece.constraints for piece in pieces]),
            ends_at_limit=True,
        )


def padded_ids(sources: list[list[int]]) -> Padded:
    """Batch of texts, given by their ids with the end."""
    return Padded.from_rows(sources, PAD)
