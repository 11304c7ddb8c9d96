"""CTC against sums over all paths."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor

from transduce.decoding.options import DecodingOptions
from transduce.decoding.search import SearchRequest, search
from transduce.errors import DataError
from transduce.nn.stack_configs import TransformerConfig
from transduce.sequence import Padded
from transduce.speech import ctc
from transduce.speech.ctc import JointModel, PrefixState, TokenSpan, align, positions_needed
from transduce.speech.model import SpeechModel, build_speech
from transduce.speech.model_config import SpeechConfig
from transduce.text import BOS, EOS, PAD

LETTERS = (1, 4, 5)
"""Tokens of the small vocabulary that an output may have; 2 and 3 are BOS and EOS."""
VOCABULARY = 6
STACK = TransformerConfig(n_layers=1, n_heads=2, d_ff=16, norm_order="pre", dropout=0.0)


def random_log_probs(rows: int, t: int, seed: int = 0) -> Tensor:
    chance = torch.Generator().manual_seed(seed)
    return (2 * torch.randn(rows, t, VOCABULARY, generator=chance).double()).log_softmax(-1)


def all_paths(log_probs: Tensor) -> dict[tuple[int, ...], dict[tuple[int, ...], float]]:
    """By output: every path that writes it, with its log-probability."""
    result: dict[tuple[int, ...], dict[tuple[int, ...], float]] = {}
    rows = log_probs.tolist()
    for path in itertools.product(range(VOCABULARY), repeat=len(rows)):
        total = sum(row[token] for row, token in zip(rows, path, strict=True))
        result.setdefault(tuple(ctc.collapse(path)), {})[path] = total
    return result


def log_sum(values: list[float]) -> float:
    return math.log(sum(map(math.exp, values))) if values else -math.inf


def test_collapse_merges_before_it_removes() -> None:
    assert ctc.collapse([0, 4, 4, 0, 4, 5, 5, 0]) == [4, 4, 5]
    assert ctc.collapse([0, 0]) == ctc.collapse([]) == []


def test_greedy_reads_real_positions_only() -> None:
    log_probs = random_log_probs(2, 5)
    real = torch.arange(5) < torch.tensor([[5], [2]])
    result = ctc.greedy(Padded(log_probs, real, "right"))
    best = log_probs.argmax(-1).tolist()
    assert result == [ctc.collapse(best[0]), ctc.collapse(best[1][:2])]


@pytest.mark.parametrize("hypothesis", [[], [4], [4, 4], [5, 4, 1], [1, 1, 1], [4, 5, 4, 5, 4]])
def test_prefix_scores_equal_sums_over_all_paths(hypothesis: list[int]) -> None:
    """For rows of 5 and of 3 positions, the second one padded."""
    log_probs, lengths = random_log_probs(2, 5), (5, 3)
    real = torch.arange(5) < torch.tensor(lengths)[:, None]
    state = PrefixState(Padded(log_probs, real, "right"))
    for token in hypothesis:
        state.extend(torch.tensor([token, token]))
    for i, length in enumerate(lengths):
        outputs = {
            output: log_sum(list(paths.values()))
            for output, paths in all_paths(log_probs[i, :length]).items()
        }

        def beginning(*tokens: int, outputs: dict[tuple[int, ...], float] = outputs) -> float:
            here = [value for output, value in outputs.items() if output[: len(tokens)] == tokens]
            return log_sum(here)

        def agree(found: Tensor, wanted: float) -> None:
            if wanted == -math.inf:
                assert found.item() < -1e8
            else:
                assert found.item() == pytest.approx(wanted, abs=1e-9)

        agree(state.prefix[i], beginning(*hypothesis))
        agree(state.log_prefix[i, EOS], outputs.get(tuple(hypothesis), -math.inf))
        for token in LETTERS:
            agree(state.log_prefix[i, token], beginning(*hypothesis, token))


def test_gains_of_a_whole_output_add_up_to_its_probability() -> None:
    log_probs = random_log_probs(1, 6, seed=1)
    state = PrefixState(Padded.unpadded(log_probs))
    total = 0.0
    for token in (5, 5, 1):
        total += (state.log_prefix[0, token] - state.prefix[0]).item()
        state.extend(torch.tensor([token]))
    total += (state.log_prefix[0, EOS] - state.prefix[0]).item()
    given = torch.tensor([[5, 5, 1]])
    lengths = torch.tensor([6]), torch.tensor([3])
    loss = torch.nn.functional.ctc_loss(log_probs.transpose(0, 1), given, *lengths, PAD, "sum")
    assert total == pytest.approx(-loss.item(), abs=1e-9)


def test_a_long_recording_stays_finite() -> None:
    log_probs = (30 * torch.randn(1, 2000, VOCABULARY)).log_softmax(-1)
    state = PrefixState(Padded.unpadded(log_probs))
    for token in (4, 5, 5, 4):
        state.extend(torch.tensor([token]))
        assert state.log_prefix[0, list(LETTERS)].isfinite().all()
        assert (state.log_prefix[0, list(LETTERS)] <= state.prefix[0] + 1e-6).all()


@pytest.mark.parametrize("tokens", [[4], [4, 4], [4, 5], [5, 1, 5], [1, 1, 4]])
def test_alignment_is_the_best_of_all_paths(tokens: list[int]) -> None:
    log_probs = random_log_probs(1, 6, seed=len(tokens))[0]
    paths = all_paths(log_probs)[tuple(tokens)]
    best = max(paths, key=lambda path: paths[path])
    result = align(log_probs, tokens)
    expected, at = [], 0
    for token, group in itertools.groupby(best):
        n = len(list(group))
        if token != PAD:
            mean = log_probs[at : at + n, token].mean().item()
            expected.append(TokenSpan(token, at, at + n, pytest.approx(mean)))
        at += n
    assert result == expected


def test_alignment_of_many_tokens() -> None:
    """More states of the path than an 8-bit number counts."""
    tokens = [4 + i % 2 for i in range(200)]
    result = align(random_log_probs(1, 450)[0], tokens)
    assert [span.token for span in result] == tokens
    assert all(a.end <= b.start for a, b in itertools.pairwise(result))


def test_alignment_of_nothing_is_nothing() -> None:
    assert align(random_log_probs(1, 3)[0], []) == []
    assert align(random_log_probs(1, 0)[0], []) == []


def test_alignment_needs_positions() -> None:
    assert [positions_needed(tokens) for tokens in ([], [4], [4, 4, 5, 5])] == [0, 1, 6]
    with pytest.raises(DataError, match="4 tokens need 6 positions; there are 5"):
        align(random_log_probs(1, 5)[0], [4, 4, 5, 5])


@pytest.fixture
def model() -> SpeechModel:
    torch.manual_seed(5)
    config = SpeechConfig(d_model=8, encoder=STACK, decoder=STACK)
    return build_speech(config, 4, VOCABULARY).double().eval()


def found_by(model: SpeechModel, frames: Padded, weight: float) -> list[tuple[list[int], float]]:
    options = DecodingOptions(beam_size=40, length_penalty="none", stop="exact")
    joint = JointModel(model, weight)
    state = joint.start(frames)
    hooks, n = joint.hooks([]), len(frames.values)
    prefix = Padded.unpadded(torch.full((n, 1), BOS))
    limits, forbidden = torch.full((n,), 3), (BOS, PAD)
    result = search(
        SearchRequest(joint.step, state, prefix, limits, EOS, forbidden, options, hooks=hooks)
    )
    return [(one.tokens, one.score) for (one, *_) in result]


@pytest.mark.parametrize("weight", [0.3, 2.0])
def test_joint_search_finds_the_best_output(model: SpeechModel, weight: float) -> None:
    """Wide enough to keep every hypothesis of three tokens, against both scores of all of them."""
    torch.manual_seed(6)
    real = torch.arange(16) < torch.tensor([[16], [9]])
    frames = Padded(torch.randn(2, 16, 4).double(), real, "right")
    result = found_by(model, frames, weight)
    assert all(one.ctc_log_probs(one.encode(frames)).values.shape[1] == 4 for one in (model,))
    for i, (tokens, score) in enumerate(result):
        alone = Padded.unpadded(frames.values[i : i + 1, real[i]])
        memory = model.encode(alone)
        log_probs = model.ctc_log_probs(memory)
        best = {}
        for n in range(4):
            for output in itertools.product(LETTERS, repeat=n):
                target = Padded.unpadded(torch.tensor([[BOS, *output]]))
                steps = model.step(target, model.decoder.start(memory)).log_softmax(-1)[0]
                expected = torch.tensor([*output, EOS])
                decoder = steps.gather(1, expected[:, None]).sum().item()
                paths = all_paths(log_probs.values[0].detach()).get(output, {})
                best[output] = decoder + weight * log_sum(list(paths.values()))
        top = max(best, key=lambda output: best[output])
        assert tuple(tokens) == top
        assert score == pytest.approx(best[top], abs=1e-5)


def test_equal_neighbours_keep_a_blank_between_them() -> None:
    """Even where every frame is that of the token: without a blank, two of it are one."""
    probabilities = torch.full((4, 5), 0.01)
    probabilities[:, 3] = 0.96
    spans = align(probabilities.log(), [3, 3])
    assert len(spans) == 2 and spans[0].end < spans[1].start
    assert (spans[0].start, spans[1].end) == (0, 4)
    path = [PAD] * 4
    for span in spans:
        path[span.start : span.end] = [span.token] * (span.end - span.start)
    assert ctc.collapse(path) == [3, 3]
