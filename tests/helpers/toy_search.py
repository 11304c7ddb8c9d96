"""Toy models whose every logit is a table's, and searches over them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from transduce.decoding.constraints import NO_HOOKS, SearchHooks
from transduce.decoding.hypotheses import Hypothesis
from transduce.decoding.options import DecodingOptions
from transduce.decoding.search import SearchRequest, search
from transduce.sequence import Padded
from transduce.settings.sections import parse

PAD, BOS, EOS = 0, 1, 2
SIZE = 6  # so that 3, 4, 5 are words
TokenIds = tuple[int, ...]


class ToyState:
    """Tokens read by each row, and the number of its sentence."""

    def __init__(self, sentences: Sequence[int]) -> None:
        self.sentences = torch.tensor(list(sentences))
        self.past: list[TokenIds] = [()] * len(sentences)
        self.selections = 0

    def select(self, rows: Tensor) -> None:
        self.selections += 1
        self.sentences = self.sentences[rows]
        self.past = [self.past[row] for row in rows.tolist()]


class ToyModel:
    """Logits by sentence, position and the token before; of sentence number i, table i % n."""

    def __init__(self, table: Tensor) -> None:
        self.table = table  # (n, positions, v, v)
        self.rows_seen: list[int] = []
        self.pasts: list[list[TokenIds]] = []

    def logits(self, sentence: int, past: TokenIds) -> Tensor:
        n, positions = self.table.shape[:2]
        return self.table[sentence % n, (len(past) - 1) % positions, past[-1]]

    def log_probs(self, sentence: int, past: TokenIds) -> list[float]:
        return self.logits(sentence, past).log_softmax(0).tolist()

    def step(self, target: Padded, state: ToyState) -> Tensor:
        assert target.values.shape[0] == len(state.past) == len(state.sentences)
        self.rows_seen.append(len(state.past))
        outputs = []
        for i in range(target.values.shape[1]):
            added = target.values[:, i].tolist()
            state.past = [(*past, token) for past, token in zip(state.past, added, strict=True)]
            rows = zip(state.sentences.tolist(), state.past, strict=True)
            outputs.append(torch.stack([self.logits(*row) for row in rows]))
        self.pasts.append(state.past)
        return torch.stack(outputs, 1)


def toy(seed: int = 0, n: int = 3, spread: float = 1.5) -> ToyModel:
    generator = torch.Generator().manual_seed(seed)
    table = torch.randn(n, 4, SIZE, SIZE, generator=generator, dtype=torch.float64)
    return ToyModel(table * spread)


def decode(
    model: ToyModel,
    sentences: Sequence[int],
    max_length: int | Sequence[int] = 3,
    streams: Sequence[int] | None = None,
    prefix: TokenIds = (BOS,),
    state: ToyState | None = None,
    ended: Callable[[int, list[int]], bool] | None = None,
    hooks: SearchHooks = NO_HOOKS,
    cancelled: Callable[[int], bool] | None = None,
    **options: Any,
) -> list[list[Hypothesis]]:
    limits = [max_length] * len(sentences) if isinstance(max_length, int) else max_length
    ids = torch.tensor([prefix] * len(sentences), dtype=torch.long)
    return search(
        SearchRequest(
            model.step,
            state or ToyState(sentences),
            Padded.unpadded(ids.view(len(sentences), len(prefix))),
            torch.tensor(limits, dtype=torch.long),
            EOS,
            [BOS, PAD],
            parse(DecodingOptions, options),
            streams,
            ended,
            hooks,
            cancelled,
        )
    )


def greedy(model: ToyModel, sentence: int, max_length: int, past: TokenIds = (BOS,)) -> list[int]:
    """The likeliest token each time, as slowly and plainly as can be."""
    words: list[int] = []
    while len(words) < max_length:
        scores = model.log_probs(sentence, past)
        token = max(range(2, SIZE), key=lambda token: scores[token])  # the first of equals
        if token == EOS:
            break
        words.append(token)
        past = (*past, token)
    return words
