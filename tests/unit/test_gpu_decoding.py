"""Searches where each look at a value waits for a GPU: the same outputs, with few looks."""

from __future__ import annotations

import collections
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from helpers.random_translator import WORDS, random_translator
from transduce.decoding import search, topk
from transduce.nn import state

LINES = [" ".join(WORDS[i % 36] for i in range(j, j + 3 + j % 5)) for j in range(9)]


class Looks(TorchDispatchMode):
    """Counts looks at values, each of which waits for a GPU; some are of what was copied."""

    NAMES = ("_local_scalar_dense", "nonzero", "equal", "unique_consecutive")

    def __init__(self) -> None:
        super().__init__()
        self.names: collections.Counter[str] = collections.Counter()

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        name = function.overloadpacket.__name__
        if name in self.NAMES:
            self.names[name] += 1
        return function(*args, **(kwargs or {}))


@pytest.fixture
def far(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Tensors as of a GPU."""
    for module in (search, topk, state):
        monkeypatch.setattr(module, "is_at_hand", lambda x: False)
    yield


@pytest.mark.parametrize("beam", [1, 4])
def test_outputs_are_the_same(beam: int, request: pytest.FixtureRequest) -> None:
    translator = random_translator(decoding={"beam_size": beam})
    near = translator.translate_lines(LINES)
    request.getfixturevalue("far")
    for ours, theirs in zip(translator.translate_lines(LINES), near, strict=True):
        assert ours.text == theirs.text
        assert ours.score == pytest.approx(theirs.score, rel=1e-5)


def test_few_values_are_looked_at(far: None, monkeypatch: pytest.MonkeyPatch) -> None:
    translator = random_translator(decoding={"beam_size": 4})
    steps = []
    step = translator.model.advance

    def counted(*inputs: Any) -> Any:
        steps.append(True)
        return step(*inputs)

    monkeypatch.setattr(translator.model, "advance", counted)
    reads = []
    for name in ("tolist", "cpu"):
        plain = getattr(Tensor, name)
        monkeypatch.setattr(
            Tensor, name, lambda x, plain=plain, name=name: (reads.append(name), plain(x))[1]
        )
    with Looks() as looks:
        translator.translate_lines(LINES)
    waits = len(reads) + sum(looks.names[name] for name in ("_local_scalar_dense", "nonzero"))
    assert len(steps) > 10
    assert waits <= 3 * len(steps), "ten a step, where ties and groups are looked for"


def test_ties_go_to_the_lower_index_without_a_look(far: None) -> None:
    torch.manual_seed(1)
    values = torch.randint(0, 5, (6, 4000)).float()
    for count in (1, 4, 9):
        top, index = topk.topk(values, count)
        expected = values.sort(dim=1, descending=True, stable=True)
        assert torch.equal(top, expected.values[:, :count])
        assert torch.equal(index, expected.indices[:, :count])
    with Looks() as looks:
        topk.topk(values, 4)
    assert not looks.names
