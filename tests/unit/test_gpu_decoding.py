"""Searches on a device where each look at a value waits: the same outputs, with few looks.

Steps of a block read no value, keep every shape, and can be recorded and replayed.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode

from helpers.random_translator import WORDS, random_translator
from transduce.decoding import search, strategies, window
from transduce.decoding import strategies as filters
from transduce.decoding.hypotheses import Hypothesis
from transduce.decoding.options import DecodingOptions
from transduce.decoding.search import SearchRequest
from transduce.decoding.window import Block, WindowedState
from transduce.models.decoder_only import DecoderOnlyConfig, build_decoder_only
from transduce.nn import state
from transduce.nn.stack_configs import TransformerConfig
from transduce.sequence import Padded
from transduce.settings.sections import parse
from transduce.tasks.translation.text_translator import Translation

HAS_GPU = torch.cuda.is_available()  # else one case of each: recording is slow on a CPU
LINES = [" ".join(WORDS[i % 36] for i in range(j, j + 3 + j % 5)) for j in range(9)]
OPTIONS: list[dict[str, Any]] = [
    {"beam_size": 1},
    {"beam_size": 4},
    {"beam_size": 5, "n_best": 5, "length_penalty": "gnmt"},
    {"beam_size": 4, "beam_groups": 2},
    {"beam_size": 4, "repetition_penalty": 1.3, "free_end": True},
    {"beam_size": 4, "no_repeat_ngram": 1},
    {"beam_size": 2, "no_repeat_ngram": 3, "min_length": 12},
    {"beam_size": 4, "stop": "present"},
    {"method": "sample", "beam_size": 1, "n_best": 3, "top_k": 5},
    {"method": "sample", "beam_size": 1, "top_p": 0.7, "min_length": 3},
]


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
    """Tensors as of a GPU, in short blocks."""
    for module in (filters, search, strategies, strategies, state):
        monkeypatch.setattr(module, "is_at_hand", lambda x: False)
    monkeypatch.setattr(search, "BLOCK", 16)
    monkeypatch.setattr(window, "READ", 5)
    yield


class Recorded:
    """Stands for `RepeatedWork`: the second time is recorded, and replayed without Python."""

    def __init__(self, work: Callable[[], None], *more: Any, **settings: Any) -> None:
        self.work = work
        self.times = 0

    def launch(self) -> None:
        self.times += 1
        if self.times == 2:
            self.work = make_fx(lambda: (self.work(), torch.zeros(()))[1])()  # type: ignore[assignment]
        else:
            self.work()


def assert_same(ours: list[Translation], theirs: list[Translation]) -> None:
    for one, other in zip(ours, theirs, strict=True):
        assert [c.text for c in one.candidates] == [c.text for c in other.candidates]
        for a, b in zip(one.candidates, other.candidates, strict=True):
            assert a.score == pytest.approx(b.score, rel=1e-4)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_outputs_are_the_same(options: dict[str, Any], request: pytest.FixtureRequest) -> None:
    translator = random_translator(decoding=options)
    near = translator.translate_lines(LINES)
    request.getfixturevalue("far")
    assert_same(translator.translate_lines(LINES), near)


@pytest.mark.parametrize("positions", ["rotary", "alibi", "relative", "learned"])
def test_outputs_are_the_same_with_all_positions(
    positions: str, request: pytest.FixtureRequest
) -> None:
    translator = random_translator(decoder={"positions": positions}, decoding={"beam_size": 4})
    near = translator.translate_lines(LINES)
    request.getfixturevalue("far")
    assert_same(translator.translate_lines(LINES), near)


@pytest.mark.parametrize("options", OPTIONS if HAS_GPU else OPTIONS[-1:], ids=str)
def test_a_recorded_step_replays_to_the_same_outputs(
    options: dict[str, Any], far: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    translator = random_translator(decoding=options)
    launched = translator.translate_lines(LINES)
    monkeypatch.setattr(window, "RepeatedWork", Recorded)
    assert_same(translator.translate_lines(LINES), launched)


def continued(**options: Any) -> list[list[Hypothesis]]:
    """Continuations of prompts, one of them near the end of the window."""
    torch.manual_seed(1)
    decoder = TransformerConfig(n_layers=2, n_heads=4, d_ff=64, positions="rotary", dropout=0.0)
    model = build_decoder_only(DecoderOnlyConfig(d_model=32, decoder=decoder), 40).eval().double()
    prompts = [[2, 5, 6, 7, 8, 9, 10, 11], [2, 5, 9], [2]]
    request = SearchRequest(
        lambda target, state: state.step(target),
        WindowedState(model, 36),
        Padded.left_padded(prompts, 0),
        torch.tensor([30, 45, 40]),
        3,
        (0, 1, 2),
        parse(DecodingOptions, options),
        ends_at_limit=True,
    )
    return search.search(request)


@pytest.mark.parametrize(
    "options", [{"beam_size": 3, "n_best": 3}, {"method": "sample", "beam_size": 1, "n_best": 2}]
)
def test_continuations_are_the_same(
    options: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    near = continued(**options)
    request.getfixturevalue("far")
    far = continued(**options)
    assert [[h.tokens for h in row] for row in far] == [[h.tokens for h in row] for row in near]
    assert len(near[2][0].tokens) == 40, "beyond the window"


def test_a_block_is_read_once_in_some_steps(far: None, monkeypatch: pytest.MonkeyPatch) -> None:
    translator = random_translator(decoding={"beam_size": 4})
    looks, reads, steps = Looks(), [], []
    once, cpu = Block._once, Tensor.cpu

    def counted(self: Block) -> None:
        steps.append(True)
        before = len(reads)
        with looks:
            once(self)
        assert len(reads) == before

    monkeypatch.setattr(Block, "_once", counted)
    monkeypatch.setattr(Tensor, "cpu", lambda x: (reads.append(x.shape), cpu(x))[1])
    translator.translate_lines(LINES)
    assert len(steps) > 20
    assert not looks.names, "no value is looked at within a step"
    outcomes = [shape for shape in reads if len(shape) == 4]  # (steps, parts, l, c)
    assert sum(shape[0] for shape in outcomes) == len(steps)
    assert len(outcomes) < len(steps) / 3
    assert len(reads) - len(outcomes) <= 2 + 4 * len(steps) / search.BLOCK, "between blocks"


def test_steps_of_a_block_have_equal_shapes(far: None, monkeypatch: pytest.MonkeyPatch) -> None:
    translator = random_translator(decoding={"beam_size": 4})
    shapes: dict[Block, list[Any]] = {}
    once, attend = Block._once, F.scaled_dot_product_attention
    called: list[Any] = []

    def recorded(*inputs: Tensor, **settings: Any) -> Tensor:
        called.append([x.shape for x in (*inputs, settings["attn_mask"]) if x is not None])
        return attend(*inputs, **settings)

    def counted(self: Block) -> None:
        called.clear()
        once(self)
        shapes.setdefault(self, []).append([*called])

    monkeypatch.setattr(Block, "_once", counted)
    monkeypatch.setattr(F, "scaled_dot_product_attention", recorded)
    translator.translate_lines(LINES)
    assert len(shapes) > 1
    for steps in shapes.values():
        assert steps[0] and all(step == steps[0] for step in steps)
    assert max(map(len, shapes.values())) == 16


class Compiled(Recorded):
    """Compiled whole from the second time on."""

    def launch(self) -> None:
        self.times += 1
        if self.times == 2:
            torch.compiler.reset()
            self.work = torch.compile(self.work, backend="aot_eager", fullgraph=True)
        self.work()


@pytest.mark.filterwarnings("ignore:Dynamo detected a call to a `functools.lru_cache`")
@pytest.mark.parametrize("options", OPTIONS if HAS_GPU else OPTIONS[1:2], ids=str)
def test_a_step_is_one_graph(
    options: dict[str, Any], far: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "BLOCK", 64)
    translator = random_translator(decoding=options)
    launched = translator.translate_lines(LINES[:3])
    monkeypatch.setattr(window, "RepeatedWork", Compiled)
    assert_same(translator.translate_lines(LINES[:3]), launched)


def test_ties_go_to_the_lower_index_without_a_look(far: None) -> None:
    torch.manual_seed(1)
    values = torch.randint(0, 5, (6, 4000)).float()
    for count in (1, 4, 9):
        top, index = strategies.topk(values, count)
        expected = values.sort(dim=1, descending=True, stable=True)
        assert torch.equal(top, expected.values[:, :count])
        assert torch.equal(index, expected.indices[:, :count])
    with Looks() as looks:
        strategies.topk(values, 4)
    assert not looks.names
